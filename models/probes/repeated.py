"""Repeated random tokens: what stood after this token the last time?

A block of ``p`` random tokens ``b_0 ... b_{p-1}`` is followed by the same block. In the second copy
the next token is certain, and an induction head finds it one step after the previous occurrence of
the query's token (Olsson et al., *In-context Learning and Induction Heads*, arXiv 2209.11895).

With positions counted from the start of the block, and ``p = ceil(body / 2)`` for a body of
``length`` positions less the beginning-of-sequence token:

    token i = b_{i mod p};  for i >= p: relevant key i - p + 1, label b_{(i + 1) mod p}.

Queries of the first copy need no key and are not scored. Worked example, body 6: ``7 2 5 7 2 5``;
query 3 (the second ``7``) needs key 1 and is followed by ``2``; query 5 needs key 3, ``7``.

The tokens of a block are distinct, so that exactly one key answers at every length: with repeats
the ambiguity would grow with the length and look like dispersion. So the block may not be longer
than the vocabulary, unless ``replacement`` allows repeats.

Degenerate lengths: a body below 4 is refused (a block of one token is a constant sequence).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..facts import Facts
from .batch import NO_KEY, NO_LABEL, ProbeBatch, check_batch, make_batch
from .vocabulary import Vocabulary, draw_distinct


@dataclass(frozen=True)
class Repeated(Facts):
    """The probe of repeated random tokens.

    Attributes:
        d_vocab: Number of token ids of the model.
        avoid: Ids that are never drawn (padding, end of sequence).
        bos: Id that opens every sequence, or ``None``.
        replacement: Whether a token may occur twice in a block.
    """

    name: ClassVar[str] = "repeated"
    nested: ClassVar[bool] = False
    d_vocab: int
    avoid: tuple[int, ...] = ()
    bos: int | None = None
    replacement: bool = False

    def __post_init__(self) -> None:
        """Check the vocabulary (``ValueError``)."""
        _ = self.vocabulary

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids that may be drawn."""
        return Vocabulary(self.d_vocab, self.avoid, self.bos)

    def period(self, length: int) -> int:
        """Length ``p`` of the block that is repeated."""
        return (length - (self.bos is not None) + 1) // 2

    def check_length(self, length: int) -> None:
        """Refuse a length at which the probe is not defined.

        Raises:
            ValueError: If the body is shorter than 4 or the block needs more tokens than there are.
        """
        opening = int(self.bos is not None)
        if length - opening < 4:
            raise ValueError(
                f"repeated tokens need a length of at least {4 + opening}; got {length}"
            )
        n_ids = len(self.vocabulary.allowed)
        if not self.replacement and self.period(length) > n_ids:
            raise ValueError(
                f"repeated tokens of length {length} need {self.period(length)} distinct tokens, "
                f"but there are {n_ids}: ask for at most {2 * n_ids + opening}, or "
                "use the random probe (in Python also Repeated(..., replacement=True))"
            )

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> ProbeBatch:
        """Draw sequences; see the module for tokens, relevant keys and labels.

        Raises:
            ValueError: If ``batch`` is less than 1 or the length is not defined.
        """
        self.check_length(length)
        check_batch(batch)
        vocabulary, period = self.vocabulary, self.period(length)
        if self.replacement:
            block = vocabulary.draw(generator.random((batch, period)))
        else:
            n_ids = len(vocabulary.allowed)
            block = vocabulary.allowed[draw_distinct(generator, batch, n_ids, period)]
        index = np.arange(length - (self.bos is not None))
        again = np.broadcast_to(index >= period, (batch, len(index)))
        relevant = np.where(again, index - period + 1, NO_KEY)
        labels = np.where(again, block[:, (index + 1) % period], NO_LABEL)
        return make_batch(block[:, index % period], relevant, labels, length, self.bos)

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters."""
        return {
            "name": self.name,
            "d_vocab": self.d_vocab,
            "avoid": list(self.avoid),
            "bos": self.bos,
            "replacement": self.replacement,
        }
