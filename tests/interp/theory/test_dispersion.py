"""Bounds of a softmax row against random rows, attained cases, and brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def entropy(weights: np.ndarray) -> np.ndarray:
    return -np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0).sum(-1)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    seed=SEEDS,
    n=st.integers(1, 300),
    size=st.floats(0.01, 30.0),
    temperature=st.floats(0.2, 5.0),
)
def test_random_rows_keep_to_every_bound(
    seed: int, n: int, size: float, temperature: float
) -> None:
    scores = size * np.random.default_rng(seed).normal(size=n)
    weights = softmax(scores / temperature)
    spread, tolerance = float(np.ptp(scores)), 1e-10
    for law in (theory.weight_bounds, theory.lemma_weight_bounds):
        bounds = law(n, spread, temperature)
        assert bounds.lower <= weights.min() + tolerance
        assert weights.max() <= bounds.upper + tolerance
    largest = theory.max_weight_bounds(n, spread, temperature)
    assert largest.lower - tolerance <= weights.max() <= largest.upper + tolerance
    tight = theory.tight_entropy_bound(n, spread, temperature)
    assert theory.entropy_bound(n, spread, temperature) <= tight + tolerance
    assert tight <= entropy(weights) + tolerance
    centred = (scores - scores.mean()) / temperature
    for norm in (np.linalg.norm(scores / temperature), np.sqrt(n) * centred.std()):
        assert theory.score_norm_entropy_bound(n, norm) <= entropy(weights) + tolerance
    assert entropy(weights) <= theory.entropy_limit(n) + tolerance
    assert 1 / (weights**2).sum() <= theory.effective_support_limit(n) * (1 + tolerance)
    assert weights.max() >= theory.max_weight_limit(n) - tolerance


def test_sharper_weight_bounds_are_attained_and_inside_the_lemma() -> None:
    for n in (2, 5, 100):
        for spread in (0.0, 0.7, 5.0, 40.0):
            top = softmax(np.array([spread] + [0.0] * (n - 1)))[0]
            bottom = softmax(np.array([0.0] + [spread] * (n - 1)))[0]
            bounds, lemma = theory.weight_bounds(n, spread), theory.lemma_weight_bounds(n, spread)
            assert bounds.upper == pytest.approx(top, rel=1e-12)
            assert bounds.lower == pytest.approx(bottom, rel=1e-12)
            assert lemma.lower <= bounds.lower * (1 + 1e-12)
            assert bounds.upper <= lemma.upper * (1 + 1e-12)


def test_weight_bounds_at_the_edges_of_the_domain() -> None:
    alone = theory.weight_bounds(1, 3.0)
    assert alone.lower == alone.upper == 1.0
    huge = theory.weight_bounds(10, 5000.0)
    assert huge.lower == 0.0 and huge.upper == 1.0
    assert theory.lemma_weight_bounds(10, 5000.0).upper == np.inf
    assert theory.max_weight_bounds([2, 4], [[0.0], [1.0], [2.0]]).lower.shape == (3, 2)


def brute_force_least_entropy(n: int, spread: float) -> float:
    """Over every row whose scores are all at one of the two ends of the spread."""
    rows = [np.array([spread] * top + [0.0] * (n - top)) for top in range(1, n)]
    return min(float(entropy(softmax(row))) for row in rows)


@pytest.mark.parametrize("n", [2, 3, 7, 40, 501])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.01, 1.0, 3.0, 9.0, 30.0, 800.0])
def test_tight_entropy_bound_is_the_best_row_of_two_levels(n: int, spread: float) -> None:
    expected = brute_force_least_entropy(n, spread)
    assert theory.tight_entropy_bound(n, spread) == pytest.approx(expected, abs=1e-11)


def test_no_row_of_three_keys_beats_the_tight_entropy_bound() -> None:
    """Every score inside the spread, on a grid: the two-level row is the minimum."""
    grid = np.linspace(0.0, 1.0, 101)
    for spread in (0.5, 2.0, 6.0):
        rows = np.stack([a.ravel() for a in np.meshgrid([0.0], grid, [1.0])], axis=-1) * spread
        least = entropy(softmax(rows)).min()
        assert theory.tight_entropy_bound(3, spread) == pytest.approx(least, abs=1e-12)


def test_tight_entropy_bound_has_the_stated_limit_in_n() -> None:
    spread = np.array([0.1, 1.0, 4.0, 8.0])
    x = spread / (1 - np.exp(-spread))
    closed = np.log(10.0**7) - (x - 1 - np.log(x))
    tight = theory.tight_entropy_bound(10**7, spread)
    assert (closed <= tight + 1e-9).all()
    np.testing.assert_allclose(tight, closed, atol=1e-5)
    assert (closed >= theory.entropy_bound(10**7, spread)).all()


def test_entropy_bounds_at_the_edges() -> None:
    assert theory.tight_entropy_bound(1, 7.0) == 0.0
    np.testing.assert_allclose(theory.entropy_bound(50, [0, 1, 20]), np.log(50) - [0, 0.125, 20])
    assert theory.tight_entropy_bound([[2], [9]], [0.0, 1.0, 2.0]).shape == (2, 3)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(n=st.integers(2, 60), norm=st.floats(0.0, 30.0))
def test_score_norm_bound_is_attained(n: int, norm: float) -> None:
    row = np.full(n, -norm / np.sqrt(n * (n - 1)))
    row[0] = norm * np.sqrt((n - 1) / n)
    assert np.linalg.norm(row) == pytest.approx(norm)
    bound = theory.score_norm_entropy_bound(n, norm)
    assert bound == pytest.approx(float(entropy(softmax(row))), abs=1e-10)


def test_score_norm_bound_at_the_edges() -> None:
    assert theory.score_norm_entropy_bound(1, 4.0) == 0.0
    assert theory.score_norm_entropy_bound(9, 0.0) == pytest.approx(np.log(9))
    assert theory.score_norm_entropy_bound(9, 1e6) == 0.0


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, width=st.integers(1, 9), n=st.integers(1, 50), scale=st.floats(0.01, 2.0))
def test_spread_bound(seed: int, width: int, n: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    query, key = rng.normal(size=(2, width, width))
    y, x = rng.normal(size=width), rng.normal(size=(n, width))
    scores = scale * (query @ y) @ (key @ x.T)
    bound = theory.spread_bound(
        np.linalg.norm(query, 2),
        np.linalg.norm(key, 2),
        np.linalg.norm(y),
        np.linalg.norm(x, axis=1).max(),
        scale,
    )
    assert np.ptp(scores) <= bound + 1e-9


def test_spread_bound_is_attained_by_opposite_keys() -> None:
    assert theory.spread_bound(2.0, 3.0, 0.5, 4.0, 0.1) == pytest.approx(0.1 * (12 - -12))


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 200), width=st.integers(1, 9), gain=st.floats(0.0, 20.0))
def test_qk_norm_rows_keep_to_their_bounds(seed: int, n: int, width: int, gain: float) -> None:
    rng = np.random.default_rng(seed)
    query, keys = rng.normal(size=width), rng.normal(size=(n, width))
    cosines = keys @ query / np.linalg.norm(keys, axis=1) / np.linalg.norm(query)
    weights = softmax(gain * cosines)
    bounds = theory.qk_norm_weight_bounds(n, gain)
    assert (bounds.lower <= weights + 1e-12).all() and (weights <= bounds.upper + 1e-12).all()
    assert bounds.upper == pytest.approx(1 / (1 + (n - 1) * np.exp(-2 * gain)))


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 200), gain=st.floats(0.0, 20.0))
def test_qk_norm_guarantees_an_entropy(seed: int, n: int, gain: float) -> None:
    cosines = np.random.default_rng(seed).choice([-1.0, 1.0], size=n)
    bound = theory.qk_norm_entropy_bound(n, gain)
    assert bound <= entropy(softmax(gain * cosines)) + 1e-10
    rows = [gain * np.array([1.0] * top + [-1.0] * (n - top)) for top in range(1, n)]
    least = min((float(entropy(softmax(row))) for row in rows), default=0.0)
    assert bound == pytest.approx(least, abs=1e-10)


def test_qk_norm_of_fixed_gain_disperses_and_one_that_grows_as_log_n_need_not() -> None:
    n = np.array([10**4, 10**8, 10**12])
    fixed = theory.qk_norm_entropy_bound(n, 5.0)
    np.testing.assert_allclose(np.diff(fixed), np.log(10**4), rtol=1e-3)
    assert (theory.qk_norm_weight_bounds(n, 5.0).upper[1:] < 1e-3).all()
    assert (theory.qk_norm_entropy_bound(n, np.log(n)) < 0.1).all()
    assert (theory.qk_norm_weight_bounds(n, np.log(n)).upper > 0.99).all()


@settings(max_examples=100, derandomize=True, deadline=None)
@given(n=st.integers(2, 10**6), weight=st.floats(0.001, 0.999))
def test_required_spread_reaches_the_weight_and_less_does_not(n: int, weight: float) -> None:
    spread = float(theory.required_spread_bound(n, weight))
    if weight <= 1 / n:
        assert spread == pytest.approx(0.0, abs=1e-9)
    else:
        assert theory.weight_bounds(n, spread).upper == pytest.approx(weight)
        assert theory.weight_bounds(n, 0.999 * spread).upper < weight


@settings(max_examples=100, derandomize=True, deadline=None)
@given(spread=st.floats(0.0, 20.0), weight=st.floats(0.001, 0.999))
def test_largest_n_holds_the_weight_and_the_next_does_not(spread: float, weight: float) -> None:
    largest = float(theory.n_key_bound(spread, weight))
    assert largest == int(largest) >= 1
    assert theory.weight_bounds(largest, spread).upper >= weight * (1 - 1e-9)
    assert theory.weight_bounds(largest + 1, spread).upper < weight * (1 + 1e-9)


def test_largest_n_closed_cases() -> None:
    np.testing.assert_array_equal(
        theory.n_key_bound([0.0, 0.0, 0.0, np.log(9.0), 1e4], [0.5, 0.2, 0.1, 0.9, 0.5]),
        [2, 5, 10, 2, np.inf],
    )
    assert theory.required_spread_bound(1, 0.9) == 0.0


def test_gaussian_laws_against_simulation_well_inside_their_domain() -> None:
    rng = np.random.default_rng(0)
    n, rows = 100_000, 12
    for share in (0.0, 0.15, 0.3):
        sigma = share * np.sqrt(2 * np.log(n))
        weights = softmax(sigma * rng.normal(size=(rows, n)))
        measured = entropy(weights).mean()
        assert theory.predict_gaussian_entropy(n, sigma) == pytest.approx(measured, abs=0.02)
        support = (1 / (weights**2).sum(axis=-1)).mean()
        assert theory.predict_gaussian_support(n, sigma) == pytest.approx(support, rel=0.05)


def test_gaussian_laws_are_nan_past_their_validity_and_not_before() -> None:
    n = 1000
    freezing, annealed = np.sqrt(2 * np.log(n)), np.sqrt(np.log(n) / 2)
    sigma = np.array([annealed - 1e-9, annealed + 1e-9, freezing - 1e-9, freezing + 1e-9])
    law = theory.predict_gaussian_entropy(n, sigma)
    assert np.isnan(law).tolist() == [False, False, False, True]
    assert law[2] == pytest.approx(0.0, abs=1e-7)
    law = theory.predict_gaussian_support(n, sigma)
    assert np.isnan(law).tolist() == [False, True, True, True]
    assert law[0] == pytest.approx(np.sqrt(n))
    assert theory.predict_gaussian_entropy(1, 0.0) == 0.0
    assert np.isnan(theory.predict_gaussian_support(1, 0.1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.weight_bounds(0, 1.0), "n_key"),
        (lambda: theory.weight_bounds(2.5, 1.0), "n_key must be whole"),
        (lambda: theory.weight_bounds(2, -1.0), "spread"),
        (lambda: theory.tight_entropy_bound(2, 1.0, 0.0), "temperature"),
        (lambda: theory.entropy_bound(2, np.nan), "spread"),
        (lambda: theory.score_norm_entropy_bound(2, -1.0), "score_norm"),
        (lambda: theory.required_spread_bound(2, 1.0), "weight"),
        (lambda: theory.n_key_bound(2.0, 0.0), "weight"),
        (lambda: theory.qk_norm_weight_bounds(2, -1.0), "gain"),
        (lambda: theory.spread_bound(1.0, 1.0, -1.0, 1.0), "query_norm"),
        (lambda: theory.predict_gaussian_entropy(9, -0.1), "deviation"),
        (lambda: theory.entropy_limit(0), "n_key"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
