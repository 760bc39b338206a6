"""What every probe offers: seeded sequences of one length, relevant keys and labels."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..facts import Facts

NO_KEY = -1
"""In ``relevant_key``: this query needs no particular key."""

NO_LABEL = -100
"""In ``labels``: what follows this position is not scored (PyTorch's own convention)."""


@dataclass(frozen=True, repr=False)
class ProbeBatch(Facts):
    """Sequences of one length.

    Attributes:
        tokens: Input ``[batch, pos]``, int64; the beginning-of-sequence token counts as a position.
        relevant_key: For each query the index of the key it needs, or :data:`NO_KEY`;
            ``[batch, pos]``, int64.
        labels: The right next token after each position, or :data:`NO_LABEL`; ``[batch, pos]``,
            int64.
        length: Length that was asked for.
        attention_mask: True where there is a token, ``[batch, pos]``, or ``None``: no padding.
        documents: Number of each position's document, ``[batch, pos]``, int64, for several packed
            into one sequence, or ``None``.
    """

    tokens: Int[Tensor, "batch pos"]
    relevant_key: Int[Tensor, "batch pos"]
    labels: Int[Tensor, "batch pos"]
    length: int
    attention_mask: Bool[Tensor, "batch pos"] | None = None
    documents: Int[Tensor, "batch pos"] | None = None

    def __post_init__(self) -> None:
        """Check that every array has the tokens' shape and every relevant key exists.

        Raises:
            ValueError: If not.
        """
        for field in fields(self):
            array = getattr(self, field.name)
            if isinstance(array, Tensor) and array.shape != self.tokens.shape:
                raise ValueError(
                    f"{field.name} must have the tokens' shape {list(self.tokens.shape)}; got "
                    f"{list(array.shape)}"
                )
        if self.tokens.ndim != 2:
            raise ValueError(f"tokens must be [batch, pos]; got {list(self.tokens.shape)}")
        low, high = NO_KEY, self.tokens.shape[1]
        if bool(((self.relevant_key < low) | (self.relevant_key >= high)).any()):
            raise ValueError(f"a relevant key must be an index below {high}, or {NO_KEY} for none")


@runtime_checkable
class Probe(Protocol):
    """A family of sequences, indexed by length.

    ``sample`` draws each sequence from the next numbers of the generator, row after row, so that
    one batch of 16 and two of 8 from the same generator hold the same sequences. ``nested`` says
    whether the first positions of a long sequence are distributed as a short sequence: then one
    pass of a causal model over the longest length measures every shorter one.
    """

    name: ClassVar[str]
    nested: ClassVar[bool]

    def check_length(self, length: int) -> None:
        """Refuse a length at which the probe is not defined (``ValueError``)."""
        ...

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> ProbeBatch:
        """Draw ``batch`` sequences of ``length`` positions."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters as plain values."""
        ...


def check_batch(batch: int) -> None:
    """Refuse an empty batch.

    Raises:
        ValueError: If ``batch`` is less than 1.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1; got {batch}")


def make_batch(
    body: np.ndarray,
    relevant: np.ndarray,
    labels: np.ndarray,
    length: int,
    bos: int | None,
) -> ProbeBatch:
    """Put the beginning-of-sequence token, if any, in front and shift the relevant keys.

    ``body``, ``relevant`` (indices within the body, or ``NO_KEY``) and ``labels`` are
    ``[batch, body]`` int64.
    """
    if bos is not None:
        column = (len(body), 1)
        relevant = np.where(relevant == NO_KEY, NO_KEY, relevant + 1)
        body = np.concatenate([np.full(column, bos), body], axis=1)
        relevant = np.concatenate([np.full(column, NO_KEY), relevant], axis=1)
        labels = np.concatenate([np.full(column, NO_LABEL), labels], axis=1)
    tokens, keys, following = (
        torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
        for array in (body, relevant, labels)
    )
    return ProbeBatch(tokens, keys, following, length)
