"""Walks against plain Python, and against all walks of a small board."""

import numpy as np
import pytest
import torch
from scipy import stats

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


@pytest.mark.parametrize(("side", "longest"), [(2, 3), (4, 15), (5, 18), (8, 48), (20, 96)])
def test_the_longest_walk_can_be_drawn(side: int, longest: int) -> None:
    task = SelfAvoidingWalk(side)
    assert task.max_length == longest
    batch = task.sample(seeded_generator(0), 8, longest)
    assert all(len(set(row)) == longest for row in batch.tokens.tolist())
    assert not batch.targets.isnan().any()
    with pytest.raises(ValueError, match=f"at most {longest}"):
        task.sample(seeded_generator(0), 2, longest + 1)


def test_a_row_goes_on_from_its_own_numbers_until_a_walk_lasts(monkeypatch) -> None:
    """One attempt a row instead of 32: three of four rows need the stream of their own."""
    monkeypatch.setattr("resharpen.models.tasks.boards.conditioned.ATTEMPTS", 1)
    task = SelfAvoidingWalk(8)
    whole = task.sample(seeded_generator(6), 32, 36)
    assert all(len(set(row)) == 36 for row in whole.tokens.tolist())
    torch.testing.assert_close(task.exact_targets(whole.tokens), whole.targets)
    assert len({tuple(row) for row in whole.tokens.tolist()}) == 32
    generator = seeded_generator(6)
    parts = [task.sample(generator, batch, 36).tokens for batch in (1, 20, 11)]
    assert torch.equal(torch.cat(parts), whole.tokens)


def test_steps_are_uniform_among_walks_that_last_whatever_the_attempts(monkeypatch) -> None:
    """All walks of 7 cells on a board of 3 that can go on, against the product of their steps."""

    def walks(walk: list[int], probability: float) -> dict[tuple[int, ...], float]:
        onward = free(3, walk)
        if len(walk) == 7:
            return {tuple(walk): probability} if onward else {}
        found: dict[tuple[int, ...], float] = {}
        for cell in onward:
            found |= walks([*walk, cell], probability / len(onward))
        return found

    expected: dict[tuple[int, ...], float] = {}
    for cell in range(9):
        expected |= walks([cell], 1 / 9)
    total, n = sum(expected.values()), 2000
    for attempts in (1, 32):
        monkeypatch.setattr("resharpen.models.tasks.boards.conditioned.ATTEMPTS", attempts)
        tokens = SelfAvoidingWalk(3).sample(seeded_generator(2), n, 7).tokens.numpy()
        seen = dict.fromkeys(expected, 0)
        for row in tokens.tolist():
            seen[tuple(row)] += 1
        wanted = [n * share / total for share in expected.values()]
        assert stats.chisquare(list(seen.values()), wanted).pvalue > 1e-3


def test_a_length_that_no_walk_reaches_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(SelfAvoidingWalk, "max_length", 63)
    with pytest.raises(ValueError, match="16416 games in a row ended before 64 moves: ask for"):
        SelfAvoidingWalk(8).sample(seeded_generator(0), 1, 63)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SelfAvoidingWalk(1), "side must be a whole number, 2 or more; got 1"),
        (lambda: SelfAvoidingWalk(33), "side must be at most 32, 1024 cells; got 33"),
        (lambda: targets([[0, 9]]), "move 9 at place 1 of sequence 0 is not legal"),
        (lambda: targets([[-1, 0]]), "move -1 at place 0 of sequence 0 is not legal"),
        (lambda: targets([[0, 1, 2], [0, 1, 0]]), "move 0 at place 2 of sequence 1 is not legal"),
        (lambda: targets([[0, 4]]), "move 4 at place 1 of sequence 0 is not legal"),
        (lambda: targets([0, 1]), r"whole numbers \[batch, pos\]; got torch.int64 \[2\]"),
        (lambda: targets([[0.0]]), "whole numbers .*; got torch.float32"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def targets(tokens: list) -> torch.Tensor:
    return SelfAvoidingWalk(3).exact_targets(torch.tensor(tokens))
