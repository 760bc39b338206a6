import torch

from resharpen.models.tasks import First, seeded_generator


def test_the_answer_is_the_first_bit_everywhere() -> None:
    batch = First().sample(seeded_generator(0), 60, 7)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        assert tokens[0] in (2, 3) and set(tokens[1:]) <= {0, 1}
        for target in targets:
            assert target == ([1, 0] if tokens[0] == 2 else [0, 1])
    assert batch.next_tokens.tolist() == [[row[0] - 2] * 7 for row in batch.tokens.tolist()]
    assert batch.relevant.tolist() == [[[True] + [False] * 6]]


def test_bits_are_uniform_and_independent() -> None:
    tokens = First().sample(seeded_generator(1), 8000, 3).tokens
    counts = torch.bincount(tokens[:, 0] % 2 * 4 + tokens[:, 1] * 2 + tokens[:, 2], minlength=8)
    assert (counts - 1000).abs().max() < 150


def test_worked_example() -> None:
    assert First().exact_targets(torch.tensor([[3, 0, 0, 1]])).tolist() == [[[0, 1]] * 4]
