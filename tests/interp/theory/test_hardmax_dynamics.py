"""Hardmax attention: a plain loop, the facts on norms and leaders, ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory
from resharpen.interp.theory import hardmax_dynamics

some_cloud = given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 20),
    d=st.integers(1, 4),
    alpha=st.floats(0.05, 5.0),
)


def cloud(seed: int, n: int, d: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def plain_step(z: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    new, leads = np.empty_like(z), np.zeros(len(z), dtype=bool)
    for i, one in enumerate(z):
        scores = np.array([one @ other for other in z])
        best = [j for j in range(len(z)) if scores[j] >= scores.max() * (1 - 1e-12)]
        new[i] = (one + alpha * np.mean([z[j] for j in best], axis=0)) / (1 + alpha)
        leads[i] = best == [i]
    return new, leads


@settings(max_examples=60, derandomize=True, deadline=None)
@some_cloud
def test_steps_equal_a_plain_loop(seed: int, n: int, d: int, alpha: float) -> None:
    z = cloud(seed, n, d)
    path = theory.predict_hardmax_path(z, [0, 1, 4], alpha)
    assert path.steps.tolist() == [0, 1, 4]
    np.testing.assert_array_equal(path.tokens[0], z)
    for made in range(5):
        new, leads = plain_step(z, alpha)
        if made in (0, 1, 4):
            index = path.steps.tolist().index(made)
            np.testing.assert_allclose(path.tokens[index], z, rtol=1e-9, atol=1e-12)
            assert (path.leaders[index] == leads).all()
        z = new


@settings(max_examples=60, derandomize=True, deadline=None)
@some_cloud
def test_norms_and_leaders_go_one_way(seed: int, n: int, d: int, alpha: float) -> None:
    z = cloud(seed, n, d)
    path = theory.predict_hardmax_path(z, range(25), alpha)
    np.testing.assert_allclose(path.norms, np.linalg.norm(path.tokens, axis=2))
    assert (np.diff(path.norms, axis=0) >= -1e-12).all()
    assert (np.diff(path.norms.max(axis=1)) <= 1e-12).all()
    low, high = theory.hardmax_norm_bounds(z)
    assert (path.norms >= low - 1e-12).all() and (path.norms <= high + 1e-12).all()
    assert (path.leaders[1:] >= path.leaders[:-1]).all()
    assert path.leaders[0, np.linalg.norm(z, axis=1).argmax()]  # the longest leads from the start
    for index in np.flatnonzero(path.leaders[0]):
        np.testing.assert_array_equal(path.tokens[-1, index], z[index])


def test_followers_end_on_the_leaders() -> None:
    z = cloud(7, 40, 2)
    path = theory.predict_hardmax_path(z, [0, 400], 1.0)
    leaders = path.tokens[-1][path.leaders[-1]]
    assert 1 < len(leaders) < 40
    # Every token rests where its best keys' mean is: on a leader, or between two of them.
    means, _ = hardmax_dynamics._followed(path.tokens[-1], 1e-9)
    np.testing.assert_allclose(path.tokens[-1], means, atol=1e-6)
    assert (path.norms[-1] >= path.norms[0] - 1e-12).all()


def test_ties_are_averaged() -> None:
    z = np.array([[1.0, 1.0], [1.0, -1.0], [0.5, 0.0]])
    path = theory.predict_hardmax_path(z, [0, 1], 1.0)
    assert path.leaders[0].tolist() == [True, True, False]
    np.testing.assert_allclose(path.tokens[1], [[1, 1], [1, -1], [0.75, 0]])
    double = theory.predict_hardmax_path([[2.0, 0.0], [2.0, 0.0]], [3])
    assert not double.leaders.any()  # neither is alone
    np.testing.assert_array_equal(double.tokens[0], [[2.0, 0.0], [2.0, 0.0]])


def test_size_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    z = cloud(2, 17, 3)
    whole = theory.predict_hardmax_path(z, [12], 0.5)
    monkeypatch.setattr(hardmax_dynamics, "BLOCK_SCORES", 40)
    parts = theory.predict_hardmax_path(z, [12], 0.5)
    np.testing.assert_allclose(parts.tokens, whole.tokens, atol=1e-12)
    assert (parts.leaders == whole.leaders).all()


def test_bad_input_is_refused() -> None:
    z = cloud(0, 3, 2)
    for change, match in [
        ({"tokens": z[0]}, r"tokens must have shape \[token, d_model\]"),
        ({"tokens": z * np.inf}, "tokens must be finite"),
        ({"steps": [2, 1]}, "steps must be a non-empty list"),
        ({"steps": []}, "steps must be a non-empty list"),
        ({"steps": [0.5]}, "steps must be whole"),
        ({"step_size": 0.0}, "step_size must be finite and > 0"),
        ({"tolerance": 1.0}, "tolerance must be finite"),
    ]:
        with pytest.raises(ValueError, match=match):
            theory.predict_hardmax_path(**({"tokens": z, "steps": [1]} | change))
    with pytest.raises(ValueError, match="tokens must have shape"):
        theory.hardmax_norm_bounds(z[0])
