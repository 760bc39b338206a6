"""What every task offers: seeded batches with exact next-token distributions."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..facts import Facts

TaskKind = Literal["aggregation", "needle", "mixed"]
"""Which dispersion a task suffers from (theory section 0): every key carries a share of the answer,
one key carries it, or both."""


@dataclass(frozen=True, repr=False)
class Batch(Facts):
    """Sequences of one length, what should follow at each position, and which keys matter.

    Attributes:
        tokens: Input, ``[batch, pos]``, int64. ``pos`` counts the beginning-of-sequence token.
        targets: Exact next-token distribution at every position, ``[batch, pos, d_vocab_out]``,
            float32, each row summing to one.
        next_tokens: One draw from ``targets`` at every position, ``[batch, pos]``, int64.
        relevant: Which keys carry what the query needs, bool, broadcastable to
            ``[batch, query, key]``. Visibility (the causal mask) is not applied here.
        length: Length in the task's own sense, without the beginning-of-sequence token.
        bos: Whether a beginning-of-sequence token opens every sequence; ``None`` where the task
            does not say (then one token more than ``length``, the same in all, is taken for one).
    """

    tokens: Int[Tensor, "batch pos"]
    targets: Float[Tensor, "batch pos d_vocab_out"]
    next_tokens: Int[Tensor, "batch pos"]
    relevant: Bool[Tensor, "#batch #query key"]
    length: int
    bos: bool | None = None


@runtime_checkable
class Task(Protocol):
    """A family of next-token distributions, indexed by length.

    ``sample`` draws each sequence from the next numbers of the generator, row after row, so that
    one batch of 256 and two of 128 from the same generator hold the same sequences.

    Attributes:
        name: What :data:`~resharpen.models.tasks.TASKS` calls it.
        kind: Which dispersion it suffers from.
        needs_positions: Whether the answer depends on the order of the tokens, so that a model
            without positions cannot give it.
    """

    name: ClassVar[str]
    kind: ClassVar[TaskKind]
    needs_positions: ClassVar[bool]

    @property
    def d_vocab(self) -> int:
        """Number of input tokens, the beginning-of-sequence token included."""
        ...

    @property
    def d_vocab_out(self) -> int:
        """Number of tokens that can follow."""
        ...

    @property
    def min_length(self) -> int:
        """Shortest length that is defined."""
        ...

    @property
    def max_length(self) -> int | None:
        """Longest length that is defined, or ``None`` where there is no end."""
        ...

    def check_length(self, length: int) -> None:
        """Refuse a length at which the task is not defined, with a ``ValueError``."""
        ...

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> Batch:
        """Draw ``batch`` sequences of the given length."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters as plain values, for :func:`task_from_dict`."""
        ...


def seeded_generator(seed: int, *key: int) -> np.random.Generator:
    """Return the random stream that belongs to a seed and a key, the same on every machine.

    Philox is counter-based: streams of different keys are independent, and nothing has to be
    carried over to resume (use the step number as the key).
    """
    if seed < 0 or any(part < 0 for part in key):
        raise ValueError(f"seed and key must be zero or more; got seed={seed}, key={key}")
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, *key))))
