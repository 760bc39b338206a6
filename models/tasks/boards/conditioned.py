"""Random games of a given length: a game that ends earlier is played again, from its own numbers.

Every sequence has the uniforms of several games in its row, so that what one sequence does with
them does not move another. Where none of those games is long enough, the row goes on with a stream
of its own, keyed by its first number: a length that is rare is slow, not wrong.
"""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..drawn import DrawnTask, next_draws
from ..task import Batch, TaskKind, seeded_generator

ATTEMPTS = 32
"""Games that the uniforms of a row are enough for."""

MORE_ATTEMPTS = 2**14
"""Games that a row may play beyond them until one is long enough."""

_AT_ONCE = 512

Played = tuple[Int[np.ndarray, "game move"], Bool[np.ndarray, "game move d_vocab"]]
"""Moves, and what was legal after each; nothing after a game's last move."""


class ConditionedGame(DrawnTask):
    """A game of moves, each uniform over the legal ones; moves are tokens, on both sides."""

    kind: ClassVar[TaskKind] = "mixed"
    needs_positions: ClassVar[bool] = True
    length_note: ClassVar[str] = "the number of moves, with at least one legal move after them"

    @abstractmethod
    def games(self, uniforms: Float[np.ndarray, "game move"]) -> Played:
        """One game a row, each move uniform over the legal ones.

        What the moves of a game that ended are is not defined, but nothing is legal after the last.
        """

    @abstractmethod
    def legal_after(self, moves: Int[np.ndarray, "game move"]) -> Bool[np.ndarray, "game move out"]:
        """Which moves are legal after each of the given ones; anything behind a wrong one."""

    @abstractmethod
    def legal_first(self) -> Bool[np.ndarray, " d_vocab"]:
        """Which moves are legal before any."""

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Uniform over the legal moves after each prefix; NaN where there are none.

        Raises:
            ValueError: If a move is not legal, or the tokens are not moves ``[batch, pos]``.
        """
        if tokens.ndim != 2 or tokens.is_floating_point():
            raise ValueError(
                f"{self.name}: tokens must be whole numbers [batch, pos]; got {tokens.dtype} "
                f"{list(tokens.shape)}"
            )
        moves = tokens.numpy()
        known = (moves >= 0) & (moves < self.d_vocab)
        after = self.legal_after(np.where(known, moves, 0))
        first = np.broadcast_to(self.legal_first(), after[:, :1].shape)
        before = np.concatenate([first, after[:, :-1]], axis=1)
        asked = np.where(known, moves, 0)[..., None]
        wrong = ~(known & np.take_along_axis(before, asked, axis=2)[..., 0])
        if wrong.any():
            place = int(np.flatnonzero(wrong.any(0))[0])
            game = int(np.flatnonzero(wrong[:, place])[0])
            raise ValueError(
                f"{self.name}: move {int(moves[game, place])} at place {place} of sequence "
                f"{game} is not legal there: give the moves of a game"
            )
        return _uniform(after)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (ATTEMPTS * length, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        rows = uniforms[0].reshape(-1, ATTEMPTS, length)
        moves = np.zeros((len(rows), length), dtype=np.int64)
        legal = np.zeros((len(rows), length, self.d_vocab), dtype=bool)
        waiting, tried = np.arange(len(rows)), 0
        while len(waiting) and tried < ATTEMPTS:
            # More at once for the fewer and fewer rows that still need one.
            several = max(1, tried)
            games = rows[waiting, tried : tried + several]
            found = self._first_that_lasts(games)
            there = found[0]
            moves[waiting[there]], legal[waiting[there]] = found[1], found[2]
            waiting, tried = waiting[~there], tried + several
        for row in waiting:
            moves[row], legal[row] = self._go_on(rows[row, 0, 0], length)
        targets = _uniform(legal)
        # Drawn anew: the moves of a game that goes on are not uniform where some end games.
        following = next_draws(targets, uniforms[1])
        relevant = torch.ones(1, 1, length, dtype=torch.bool)
        return Batch(torch.from_numpy(moves), targets, following, relevant, length, bos=False)

    def _first_that_lasts(
        self, uniforms: Float[np.ndarray, "row game move"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which rows have a game after which a move is left, and the first such game of each."""
        n_rows, n_games, n_moves = uniforms.shape
        moves, legal = self.games(uniforms.reshape(-1, n_moves))
        lasts = legal[:, -1].any(-1).reshape(n_rows, n_games)
        there = np.asarray(lasts.any(1))
        first = (np.arange(n_rows) * n_games + lasts.argmax(1))[there]
        return there, moves[first], legal[first]

    def _go_on(self, key: float, length: int) -> tuple[np.ndarray, np.ndarray]:
        generator = seeded_generator(int(key * 2**53))
        for _ in range(MORE_ATTEMPTS // _AT_ONCE):
            there, moves, legal = self._first_that_lasts(generator.random((1, _AT_ONCE, length)))
            if there[0]:
                return moves[0], legal[0]
        raise ValueError(
            f"{self.name}: {ATTEMPTS + MORE_ATTEMPTS} games in a row ended before {length + 1} "
            "moves: ask for shorter ones"
        )


def _uniform(legal: Bool[np.ndarray, "batch pos d_vocab"]) -> Float[Tensor, "batch pos d_vocab"]:
    masses = torch.from_numpy(legal).float()
    return masses / masses.sum(-1, keepdim=True)
