"""Which token ids a probe of random tokens may use."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Vocabulary:
    """Token ids ``0 .. d_vocab - 1`` without the special ones.

    Attributes:
        d_vocab: Number of token ids of the model.
        avoid: Ids that are never drawn, such as padding; unknown ones are refused.
        bos: Id that opens every sequence, or ``None``; never drawn either.
    """

    d_vocab: int
    avoid: tuple[int, ...] = ()
    bos: int | None = None
    allowed: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Collect the allowed ids.

        Raises:
            ValueError: If an id is outside the vocabulary or fewer than two ids remain.
        """
        special = set(self.avoid) | (set() if self.bos is None else {self.bos})
        strange = sorted(token for token in special if not 0 <= token < self.d_vocab)
        if strange:
            raise ValueError(
                f"special tokens must lie in 0..{self.d_vocab - 1}; got "
                f"{', '.join(map(str, strange))}"
            )
        allowed = np.setdiff1d(np.arange(self.d_vocab), np.array(sorted(special), dtype=np.int64))
        if len(allowed) < 2:
            raise ValueError(
                f"a probe needs at least two ordinary tokens; {self.d_vocab} ids without "
                f"{len(special)} special ones leave {len(allowed)}"
            )
        object.__setattr__(self, "allowed", allowed)

    def draw(self, uniforms: np.ndarray) -> np.ndarray:
        """Independent uniform ids from numbers in ``[0, 1)``, of the same shape."""
        return self.allowed[np.floor(uniforms * len(self.allowed)).astype(np.int64)]


def draw_distinct(generator: np.random.Generator, batch: int, n_ids: int, count: int) -> np.ndarray:
    """``count`` distinct indices below ``n_ids`` a row, uniform, ``[batch, count]`` int64.

    Each row takes ``n_ids`` numbers from the generator: rows do not depend on the batch size.
    """
    rows = [np.argsort(generator.random(n_ids), kind="stable")[:count] for _ in range(batch)]
    return np.stack(rows)
