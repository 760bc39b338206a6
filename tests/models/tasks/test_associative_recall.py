"""Associative recall against the enumeration of everything it could have drawn."""

import itertools
from collections import Counter, defaultdict

import pytest
import torch
from scipy import stats

from resharpen.models.tasks import AssociativeRecall, seeded_generator


def every_sequence(task: AssociativeRecall, length: int) -> list[tuple[int, ...]]:
    """All whole sequences, each as likely as any other."""
    a, b = task.key_alphabet, task.value_alphabet
    keys = list(itertools.product(range(a), repeat=task.key_tokens))
    values = list(itertools.product(range(a, a + b), repeat=task.value_tokens))
    sequences = []
    for chosen in itertools.permutations(keys, length):
        for given in itertools.product(values, repeat=length):
            pairs = [(*key, *value) for key, value in zip(chosen, given, strict=True)]
            for asked in itertools.permutations(pairs, task.queries):
                parts = [*pairs, (a + b,), *asked]
                sequences.append(tuple(itertools.chain.from_iterable(parts)))
    return sequences


CASES = [
    (AssociativeRecall(2, 2, key_tokens=2, value_tokens=1, queries=2), 3),
    (AssociativeRecall(2, 2, key_tokens=2, value_tokens=1, queries=1), 4),
    (AssociativeRecall(3, 2, key_tokens=1, value_tokens=2, queries=3), 3),
    (AssociativeRecall(3, 2, key_tokens=2, value_tokens=1, queries=1), 2),
    (AssociativeRecall(2, 3, key_tokens=3, value_tokens=1, queries=1), 1),
]


@pytest.mark.parametrize(("task", "length"), CASES)
def test_targets_are_the_exact_conditionals(task: AssociativeRecall, length: int) -> None:
    continuations: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for sequence in every_sequence(task, length):
        for end in range(1, len(sequence)):
            continuations[sequence[:end]][sequence[end]] += 1
    batch = task.sample(seeded_generator(0), 150, length)
    width = task.key_tokens + task.value_tokens
    assert batch.tokens.shape[1] == (length + task.queries) * width
    for row, tokens in enumerate(batch.tokens.tolist()):
        for end in range(1, len(tokens) + 1):
            count = continuations[tuple(tokens[:end])]
            expected = [count[token] / count.total() for token in range(task.d_vocab)]
            torch.testing.assert_close(batch.targets[row, end - 1], torch.tensor(expected))
        assert batch.next_tokens[row, :-1].tolist() == tokens[1:]


def test_all_sequences_are_equally_likely() -> None:
    task, length = CASES[0]
    batch = task.sample(seeded_generator(1), 30_000, length)
    whole = torch.cat([batch.tokens, batch.next_tokens[:, -1:]], dim=1)
    counts = Counter(map(tuple, whole.tolist()))
    cells = every_sequence(task, length)
    assert set(counts) <= set(cells) and len(cells) == 1152
    assert stats.chisquare([counts[cell] for cell in cells]).pvalue > 1e-3


@pytest.mark.parametrize(("task", "length"), [*CASES, (AssociativeRecall(), 20)])
def test_relevant_is_the_pair_that_is_asked_for(task: AssociativeRecall, length: int) -> None:
    batch = task.sample(seeded_generator(2), 20, length)
    width = task.key_tokens + task.value_tokens
    n_pos = batch.tokens.shape[1]
    for row, tokens in enumerate(batch.tokens.tolist()):
        keys = [tokens[i * width : i * width + task.key_tokens] for i in range(length)]
        for query in range(n_pos):
            expected = [False] * n_pos
            # How many tokens of its own block the query has seen, itself included.
            block, seen = divmod(query - length * width, width)
            if query >= length * width and seen >= task.key_tokens:
                start = length * width + 1 + block * width
                pair = keys.index(tokens[start : start + task.key_tokens])
                expected[pair * width : (pair + 1) * width] = [True] * width
                answer = tokens[pair * width + seen]
                assert batch.targets[row, query, answer] == 1
            assert batch.relevant[row, query].tolist() == expected


def test_worked_example() -> None:
    task = AssociativeRecall(2, 2, key_tokens=1, value_tokens=1, queries=1)
    batch = task.sample(seeded_generator(0), 200, 2)
    row = batch.tokens.tolist().index([1, 3, 0, 2, 4, 1])
    half_keys, half_values = [0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0]
    assert batch.targets[row].tolist() == [
        half_values,
        [1, 0, 0, 0, 0],
        half_values,
        [0, 0, 0, 0, 1],
        half_keys,
        [0, 0, 0, 1, 0],
    ]
