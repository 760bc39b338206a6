"""Sampled outputs against enumeration, against the derived rate, and where that fails."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory
from resharpen.interp.sampling_error import sampling_errors, sampling_scale

SEEDS = st.integers(0, 2**31 - 1)


def row(seed: int, n_key: int, spread: float, width: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(n_key, generator=generator, dtype=torch.float64)
    return scores, torch.randn(n_key, width, generator=generator, dtype=torch.float64)


def derived(scores: torch.Tensor, values: torch.Tensor) -> float:
    """C: the derived rate of every coordinate together."""
    share = np.full(len(scores), 1 / len(scores))
    rate = theory.sampling_error_rate(share, scores.numpy(), values.numpy().T)
    return float(np.sqrt((rate**2).sum()))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_error_is_that_of_every_draw_enumerated(size: int) -> None:
    scores, values = row(0, 5, 1.0)
    whole = scores.softmax(-1) @ values
    squares = []
    for keys in itertools.product(range(5), repeat=size):
        drawn = list(keys)
        squares.append(float((scores[drawn].softmax(-1) @ values[drawn] - whole).square().sum()))
    exact = math.sqrt(sum(squares) / len(squares))
    found = float(sampling_errors(scores, values, size, 40_000, np.random.default_rng(0)))
    assert found == pytest.approx(exact, rel=0.015)


@pytest.mark.parametrize("seed", range(3))
def test_error_tends_to_the_derived_limit(seed: int) -> None:
    scores, values = row(seed, 60, 1.0)
    rng = np.random.default_rng(seed)
    n_key = 32 * math.ceil(float(sampling_scale(scores)))
    for size in (n_key, 64 * n_key):
        found = float(sampling_errors(scores, values, size, 3000, rng))
        assert found * math.sqrt(size) == pytest.approx(derived(scores, values), rel=0.06)


@settings(max_examples=25, derandomize=True, deadline=None)
@given(seed=SEEDS, n_key=st.integers(2, 12), size=st.integers(1, 200), limit=st.floats(0.1, 1.5))
def test_error_keeps_to_the_bound(seed: int, n_key: int, size: int, limit: float) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.uniform(-limit, limit, n_key))
    values = torch.from_numpy(rng.uniform(-1, 1, (n_key, 1)))
    bound = float(theory.sampling_error_bound(size, limit, 1.0))
    assert float(sampling_errors(scores, values, size, 300, rng)) <= bound


def test_keys_that_weigh_the_same_err_as_a_mean_does() -> None:
    """Equal scores: sigma / sqrt(n) at every n, with sigma of the values over the keys."""
    _, values = row(1, 40, 0.0)
    sigma = math.sqrt(float((values - values.mean(0)).square().sum(-1).mean()))
    for size in (1, 4, 100):
        found = sampling_errors(torch.zeros(40), values, size, 20_000, np.random.default_rng(size))
        assert float(found) == pytest.approx(sigma / math.sqrt(size), rel=0.02)


def test_a_needle_is_missed_below_its_scale_and_the_rate_fails_there() -> None:
    """One key of 500 holds nearly all: of 20 keys drawn, 96 % of the draws lack it."""
    scores = torch.zeros(500, dtype=torch.float64)
    scores[7] = 30.0
    _, values = row(2, 500, 0.0)
    assert float(sampling_scale(scores)) == pytest.approx(500, rel=1e-6)
    found = float(sampling_errors(scores, values, 20, 4000, np.random.default_rng(0)))
    length = float((values - values[7]).square().sum(-1).mean().sqrt())
    assert 0.5 * length < found < 1.5 * length
    assert found > 50 * derived(scores, values) / math.sqrt(20)


def test_scores_that_no_float_can_weigh_are_drawn_about_their_own_largest() -> None:
    scores = torch.tensor([0.0, 2000.0], dtype=torch.float64)
    values = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    # Only a draw without the second key errs, and then by 1: half of the draws of one key.
    found = float(sampling_errors(scores, values, 1, 20_000, np.random.default_rng(0)))
    assert found == pytest.approx(math.sqrt(0.5), rel=0.02)


def test_scale_in_closed_form() -> None:
    assert float(sampling_scale(torch.zeros(9))) == pytest.approx(1.0)
    two = torch.tensor([0.0, 0.0, -torch.inf, -100.0])
    assert float(sampling_scale(two)) == pytest.approx(1.5)
    assert float(sampling_scale(two + 1000.0)) == pytest.approx(1.5)


def test_hidden_keys_are_not_drawn_and_rows_without_a_key_are_nan() -> None:
    scores, values = row(3, 6, 1.0)
    longer = torch.cat([scores, torch.full((2,), -torch.inf, dtype=torch.float64)])
    further = torch.cat([values, torch.full((2, 3), torch.nan, dtype=torch.float64)])
    first, second = (
        sampling_errors(*given_, 4, 50, np.random.default_rng(0))
        for given_ in ((scores, values), (longer, further))
    )
    assert float(first) == float(second)
    empty = torch.full((2, 8), -torch.inf)
    assert bool(sampling_errors(empty, further, 4, 5, np.random.default_rng(0)).isnan().all())
    assert bool(sampling_scale(empty).isnan().all())


def test_rows_keep_their_shape_and_one_key_never_errs() -> None:
    scores, values = row(4, 6, 1.0)
    batch = torch.stack([scores, scores.flip(0)])[:, None]
    found = sampling_errors(batch, values, 3, 20, np.random.default_rng(0))
    assert found.shape == (2, 1) and found.dtype == torch.float64 and bool((found > 0).all())
    assert float(sampling_errors(scores[:1], values[:1], 3, 5, np.random.default_rng(0))) == 0.0


@pytest.mark.parametrize(
    ("size", "draws", "width", "sentence"),
    [
        (0, 5, 4, "n_key must be a whole number"),
        (3, 0, 4, "n_draws must be a whole number"),
        (True, 5, 4, "n_key must be a whole number"),
        (3, 5, 2, "values must be"),
    ],
)
def test_bad_input_is_one_sentence(size: int, draws: int, width: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sampling_errors(
            torch.zeros(4), torch.zeros(width, 3), size, draws, np.random.default_rng(0)
        )
