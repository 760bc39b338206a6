"""Set Complement: which tokens have not been seen yet?

Zsámboki et al., *Post-Norm can Resharpen Attention* (arXiv 2510.08341); theory section 1. Over
the vocabulary ``{0, ..., v-1}``, after an input ``t`` of length ``s`` without repetitions, the next
token is uniform over what is missing:

    p*(t)_i = 0 if i is in t, else 1 / (v - s)

Worked example, ``v = 5``: after ``3, 0`` the target is ``(0, 1/3, 1/3, 0, 1/3)``; after
``3, 0, 4, 1`` it is ``(0, 0, 1, 0, 0)``.

Every token seen matters for the answer and each has a share of at most ``1/s`` of the attention:
the task is pure *aggregation*, which no temperature can sharpen (theory section 1.1).

Degenerate lengths: ``s = v - 1`` leaves one legal token; ``s = v`` leaves none and is refused, as
is everything longer. With ``replacement=True`` tokens repeat and the length has no end: each
sequence draws a set size ``m`` uniform in ``1..v-1``, a set of ``m`` tokens, and then ``length``
tokens from it with replacement, so that at least ``v - m >= 1`` tokens always remain legal.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from ..facts import Facts
from .task import Batch, TaskKind


@dataclass(frozen=True)
class SetComplement(Facts):
    """The Set Complement Task.

    Attributes:
        vocabulary: Number ``v`` of tokens, at least 2.
        bos: Whether a beginning-of-sequence token, id ``v``, opens every input. Its own target is
            uniform over all ``v`` tokens, and it is not a relevant key.
        replacement: Whether tokens may repeat.
    """

    name: ClassVar[str] = "set-complement"
    kind: ClassVar[TaskKind] = "aggregation"
    needs_positions: ClassVar[bool] = False
    vocabulary: int = 32
    bos: bool = False
    replacement: bool = False

    def __post_init__(self) -> None:
        """Check the vocabulary."""
        if isinstance(self.vocabulary, bool) or not isinstance(self.vocabulary, int):
            raise ValueError(f"vocabulary must be a whole number; got {self.vocabulary!r}")
        if self.vocabulary < 2:
            raise ValueError(f"vocabulary must be at least 2; got {self.vocabulary}")

    @property
    def d_vocab(self) -> int:
        """``v``, plus one with a beginning-of-sequence token."""
        return self.vocabulary + int(self.bos)

    @property
    def d_vocab_out(self) -> int:
        """``v``: the beginning-of-sequence token never follows."""
        return self.vocabulary

    @property
    def min_length(self) -> int:
        """1."""
        return 1

    @property
    def max_length(self) -> int | None:
        """``v - 1``; ``None`` with replacement."""
        return None if self.replacement else self.vocabulary - 1

    def check_length(self, length: int) -> None:
        """Refuse a length at which the task is not defined.

        Raises:
            ValueError: If ``length`` is less than 1 or more than ``max_length``.
        """
        if length < 1 or (self.max_length is not None and length > self.max_length):
            upper = "" if self.max_length is None else f" and at most {self.max_length}"
            hint = "" if self.replacement else " (longer inputs need replacement to be true)"
            raise ValueError(
                f"set complement over {self.vocabulary} tokens is defined for lengths of at least 1"
                f"{upper}; got {length}{hint}"
            )

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> Batch:
        """Draw sequences; see :class:`~resharpen.models.tasks.Batch` for the shapes.

        Raises:
            ValueError: If ``batch`` is less than 1 or the length is not defined.
        """
        self.check_length(length)
        if batch < 1:
            raise ValueError(f"batch must be at least 1; got {batch}")
        sample = self._sample_with_replacement if self.replacement else self._sample_permutations
        body, following = sample(generator, batch, length)
        if self.bos:
            start = np.full((batch, 1), self.vocabulary)
            tokens = np.concatenate([start, body], axis=1)
        else:
            tokens, following = body, following[:, 1:]
        targets = self.exact_targets(torch.from_numpy(tokens))
        relevant = torch.from_numpy(tokens[:1] != self.vocabulary)[:, None, :]
        return Batch(
            torch.from_numpy(tokens),
            targets,
            torch.from_numpy(following),
            relevant,
            length,
            self.bos,
        )

    def exact_targets(self, tokens: torch.Tensor) -> torch.Tensor:
        """Uniform distribution over the tokens absent from each prefix.

        Args:
            tokens: ``[batch, pos]``, int64.

        Returns:
            ``[batch, pos, v]``, float32; a row is NaN where no token is absent.
        """
        seen = torch.nn.functional.one_hot(tokens, self.d_vocab)[..., : self.vocabulary]
        absent = (seen.cumsum(dim=1) == 0).float()
        return absent / absent.sum(-1, keepdim=True)

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters."""
        return {
            "name": self.name,
            "vocabulary": self.vocabulary,
            "bos": self.bos,
            "replacement": self.replacement,
        }

    def _sample_permutations(
        self, generator: np.random.Generator, batch: int, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        # A uniform permutation is its own label: given the prefix, its next entry is uniform over
        # the complement. Ranking one row of uniforms a sequence keeps the draws split-invariant.
        order = np.argsort(generator.random((batch, self.vocabulary)), axis=1, kind="stable")
        return order[:, :length], order[:, : length + 1]

    def _sample_with_replacement(
        self, generator: np.random.Generator, batch: int, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        v = self.vocabulary
        draws = generator.random((batch, 1 + v + length + length + 1))
        size = 1 + np.floor(draws[:, :1] * (v - 1)).astype(np.int64)
        order = np.argsort(draws[:, 1 : 1 + v], axis=1, kind="stable")
        picks = np.floor(draws[:, 1 + v : 1 + v + length] * size).astype(np.int64)
        body = np.take_along_axis(order, picks, axis=1)
        # The label at a position is the r-th absent token, r uniform.
        seen = np.zeros((batch, length + 1, v), dtype=bool)
        np.put_along_axis(seen[:, 1:], body[:, :, None], True, axis=2)
        absent = ~np.logical_or.accumulate(seen, axis=1)
        count = absent.sum(2)
        rank = np.floor(draws[:, 1 + v + length :] * count).astype(np.int64)
        following = np.argmax(absent.cumsum(2) == (rank + 1)[:, :, None], axis=2)
        return body, following
