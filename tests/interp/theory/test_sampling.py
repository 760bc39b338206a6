"""Error of an attention output over sampled tokens: rate, bound, and hypotheses that break them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)


def law(seed: int, size: int, limit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(size))
    return probabilities, rng.uniform(-limit, limit, size), rng.uniform(-1, 1, size)


def errors(
    counts: np.ndarray, probabilities: np.ndarray, scores: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """o_n - mu of each row of token counts."""
    weight = np.exp(scores)
    mean = (probabilities * weight * values).sum() / (probabilities * weight).sum()
    return (counts * weight * values).sum(-1) / (counts * weight).sum(-1) - mean


def root_mean_square(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean()))


@pytest.mark.parametrize("seed", range(4))
def test_error_of_sampled_outputs_falls_at_the_rate(seed: int) -> None:
    given_ = law(seed, 6, 1.0)
    rng = np.random.default_rng(seed)
    for n in (2_000, 200_000):
        counts = rng.multinomial(n, given_[0], size=4_000)
        measured = root_mean_square(errors(counts, *given_))
        assert theory.sampling_error_limit(n, *given_) == pytest.approx(measured, rel=0.06)
    rate = theory.sampling_error_rate(*given_)
    assert theory.sampling_error_limit(100, *given_) == pytest.approx(rate / 10)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(seed=SEEDS, size=st.integers(2, 8), n=st.integers(1, 300), limit=st.floats(0.1, 1.5))
def test_error_keeps_to_its_bound_at_every_length(
    seed: int, size: int, n: int, limit: float
) -> None:
    given_ = law(seed, size, limit)
    counts = np.random.default_rng(seed).multinomial(n, given_[0], size=300)
    bound = theory.sampling_error_bound(n, limit, 1.0)
    assert root_mean_square(errors(counts, *given_)) <= bound
    assert theory.sampling_error_limit(n, *given_) <= bound


def test_one_repeated_token_is_not_a_sample_and_its_error_does_not_fall() -> None:
    given_ = law(0, 6, 1.0)
    n = 10_000
    drawn = np.random.default_rng(0).choice(6, size=2_000, p=given_[0])
    counts = n * np.eye(6)[drawn]
    measured = root_mean_square(errors(counts, *given_))
    assert measured > 20 * theory.sampling_error_limit(n, *given_)
    assert measured > 3 * theory.sampling_error_bound(n, 0.1, 1.0)


def test_distinct_tokens_err_less_than_the_rate() -> None:
    """Without replacement the error is gone once every token of the vocabulary was seen."""
    size = 400
    _, scores, values = law(1, size, 1.0)
    uniform = np.full(size, 1 / size)
    rng = np.random.default_rng(0)
    counts = np.stack([rng.permutation(size) < 390 for _ in range(300)])
    measured = root_mean_square(errors(counts, uniform, scores, values))
    assert measured < 0.3 * theory.sampling_error_limit(390, uniform, scores, values)


def test_a_frozen_row_is_far_from_its_limit() -> None:
    """Scores past the freezing deviation sqrt(2 log n): n is not large enough for the rate."""
    size, n = 20_000, 100
    rng = np.random.default_rng(0)
    scores, values = 5.0 * rng.normal(size=size), rng.uniform(-1, 1, size)
    uniform = np.full(size, 1 / size)
    counts = rng.multinomial(n, uniform, size=300)
    measured = root_mean_square(errors(counts, uniform, scores, values))
    assert theory.sampling_error_limit(n, uniform, scores, values) > 2 * measured


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.sampling_error_rate([0.5, 0.4], [0, 0], [0, 0]), "probabilities must sum"),
        (lambda: theory.sampling_error_limit(0, [1.0], [0], [0]), "n_key"),
        (lambda: theory.sampling_error_bound(3, -1.0, 1.0), "score_limit"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_bound_in_numbers() -> None:
    np.testing.assert_allclose(
        theory.sampling_error_bound([1, 100], 0.5, 3.0), [6 * np.e, 0.6 * np.e]
    )
