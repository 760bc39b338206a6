import torch
from scipy import stats

from resharpen.models.tasks import Majority, seeded_generator


def test_targets() -> None:
    batch = Majority().sample(seeded_generator(0), 60, 9)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        for end in range(1, 10):
            ones, zeros = tokens[:end].count(1), tokens[:end].count(0)
            if ones == zeros:
                assert targets[end - 1] == [0.5, 0.5]
            else:
                assert targets[end - 1] == ([0, 1] if ones > zeros else [1, 0])
    assert batch.relevant.tolist() == [[[True] * 9]]


def test_the_number_of_ones_is_uniform() -> None:
    """A uniform share of ones makes every count equally likely."""
    ones = Majority().sample(seeded_generator(1), 6000, 11).tokens.sum(1)
    assert stats.chisquare(torch.bincount(ones, minlength=12).numpy()).pvalue > 1e-3


def test_worked_example() -> None:
    assert Majority().exact_targets(torch.tensor([[1, 0, 0, 1, 1]])).tolist() == [
        [[0, 1], [0.5, 0.5], [1, 0], [0.5, 0.5], [0, 1]]
    ]
