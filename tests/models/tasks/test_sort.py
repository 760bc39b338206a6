import itertools
from collections import Counter
from fractions import Fraction

import pytest
import torch
from scipy import stats

from resharpen.models.tasks import Sort, seeded_generator


def following(alphabet: int, prefix: tuple[int, ...]) -> list[float]:
    """Next input symbol, from every ceiling and its likelihood."""
    odds = {
        ceiling: Fraction(1, ceiling) ** len(prefix)
        for ceiling in range(1, alphabet + 1)
        if all(symbol < ceiling for symbol in prefix)
    }
    chances = [
        sum(odd / ceiling for ceiling, odd in odds.items() if symbol < ceiling)
        for symbol in range(alphabet)
    ]
    return [float(chance / sum(odds.values())) for chance in chances]


@pytest.mark.parametrize("length", [1, 2, 7])
def test_tokens_targets_and_relevant_keys(length: int) -> None:
    a = 4
    batch = Sort(alphabet=a).sample(seeded_generator(0), 60, length)
    assert batch.tokens.shape == (60, 2 * length)
    for row, tokens in enumerate(batch.tokens.tolist()):
        symbols = tokens[:length]
        whole = [*symbols, a, *sorted(symbols)]
        assert tokens == whole[:-1] and batch.next_tokens[row].tolist() == whole[1:]
        for place in range(2 * length):
            if place < length - 1:
                expected = [*following(a, tuple(symbols[: place + 1])), 0.0]
            else:
                expected = [float(whole[place + 1] == token) for token in range(a + 1)]
            torch.testing.assert_close(batch.targets[row, place], torch.tensor(expected))
            relevant = [
                place >= length and key < length and tokens[key] == whole[place + 1]
                for key in range(2 * length)
            ]
            assert batch.relevant[row, place].tolist() == relevant


def test_inputs_have_a_uniform_ceiling() -> None:
    a, length, n = 3, 2, 12_000
    batch = Sort(alphabet=a).sample(seeded_generator(1), n, length)
    counts = Counter(map(tuple, batch.tokens[:, :length].tolist()))
    cells = list(itertools.product(range(a), repeat=length))
    expected = [
        n * sum((max(cell) < top) / top**length for top in range(1, a + 1)) / a for cell in cells
    ]
    assert stats.chisquare([counts[cell] for cell in cells], expected).pvalue > 1e-3


def test_the_last_answer_does_not_become_trivial() -> None:
    batch = Sort(alphabet=4).sample(seeded_generator(2), 1000, 80)
    largest = torch.bincount(batch.next_tokens[:, -1], minlength=4)
    assert stats.chisquare(largest.numpy()).pvalue > 1e-3


def test_worked_example() -> None:
    batch = Sort(alphabet=3).sample(seeded_generator(0), 200, 2)
    row = batch.tokens.tolist().index([2, 0, 3, 0])
    expected = [[1 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    torch.testing.assert_close(batch.targets[row], torch.tensor(expected))
