"""Gaussian rows at finite n against closed forms and simulation."""

import numpy as np
import pytest

from resharpen.interp import theory


def test_the_expected_maximum_has_its_closed_forms() -> None:
    found = theory.predict_gaussian_maximum([1, 2, 3], 1.0)
    np.testing.assert_allclose(found, [0.0, 1 / np.sqrt(np.pi), 1.5 / np.sqrt(np.pi)], atol=1e-9)
    # Harter's table of normal order statistics (Biometrika 48, 1961) has 1.16296.
    assert theory.predict_gaussian_maximum(5, 1.0) == pytest.approx(1.1629644736, rel=1e-8)


@pytest.mark.parametrize("n", [4, 30, 400])
def test_maximum_and_spread_are_those_of_simulated_rows(n: int) -> None:
    rows = 1.7 * np.random.default_rng(n).normal(size=(20000, n)) + 3.0
    error = 5 * rows.max(axis=1).std() / np.sqrt(20000)
    maximum = float((rows.max(axis=1) - 3.0).mean())
    assert theory.predict_gaussian_maximum(n, 1.7) == pytest.approx(maximum, abs=error)
    assert theory.predict_gaussian_spread(n, 1.7) == pytest.approx(
        float(np.ptp(rows, axis=1).mean()), abs=2 * error
    )


def test_the_maximum_approaches_its_bound_from_below() -> None:
    n = np.array([2, 10, 1000, 10**6, 10**9, 10**12])
    ratio = theory.predict_gaussian_maximum(n, 2.0) / theory.gaussian_maximum_bound(n, 2.0)
    assert (ratio < 1).all() and (np.diff(ratio) > 0).all()
    assert ratio[-1] > 0.94


@pytest.mark.parametrize("n", [3, 16, 100, 1024])
def test_the_sharpening_factor_is_the_geometric_mean_of_simulated_rows(n: int) -> None:
    rows = np.random.default_rng(n).normal(size=(4000, n))
    logs = np.log(theory.predict_sharpening_temperature(2.5 * rows))
    error = 5 * float(logs.std()) / np.sqrt(len(logs))
    predicted = theory.predict_gaussian_sharpening(n, 2.5)
    assert np.log(predicted) == pytest.approx(float(logs.mean()), abs=error)


def test_sharpening_slows_down_towards_the_square_root() -> None:
    n = np.array([16, 1024, 2**20])
    factor = theory.predict_gaussian_sharpening(n, 1.0)
    exponents = np.diff(np.log(factor)) / np.diff(np.log(np.log(n)))
    assert 0.75 < exponents[0] < 0.85 and 0.6 < exponents[1] < 0.7
    unknown = theory.predict_gaussian_sharpening([1, 2, 2**21], 1.0)
    assert np.isnan(unknown).all()


def test_other_scores_are_not_gaussian_rows() -> None:
    """Outside the claim: rows of the same deviation that are uniform, or exponential."""
    rng = np.random.default_rng(0)
    gaussian = theory.predict_gaussian_spread(1000, 1.0)
    uniform = np.ptp(rng.uniform(size=(500, 1000)) * np.sqrt(12), axis=1).mean()
    exponential = np.ptp(rng.exponential(size=(500, 1000)), axis=1).mean()
    assert uniform < 0.6 * gaussian and exponential > 1.1 * gaussian


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: theory.predict_gaussian_maximum(0, 1.0), "n_key must be"),
        (lambda: theory.predict_gaussian_spread(2, -1.0), "deviation must be"),
        (lambda: theory.predict_gaussian_sharpening(8, 0.0), "deviation must be"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
