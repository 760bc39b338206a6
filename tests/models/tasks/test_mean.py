import torch
from scipy import stats

from resharpen.models.tasks import Mean, seeded_generator


def test_targets() -> None:
    batch = Mean(alphabet=3).sample(seeded_generator(0), 60, 8)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets, strict=True):
        for end in range(1, 9):
            expected = [tokens[:end].count(token) / end for token in range(3)]
            torch.testing.assert_close(targets[end - 1], torch.tensor(expected))
    assert batch.relevant.tolist() == [[[True] * 8]]


def test_a_uniform_point_of_the_simplex_makes_all_counts_equally_likely() -> None:
    """Bose and Einstein: each of the 15 ways to have 4 tokens of 3 kinds has the same weight."""
    tokens = Mean(alphabet=3).sample(seeded_generator(1), 9000, 4).tokens
    counts = torch.nn.functional.one_hot(tokens, 3).sum(1)
    ways = torch.bincount(counts[:, 0] * 5 + counts[:, 1], minlength=25)
    assert (ways > 0).sum() == 15
    assert stats.chisquare(ways[ways > 0].numpy()).pvalue > 1e-3


def test_worked_example() -> None:
    targets = Mean(alphabet=3).exact_targets(torch.tensor([[2, 0, 2]]))
    expected = torch.tensor([[[0, 0, 1], [1 / 2, 0, 1 / 2], [1 / 3, 0, 2 / 3]]])
    torch.testing.assert_close(targets, expected)
