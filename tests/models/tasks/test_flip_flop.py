import itertools
from collections import Counter

import pytest
import torch
from scipy import stats

from resharpen.models.tasks import FlipFlop, seeded_generator


@pytest.mark.parametrize(("writes", "length"), [(1, 2), (1, 6), (2, 3), (3, 9)])
def test_targets_and_relevant_keys(writes: int, length: int) -> None:
    batch = FlipFlop(writes).sample(seeded_generator(0), 60, length)
    for row, tokens in enumerate(batch.tokens.tolist()):
        assert tokens[0] in (0, 1) and tokens[-1] == 4
        assert sum(token in (0, 1) for token in tokens) == writes
        for end in range(1, length + 1):
            last = max(place for place in range(end) if tokens[place] in (0, 1))
            assert batch.targets[row, end - 1].tolist() == [tokens[last] == 0, tokens[last] == 1]
            expected = [place == last for place in range(length)]
            assert batch.relevant[row, end - 1].tolist() == expected


def test_places_and_fillers_are_uniform() -> None:
    tokens = FlipFlop(3).sample(seeded_generator(1), 6000, 7).tokens
    places = Counter(tuple((row < 2).nonzero().flatten().tolist()) for row in tokens)
    assert set(places) == {(0, *pair) for pair in itertools.combinations(range(1, 6), 2)}
    assert stats.chisquare(list(places.values())).pvalue > 1e-3
    fillers = Counter(tokens[:, 1:-1][tokens[:, 1:-1] >= 2].tolist())
    assert set(fillers) == {2, 3, 4} and stats.chisquare(list(fillers.values())).pvalue > 1e-3
    bits = torch.bincount(tokens[tokens < 2])
    assert stats.chisquare(bits.numpy()).pvalue > 1e-3


def test_worked_example() -> None:
    targets = FlipFlop().exact_targets(torch.tensor([[1, 2, 0, 4, 3, 4]]))
    assert targets.argmax(-1).tolist() == [[1, 1, 0, 0, 0, 0]]
    assert FlipFlop().exact_targets(torch.tensor([[4, 1]]))[0, 0].isnan().all()
