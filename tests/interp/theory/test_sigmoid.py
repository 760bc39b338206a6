"""Rows that need not sum to one: masses against random rows, attained, and outside their claim."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 2000), limit=st.floats(0.0, 5.0), bias=st.floats(-4.0, 4.0))
def test_masses_of_random_rows(seed: int, n: int, limit: float, bias: float) -> None:
    scores = np.random.default_rng(seed).uniform(-limit, limit, size=n)
    for given_, shift in ((None, -np.log(n)), (bias, bias)):
        weights = sigmoid(scores + shift)
        bounds = theory.sigmoid_mass_bounds(n, limit, given_)
        assert bounds.lower * (1 - 1e-9) <= weights.sum() <= bounds.upper * (1 + 1e-9)
        law = theory.predict_sigmoid_weight(n, scores, given_)
        np.testing.assert_allclose(law, weights, rtol=1e-9)
    weights = np.exp(scores) / (1 + np.exp(scores).sum())
    assert theory.predict_softmax1_mass(scores) == pytest.approx(weights.sum())
    bounds = theory.softmax1_mass_bounds(n, limit)
    assert bounds.lower - 1e-12 <= weights.sum() <= bounds.upper + 1e-12


@pytest.mark.parametrize("n", [1, 7, 10_000])
@pytest.mark.parametrize("limit", [0.0, 0.5, 4.0])
def test_mass_bounds_are_attained_by_equal_scores(n: int, limit: float) -> None:
    for scores, side in ((np.full(n, -limit), 0), (np.full(n, limit), 1)):
        mass = sigmoid(scores - np.log(n)).sum()
        assert theory.sigmoid_mass_bounds(n, limit)[side] == pytest.approx(mass)
        mass = np.exp(scores).sum() / (1 + np.exp(scores).sum())
        assert theory.softmax1_mass_bounds(n, limit)[side] == pytest.approx(mass)


def test_mass_bounds_in_numbers_and_in_the_limit() -> None:
    bounds = theory.sigmoid_mass_bounds(10, np.log(2.0))
    assert bounds.lower == pytest.approx(10 / 21) and bounds.upper == pytest.approx(10 / 6)
    far = theory.sigmoid_mass_bounds(10**12, 2.0)
    assert far.lower == pytest.approx(np.exp(-2)) and far.upper == pytest.approx(np.exp(2))


def test_scores_past_the_limit_and_a_fixed_bias_leave_the_bounds() -> None:
    n = 500
    assert sigmoid(np.full(n, 2.0) - np.log(n)).sum() > theory.sigmoid_mass_bounds(n, 1.0).upper
    assert sigmoid(np.zeros(n)).sum() == pytest.approx(n / 2)
    assert n / 2 > theory.sigmoid_mass_bounds(n, 1.0).upper
    np.testing.assert_allclose(theory.sigmoid_mass_bounds([10, 1000], 0.0, 0.0).upper, [5, 500])


def test_sigmoid_weight_disperses_at_the_length_bias_and_not_at_a_fixed_one() -> None:
    n = np.array([10, 1000, 10**6])
    falling = theory.predict_sigmoid_weight(n, 1.5)
    np.testing.assert_allclose(falling[1:] * n[1:], np.exp(1.5), rtol=0.01)
    constant = theory.predict_sigmoid_weight(n, 1.5, 0.0)
    np.testing.assert_array_equal(constant, np.full(3, sigmoid(np.array(1.5))))


def test_softmax1_is_softmax_with_a_key_of_score_zero() -> None:
    scores = np.random.default_rng(0).normal(size=(4, 20))
    beside = softmax(np.concatenate([scores, np.zeros((4, 1))], axis=1))[:, :-1]
    mass = theory.predict_softmax1_mass(scores)
    np.testing.assert_allclose(mass, beside.sum(axis=1))
    np.testing.assert_allclose(softmax(scores) * mass[:, None], beside)
    assert theory.predict_softmax1_mass([-np.inf, -np.inf]) == 0.0
    assert theory.predict_softmax1_mass([900.0, -900.0]) == 1.0


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    seed=SEEDS,
    n=st.integers(1, 200),
    size=st.floats(0.0, 4.0),
    subtracted=st.floats(0.0, 1.5),
)
def test_differential_rows(seed: int, n: int, size: float, subtracted: float) -> None:
    first, second = size * np.random.default_rng(seed).normal(size=(2, n))
    weights = softmax(first) - subtracted * softmax(second)
    mass = theory.predict_differential_mass(subtracted)
    assert weights.sum() == pytest.approx(mass, abs=1e-12)
    bounds = theory.differential_weight_bounds(n, np.ptp(first), np.ptp(second), subtracted)
    assert bounds.lower - 1e-12 <= weights.min() and weights.max() <= bounds.upper + 1e-12


def test_differential_bounds_are_attained_and_fall_with_the_row() -> None:
    n, spread = 9, 2.0
    row = np.array([spread] + [0.0] * (n - 1))
    top = softmax(row)[0] - 0.5 * softmax(-row)[0]
    bounds = theory.differential_weight_bounds(n, spread, spread, 0.5)
    assert bounds.upper == pytest.approx(top)
    assert bounds.lower == pytest.approx(softmax(-row)[0] - 0.5 * softmax(row)[0])
    far = theory.differential_weight_bounds([10**4, 10**6], spread, spread, 0.5)
    assert far.upper[0] / far.upper[1] == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.predict_sigmoid_weight(0, 1.0), "n_key"),
        (lambda: theory.predict_sigmoid_weight(3, np.inf), "score"),
        (lambda: theory.sigmoid_mass_bounds(3, -1.0), "score_limit"),
        (lambda: theory.sigmoid_mass_bounds(3, 1.0, np.nan), "bias"),
        (lambda: theory.predict_softmax1_mass(1.0), "shape"),
        (lambda: theory.predict_softmax1_mass([np.nan]), "finite"),
        (lambda: theory.softmax1_mass_bounds(3, -1.0), "score_limit"),
        (lambda: theory.predict_differential_mass(np.inf), "subtracted"),
        (lambda: theory.differential_weight_bounds(3, 1.0, 1.0, -0.1), "subtracted"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
