"""A self-avoiding walk: where can it go next?

On a square board of ``side`` by ``side`` cells a walk starts in any cell and steps to one of the
up to four neighbours that it has not visited, uniformly. Cells are tokens, row by row; none comes
twice, so which moves are legal depends on every cell so far (the neighbours that are used up), as
in Set Complement, and on the last one (where the walk stands).

Worked example, ``side = 3`` (cells 0 to 8): after ``0, 1, 4`` the walk stands in the centre; 3, 5
and 7 may follow, a third each. After ``0, 1, 4, 3`` only 6 may: the walk cannot return to 0 or 4.

``length`` is the number of cells visited; a walk that is stuck before one more step is begun again,
so long walks are those that did not get stuck, not uniform among all self-avoiding walks.
Degenerate lengths: at ``side**2 - 1`` one cell is left. Lengths beyond about half the cells of a
larger board are rare among random walks, and are refused when no attempt gets there.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int

from ..drawn import check_whole
from .conditioned import ConditionedGame


@dataclass(frozen=True)
class SelfAvoidingWalk(ConditionedGame):
    """Random self-avoiding walks on a square board.

    Attributes:
        side: Cells along one side, at least 2.
    """

    name: ClassVar[str] = "self-avoiding-walk"
    length_note: ClassVar[str] = "the number of cells visited, with at least one step left"
    side: int = 8

    def __post_init__(self) -> None:
        """Check the side."""
        check_whole(self.name, "side", self.side, 2)

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
        """``side**2 - 1``."""
        return self.side**2 - 1

    @cached_property
    def neighbours(self) -> Bool[np.ndarray, "cell cell"]:
        """Which cells touch."""
        cells = np.arange(self.d_vocab)
        row, column = cells // self.side, cells % self.side
        return np.abs(row[:, None] - row) + np.abs(column[:, None] - column) == 1

    def start(self, batch: int) -> Any:
        """No cell visited, and no place yet."""
        return np.full(batch, -1), np.zeros((batch, self.d_vocab), dtype=bool)

    def legal(self, state: Any) -> Bool[np.ndarray, "game cell"]:
        """Unvisited neighbours; every cell before the first."""
        place, visited = state
        return np.where(place[:, None] < 0, True, self.neighbours[place]) & ~visited

    def play(self, state: Any, moves: Int[np.ndarray, "game"]) -> Any:
        """Step."""
        visited = state[1].copy()
        visited[np.arange(len(moves)), moves] = True
        return moves, visited

    def select(self, state: Any, games: Int[np.ndarray, "chosen"]) -> Any:
        """The states of some walks."""
        return tuple(part[games] for part in state)
