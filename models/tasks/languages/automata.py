"""Finite automata: which states still lead to a string of the language, and what may follow.

A deterministic automaton ``(Q, A, δ, q_0, F)``. With ``δ*`` for reading a whole string,

    live(q)      iff  δ*(q, w) ∈ F for some string w
    a is legal   iff  live(δ(q, a))
    END is legal iff  q ∈ F

so that what may follow is derived from the automaton alone (theory section 15: public label sets
that list dead states by hand are wrong).
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Automaton:
    """A complete deterministic automaton, as arrays.

    Attributes:
        alphabet: The symbols, told apart by their place.
        transitions: State that follows, ``[state, symbol]``.
        accepting: Whether a string may end here, ``[state]``.
        start: State before the first symbol.
        frontier: States, ``[state]``, whose own transitions are not there because a machine
            without end was cut off; they are taken for live. None of a finite language.
    """

    alphabet: tuple[str, ...]
    transitions: Int[np.ndarray, "state symbol"]
    accepting: Bool[np.ndarray, " state"]
    start: int = 0
    frontier: Bool[np.ndarray, " state"] | None = None

    def __post_init__(self) -> None:
        """Check the shapes and that every transition leads to a state.

        Raises:
            ValueError: If they do not fit each other.
        """
        n_states = len(self.accepting)
        if self.transitions.shape != (n_states, len(self.alphabet)):
            raise ValueError(
                f"transitions must be [state, symbol] = {(n_states, len(self.alphabet))}; "
                f"got {self.transitions.shape}"
            )
        if (
            not 0 <= self.start < n_states
            or not ((self.transitions >= 0) & (self.transitions < n_states)).all()
        ):
            raise ValueError(f"the start and every transition must be a state below {n_states}")

    @cached_property
    def live(self) -> Bool[np.ndarray, " state"]:
        """Whether some string leads from here to an accepting state (or to the frontier)."""
        live = self.accepting if self.frontier is None else self.accepting | self.frontier
        while True:
            more = live | live[self.transitions].any(1)
            if (more == live).all():
                return live
            live = more

    @cached_property
    def legal(self) -> Bool[np.ndarray, "state symbol_or_end"]:
        """What may follow in each state; the last column is the end of the string."""
        return np.concatenate([self.live[self.transitions], self.accepting[:, None]], axis=1)

    def read(self, symbols: Int[np.ndarray, "batch pos"]) -> Int[np.ndarray, "batch pos_and_start"]:
        """States before the first symbol and after each one."""
        states = np.empty((symbols.shape[0], symbols.shape[1] + 1), dtype=np.int64)
        states[:, 0] = self.start
        for place in range(symbols.shape[1]):
            states[:, place + 1] = self.transitions[states[:, place], symbols[:, place]]
        return states

    def reachable(self, length: int) -> Bool[np.ndarray, "step state"]:
        """Which states some string of each length ``0 .. length`` leads to."""
        reached = np.zeros((length + 1, len(self.accepting)), dtype=bool)
        reached[0, self.start] = True
        for step in range(length):
            reached[step + 1, self.transitions[reached[step]]] = True
        return reached

    def complement(self) -> "Automaton":
        """The strings that this one refuses; of an automaton without a frontier."""
        self._check_whole()
        return Automaton(self.alphabet, self.transitions, ~self.accepting, self.start)

    def intersection(self, other: "Automaton") -> "Automaton":
        """The strings that both accept.

        Raises:
            ValueError: If the alphabets differ or one has a frontier.
        """
        self._check_whole()
        other._check_whole()
        if self.alphabet != other.alphabet:
            raise ValueError(
                f"both automata must have one alphabet; got {self.alphabet} and {other.alphabet}"
            )
        return explore(
            self.alphabet,
            (self.start, other.start),
            lambda pair, symbol: (
                int(self.transitions[pair[0], symbol]),
                int(other.transitions[pair[1], symbol]),
            ),
            lambda pair: bool(self.accepting[pair[0]] and other.accepting[pair[1]]),
        )

    def union(self, other: "Automaton") -> "Automaton":
        """The strings that at least one accepts.

        Raises:
            ValueError: If the alphabets differ or one has a frontier.
        """
        return self.complement().intersection(other.complement()).complement()

    def _check_whole(self) -> None:
        if self.frontier is not None and self.frontier.any():
            raise ValueError("an automaton that was cut off cannot be combined with others")


def explore(
    alphabet: tuple[str, ...],
    start: S,
    step: Callable[[S, int], S | None],
    accepts: Callable[[S], bool],
    steps: int | None = None,
) -> Automaton:
    """Number the states that can be reached from ``start``.

    Args:
        alphabet: The symbols.
        start: The first state, any value that can be hashed.
        step: State after a state and a symbol's place; ``None`` where nothing can follow.
        accepts: Whether a string may end in a state.
        steps: Length of the longest string that will be read, for a machine whose states have no
            end. ``step`` must then return ``None`` for every state from which no string of the
            language can be reached: beyond ``steps`` this is not looked at again.
    """
    number: dict[S, int] = {start: 0}
    rows: list[list[int | None]] = []
    layer, depth = [start], 0
    while layer and (steps is None or depth <= steps):
        following: list[S] = []
        for state in layer:
            row: list[int | None] = []
            for symbol in range(len(alphabet)):
                after = step(state, symbol)
                if after is not None and after not in number:
                    number[after] = len(number)
                    following.append(after)
                row.append(None if after is None else number[after])
            rows.append(row)
        layer, depth = following, depth + 1
    dead = len(number)
    transitions = np.full((dead + 1, len(alphabet)), dead, dtype=np.int64)
    for state, row in enumerate(rows):
        transitions[state] = [dead if after is None else after for after in row]
    states = np.arange(dead + 1)
    return Automaton(
        alphabet,
        transitions,
        np.array([*(accepts(state) for state in number), False], dtype=bool),
        frontier=(states >= len(rows)) & (states < dead),
    )
