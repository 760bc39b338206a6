import pytest
import torch

from resharpen.models.tasks import Copy, seeded_generator


class Given:
    """A generator that gives one row of uniforms."""

    def __init__(self, *uniforms: float) -> None:
        self.uniforms = uniforms

    def random(self, shape: tuple[int, int]):
        assert shape == (1, len(self.uniforms))
        return torch.tensor([self.uniforms], dtype=torch.float64).numpy()


@pytest.mark.parametrize("length", [1, 2, 7])
def test_tokens_targets_and_relevant_keys(length: int) -> None:
    a = 3
    batch = Copy(alphabet=a).sample(seeded_generator(0), 40, length)
    assert batch.tokens.shape == (40, 2 * length)
    for row, tokens in enumerate(batch.tokens.tolist()):
        symbols = tokens[:length]
        assert all(symbol < a for symbol in symbols)
        whole = [*symbols, a, *symbols]
        assert tokens == whole[:-1] and batch.next_tokens[row].tolist() == whole[1:]
        for place in range(2 * length):
            if place < length - 1:
                expected = [1 / a] * a + [0]
            else:
                expected = [float(whole[place + 1] == token) for token in range(a + 1)]
            torch.testing.assert_close(batch.targets[row, place], torch.tensor(expected))
    for query in range(2 * length):
        expected = [key < length and key == query - length for key in range(2 * length)]
        assert batch.relevant[0, query].tolist() == expected


def test_worked_example() -> None:
    batch = Copy(alphabet=3).sample(Given(0.9, 0.1), 1, 2)  # type: ignore[arg-type]
    assert batch.tokens.tolist() == [[2, 0, 3, 2]]
    expected = [[1 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0]]
    torch.testing.assert_close(batch.targets[0], torch.tensor(expected))
