"""Needle rows under growing inverse temperatures: against softmax rows, phases and crossings."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import remedies, theory
from resharpen.interp.theory import scalable_softmax as laws


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def entropy(weights: np.ndarray) -> float:
    positive = weights[weights > 0]
    return float(-(positive * np.log(positive)).sum())


def needle_row(n: int, margin: float) -> np.ndarray:
    return np.array([margin] + [0.0] * (n - 1))


@settings(max_examples=150, derandomize=True, deadline=None)
@given(n=st.integers(1, 400), margin=st.floats(-6.0, 30.0), beta=st.floats(0.0, 8.0))
def test_needle_rows(n: int, margin: float, beta: float) -> None:
    weights = softmax(beta * needle_row(n, margin))
    assert theory.predict_needle_weight(n, margin, beta) == pytest.approx(weights[0], rel=1e-9)
    predicted = theory.predict_needle_entropy(n, margin, beta)
    assert predicted == pytest.approx(entropy(weights), rel=1e-9, abs=1e-12)


def test_a_sharp_row_keeps_the_digits_of_its_small_entropy() -> None:
    exact = math.log1p(9 * math.exp(-50.0)) + 50 * 9 * math.exp(-50.0)
    assert theory.predict_needle_entropy(10, 50.0) == pytest.approx(exact, rel=1e-12)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    n=st.integers(2, 3000),
    margin=st.floats(0.05, 3.0),
    strength=st.floats(0.05, 3.0),
)
def test_ssmax_bound_holds_at_unequal_margins_and_is_attained_at_equal_ones(
    seed: int, n: int, margin: float, strength: float
) -> None:
    rng = np.random.default_rng(seed)
    beta = strength * np.log(n)
    below = np.concatenate([[0.0], -margin - np.abs(rng.normal(size=n - 1))])
    bound = theory.ssmax_weight_bound(n, margin, strength)
    assert bound <= softmax(beta * below)[0] + 1e-12
    assert bound == pytest.approx(softmax(beta * needle_row(n, margin))[0], rel=1e-9)
    assert bound == pytest.approx(1 / (1 + (n - 1) * n ** (-strength * margin)), rel=1e-9)


def test_one_key_inside_the_margin_breaks_the_ssmax_bound() -> None:
    n, margin = 50, 2.0
    row = needle_row(n, margin)
    row[1] = margin - 0.1
    assert softmax(np.log(n) * row)[0] < 0.7 < theory.ssmax_weight_bound(n, margin, 1.0)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(n=st.integers(2, 10**6), exponent=st.floats(0.05, 2.5))
def test_ssmax_rate_is_a_side_in_each_phase(n: int, exponent: float) -> None:
    weight = theory.ssmax_weight_bound(n, exponent, 1.0)
    rate = theory.ssmax_weight_rate(n, exponent, 1.0)
    if exponent > 1:
        assert rate <= weight + 1e-12
    elif exponent < 1:
        assert weight <= rate * n / (n - 1) * (1 + 1e-9)


def test_ssmax_reaches_its_limits() -> None:
    n, exponent = 1e200, np.array([0.8, 1.0, 1.2])
    weight = theory.ssmax_weight_bound(n, exponent / 0.43, 0.43)
    np.testing.assert_allclose(weight, theory.ssmax_weight_limit(exponent / 0.43, 0.43), atol=1e-9)
    assert theory.ssmax_weight_limit(1 / 0.43, 0.43) == 0.5
    n = 1e12
    weight = theory.ssmax_weight_bound(n, exponent, 1.0)
    rate = theory.ssmax_weight_rate(n, exponent, 1.0)
    np.testing.assert_allclose(rate[:2], weight[:2], rtol=0.01)
    assert 1 - rate[2] == pytest.approx(1 - weight[2], rel=0.01)


def test_the_subtractive_ssmax_is_plain_softmax_and_no_scaling_at_all() -> None:
    rng = np.random.default_rng(0)
    row = rng.normal(size=100)
    np.testing.assert_allclose(softmax(row - 0.43 * np.log(100)), softmax(row))


def test_inverse_temperatures() -> None:
    n = np.array([1, 2, 256, 65536])
    log = np.log(n)
    beta = theory.predict_inverse_temperature
    np.testing.assert_allclose(beta("fixed", n, 1.5), 1.5)
    np.testing.assert_allclose(beta("sqrt_log_n", n, 2.0), 2 * np.sqrt(log))
    np.testing.assert_allclose(beta("log_n", n, 0.43, 0.2), 0.43 * log + 0.2)
    from_256 = beta("log_n", n, 1 / np.log(256), floor=1.0)
    np.testing.assert_allclose(from_256, [1.0, 1.0, 1.0, 2.0])
    assert beta("log_n", 1, 1.0, -3.0) == 0.0


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    law=st.sampled_from(sorted(theory.INVERSE_TEMPERATURE_LAWS)),
    exponent=st.floats(0.0, 5.0),
    strength=st.floats(0.1, 4.0),
    weight=st.floats(0.02, 0.9),
)
def test_the_weight_crosses_the_level_at_the_falling_length_and_stays_below(
    law: str, exponent: float, strength: float, weight: float
) -> None:
    margin = exponent / strength
    falling = float(theory.predict_falling_n_key(law, margin, strength, weight))
    assert falling >= 1.0

    def at(n: np.ndarray) -> np.ndarray:
        beta = theory.predict_inverse_temperature(law, n, strength)
        return theory.predict_needle_weight(n, margin, beta)

    if falling == np.inf:
        assert law == "log_n" and exponent > 0.9
        assert exponent < 1 or at(np.array(1e200)) >= weight * (1 - 1e-9)
        return
    later = np.floor(falling) + 1 + np.floor(falling * np.geomspace(1e-9, 1e12, 200))
    assert (at(later) <= weight * (1 + 1e-9)).all()
    if falling > 2:
        assert at(np.floor(falling)) >= weight * (1 - 1e-9)


def test_where_each_law_falls_to_one_half() -> None:
    falling = theory.predict_falling_n_key
    np.testing.assert_allclose(falling("fixed", [0.0, 3.0]), [2.0, 1 + np.exp(3.0)])
    assert falling("fixed", 1e5) == np.inf
    n = float(falling("log_n", 0.9))
    assert n - 1 == pytest.approx(n**0.9)
    assert (falling("log_n", [1.0, 1.1, 5.0]) == np.inf).all()
    assert falling("log_n", 1.0, 1.0, 0.8) == pytest.approx(1 / (1 - 0.25))
    root = np.sqrt(np.log(falling("sqrt_log_n", 20.0)))
    assert root == pytest.approx(20.0, rel=1e-9)


def test_square_root_scaling_delays_and_only_log_scaling_cures() -> None:
    """At one margin: fixed < square root < log below its critical exponent < infinity above it."""
    fixed, root, below, above = (
        float(theory.predict_falling_n_key(law, 4.0, strength))
        for law, strength in (("fixed", 1.0), ("sqrt_log_n", 1.0), ("log_n", 0.24), ("log_n", 0.26))
    )
    assert fixed < root < np.inf
    assert below < np.inf and above == np.inf


def test_adaptive_temperature_is_the_polynomial_where_it_acts() -> None:
    adaptive = theory.predict_adaptive_inverse_temperature
    expected = [-0.037 * h**4 + 0.481 * h**3 - 2.3 * h**2 + 4.917 * h - 1.791 for h in (1, 3, 4.41)]
    np.testing.assert_allclose(adaptive([1, 3, 4.41]), expected, rtol=1e-12)
    assert adaptive(3.0) == pytest.approx(2.25, abs=0.01)
    np.testing.assert_array_equal(adaptive([0.0, 0.5, 0.84, 5.95, 30.0]), 1.0)
    assert (adaptive([0.86, 5.94]) > 1).all()
    assert adaptive(np.linspace(0, 9, 9001)).max() == pytest.approx(2.42, abs=0.005)


def test_adaptive_temperature_has_the_numbers_of_the_remedy() -> None:
    assert laws.ADAPTIVE_COEFFICIENTS == remedies.ADAPTIVE_POLYNOMIAL
    assert laws.ADAPTIVE_ENTROPY == remedies.ADAPTIVE_THRESHOLD


@settings(max_examples=80, derandomize=True, deadline=None)
@given(n=st.integers(1, 500), margin=st.floats(0.0, 12.0))
def test_adaptive_needle(n: int, margin: float) -> None:
    row = needle_row(n, margin)
    beta = float(theory.predict_adaptive_inverse_temperature(entropy(softmax(row))))
    predicted = theory.predict_adaptive_needle_weight(n, margin)
    assert predicted == pytest.approx(softmax(beta * row)[0], rel=1e-6)
    assert predicted >= softmax(row)[0] - 1e-12


def test_adaptive_temperature_gives_up_on_a_long_row() -> None:
    long = theory.predict_adaptive_needle_weight(10**6, 3.0)
    assert long == theory.predict_needle_weight(10**6, 3.0)
    assert theory.predict_adaptive_needle_weight(100, 3.0) > 2 * theory.predict_needle_weight(
        100, 3.0
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.predict_needle_weight(0, 1.0), "n_key"),
        (lambda: theory.predict_needle_weight(2, np.inf), "margin"),
        (lambda: theory.predict_needle_weight(2, 1.0, -1.0), "inverse_temperature"),
        (lambda: theory.predict_inverse_temperature("log", 4), "law must be one of 'fixed'"),
        (lambda: theory.predict_inverse_temperature("log_n", 4, -1.0), "strength"),
        (lambda: theory.predict_falling_n_key("linear", 1.0), "law must be one of"),
        (lambda: theory.predict_falling_n_key("log_n", 1.0, 1.0, 0.95), "weight"),
        (lambda: theory.predict_falling_n_key("log_n", -1.0), "margin"),
        (lambda: theory.ssmax_weight_bound(4, -1.0, 1.0), "margin"),
        (lambda: theory.ssmax_weight_limit(1.0, -1.0), "strength"),
        (lambda: theory.predict_adaptive_inverse_temperature(-0.1), "entropy"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
