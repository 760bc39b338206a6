"""Random games of a given length: a game that ends earlier is played again, from its own numbers.

Every sequence has the uniforms of several games in its row, so that what one sequence does with
them does not move another.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..drawn import DrawnTask, next_draws
from ..task import Batch, TaskKind

ATTEMPTS = 32
"""Games that a sequence may play until one is long enough."""


class ConditionedGame(DrawnTask):
    """A game of moves, each uniform over the legal ones; moves are tokens, on both sides."""

    kind: ClassVar[TaskKind] = "mixed"
    needs_positions: ClassVar[bool] = True
    length_note: ClassVar[str] = "the number of moves, with at least one legal move after them"

    @abstractmethod
    def start(self, batch: int) -> Any:
        """States of ``batch`` games before the first move."""

    @abstractmethod
    def legal(self, state: Any) -> Bool[np.ndarray, "game d_vocab"]:
        """Which moves are legal in each state."""

    @abstractmethod
    def play(self, state: Any, moves: Int[np.ndarray, "game"]) -> Any:
        """States after one move each; what an illegal move does is not defined."""

    @abstractmethod
    def select(self, state: Any, games: Int[np.ndarray, "chosen"]) -> Any:
        """The states of some games."""

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Uniform over the legal moves after each prefix; NaN where there are none.

        Raises:
            ValueError: If a move is not legal.
        """
        moves = tokens.numpy()
        state, found = self.start(len(moves)), []
        for place in range(moves.shape[1]):
            allowed = np.take_along_axis(self.legal(state), moves[:, place : place + 1], axis=1)
            if not allowed.all():
                game = int(np.flatnonzero(~allowed[:, 0])[0])
                raise ValueError(
                    f"{self.name}: move {int(moves[game, place])} at place {place} of sequence "
                    f"{game} is not legal there: give the moves of a game"
                )
            state = self.play(state, moves[:, place])
            found.append(self.legal(state))
        legal = torch.from_numpy(np.stack(found, axis=1)).float()
        return legal / legal.sum(-1, keepdim=True)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (ATTEMPTS * length, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        rows = uniforms[0].reshape(-1, ATTEMPTS, length)
        moves = np.full((len(rows), length), -1)
        legal = np.zeros((len(rows), length, self.d_vocab), dtype=bool)
        waiting = np.arange(len(rows))
        for attempt in range(ATTEMPTS):
            played, allowed = self._play(rows[waiting, attempt])
            done = allowed[:, -1].any(-1)
            moves[waiting[done]], legal[waiting[done]] = played[done], allowed[done]
            waiting = waiting[~done]
            if not len(waiting):
                break
        if len(waiting):
            raise ValueError(
                f"{self.name}: {ATTEMPTS} games in a row ended before {length + 1} moves: ask for "
                "shorter ones"
            )
        tokens, targets = torch.from_numpy(moves), torch.from_numpy(legal).float()
        targets = targets / targets.sum(-1, keepdim=True)
        # Drawn anew: the moves of a game that goes on are not uniform where some end games.
        following = next_draws(targets, uniforms[1])
        relevant = torch.ones(1, 1, length, dtype=torch.bool)
        return Batch(tokens, targets, following, relevant, length, bos=False)

    def _play(self, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One game a row: its moves (-1 once it has ended), and what was legal after each."""
        n_games, n_moves = uniforms.shape
        moves = np.full((n_games, n_moves), -1)
        legal = np.zeros((n_games, n_moves, self.d_vocab), dtype=bool)
        playing, state = np.arange(n_games), self.start(n_games)
        allowed = self.legal(state)
        for place in range(n_moves):
            going = np.flatnonzero(allowed.any(1))
            playing, state, allowed = playing[going], self.select(state, going), allowed[going]
            if not len(playing):
                break
            rank = np.floor(uniforms[playing, place] * allowed.sum(1)).astype(np.int64)
            chosen = np.argmax(allowed.cumsum(1) == (rank + 1)[:, None], axis=1)
            moves[playing, place] = chosen
            state = self.play(state, chosen)
            allowed = self.legal(state)
            legal[playing, place] = allowed
        return moves, legal
