"""A self-avoiding walk: where can it go next?

On a square board of ``side`` by ``side`` cells a walk starts in any cell and steps to one of the
up to four neighbours that it has not visited, uniformly. Cells are tokens, row by row; none comes
twice, so which moves are legal depends on every cell so far (the neighbours that are used up), as
in Set Complement, and on the last one (where the walk stands).

Worked example, ``side = 3`` (cells 0 to 8): after ``0, 1, 4`` the walk stands in the centre; 3, 5
and 7 may follow, a third each. After ``0, 1, 4, 3`` only 6 may: the walk cannot return to 0 or 4.

``length`` is the number of cells visited; a walk that is stuck before one more step is begun again,
so long walks are those that did not get stuck, not uniform among all self-avoiding walks.
Degenerate lengths: on a board of side 2 to 4 the longest walk leaves one cell. On larger boards
walks that fill most of the cells are rare, and each is paid for with those that got stuck: of
random walks one in 4 gets to 32 of the 64 cells, one in 38 to 48, one in 570 to 57. Beyond three
quarters of the cells, or 96 of them, a length is refused.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from ..drawn import check_whole, whole_numbers
from .conditioned import ConditionedGame, Played

_LONGEST_SIDE = 32

_BIT = np.array([1, 2, 4, 8], dtype=np.uint8)
"""Of each direction (up, left, right, down), in the number that says which of them are free."""

_COUNT = np.array([which.bit_count() for which in range(16)])
"""How many directions are free."""

_CHOICE = np.array(
    [([way for way in range(4) if which >> way & 1] + [4] * 4)[:4] for which in range(16)]
)
"""The free directions in order, then 4."""


@dataclass(frozen=True)
class SelfAvoidingWalk(ConditionedGame):
    """Random self-avoiding walks on a square board.

    Attributes:
        side: Cells along one side, 2 to 32.
    """

    name: ClassVar[str] = "self-avoiding-walk"
    length_note: ClassVar[str] = "the number of cells visited, with at least one step left"
    side: int = 8

    def __post_init__(self) -> None:
        """Check the side.

        Raises:
            ValueError: If it is no whole number from 2 to 32.
        """
        check_whole(self.name, "side", self.side, 2)
        if self.side > _LONGEST_SIDE:
            raise ValueError(
                f"{self.name}: side must be at most {_LONGEST_SIDE}, {_LONGEST_SIDE**2} cells; got "
                f"{self.side}"
            )

    @property
    def d_vocab(self) -> int:
        """``side**2`` cells."""
        return self.side**2

    @property
    def d_vocab_out(self) -> int:
        """``side**2``."""
        return self.side**2

    @property
    def max_length(self) -> int:
        """``side**2 - 1`` up to side 4, else three quarters of the cells, 96 at most."""
        return self.d_vocab - 1 if self.side <= 4 else min(3 * self.d_vocab // 4, 96)

    @cached_property
    def neighbours(self) -> Bool[np.ndarray, "cell cell"]:
        """Which cells touch."""
        cells = np.arange(self.d_vocab)
        row, column = cells // self.side, cells % self.side
        return np.abs(row[:, None] - row) + np.abs(column[:, None] - column) == 1

    def legal_first(self) -> Bool[np.ndarray, " cell"]:
        """Every cell."""
        return np.ones(self.d_vocab, dtype=bool)

    def games(self, uniforms: Float[np.ndarray, "game move"]) -> Played:
        """Walks on boards with a border of cells that are never free, one behind the other."""
        n_games, n_moves = uniforms.shape
        width = self.side + 2
        board = np.zeros((n_games, width, width), dtype=np.uint8)
        board[:, 1:-1, 1:-1] = 1
        free = board.reshape(-1)
        onward = np.array([[-width], [-1], [1], [width]])
        step = np.where(_CHOICE < 4, onward[_CHOICE % 4, 0], 0)
        first = whole_numbers(uniforms[:, 0], self.d_vocab)
        origin = np.arange(n_games) * width**2
        cells = np.empty((n_moves, n_games), dtype=np.int64)
        here = origin + (first // self.side + 1) * width + first % self.side + 1
        which = np.zeros(n_games, dtype=np.uint8)
        for place in range(n_moves):
            if place:
                # A walk that is stuck stays where it is, and stuck.
                here = here + step[which, whole_numbers(uniforms[:, place], _COUNT[which])]
            cells[place] = here
            free[here] = 0
            which = _BIT @ free[here + onward]
        lasts, cells = which > 0, (cells - origin).T
        moves = (cells // width - 1) * self.side + cells % width - 1
        legal = np.zeros((*uniforms.shape, self.d_vocab), dtype=bool)
        legal[lasts] = self.legal_after(moves[lasts])
        return moves, legal

    def legal_after(self, moves: Int[np.ndarray, "game move"]) -> Bool[np.ndarray, "game move out"]:
        """Neighbours of the last cell that have not been visited."""
        rows, (n_games, n_moves) = np.arange(len(moves)), moves.shape
        visited = np.full((n_games, self.d_vocab), n_moves)
        for place in reversed(range(n_moves)):
            visited[rows, moves[:, place]] = place
        return self.neighbours[moves] & (visited[:, None] > np.arange(n_moves)[:, None])
