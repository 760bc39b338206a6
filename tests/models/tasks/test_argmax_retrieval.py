from collections import Counter

import pytest
import torch
from scipy import stats

from resharpen.models.tasks import ArgmaxRetrieval, seeded_generator


@pytest.mark.parametrize("length", [1, 2, 9])
def test_targets_and_relevant_keys(length: int) -> None:
    task = ArgmaxRetrieval(priorities=4, classes=3)
    batch = task.sample(seeded_generator(0), 60, length)
    for row, tokens in enumerate(batch.tokens.tolist()):
        items = [(token // 3, token % 3) for token in tokens]
        for end in range(1, length + 1):
            highest = max(priority for priority, _ in items[:end])
            classes = [kind for priority, kind in items[:end] if priority == highest]
            expected = [classes.count(kind) / len(classes) for kind in range(3)]
            torch.testing.assert_close(batch.targets[row, end - 1], torch.tensor(expected))
            seen = batch.relevant[row, end - 1, :end].tolist()
            assert seen == [priority == highest for priority, _ in items[:end]]


def test_one_item_has_the_highest_priority_of_a_whole_input() -> None:
    batch = ArgmaxRetrieval(priorities=5, classes=2).sample(seeded_generator(2), 4000, 6)
    priorities = batch.tokens // 2
    highest = priorities.max(1, keepdim=True).values
    assert ((priorities == highest).sum(1) == 1).all()
    assert ((batch.targets[:, -1] == 1).sum(-1) == 1).all()
    place = (priorities == highest).int().argmax(1)
    for draws, size in ((place, 6), (highest.flatten() - 1, 4)):
        assert stats.chisquare(torch.bincount(draws, minlength=size).numpy()).pvalue > 1e-3
    others = Counter(priorities[(priorities != highest) & (highest == 3)].tolist())
    assert set(others) == {0, 1, 2}
    assert stats.chisquare(list(others.values())).pvalue > 1e-3


def test_worked_example() -> None:
    task = ArgmaxRetrieval()
    assert task.exact_targets(torch.tensor([[6, 4, 15, 1]])).tolist() == [
        [[0, 0, 1, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1], [0, 0, 0, 1]]
    ]
