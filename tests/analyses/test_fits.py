"""Fitted slopes: closed forms, independent least squares, coverage, and what is refused."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.analyses.fits import fit_exponent, fit_slope, student_t_quantile

X = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0])


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 17, 30, 199, 200, 201, 1000, 100_000])
@pytest.mark.parametrize("probability", [0.75, 0.95, 0.975, 0.999])
def test_t_quantile_inverts_the_distribution_function(degrees, probability):
    """Against mpmath's incomplete beta function."""
    t = mpmath.mpf(student_t_quantile(degrees, probability))
    tail = mpmath.betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True) / 2
    assert float(1 - tail) == pytest.approx(probability, abs=1e-9)


@pytest.mark.parametrize("arguments", [(0,), (5, 0.5), (5, 1.0)])
def test_t_quantile_refuses(arguments):
    """No degrees of freedom, or a probability outside (0.5, 1)."""
    with pytest.raises(ValueError, match="needs at least 1 degree"):
        student_t_quantile(*arguments)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.floats(-4, 4), st.floats(1e-6, 1e6), st.floats(0.01, 100))
def test_exact_power_law_is_recovered(exponent, factor, stretch):
    """A power law has the exponent it was made with, in any units of x and y."""
    fit = fit_exponent(X * stretch, factor * X**exponent)
    assert fit.status == "ok"
    assert fit.value == pytest.approx(exponent, abs=1e-9)
    assert fit.high - fit.low < 1e-8
    assert fit.n_points == X.size


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.floats(-3, 3), st.floats(-5, 5))
def test_exact_logarithm_is_recovered(slope, offset):
    """Entropy of a fully dispersed head, log n, has slope 1; in general y = a + b log x has b."""
    fit = fit_slope(X, offset + slope * np.log(X))
    assert fit.value == pytest.approx(slope, abs=1e-9)
    assert fit.law == "logarithm"


def test_weighted_fit_agrees_with_the_normal_equations():
    """Slope and interval against (A' W A)^-1 written out."""
    rng = np.random.default_rng(3)
    y = X**-0.7 * np.exp(0.1 * rng.standard_normal(X.size))
    sem = y * np.linspace(0.01, 0.2, X.size)
    fit = fit_exponent(X, y, sem)
    design = np.column_stack([np.ones(X.size), np.log(X)])
    weight = np.diag((y / sem) ** 2)
    inverse = np.linalg.inv(design.T @ weight @ design)
    beta = inverse @ design.T @ weight @ np.log(y)
    residual = np.log(y) - design @ beta
    variance = residual @ weight @ residual / (X.size - 2)
    half = 2.570581835636314 * math.sqrt(variance * inverse[1, 1])
    assert fit.weighted
    assert fit.value == pytest.approx(beta[1], rel=1e-10)
    assert fit.high - fit.value == pytest.approx(half, rel=1e-10)
    assert fit.value - fit.low == pytest.approx(half, rel=1e-10)


@pytest.mark.parametrize("bad", [0.0, math.nan])
def test_a_standard_error_that_is_zero_or_unknown_makes_the_fit_unweighted(bad):
    """All weights or none: an error of 0 would take all of the weight."""
    y = X**-1.0 * np.array([1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0])
    sem = 0.1 * y
    sem[2] = bad
    fit = fit_exponent(X, y, sem)
    assert not fit.weighted
    assert fit.value == fit_exponent(X, y).value


def test_interval_covers_the_truth_95_times_in_100():
    """1000 noisy power laws of 5 points: 95 % within three standard deviations of the count."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1000, 5))
    x = X[:5]
    hits = sum(fit_exponent(x, x**-0.5 * np.exp(0.2 * row)).contains(-0.5) for row in noise)
    assert abs(hits - 950) < 3 * math.sqrt(1000 * 0.95 * 0.05)


def test_missing_points_are_left_out():
    """NaN is a missing point, not a zero."""
    y = X**-1.0
    y[[1, 4]] = math.nan
    fit = fit_exponent(X, y)
    assert (fit.n_points, fit.status) == (5, "ok")
    assert fit.value == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([], [], "0 points"),
        ([1.0, 2.0], [1.0, 2.0], "2 points"),
        ([1.0, 2.0, 3.0], [1.0, math.nan, 2.0], "2 points"),
        ([1.0, 2.0, 3.0], [1.0, 0.0, 2.0], "not positive"),
        ([1.0, 2.0, 3.0], [1.0, -1.0, 2.0], "not positive"),
        ([0.0, 2.0, 3.0], [1.0, 1.0, 2.0], "x has values that are not positive"),
        ([4.0, 4.0, 4.0], [1.0, 1.5, 2.0], "all x are equal"),
    ],
)
def test_what_cannot_be_fitted_is_unknown_with_a_reason(x, y, reason):
    """NaN, status and reason, never a plausible number."""
    fit = fit_exponent(x, y)
    assert fit.status == "undefined"
    assert reason in fit.reason
    assert all(math.isnan(number) for number in (fit.value, fit.low, fit.high))
    assert not fit.contains(0.0)
    assert str(fit).startswith("unknown (")


def test_slope_takes_values_that_are_not_positive():
    """Only the exponent needs positive y."""
    assert fit_slope([1.0, 2.0, 4.0], [0.0, -1.0, -2.0]).value == pytest.approx(-1 / math.log(2))


def test_shapes_must_agree():
    """One clear sentence."""
    with pytest.raises(ValueError, match=r"one shape \[n\], got \(3,\), \(2,\)"):
        fit_exponent([1.0, 2.0, 3.0], [1.0, 2.0])
