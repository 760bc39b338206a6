"""Random tokens: independent and uniform, so that there is nothing to find.

No query needs a particular key and nothing is scored (the best loss is the logarithm of the number
of tokens, at every length). What a head does here it does by position or by habit: the baseline
against which the other probes are read.

Worked example: ``4 17 4 2 9``. Every length from 1 up is defined.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..facts import Facts
from .batch import NO_KEY, NO_LABEL, ProbeBatch, check_batch, make_batch
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class RandomTokens(Facts):
    """The probe of independent uniform tokens.

    Attributes:
        d_vocab: Number of token ids of the model.
        avoid: Ids that are never drawn (padding, end of sequence).
        bos: Id that opens every sequence, or ``None``.
    """

    name: ClassVar[str] = "random"
    nested: ClassVar[bool] = True
    d_vocab: int
    avoid: tuple[int, ...] = ()
    bos: int | None = None

    def __post_init__(self) -> None:
        """Check the vocabulary (``ValueError``)."""
        _ = self.vocabulary

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids that may be drawn."""
        return Vocabulary(self.d_vocab, self.avoid, self.bos)

    def check_length(self, length: int) -> None:
        """Refuse a length at which the probe is not defined.

        Raises:
            ValueError: If there is no position for a random token.
        """
        shortest = 1 + (self.bos is not None)
        if length < shortest:
            raise ValueError(f"random tokens need a length of at least {shortest}; got {length}")

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> ProbeBatch:
        """Draw sequences.

        Raises:
            ValueError: If ``batch`` is less than 1 or the length is not defined.
        """
        self.check_length(length)
        check_batch(batch)
        n_body = length - (self.bos is not None)
        body = self.vocabulary.draw(generator.random((batch, n_body)))
        nothing = np.full(body.shape, NO_KEY)
        return make_batch(body, nothing, np.full(body.shape, NO_LABEL), length, self.bos)

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters."""
        return {
            "name": self.name,
            "d_vocab": self.d_vocab,
            "avoid": list(self.avoid),
            "bos": self.bos,
        }
