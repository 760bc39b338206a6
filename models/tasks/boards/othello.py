"""Othello: which moves are legal after the moves so far?

Random games as in Li et al., *Emergent World Representations* (Othello-GPT, arXiv 2210.13382): both
players choose uniformly among their legal moves, a player without one is passed over in silence,
and a game is the sequence of its squares. The first version of arXiv 2510.08341 trains a small
model on such games. The target after each move is uniform over what the next player may do.

Tokens are the 60 squares that are empty at the start, row by row from a1's corner square 0 at the
top left, the four centre squares left out: the convention of Li et al. No square comes twice.

Worked example: after the move to d3 (row 2, column 3; token 19) the other player may go to c3, e3
and c5, a third each.

``length`` is the number of moves of the prefix; a random game that ends before one more move could
follow is played again. Degenerate lengths: at 59 one move is left, and it is all that may follow;
60 leaves nothing and is refused.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from .conditioned import ConditionedGame, Played
from .othello_rules import START, Bits, pass_if_stuck, play, squares

CENTRE = (27, 28, 35, 36)
"""Squares that hold a disc from the start."""

SQUARE_OF_TOKEN = np.array([square for square in range(64) if square not in CENTRE])
"""Square ``8 row + column`` of each token."""

BIT_OF_TOKEN = np.uint64(1) << SQUARE_OF_TOKEN.astype(np.uint64)
"""Its bit on a board."""


@dataclass(frozen=True)
class Othello(ConditionedGame):
    """Random Othello games."""

    name: ClassVar[str] = "othello"

    @property
    def d_vocab(self) -> int:
        """60: the squares that are empty at the start."""
        return 60

    @property
    def d_vocab_out(self) -> int:
        """60."""
        return 60

    @property
    def max_length(self) -> int:
        """59: one more move must be possible."""
        return 59

    def legal_first(self) -> Bool[np.ndarray, " 60"]:
        """Black's four moves."""
        return _tokens(pass_if_stuck(*_boards(1))[2])[0]

    def games(self, uniforms: Float[np.ndarray, "game move"]) -> Played:
        """Both players move at random; one who is stuck is passed over."""
        moves = np.zeros(uniforms.shape, dtype=np.int64)
        legal = np.zeros((*uniforms.shape, 60), dtype=bool)
        playing, state = np.arange(len(uniforms)), pass_if_stuck(*_boards(len(uniforms)))
        allowed = _tokens(state[2])
        for place in range(uniforms.shape[1]):
            going = np.flatnonzero(state[2])
            playing, allowed = playing[going], allowed[going]
            own, other, _ = (part[going] for part in state)
            rank = np.floor(uniforms[playing, place] * allowed.sum(1))
            chosen = np.argmax(allowed.cumsum(1) == (rank + 1)[:, None], axis=1)
            state = pass_if_stuck(*play(own, other, BIT_OF_TOKEN[chosen]))
            allowed = _tokens(state[2])
            moves[playing, place], legal[playing, place] = chosen, allowed
        return moves, legal

    def legal_after(self, moves: Int[np.ndarray, "game move"]) -> Bool[np.ndarray, "game move 60"]:
        """Which squares the player to move may take after each move."""
        legal = np.zeros((*moves.shape, 60), dtype=bool)
        own, other, _ = pass_if_stuck(*_boards(len(moves)))
        for place in range(moves.shape[1]):
            own, other, left = pass_if_stuck(*play(own, other, BIT_OF_TOKEN[moves[:, place]]))
            legal[:, place] = _tokens(left)
        return legal


def _boards(batch: int) -> tuple[Bits, Bits]:
    """Discs of the player to move and of the other at the start."""
    black, white = (np.full(batch, discs) for discs in START)
    return black, white


def _tokens(bits: Bits) -> Bool[np.ndarray, "game 60"]:
    return squares(bits)[:, SQUARE_OF_TOKEN]
