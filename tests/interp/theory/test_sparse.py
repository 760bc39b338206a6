"""alpha-entmax against its defining equations, simulation, and softmax, which lacks its laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)
ALPHAS = st.floats(1.1, 3.0)


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def entropy(weights: np.ndarray) -> float:
    positive = weights[weights > 0]
    return float(-(positive * np.log(positive)).sum())


def sparsemax(scores: np.ndarray) -> np.ndarray:
    """The projection on the simplex, by sorting."""
    ordered = np.sort(scores)[::-1]
    tau = (np.cumsum(ordered) - 1) / np.arange(1, scores.size + 1)
    return np.maximum(scores - tau[np.flatnonzero(ordered > tau)[-1]], 0.0)


@settings(max_examples=120, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 60), size=st.floats(0.05, 8.0), alpha=ALPHAS)
def test_weights_solve_the_defining_equation(seed: int, n: int, size: float, alpha: float) -> None:
    scores = size * np.random.default_rng(seed).normal(size=n)
    weights = theory.predict_entmax_weights(scores, alpha)
    assert weights.sum() == pytest.approx(1.0)
    held = weights > 0
    tau = (alpha - 1) * scores[held] - weights[held] ** (alpha - 1)
    assert np.ptp(tau) < 1e-7
    assert ((alpha - 1) * scores[~held] <= tau.max() + 1e-7).all()
    np.testing.assert_allclose(theory.predict_entmax_weights(scores, 2.0), sparsemax(scores))


def test_entmax_tends_to_softmax_as_alpha_tends_to_one() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 9))
    near = theory.predict_entmax_weights(scores, 1.0 + 1e-6)
    np.testing.assert_allclose(near, softmax(scores), atol=1e-5)


def test_masked_keys_get_nothing_and_alpha_may_differ_from_row_to_row() -> None:
    scores = np.array([[0.3, -np.inf, 0.1], [0.3, -np.inf, 0.1]])
    weights = theory.predict_entmax_weights(scores, [1.5, 2.0])
    assert (weights[:, 1] == 0).all()
    for row, alpha in enumerate((1.5, 2.0)):
        visible = theory.predict_entmax_weights([0.3, 0.1], alpha)
        np.testing.assert_allclose(weights[row, [0, 2]], visible)
    np.testing.assert_array_equal(theory.entmax_support_bound(scores, 1.5), [2.0, 2.0])


@settings(max_examples=120, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 60), size=st.floats(0.05, 8.0), alpha=ALPHAS)
def test_gap_support_and_entropy(seed: int, n: int, size: float, alpha: float) -> None:
    scores = size * np.random.default_rng(seed).normal(size=n)
    weights = theory.predict_entmax_weights(scores, alpha)
    support = int((weights > 0).sum())
    far = scores.max() - scores >= theory.entmax_gap_threshold(alpha)
    assert (weights[far] == 0).all()
    assert support <= theory.entmax_support_bound(scores, alpha)
    assert entropy(weights) <= theory.entmax_entropy_bound(support) + 1e-12
    assert (softmax(scores)[far] > 0).all()


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 2.7])
def test_gap_is_necessary_in_a_needle_row_and_the_entropy_bound_is_attained(alpha: float) -> None:
    gap = float(theory.entmax_gap_threshold(alpha))
    for n in (2, 50):
        row = np.zeros(n)
        row[0] = 0.98 * gap
        assert (theory.predict_entmax_weights(row, alpha) > 0).all()
        row[0] = gap
        assert theory.predict_entmax_weights(row, alpha)[0] == pytest.approx(1.0)
    level = np.array([0.0] * 7 + [-2 * gap] * 30)
    weights = theory.predict_entmax_weights(level, alpha)
    assert entropy(weights) == pytest.approx(theory.entmax_entropy_bound(7))


def test_bounded_scores_disperse_softmax_but_not_a_row_of_small_support() -> None:
    """n^(1/2) keys in reach of the largest: entropy over log n is at most 1/2 for entmax only."""
    for n in (100, 10_000):
        scores = np.full(n, -3.0)
        scores[: int(np.sqrt(n))] = 0.0
        sparse = theory.predict_entmax_weights(scores, 1.5)
        assert entropy(sparse) / np.log(n) == pytest.approx(0.5)
    assert entropy(softmax(scores)) / np.log(n) > 0.8


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 40), alpha=ALPHAS)
def test_low_keys_change_nothing_and_high_keys_do(seed: int, n: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n)
    weights = theory.predict_entmax_weights(scores, alpha)
    level = float(theory.entmax_score_threshold(scores, alpha))
    low = level - 1e-6 - np.abs(rng.normal(size=50))
    longer = theory.predict_entmax_weights(np.concatenate([scores, low]), alpha)
    np.testing.assert_allclose(longer[:n], weights, atol=1e-9)
    assert (longer[n:] == 0).all()
    higher = theory.predict_entmax_weights(np.append(scores, level + 0.3), alpha)
    assert higher[n] > 0 and higher[:n].max() < weights.max()


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 40), added=st.integers(1, 40))
def test_softmax_loses_weight_to_any_new_key(seed: int, n: int, added: int) -> None:
    rng = np.random.default_rng(seed)
    scores, new = rng.normal(size=n), rng.normal(size=added) - 3
    after = softmax(np.concatenate([scores, new]))[:n]
    kept = theory.predict_softmax_retention(scores, new)
    assert kept < 1
    np.testing.assert_allclose(after, kept * softmax(scores), rtol=1e-12)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    n=st.integers(1, 200),
    margin=st.floats(0.0, 4.0),
    alpha=st.one_of(st.sampled_from([1.5, 2.0]), ALPHAS),
    beta=st.floats(0.0, 2.0),
)
def test_needle_in_closed_form(n: int, margin: float, alpha: float, beta: float) -> None:
    row = beta * np.array([margin] + [0.0] * (n - 1))
    weights = theory.predict_entmax_weights(row, alpha)
    needle = theory.predict_entmax_needle_weight(n, margin, alpha, beta)
    assert needle == pytest.approx(weights[0], abs=1e-8)
    if n > 1:
        other = theory.predict_entmax_distractor_weight(n, margin, alpha, beta)
        assert other == pytest.approx(weights[1], abs=1e-8)
        assert needle + (n - 1) * other == pytest.approx(1.0)
    limit = theory.entmax_needle_limit(margin, alpha, beta)
    assert limit <= needle + 1e-12


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_closed_forms_agree_with_bisection_beside_them(alpha: float) -> None:
    n, margin = np.array([2, 10, 10**6]), 0.3
    closed = theory.predict_entmax_needle_weight(n, margin, alpha)
    beside = theory.predict_entmax_needle_weight(n, margin, alpha + 1e-9)
    np.testing.assert_allclose(closed, beside, rtol=1e-6)


def test_needle_in_numbers() -> None:
    assert theory.predict_entmax_needle_weight(5, 0.5, 2.0) == pytest.approx(0.5 + 0.5 / 5)
    assert theory.predict_entmax_needle_weight(4, 0.0, 1.5) == pytest.approx(0.25)
    assert theory.predict_entmax_needle_weight([1, 9], 2.0, 1.5).tolist() == [1.0, 1.0]
    assert theory.predict_entmax_distractor_weight(9, 2.0, 1.5) == 0.0
    # (y + 1/2)^2 + 2 y^2 = 1 at n = 3, margin 1, alpha 3/2.
    y = (np.sqrt(10) - 1) / 6
    assert theory.predict_entmax_needle_weight(3, 1.0, 1.5) == pytest.approx((y + 0.5) ** 2)


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0])
def test_the_needle_keeps_its_limit_where_softmax_loses_it(alpha: float) -> None:
    margin = 0.8
    limit = theory.entmax_needle_limit(margin, alpha)
    assert limit == pytest.approx(((alpha - 1) * margin) ** (1 / (alpha - 1)))
    far = theory.predict_entmax_needle_weight(10**14, margin, alpha)
    assert far == pytest.approx(limit, rel=1e-3)
    assert theory.predict_needle_weight(10**14, margin) < 1e-12
    assert theory.entmax_needle_limit(0.0, alpha) == 0.0
    assert theory.entmax_needle_limit(50.0, alpha) == 1.0


def test_the_needle_limit_fails_when_the_margin_is_not_kept() -> None:
    """Distractors inside the margin, as many as there are keys: i.i.d. scores, not equal ones."""
    scores = np.random.default_rng(0).uniform(size=20_000)
    scores[0] = 1.0
    margin = 1.0 - scores.mean()
    weights = theory.predict_entmax_weights(scores, 2.0)
    assert weights[0] < 0.1 < theory.entmax_needle_limit(margin, 2.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.entmax_gap_threshold(1.0), "alpha"),
        (lambda: theory.entmax_entropy_bound(0), "support"),
        (lambda: theory.predict_entmax_weights(1.0, 1.5), "shape"),
        (lambda: theory.predict_entmax_weights(np.zeros((2, 0)), 1.5), "shape"),
        (lambda: theory.predict_entmax_weights([np.nan, 1.0], 1.5), "finite"),
        (lambda: theory.predict_entmax_weights([-np.inf, -np.inf], 1.5), "visible key"),
        (lambda: theory.entmax_score_threshold([np.inf], 1.5), "finite"),
        (lambda: theory.predict_softmax_retention([1.0], []), "added"),
        (lambda: theory.predict_entmax_needle_weight(0, 1.0), "n_key"),
        (lambda: theory.predict_entmax_needle_weight(4, -1.0), "margin"),
        (lambda: theory.entmax_needle_limit(1.0, 1.5, -1.0), "inverse_temperature"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
