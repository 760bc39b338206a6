import itertools
from collections import Counter

import pytest
import torch
from scipy import stats

from resharpen.models.tasks import Counting, seeded_generator


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("length", [1, 2, 10])
def test_targets_and_relevant_keys(length: int, bos: bool) -> None:
    batch = Counting(largest=3, bos=bos).sample(seeded_generator(0), 60, length)
    assert batch.tokens.shape == (60, length + bos)
    for row, tokens in enumerate(batch.tokens.tolist()):
        assert tokens[:bos] == [2] * bos and set(tokens[bos:]) <= {0, 1}
        assert tokens.count(1) <= 3
        for end in range(1, length + bos + 1):
            count = tokens[:end].count(1)
            assert batch.targets[row, end - 1].tolist() == [count == index for index in range(4)]
        assert batch.relevant[row].tolist() == [[token == 1 for token in tokens]]


def test_counts_and_places_are_uniform() -> None:
    tokens = Counting(largest=2, bos=False).sample(seeded_generator(1), 6000, 4).tokens
    counts = torch.bincount(tokens.sum(1), minlength=3)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    pairs = Counter(tuple(row.nonzero().flatten().tolist()) for row in tokens[tokens.sum(1) == 2])
    assert set(pairs) == set(itertools.combinations(range(4), 2))
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-3


def test_worked_example() -> None:
    task = Counting()
    targets = task.exact_targets(torch.tensor([[2, 0, 1, 1, 0]]))
    assert targets.argmax(-1).tolist() == [[0, 0, 1, 2, 2]]
    assert task.exact_targets(torch.tensor([[1] * 5]))[0, -1].isnan().all()
