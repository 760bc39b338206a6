"""What one replaced token does to an output: identity, bounds, attained, and outside the claim."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    n=st.integers(1, 200),
    width=st.integers(1, 5),
    limit=st.floats(0.0, 3.0),
)
def test_replacing_one_token(seed: int, n: int, width: int, limit: float) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(-limit, limit, size=n)
    values = rng.normal(size=(n + 1, width))
    values *= 2.0 * rng.uniform(size=(n + 1, 1)) / np.linalg.norm(values, axis=1, keepdims=True)
    key = int(rng.integers(n))
    fresh = scores.copy()
    fresh[key] = rng.choice([-limit, limit])
    arrived = values[:n].copy()
    arrived[key] = values[n]
    change = softmax(fresh) @ arrived - softmax(scores) @ values[:n]
    law = theory.predict_replacement(scores, values[:n], key, fresh[key], values[n])
    np.testing.assert_allclose(law, change, atol=1e-12)
    output, weight, total = softmax(scores) @ values[:n], np.exp(scores[key]), np.exp(fresh).sum()
    moved = np.exp(fresh[key]) * (values[n] - output) - weight * (values[key] - output)
    np.testing.assert_allclose(law, moved / total, atol=1e-12)
    tight = theory.tight_influence_bound(n, limit, 2.0)
    assert np.linalg.norm(change) <= tight + 1e-12
    assert tight <= theory.influence_bound(n, limit, 2.0) + 1e-12


@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize("limit", [0.0, 1.5])
def test_the_tight_bound_is_attained(n: int, limit: float) -> None:
    scores, values = np.full(n, -limit), np.full((n, 1), -3.0)
    change = theory.predict_replacement(scores, values, 0, limit, [3.0])
    assert abs(change[0]) == pytest.approx(theory.tight_influence_bound(n, limit, 3.0))


def test_rows_and_large_scores() -> None:
    rng = np.random.default_rng(0)
    scores, values = 500 * rng.normal(size=(4, 9)), rng.normal(size=(4, 9, 3))
    fresh, arrived = 500 * rng.normal(size=4), rng.normal(size=(4, 3))
    law = theory.predict_replacement(scores, values, 2, fresh, arrived)
    for row in range(4):
        alone = theory.predict_replacement(scores[row], values[row], 2, fresh[row], arrived[row])
        np.testing.assert_allclose(law[row], alone)
        old = softmax(scores[row]) @ values[row]
        scores[row, 2], values[row, 2] = fresh[row], arrived[row]
        np.testing.assert_allclose(alone, softmax(scores[row]) @ values[row] - old, atol=1e-12)


def test_bounds_in_numbers() -> None:
    assert theory.influence_bound(8, 0.0, 2.0) == 1.0
    assert theory.tight_influence_bound(8, 0.0, 2.0) == pytest.approx(0.5)
    assert theory.influence_bound(8, 1e4, 2.0) == np.inf
    assert theory.tight_influence_bound(8, 1e4, 2.0) == 4.0
    n = np.array([10**3, 10**6])
    ratio = theory.tight_influence_bound(n, 1.0, 1.0) * n
    assert ratio[0] == pytest.approx(ratio[1], rel=0.01)


def test_changing_the_query_is_outside_the_bound() -> None:
    """Its token turns every score: the output jumps from one half of the keys to the other."""
    n, limit = 10_000, 2.0
    scores = np.where(np.arange(n) < n // 2, limit, -limit)
    values = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    jump = abs(softmax(-scores) @ values - softmax(scores) @ values)
    assert jump > 1.9 > 80 * theory.influence_bound(n, limit, 1.0)


def test_scores_that_grow_as_log_n_are_outside_the_bound_of_fixed_ones() -> None:
    n = 10_000
    scores, values = np.zeros(n), np.full((n, 1), -1.0)
    change = theory.predict_replacement(scores, values, 0, 2 * np.log(n), [1.0])
    assert change[0] > 1.9 > 100 * theory.influence_bound(n, 1.0, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.influence_bound(0, 1.0, 1.0), "n_key"),
        (lambda: theory.influence_bound(3, -1.0, 1.0), "score_limit"),
        (lambda: theory.tight_influence_bound(3, 1.0, -1.0), "value_limit"),
        (lambda: theory.predict_replacement([0.0], [[1.0]], 1, 0.0, [1.0]), "key must be from 0"),
        (lambda: theory.predict_replacement([0.0], [1.0], 0, 0.0, [1.0]), "same keys"),
        (lambda: theory.predict_replacement([np.inf], [[1.0]], 0, 0.0, [1.0]), "scores"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_key_is_an_integer() -> None:
    with pytest.raises(TypeError):
        theory.predict_replacement([0.0], [[1.0]], 0.5, 0.0, [1.0])  # type: ignore[arg-type]
