"""Bounds of any bounded normaliser and slopes of a softmax: random, attained, and the false one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@settings(max_examples=120, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 300), width=st.integers(1, 8), temperature=st.floats(0.1, 5.0))
def test_weights_from_norms(seed: int, n: int, width: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    query, keys = rng.normal(size=width), rng.normal(size=(n, width))
    weights = softmax(keys @ query / temperature)
    sizes = np.linalg.norm(query), np.linalg.norm(keys, axis=1).max()
    bounds = theory.norm_weight_bounds(n, *sizes, temperature)
    assert bounds.lower <= weights.min() * (1 + 1e-12)
    assert weights.max() <= bounds.upper * (1 + 1e-12)
    sharper = theory.weight_bounds(n, 2 * sizes[0] * sizes[1], temperature)
    assert bounds.lower <= sharper.lower * (1 + 1e-12)
    assert sharper.upper <= bounds.upper * (1 + 1e-12)


def test_norm_bounds_are_met_by_a_query_of_zero_and_broken_by_a_mean_key() -> None:
    bounds = theory.norm_weight_bounds(7, 0.0, 3.0)
    assert bounds.lower == bounds.upper == pytest.approx(1 / 7)
    keys = np.zeros(1000)
    keys[0] = 9.0
    assert softmax(keys)[0] > theory.norm_weight_bounds(1000, 1.0, keys.mean()).upper


@pytest.mark.parametrize("form", [np.exp, lambda x: 1 + x**2, np.arctan2], ids=["e", "p", "a"])
def test_any_positive_normaliser_keeps_to_its_range(form) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 5, 4000):
        scores = rng.uniform(0.2, 2.0, size=n)
        raw = form(scores, 1.0) if form is np.arctan2 else form(scores)
        weights = raw / raw.sum()
        bounds = theory.normaliser_weight_bounds(n, raw.min(), raw.max())
        assert bounds.lower <= weights.min() * (1 + 1e-12)
        assert weights.max() <= bounds.upper * (1 + 1e-12)


def test_a_map_that_depends_on_n_is_outside_lemma_1() -> None:
    """log-scaled softmax: the range of F grows with n, and the largest weight stays."""
    for n in (100, 10_000):
        scores = np.zeros(n)
        scores[0] = 1.5
        weights = softmax(np.log(n) * scores)
        assert weights[0] > 0.9
    assert theory.normaliser_weight_bounds(n, 1.0, np.exp(1.5)).upper < 0.001


@settings(max_examples=150, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 12), size=st.floats(0.0, 6.0), temperature=st.floats(0.1, 5.0))
def test_slopes_of_random_rows(seed: int, n: int, size: float, temperature: float) -> None:
    weights = softmax(size * np.random.default_rng(seed).normal(size=n))
    jacobian = theory.predict_softmax_jacobian(weights, temperature)
    assert np.abs(jacobian).max() <= theory.jacobian_entry_bound(temperature) + 1e-12
    for order in (2, "fro"):
        norm = np.linalg.norm(jacobian, order)
        assert norm <= theory.jacobian_norm_bound(temperature) + 1e-12
    spectral = np.linalg.norm(jacobian, 2)
    assert spectral <= theory.dispersed_jacobian_bound(weights.max(), temperature) + 1e-12


def test_jacobian_is_the_derivative() -> None:
    rng = np.random.default_rng(0)
    scores, temperature, size = rng.normal(size=(3, 6)), np.array([0.5, 1.0, 2.0]), 1e-6
    jacobian = theory.predict_softmax_jacobian(softmax(scores / temperature[:, None]), temperature)
    for key in range(6):
        step = size * np.eye(6)[key]
        up, down = (softmax((scores + sign * step) / temperature[:, None]) for sign in (1, -1))
        np.testing.assert_allclose(jacobian[:, :, key], (up - down) / (2 * size), atol=1e-8)


def test_slope_bounds_are_attained_at_two_equal_weights() -> None:
    temperature = 0.7
    jacobian = theory.predict_softmax_jacobian([0.5, 0.5, 0.0, 0.0], temperature)
    assert np.abs(jacobian).max() == pytest.approx(theory.jacobian_entry_bound(temperature))
    for order in (2, "fro"):
        norm = np.linalg.norm(jacobian, order)
        assert norm == pytest.approx(theory.jacobian_norm_bound(temperature))


def test_the_relayed_spectral_bound_is_false() -> None:
    rng = np.random.default_rng(0)
    relayed = theory.jacobian_entry_bound(1.0)
    norms = [
        np.linalg.norm(theory.predict_softmax_jacobian(softmax(rng.normal(size=n))), 2)
        for n in rng.integers(2, 6, size=50)
    ]
    assert np.mean(np.array(norms) > relayed) > 0.3
    assert max(norms) <= theory.jacobian_norm_bound(1.0)


def test_a_dispersed_row_loses_its_slope_in_the_spectral_norm_only() -> None:
    weights = np.full(100, 0.01)
    jacobian = theory.predict_softmax_jacobian(weights)
    bound = theory.dispersed_jacobian_bound(0.01)
    assert np.linalg.norm(jacobian, 2) == pytest.approx(bound)
    assert np.linalg.norm(jacobian) > 5 * bound


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.norm_weight_bounds(0, 1.0, 1.0), "n_key"),
        (lambda: theory.norm_weight_bounds(2, -1.0, 1.0), "query_norm"),
        (lambda: theory.norm_weight_bounds(2, 1.0, 1.0, 0.0), "temperature"),
        (lambda: theory.normaliser_weight_bounds(2, 0.0, 1.0), "lowest"),
        (lambda: theory.normaliser_weight_bounds(2, 2.0, 1.0), "lowest must be at most highest"),
        (lambda: theory.predict_softmax_jacobian([0.5, 0.4]), "weights must sum"),
        (lambda: theory.jacobian_entry_bound(0.0), "temperature"),
        (lambda: theory.jacobian_norm_bound(-1.0), "temperature"),
        (lambda: theory.dispersed_jacobian_bound(1.5), "max_weight"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
