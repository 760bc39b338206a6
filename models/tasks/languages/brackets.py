"""Dyck languages and their relatives: brackets that must close.

**Dyck-k**, brackets of ``k`` types; **Dyck-(k, m)**, at most ``m`` of them open at once. Next
symbol of Hewitt et al., *RNNs can generate bounded hierarchical languages with optimal memory*
(arXiv 2010.07515; theory section 15), at depth ``d``:

    d = 0      END 1/2, each opener 1/(2k)
    0 < d < m  the matching closer 1/2, each opener 1/(2k)
    d = m      the matching closer 1

and without a bound the grammar of Bhattamishra et al. (arXiv 2009.11264), in :mod:`.dyck_grammar`.
**Shuffle-Dyck-k** interleaves ``k`` Dyck-1 strings (the same authors). **Reset-Dyck-1** is Dyck-1
with a symbol that sets the depth to 0: ``(P #)* D``, ``D`` Dyck-1 and ``P`` its prefixes. Theory
section 15 has no grammar with probabilities for these two.

Uniform strings. Where ``r`` symbols remain at depth ``d``, a Dyck-1 string of uniform choice opens
with probability (Arnold and Sleep, ACM TOPLAS 2(1), 1980)

    (d + 2) (r - d) / (2 r (d + 1))

and the type of each opener is uniform. Under a bound on the depth, the counting table of
:mod:`.paths` over depths takes its place. A shuffle first draws how many symbols each type has,
``2 a_i`` with weight ``n! Π_i Cat(a_i) / (2 a_i)!``, then their places, then each type's brackets.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import comb

import numpy as np
from jaxtyping import Bool, Float, Int

from .automata import Automaton, explore
from .dyck_grammar import closed_blocks, going_on
from .language import Language, Machine, only_prefixes
from .paths import Paths


@dataclass(frozen=True)
class Dyck(Language):
    """Brackets of several types.

    The symbols are the openers ``(0 (1 ..``, then the closers ``)0 )1 ..``.

    Attributes:
        types: Number ``k`` of types, at least 1.
        depth: How many may be open at once, at least 1; ``None`` where there is no bound.
        alphabet: The symbols, openers first.
    """

    types: int
    depth: int | None = None
    alphabet: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Spell the symbols: openers, then closers."""
        object.__setattr__(self, "alphabet", _brackets(self.types))

    def count(self, length: int) -> int:
        """Types of the openers times the strings of one type."""
        if length < 0 or length % 2:
            return 0
        half = length // 2
        shapes = _catalan(half) if self.depth is None else _bounded(self.depth, length).count
        return shapes * self.types**half

    def has(self, length: int) -> bool:
        """Every even length."""
        return length >= 0 and length % 2 == 0

    def width(self, length: int) -> int:
        """Two a symbol: whether it opens, and its type."""
        return 2 * length

    def draw(
        self, length: int, uniforms: Float[np.ndarray, "batch width"]
    ) -> Int[np.ndarray, "batch length"]:
        """The shape by counting, then a type for each opener."""
        if self.depth is None:
            remaining = np.full(len(uniforms), length)
            opens = np.empty((len(uniforms), length), dtype=bool)
            depth = np.zeros(len(uniforms), dtype=np.int64)
            for place in range(length):
                opens[:, place] = uniforms[:, place] < opening(depth, remaining - place)
                depth += np.where(opens[:, place], 1, -1)
        else:
            opens = _bounded(self.depth, length).draw(uniforms[:, :length]) == 0
        types = np.floor(uniforms[:, length:] * self.types).astype(np.int64)
        top = _open_types(opens, types)
        return np.where(opens, types, self.types + top[:, :-1])

    def legal(
        self, symbols: Int[np.ndarray, "batch pos"]
    ) -> Bool[np.ndarray, "batch pos_and_start symbol_or_end"]:
        """From the depth and the bracket opened last."""
        depth, top = self._read(symbols)
        k = self.types
        legal = np.empty((*depth.shape, 2 * k + 1), dtype=bool)
        legal[..., :k] = True if self.depth is None else (depth < self.depth)[..., None]
        legal[..., k:-1] = (depth > 0)[..., None] & (top[..., None] == np.arange(k))
        legal[..., -1] = depth == 0
        return only_prefixes(legal, symbols)

    def grammar(
        self, symbols: Int[np.ndarray, "batch pos"]
    ) -> Float[np.ndarray, "batch pos_and_start symbol_or_end"]:
        """Hewitt et al.'s distribution; without a bound, that of Bhattamishra et al."""
        legal = self.legal(symbols)
        opens = np.arange(2 * self.types + 1) < self.types
        if self.depth is None:
            opening = symbols < self.types
            # Behind an illegal closer nothing is legal, whatever is counted there.
            blocks = closed_blocks(opening, np.maximum(_depths(opening), 0))
            on = going_on(symbols.shape[1])[blocks][..., None]
            return legal * np.where(opens, on / self.types, 1 - on)
        weights = legal * np.where(opens, 0.5 / self.types, 0.5)
        total = weights.sum(-1, keepdims=True)
        return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)

    def _read(self, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Depth, and type of the bracket opened last, before each symbol and at the end."""
        opens = symbols < self.types
        return _depths(opens), _open_types(opens, symbols)


@dataclass(frozen=True)
class ShuffleDyck(Language):
    """Interleaved Dyck-1 strings, one of each type.

    Attributes:
        types: Number ``k`` of types, at least 1.
        alphabet: The symbols, openers first.
    """

    types: int
    alphabet: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Spell the symbols: openers, then closers."""
        object.__setattr__(self, "alphabet", _brackets(self.types))

    def count(self, length: int) -> int:
        """Over all ways to share the length among the types."""
        return _shuffles(self.types, length // 2) if self.has(length) else 0

    def has(self, length: int) -> bool:
        """Every even length."""
        return length >= 0 and length % 2 == 0

    def width(self, length: int) -> int:
        """How many of each type, the place of each symbol, and whether it opens."""
        return self.types + 2 * length

    def draw(
        self, length: int, uniforms: Float[np.ndarray, "batch width"]
    ) -> Int[np.ndarray, "batch length"]:
        """Sizes, places, then brackets."""
        k, rows = self.types, np.arange(len(uniforms))
        remaining = np.zeros((len(uniforms), k), dtype=np.int64)
        free = np.full(len(uniforms), length)
        for kind in range(k):
            for half in np.unique(free) // 2:
                those = free == 2 * half
                shares = _shares(k - 1 - kind, int(half))
                sizes = np.searchsorted(shares, uniforms[those, kind], side="right")
                remaining[those, kind] = 2 * sizes
            free -= remaining[:, kind]
        in_order = (np.arange(length)[None, :, None] >= remaining.cumsum(1)[:, None]).sum(2)
        places = np.argsort(uniforms[:, k : k + length], axis=1, kind="stable")
        types = np.empty_like(in_order)
        np.put_along_axis(types, places, in_order, axis=1)
        depth = np.zeros_like(remaining)
        symbols = np.empty_like(types)
        for place in range(length):
            kind = types[:, place]
            probability = opening(depth[rows, kind], remaining[rows, kind])
            opens = uniforms[:, k + length + place] < probability
            symbols[:, place] = np.where(opens, kind, k + kind)
            depth[rows, kind] += np.where(opens, 1, -1)
            remaining[rows, kind] -= 1
        return symbols

    def legal(
        self, symbols: Int[np.ndarray, "batch pos"]
    ) -> Bool[np.ndarray, "batch pos_and_start symbol_or_end"]:
        """From the depth of each type."""
        k = self.types
        change = (symbols[..., None] == np.arange(k)).astype(np.int64)
        change -= symbols[..., None] == k + np.arange(k)
        depth = np.zeros((len(symbols), symbols.shape[1] + 1, k), dtype=np.int64)
        np.cumsum(change, axis=1, out=depth[:, 1:])
        closed = (depth == 0).all(2, keepdims=True)
        legal = np.concatenate([np.ones_like(depth, dtype=bool), depth > 0, closed], axis=2)
        return only_prefixes(legal, symbols)


RESET_DYCK = Machine(
    ("(", ")", "#"),
    0,
    lambda depth, symbol: (depth + 1, depth - 1 if depth else None, 0)[symbol],
    lambda depth: depth == 0,
    growing=True,
)
"""Reset-Dyck-1: a closer never falls below the last reset, and all is closed at the end."""


def opening(
    depth: Int[np.ndarray, " batch"], remaining: Int[np.ndarray, " batch"]
) -> Float[np.ndarray, " batch"]:
    """Probability that a uniform Dyck-1 string opens, at a depth with so many symbols to come."""
    return (depth + 2) * (remaining - depth) / (2 * remaining * (depth + 1))


def _brackets(types: int) -> tuple[str, ...]:
    return tuple(f"{side}{kind}" for side in "()" for kind in range(types))


def _catalan(half: int) -> int:
    return comb(2 * half, half) // (half + 1)


def _depths(opens: np.ndarray) -> np.ndarray:
    depth = np.zeros((opens.shape[0], opens.shape[1] + 1), dtype=np.int64)
    np.cumsum(np.where(opens, 1, -1), axis=1, out=depth[:, 1:])
    return depth


def _open_types(opens: np.ndarray, types: np.ndarray) -> np.ndarray:
    """Type of the bracket opened last and still open, before each symbol and at the end.

    Whatever stands at depth 0 means nothing.
    """
    depth = np.maximum(_depths(opens), 0)
    rows = np.arange(len(opens))
    stack = np.zeros((len(opens), int(depth.max(initial=0)) + 2), dtype=np.int64)
    top = np.zeros_like(depth)
    for place in range(opens.shape[1]):
        here, after = depth[:, place], depth[:, place + 1]
        # An opener lies on what is open; a closer leaves the stack as it was.
        stack[rows, here + 1] = np.where(opens[:, place], types[:, place], stack[rows, here + 1])
        top[:, place + 1] = stack[rows, after]
    return top


@lru_cache(maxsize=64)
def _depth_automaton(bound: int) -> Automaton:
    def step(depth: int, symbol: int) -> int | None:
        after = depth + (1 if symbol == 0 else -1)
        return after if 0 <= after <= bound else None

    return explore(("open", "close"), 0, step, lambda depth: depth == 0)


@lru_cache(maxsize=16)
def _bounded(bound: int, length: int) -> Paths:
    return Paths(_depth_automaton(min(bound, length)), length)


@lru_cache(maxsize=8192)
def _shuffles(types: int, half: int) -> int:
    """How many shuffle strings with so many openers there are."""
    if types == 0:
        return int(half == 0)
    if types == 1:
        return _catalan(half)
    return sum(_sharing(types - 1, half))


def _sharing(others: int, half: int) -> list[int]:
    """Strings in which one type opens 0, 1, .. times and ``others`` types share the rest."""
    return [
        comb(2 * half, 2 * size) * _catalan(size) * _shuffles(others, half - size)
        for size in range(half + 1)
    ]


@lru_cache(maxsize=8192)
def _shares(others: int, half: int) -> Float[np.ndarray, " size"]:
    """Cumulative probabilities of how often one type opens."""
    sums = list(accumulate(_sharing(others, half)))
    return np.array([part / sums[-1] for part in sums])
