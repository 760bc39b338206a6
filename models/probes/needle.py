"""Needle: which value stood with this key?

``m`` pairs ``key value`` are followed by one of the keys; what should follow is its value:

    k_1 v_1 k_2 v_2 ... k_m v_m k_j  ->  v_j.

Every other pair is a distractor, so that the distractors grow with the length while one key stays
relevant: retrieval among them needs scores that grow like ``log n`` (theory sections 0 and 5).

**The relevant key is the position of the value** ``v_j``, not that of ``k_j``: it is where the
answer can be read, by an induction head in one step, and the same convention as in
:mod:`.repeated`. Only the last query has one, and only what follows it is scored. Keys are distinct
and drawn from one half of the ordinary tokens (chosen anew for each sequence), values from the
other half with replacement. Where one position is left over, a value without a key opens the body.

Worked example, body 5: ``3 9 4 8 3``; the last query (``3``) needs key 1 and is followed by ``9``.

Degenerate lengths: a body below 3 has no pair and is refused, as is one with more pairs than half
the vocabulary has tokens. With a body of 3 or 4 there is one pair, and no distractor.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..facts import Facts
from .batch import NO_KEY, NO_LABEL, ProbeBatch, check_batch, make_batch
from .vocabulary import Vocabulary, draw_distinct


@dataclass(frozen=True)
class Needle(Facts):
    """The probe of key-value retrieval.

    Attributes:
        d_vocab: Number of token ids of the model.
        avoid: Ids that are never drawn (padding, end of sequence).
        bos: Id that opens every sequence, or ``None``.
        depth: Where the pair asked for stands: 0 the first, 1 the last; ``None`` uniform.
    """

    name: ClassVar[str] = "needle"
    nested: ClassVar[bool] = False
    d_vocab: int
    avoid: tuple[int, ...] = ()
    bos: int | None = None
    depth: float | None = None

    def __post_init__(self) -> None:
        """Check vocabulary and depth.

        Raises:
            ValueError: If fewer than two ordinary tokens remain or the depth is not in 0..1.
        """
        _ = self.vocabulary
        if self.depth is not None and not 0.0 <= self.depth <= 1.0:
            raise ValueError(f"depth must lie between 0 and 1, or be None; got {self.depth}")

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids that may be drawn."""
        return Vocabulary(self.d_vocab, self.avoid, self.bos)

    def n_pairs(self, length: int) -> int:
        """Number ``m`` of pairs."""
        return (length - (self.bos is not None) - 1) // 2

    def check_length(self, length: int) -> None:
        """Refuse a length at which the probe is not defined.

        Raises:
            ValueError: If there is no pair, or there are more pairs than keys.
        """
        opening = int(self.bos is not None)
        if length - opening < 3:
            raise ValueError(f"needle needs a length of at least {3 + opening}; got {length}")
        n_keys = len(self.vocabulary.allowed) // 2
        if self.n_pairs(length) > n_keys:
            raise ValueError(
                f"needle of length {length} needs {self.n_pairs(length)} distinct keys, but half "
                f"the ordinary tokens are {n_keys}: ask for at most {2 * n_keys + 2 + opening}"
            )

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> ProbeBatch:
        """Draw sequences; see the module for tokens, the relevant key and the label.

        Raises:
            ValueError: If ``batch`` is less than 1 or the length is not defined.
        """
        self.check_length(length)
        check_batch(batch)
        allowed = self.vocabulary.allowed
        rows = [self._row(generator, allowed, length) for _ in range(batch)]
        body, place, value = (np.stack(parts) for parts in zip(*rows, strict=True))
        relevant = np.full(body.shape, NO_KEY)
        labels = np.full(body.shape, NO_LABEL)
        relevant[:, -1], labels[:, -1] = place, value
        return make_batch(body, relevant, labels, length, self.bos)

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters."""
        return {
            "name": self.name,
            "d_vocab": self.d_vocab,
            "avoid": list(self.avoid),
            "bos": self.bos,
            "depth": self.depth,
        }

    def _row(
        self, generator: np.random.Generator, allowed: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Body, index of the value asked for, and that value, of one sequence."""
        pairs = self.n_pairs(length)
        order = allowed[draw_distinct(generator, 1, len(allowed), len(allowed))[0]]
        half = len(allowed) // 2
        uniforms = generator.random(pairs + 2)
        values = order[half + np.floor(uniforms[:-1] * (len(order) - half)).astype(np.int64)]
        chosen = int(uniforms[-1] * pairs)
        if self.depth is not None:
            chosen = round(self.depth * (pairs - 1))
        body = np.empty(length - (self.bos is not None), dtype=np.int64)
        spare = len(body) - (2 * pairs + 1)
        body[:spare] = values[pairs : pairs + spare]
        body[spare:-1:2], body[spare + 1 : -1 : 2] = order[:pairs], values[:pairs]
        body[-1] = order[chosen]
        return body, np.array(spare + 2 * chosen + 1), values[chosen]
