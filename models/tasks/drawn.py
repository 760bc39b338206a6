"""What the tasks share whose sequences are functions of one row of uniforms each.

Every sequence takes the same number of uniforms from the generator, row after row, and nothing
else: so batches may be split in any way, and a sequence does not depend on its neighbours.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..facts import Facts
from .task import Batch, TaskKind


@dataclass(frozen=True)
class DrawnTask(Facts, ABC):
    """A task that turns one row of uniforms on ``[0, 1)`` into one sequence.

    Attributes:
        length_note: What a length counts, for the message that refuses one.
    """

    name: ClassVar[str]
    kind: ClassVar[TaskKind]
    needs_positions: ClassVar[bool]
    length_note: ClassVar[str]

    @property
    @abstractmethod
    def d_vocab(self) -> int:
        """Number of input tokens."""

    @property
    @abstractmethod
    def d_vocab_out(self) -> int:
        """Number of tokens that can follow."""

    @property
    def min_length(self) -> int:
        """1, unless the task says otherwise."""
        return 1

    @property
    def max_length(self) -> int | None:
        """``None``, no end, unless the task says otherwise."""
        return None

    def check_length(self, length: int) -> None:
        """Refuse a length at which the task is not defined.

        Raises:
            ValueError: If ``length`` is no whole number, less than ``min_length`` or more than
                ``max_length``.
        """
        if isinstance(length, bool) or not isinstance(length, int | np.integer):
            raise ValueError(f"{self.name}: a length must be a whole number; got {length!r}")
        if length < self.min_length or (self.max_length is not None and length > self.max_length):
            upper = "" if self.max_length is None else f" and at most {self.max_length}"
            raise ValueError(
                f"{self.name} is defined for lengths of at least {self.min_length}{upper} "
                f"({self.length_note}); got {length}"
            )

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> Batch:
        """Draw sequences; see :class:`~resharpen.models.tasks.Batch` for the shapes.

        Raises:
            ValueError: If ``batch`` is no whole number or less than 1, or the length is not
                defined.
        """
        self.check_length(length)
        if isinstance(batch, bool) or not isinstance(batch, int | np.integer):
            raise ValueError(f"{self.name}: batch must be a whole number; got {batch!r}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1; got {batch}")
        widths = self._widths(length)
        uniforms = generator.random((batch, sum(widths)))
        return self._build(length, *np.split(uniforms, np.cumsum(widths)[:-1], axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters."""
        return {"name": self.name, **asdict(self)}

    @abstractmethod
    def _widths(self, length: int) -> tuple[int, ...]:
        """How many uniforms each part of a sequence takes."""

    @abstractmethod
    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        """Sequences from the parts ``[batch, width]``, in the order of :meth:`_widths`."""


def check_whole(task: str, name: str, value: int, least: int) -> None:
    """Refuse a parameter that is not a whole number of at least ``least``.

    Raises:
        ValueError: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{task}: {name} must be a whole number, {least} or more; got {value!r}")


def whole_numbers(
    uniforms: Float[np.ndarray, "*row"], below: int | np.ndarray
) -> Int[np.ndarray, "*row"]:
    """Uniform whole numbers ``0 .. below - 1``, one a uniform."""
    return np.floor(uniforms * below).astype(np.int64)


def chosen_places(
    uniforms: Float[np.ndarray, "batch place"], count: int | np.ndarray
) -> np.ndarray:
    """Mark ``count`` places of each row, every subset equally likely; bool, the same shape."""
    order = np.argsort(uniforms, axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable") < count


def choices(
    weights: Float[np.ndarray, "*row option"], uniforms: Float[np.ndarray, "*row"]
) -> Int[np.ndarray, "*row"]:
    """One option a row, with probability proportional to its weight."""
    cumulative = np.cumsum(weights, axis=-1, dtype=np.float64)
    wanted = uniforms[..., None] * cumulative[..., -1:]
    return (cumulative <= wanted).sum(-1)


def next_draws(
    targets: Float[Tensor, "batch pos d_vocab_out"], uniforms: Float[np.ndarray, "batch pos"]
) -> Int[Tensor, "batch pos"]:
    """One draw from the target of every position."""
    return torch.from_numpy(choices(targets.numpy(), uniforms))


def one_hot(index: Int[Tensor, "*row"], size: int) -> Float[Tensor, "*row size"]:
    """All mass on ``index``, float32; a row of NaN where it is outside ``0 .. size - 1``."""
    there = (index[..., None] == torch.arange(size)).float()
    return there / there.sum(-1, keepdim=True)
