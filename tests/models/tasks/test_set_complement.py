import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from resharpen.models import SetComplement, Task, seeded_generator, task_from_dict


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("bos", [False, True])
def test_targets_are_uniform_over_what_is_missing(bos: bool, replacement: bool) -> None:
    task = SetComplement(7, bos=bos, replacement=replacement)
    batch = task.sample(seeded_generator(0), 50, 6)
    assert isinstance(task, Task)
    assert batch.tokens.shape == (50, 6 + bos)
    assert batch.targets.shape == (50, 6 + bos, 7)
    for sequence, targets, labels in zip(
        batch.tokens.tolist(), batch.targets, batch.next_tokens.tolist(), strict=True
    ):
        for position in range(6 + bos):
            missing = set(range(7)) - set(sequence[: position + 1])
            expected = torch.tensor([(i in missing) / len(missing) for i in range(7)])
            torch.testing.assert_close(targets[position], expected)
            assert labels[position] in missing
    if not replacement:
        assert all(len(set(row[bos:])) == 6 for row in batch.tokens.tolist())
    assert batch.relevant.shape == (1, 1, 6 + bos)
    assert batch.relevant.flatten().tolist() == [False] * bos + [True] * 6


@pytest.mark.parametrize("replacement", [False, True])
def test_the_batch_split_does_not_matter(replacement: bool) -> None:
    task = SetComplement(9, bos=True, replacement=replacement)
    whole = task.sample(seeded_generator(3, 1), 10, 5)
    generator = seeded_generator(3, 1)
    parts = [task.sample(generator, size, 5) for size in (1, 4, 5)]
    for name in ("tokens", "targets", "next_tokens"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(joined, getattr(whole, name)), name


def test_same_seed_same_batch_on_any_machine() -> None:
    batch = SetComplement(8).sample(seeded_generator(0, 5), 3, 4)
    assert batch.tokens.tolist() == [[6, 3, 7, 2], [4, 2, 6, 3], [4, 1, 2, 3]]
    assert batch.next_tokens[:, :-1].tolist() == batch.tokens[:, 1:].tolist()


def test_sequences_are_uniform() -> None:
    batch = SetComplement(4).sample(seeded_generator(1), 24_000, 2)
    pairs = Counter(map(tuple, batch.tokens.tolist()))
    assert set(pairs) == set(itertools.permutations(range(4), 2))
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-3


def test_labels_are_draws_from_the_targets() -> None:
    for replacement in (False, True):
        task = SetComplement(4, replacement=replacement)
        batch = task.sample(seeded_generator(2), 20_000, 2)
        first = batch.tokens[:, 0] == 0
        only_zero = first & (batch.tokens[:, 1] == 0) if replacement else first
        position = 1 if replacement else 0
        counts = torch.bincount(batch.next_tokens[only_zero, position], minlength=4)
        assert counts[0] == 0
        assert stats.chisquare(counts[1:].numpy()).pvalue > 1e-3


def test_replacement_goes_past_the_vocabulary_and_leaves_something() -> None:
    batch = SetComplement(5, replacement=True).sample(seeded_generator(0), 300, 40)
    assert torch.isfinite(batch.targets).all()
    sizes = np.array([len(set(row)) for row in batch.tokens.tolist()])
    assert set(sizes) == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SetComplement(1), "vocabulary must be at least 2; got 1"),
        (lambda: SetComplement(2.5), "vocabulary must be a whole number"),
        (lambda: SetComplement(5).sample(seeded_generator(0), 2, 5), "at most 4; got 5"),
        (lambda: SetComplement(5).sample(seeded_generator(0), 2, 0), "at least 1 and at most 4"),
        (lambda: SetComplement(5).sample(seeded_generator(0), 0, 2), "batch must be at least 1"),
        (lambda: seeded_generator(-1), "seed and key must be zero or more"),
        (lambda: task_from_dict({"name": "chess"}), "unknown task 'chess'; known tasks"),
        (
            lambda: task_from_dict({"name": "set-complement", "size": 3}),
            "does not take these parameters",
        ),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_round_trip() -> None:
    task = SetComplement(6, bos=True, replacement=True)
    assert task_from_dict(task.to_dict()) == task
