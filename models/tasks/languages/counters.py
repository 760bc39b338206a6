"""Languages of counts: how many of each symbol, not in which order they come to be.

**Equal blocks** ``a^n b^n c^n ..`` with ``n >= 1`` (counter-k for ``k`` letters; Bhattamishra et
al., arXiv 2009.11264; theory section 15): one string at each multiple of ``k``.

**Binary counts**: whether a string of bits is in the language depends on its number of ones alone,
and every prefix can still be continued to a string that is. *Majority*: more ones than zeros (as
in FLaRe). *Balance*: as many ones as zeros. A uniform string has ``c`` ones with weight
``C(n, c)`` over the allowed ``c``, at uniform places.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import comb
from string import ascii_lowercase

import numpy as np
from jaxtyping import Bool, Float, Int

from ..drawn import chosen_places
from .language import Language, only_prefixes


@dataclass(frozen=True)
class EqualBlocks(Language):
    """Blocks of different letters, all of one length.

    Attributes:
        letters: Number ``k`` of letters, 2 to 26.
        alphabet: ``a, b, c, ..``.
    """

    letters: int
    alphabet: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Spell the letters."""
        object.__setattr__(self, "alphabet", tuple(ascii_lowercase[: self.letters]))

    def count(self, length: int) -> int:
        """One at each multiple of ``k``."""
        return int(length > 0 and length % self.letters == 0)

    def draw(
        self, length: int, uniforms: Float[np.ndarray, "batch width"]
    ) -> Int[np.ndarray, "batch length"]:
        """The one string."""
        block = np.repeat(np.arange(self.letters), length // self.letters)
        return np.tile(block, (len(uniforms), 1))

    def legal(
        self, symbols: Int[np.ndarray, "batch pos"]
    ) -> Bool[np.ndarray, "batch pos_and_start symbol_or_end"]:
        """From the number of each letter so far."""
        k = self.letters
        seen = np.zeros((len(symbols), symbols.shape[1] + 1, k), dtype=np.int64)
        np.cumsum(symbols[..., None] == np.arange(k), axis=1, out=seen[:, 1:])
        first = seen[..., :1]
        full = (seen == first) & (first > 0)
        # A letter may follow while its block is short and the block before it is full.
        before = np.concatenate([np.ones_like(full[..., :1]), full[..., :-1]], axis=-1)
        legal = np.concatenate([before & (seen < first), full[..., -1:]], axis=-1)
        legal[..., 0] = (seen[..., 1:] == 0).all(-1)
        return only_prefixes(legal, symbols)


@dataclass(frozen=True)
class BinaryCounts(Language):
    """Bits whose number of ones decides.

    Attributes:
        allowed: Whether a string with so many zeros and ones is in the language. Whatever the
            numbers, some larger ones must be allowed.
        alphabet: The bits.
    """

    allowed: Callable[[int, int], bool]
    alphabet: tuple[str, ...] = field(init=False, default=("0", "1"))

    def count(self, length: int) -> int:
        """Over the allowed numbers of ones."""
        return sum(_weights(self, length)) if length >= 0 else 0

    def width(self, length: int) -> int:
        """One for the number of ones, one a place."""
        return length + 1

    def draw(
        self, length: int, uniforms: Float[np.ndarray, "batch width"]
    ) -> Int[np.ndarray, "batch length"]:
        """The number of ones, then their places."""
        ones = (_cumulative(self, length) <= uniforms[:, :1]).sum(1)
        return chosen_places(uniforms[:, 1:], ones[:, None]).astype(np.int64)

    def legal(
        self, symbols: Int[np.ndarray, "batch pos"]
    ) -> Bool[np.ndarray, "batch pos_and_start symbol_or_end"]:
        """Both bits always; the end from the counts so far."""
        n = symbols.shape[1]
        ones = np.zeros((len(symbols), n + 1), dtype=np.int64)
        np.cumsum(symbols, axis=1, out=ones[:, 1:])
        legal = np.ones((*ones.shape, 3), dtype=bool)
        legal[..., 2] = _ends(self, n)[np.arange(n + 1), ones]
        return legal


MAJORITY = BinaryCounts(lambda zeros, ones: ones > zeros)
"""More ones than zeros."""

BALANCE = BinaryCounts(lambda zeros, ones: ones == zeros)
"""As many ones as zeros."""


def _weights(language: BinaryCounts, length: int) -> list[int]:
    return [
        comb(length, ones) if language.allowed(length - ones, ones) else 0
        for ones in range(length + 1)
    ]


@lru_cache(maxsize=256)
def _cumulative(language: BinaryCounts, length: int) -> Float[np.ndarray, " ones"]:
    sums = list(accumulate(_weights(language, length)))
    return np.array([part / sums[-1] for part in sums])


@lru_cache(maxsize=16)
def _ends(language: BinaryCounts, length: int) -> Bool[np.ndarray, "pos ones"]:
    """Whether a string of so many bits with so many ones may end."""
    counts = range(length + 1)
    return np.array(
        [[ones <= pos and language.allowed(pos - ones, ones) for ones in counts] for pos in counts]
    )
