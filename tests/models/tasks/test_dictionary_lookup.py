import pytest
import torch
from scipy import stats

from resharpen.models.tasks import DictionaryLookup, seeded_generator

K, V = 3, 2


@pytest.mark.parametrize("length", [2, 3, 9])
def test_targets_and_relevant_keys(length: int) -> None:
    batch = DictionaryLookup(keys=K, values=V).sample(seeded_generator(0), 60, length)
    for row, tokens in enumerate(batch.tokens.tolist()):
        assert all(token < K * V for token in tokens[:-1]) and tokens[-1] >= K * V
        for end in range(1, length + 1):
            last = tokens[end - 1]
            key = last // V if last < K * V else last - K * V
            alike = [token < K * V and token // V == key for token in tokens[:end]]
            given = [token % V for token, same in zip(tokens[:end], alike, strict=True) if same]
            expected = [given.count(value) / len(given) for value in range(V)]
            torch.testing.assert_close(batch.targets[row, end - 1], torch.tensor(expected))
            assert batch.relevant[row, end - 1, :end].tolist() == alike


def test_the_key_that_is_asked_for_stands_in_one_pair() -> None:
    batch = DictionaryLookup(keys=5, values=3).sample(seeded_generator(1), 4000, 7)
    assert (batch.relevant[:, -1].sum(-1) == 1).all()
    asked = batch.tokens[:, -1] - 15
    place = batch.relevant[:, -1].int().argmax(-1)
    others = batch.tokens[:, :-1][~batch.relevant[:, -1, :-1]].view(4000, 5) // 3
    for draws, size in (
        (asked, 5),
        (place, 6),
        (others[asked == 0].flatten() - 1, 4),
        (batch.tokens[:, 0] % 3, 3),
    ):
        assert stats.chisquare(torch.bincount(draws, minlength=size).numpy()).pvalue > 1e-3


def test_worked_example() -> None:
    task = DictionaryLookup(keys=3, values=2)
    assert task.exact_targets(torch.tensor([[1, 4, 0, 8]])).tolist() == [
        [[0, 1], [1, 0], [0.5, 0.5], [1, 0]]
    ]
    assert task.exact_targets(torch.tensor([[6, 1]]))[0, 0].isnan().all()
