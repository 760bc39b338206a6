"""Othello against the known game counts and an independent board in plain Python."""

import numpy as np
import pytest
import torch

from resharpen.models.tasks import seeded_generator
from resharpen.models.tasks.boards import Othello
from resharpen.models.tasks.boards.othello import SQUARE_OF_TOKEN
from resharpen.models.tasks.boards.othello_rules import count_games

TASK = Othello()
PERFT = (1, 4, 12, 56, 244, 1396, 8200, 55092, 390216)


@pytest.mark.parametrize("depth", range(9))
def test_games_are_counted_as_is_known(depth: int) -> None:
    assert count_games(depth) == PERFT[depth]


@pytest.mark.slow
def test_games_are_counted_as_is_known_at_depth_9() -> None:
    assert count_games(9) == 3005288


class Board:
    """A plain board: rows of None, 0 (black) or 1, and who moves."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], int] = {(3, 3): 1, (4, 4): 1, (3, 4): 0, (4, 3): 0}
        self.mover = 0

    def flips(self, row: int, column: int, mover: int) -> list[tuple[int, int]]:
        if (row, column) in self.cells:
            return []
        found = []
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                line, place = [], (row + down, column + right)
                while (down or right) and self.cells.get(place, mover) != mover:
                    line.append(place)
                    place = (place[0] + down, place[1] + right)
                if line and self.cells.get(place) == mover:
                    found += line
        return found

    def legal(self) -> set[int]:
        for mover in (self.mover, 1 - self.mover):
            moves = {r * 8 + c for r in range(8) for c in range(8) if self.flips(r, c, mover)}
            if moves:
                self.mover = mover
                return moves
        return set()

    def play(self, square: int) -> None:
        row, column = divmod(square, 8)
        for place in [*self.flips(row, column, self.mover), (row, column)]:
            self.cells[place] = self.mover
        self.mover = 1 - self.mover


@pytest.mark.parametrize("length", [1, 20, 55, 59])
def test_targets_are_the_legal_moves(length: int) -> None:
    batch = TASK.sample(seeded_generator(length), 6, length)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets, strict=True):
        board = Board()
        assert {SQUARE_OF_TOKEN[0], 63} == {0, 63} & (set(SQUARE_OF_TOKEN.tolist()))
        for token, target in zip(tokens, targets, strict=True):
            assert SQUARE_OF_TOKEN[token] in board.legal()
            board.play(int(SQUARE_OF_TOKEN[token]))
            legal = board.legal()
            assert set(SQUARE_OF_TOKEN[target.numpy() > 0].tolist()) == legal
            np.testing.assert_allclose(target[target > 0], 1 / len(legal), rtol=1e-6)
    torch.testing.assert_close(TASK.exact_targets(batch.tokens), batch.targets)


def test_the_worked_example_holds() -> None:
    target = TASK.exact_targets(torch.tensor([[19]]))[0, 0]
    assert sorted(SQUARE_OF_TOKEN[target.numpy() > 0].tolist()) == [2 * 8 + 2, 2 * 8 + 4, 4 * 8 + 2]


def test_no_square_comes_twice_and_the_next_move_is_legal() -> None:
    batch = TASK.sample(seeded_generator(3), 128, 50)
    assert all(len(set(row)) == 50 for row in batch.tokens.tolist())
    assert (batch.targets.gather(2, batch.next_tokens[..., None]) > 0).all()


def test_moves_are_uniform_over_the_legal_ones() -> None:
    batch = TASK.sample(seeded_generator(9), 4000, 2)
    counts = np.unique(batch.tokens.numpy(), axis=0, return_counts=True)[1]
    assert len(counts) == 12  # 4 first moves, 3 answers each
    assert ((counts - 4000 / 12) ** 2 / (4000 / 12)).sum() < 31.3  # chi-square, 11 d.o.f., 0.999


def test_an_illegal_move_is_named() -> None:
    with pytest.raises(ValueError, match="othello: move 0 at place 1 of sequence 0 is not legal"):
        TASK.exact_targets(torch.tensor([[19, 0]]))
    with pytest.raises(ValueError, match="at least 1 and at most 59"):
        TASK.sample(seeded_generator(0), 2, 60)
