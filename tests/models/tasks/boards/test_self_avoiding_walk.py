"""Walks against plain Python, and against all walks of a small board."""

import numpy as np
import pytest
import torch

from resharpen.models.tasks import seeded_generator
from resharpen.models.tasks.boards import SelfAvoidingWalk


def free(side: int, walk: list[int]) -> list[int]:
    row, column = divmod(walk[-1], side)
    steps = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
    cells = [r * side + c for r, c in steps if 0 <= r < side and 0 <= c < side]
    return [cell for cell in cells if cell not in walk]


@pytest.mark.parametrize(("side", "length"), [(2, 3), (3, 5), (3, 8), (6, 14)])
def test_targets_are_the_free_neighbours(side: int, length: int) -> None:
    task = SelfAvoidingWalk(side)
    batch = task.sample(seeded_generator(4), 16, length)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets, strict=True):
        for place in range(length):
            wanted = free(side, tokens[: place + 1])
            assert sorted(np.flatnonzero(targets[place].numpy())) == sorted(wanted)
            np.testing.assert_allclose(targets[place].max(), 1 / len(wanted), rtol=1e-6)
    torch.testing.assert_close(task.exact_targets(batch.tokens), batch.targets)


def test_steps_are_uniform_given_that_the_walk_goes_on() -> None:
    batch = SelfAvoidingWalk(2).sample(seeded_generator(1), 8000, 2)
    counts = np.unique(batch.tokens.numpy(), axis=0, return_counts=True)[1]
    assert len(counts) == 8  # 4 cells, 2 directions
    assert ((counts - 1000) ** 2 / 1000).sum() < 24.3  # chi-square, 7 d.o.f., 0.999


def test_the_worked_examples_hold() -> None:
    targets = SelfAvoidingWalk(3).exact_targets(torch.tensor([[0, 1, 4, 3]]))
    assert torch.nonzero(targets[0, 2]).flatten().tolist() == [3, 5, 7]
    assert torch.nonzero(targets[0, 3]).flatten().tolist() == [6]


def test_walks_that_hardly_ever_get_there_are_refused() -> None:
    with pytest.raises(ValueError, match="games in a row ended before 64 moves: ask for shorter"):
        SelfAvoidingWalk(8).sample(seeded_generator(0), 4, 63)
    with pytest.raises(ValueError, match="side must be a whole number, 2 or more; got 1"):
        SelfAvoidingWalk(1)
