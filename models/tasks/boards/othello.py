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
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int

from .conditioned import ConditionedGame
from .othello_rules import START, pass_if_stuck, play, squares

CENTRE = (27, 28, 35, 36)
"""Squares that hold a disc from the start."""

SQUARE_OF_TOKEN = np.array([square for square in range(64) if square not in CENTRE])
"""Square ``8 row + column`` of each token."""


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

    def start(self, batch: int) -> Any:
        """Discs of the player to move, of the other, and the legal moves."""
        own, other = (np.full(batch, discs) for discs in START)
        return pass_if_stuck(own, other)

    def legal(self, state: Any) -> Bool[np.ndarray, "game 60"]:
        """Which of the 60 squares the player to move may take."""
        return squares(state[2])[:, SQUARE_OF_TOKEN]

    def play(self, state: Any, moves: Int[np.ndarray, "game"]) -> Any:
        """Place a disc in each game, turn what it encloses, and pass over a player who is stuck."""
        own, other, _ = state
        square = SQUARE_OF_TOKEN[moves].astype(np.uint64)
        return pass_if_stuck(*play(own, other, np.uint64(1) << square))

    def select(self, state: Any, games: Int[np.ndarray, "chosen"]) -> Any:
        """The states of some games."""
        return tuple(part[games] for part in state)
