"""Uniform strings of one length, by counting: no string is drawn and thrown away.

With ``N_r(q)`` strings of length ``r`` that lead from ``q`` to an accepting state,

    N_0(q) = 1 if q ∈ F else 0,      N_r(q) = Σ_a N_{r-1}(δ(q, a))

and drawing symbol ``a`` with probability ``N_{r-1}(δ(q, a)) / N_r(q)`` where ``r`` symbols remain
makes every string of length ``n`` equally likely. The counts are whole numbers of any size; each
cumulative probability is their quotient, rounded once.
"""

import numpy as np
from jaxtyping import Float, Int

from .automata import Automaton


class Paths:
    """The counting table of one automaton and one length.

    Takes ``8 length · states · symbols`` bytes.

    Attributes:
        automaton: The automaton.
        length: Length of the strings.
        count: How many strings of that length there are.
    """

    def __init__(self, automaton: Automaton, length: int) -> None:
        """Count from the end of the strings to their start."""
        self.automaton = automaton
        self.length = length
        n_states, n_symbols = automaton.transitions.shape
        reached = automaton.reachable(length)
        counts = automaton.accepting.astype(int).astype(object)
        self._cumulative = np.ones((length, n_states, n_symbols))
        for place in reversed(range(length)):
            (states,) = reached[place].nonzero()
            sums = np.cumsum(counts[automaton.transitions[states]], axis=1)
            totals = sums[:, -1]
            counts = np.zeros(n_states, dtype=object)
            counts[states] = totals
            some = totals > 0
            self._cumulative[place, states[some]] = sums[some] / totals[some, None]
        self.count = int(counts[automaton.start])

    def draw(self, uniforms: Float[np.ndarray, "batch pos"]) -> Int[np.ndarray, "batch pos"]:
        """One string a row of uniforms on ``[0, 1)``, every string equally likely.

        Raises:
            ValueError: If there is no string of this length.
        """
        if not self.count:
            raise ValueError(f"the automaton accepts no string of length {self.length}")
        symbols = np.empty(uniforms.shape, dtype=np.int64)
        states = np.full(len(uniforms), self.automaton.start)
        for place in range(self.length):
            below = self._cumulative[place, states] <= uniforms[:, place, None]
            symbols[:, place] = below.sum(1)
            states = self.automaton.transitions[states, symbols[:, place]]
        return symbols
