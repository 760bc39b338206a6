"""What every formal language offers: counts, uniform strings, and what may follow each prefix."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from .automata import Automaton, explore
from .paths import Paths


class Language(ABC):
    """A set of strings over ``A`` symbols; symbol ``A`` in an answer is the end of the string.

    Attributes:
        alphabet: The symbols, written as in FLaRe's files where it has the language.
    """

    alphabet: tuple[str, ...]

    @abstractmethod
    def count(self, length: int) -> int:
        """How many strings of the language have this length, exactly."""

    @abstractmethod
    def draw(
        self, length: int, uniforms: Float[np.ndarray, "batch width"]
    ) -> Int[np.ndarray, "batch length"]:
        """One string of exactly this length a row of uniforms, every string equally likely.

        Args:
            length: A length at which :meth:`has` is true.
            uniforms: Numbers on ``[0, 1)``, ``width(length)`` of them a row.
        """

    @abstractmethod
    def legal(
        self, symbols: Int[np.ndarray, "batch pos"]
    ) -> Bool[np.ndarray, "batch pos_and_start symbol_or_end"]:
        """What may follow the empty prefix and each longer one; nothing after an illegal symbol."""

    def has(self, length: int) -> bool:
        """Whether a string of the language has this length."""
        return length >= 0 and self.count(length) > 0

    def width(self, length: int) -> int:
        """How many uniforms one string takes."""
        return length

    def accepts(self, symbols: Int[np.ndarray, "batch pos"]) -> Bool[np.ndarray, " batch"]:
        """Whether each string is in the language."""
        return self.legal(symbols)[:, -1, -1]

    def grammar(
        self, symbols: Int[np.ndarray, "batch pos"]
    ) -> Float[np.ndarray, "batch pos_and_start symbol_or_end"] | None:
        """The distribution that a grammar gives to what follows; ``None`` without a grammar.

        Rows sum to one, to zero after an illegal symbol.
        """
        return None

    def nearest(self, length: int, reach: int = 64) -> tuple[int, ...]:
        """The next shorter and the next longer length, at most ``reach`` away, that have strings.

        The empty string is left out.
        """
        shorter = range(length - 1, max(0, length - 1 - reach), -1)
        longer = range(max(1, length + 1), length + 1 + reach)
        found = [next(filter(self.has, lengths), None) for lengths in (shorter, longer)]
        return tuple(one for one in found if one is not None)


@dataclass(frozen=True, eq=False)
class Machine(Language):
    """A language read by a deterministic machine, with finitely many states or more.

    Attributes:
        alphabet: The symbols.
        start: State before the first symbol.
        step: State after a state and a symbol's place; ``None`` where nothing can follow.
        final: Whether a string may end in a state.
        growing: Whether longer strings meet more states (a counter). ``step`` must then return
            ``None`` wherever no string of the language can be reached any more.
    """

    alphabet: tuple[str, ...]
    start: Any
    step: Callable[[Any, int], Any]
    final: Callable[[Any], bool]
    growing: bool = False

    def automaton(self, length: int) -> Automaton:
        """The part of the machine that strings of up to this length can meet."""
        return _cut_off(self, length) if self.growing else self._finite

    def count(self, length: int) -> int:
        """From the counting table."""
        return _paths(self, length).count if length >= 0 else 0

    def has(self, length: int) -> bool:
        """Whether an accepting state can be reached, without counting."""
        return length >= 0 and _has(self, length)

    def draw(
        self, length: int, uniforms: Float[np.ndarray, "batch width"]
    ) -> Int[np.ndarray, "batch length"]:
        """From the counting table."""
        return _paths(self, length).draw(uniforms)

    def legal(
        self, symbols: Int[np.ndarray, "batch pos"]
    ) -> Bool[np.ndarray, "batch pos_and_start symbol_or_end"]:
        """From the live states."""
        automaton = self.automaton(symbols.shape[1])
        return automaton.legal[automaton.read(symbols)]

    @cached_property
    def _finite(self) -> Automaton:
        return explore(self.alphabet, self.start, self.step, self.final)


@lru_cache(maxsize=16)
def _cut_off(machine: Machine, length: int) -> Automaton:
    return explore(machine.alphabet, machine.start, machine.step, machine.final, length)


@lru_cache(maxsize=16)
def _paths(machine: Machine, length: int) -> Paths:
    return Paths(machine.automaton(length), length)


@lru_cache(maxsize=4096)
def _has(machine: Machine, length: int) -> bool:
    automaton = machine.automaton(length)
    return bool((automaton.reachable(length)[-1] & automaton.accepting).any())


def only_prefixes(
    legal: Bool[np.ndarray, "batch pos_and_start symbol_or_end"],
    symbols: Int[np.ndarray, "batch pos"],
) -> Bool[np.ndarray, "batch pos_and_start symbol_or_end"]:
    """Clear the rows behind the first symbol that was not legal where it stood."""
    followed = np.take_along_axis(legal[:, :-1], symbols[..., None], axis=2)[..., 0]
    legal[:, 1:] &= np.logical_and.accumulate(followed, axis=1)[..., None]
    return legal
