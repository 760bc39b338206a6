"""Equiangular tokens: closed forms against explicit vectors, limits, and where they fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory


def simplex(n: int, rho: float) -> np.ndarray:
    return np.linalg.cholesky((1 - rho) * np.eye(n) + rho)


def step(x: np.ndarray, beta: float, alpha: float) -> np.ndarray:
    """x' = A y + alpha x with every matrix the identity."""
    y = x / np.linalg.norm(x, axis=1, keepdims=True)
    scores = beta * (y @ y.T)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ y + alpha * x


def mean_cosine(x: np.ndarray) -> float:
    """Over pairs of different tokens."""
    y = x / np.linalg.norm(x, axis=1, keepdims=True)
    n = len(y)
    return float(((y @ y.T).sum() - n) / (n * (n - 1)))


def jacobian_square(x: np.ndarray, beta: float) -> float:
    """|d X' / d X|^2 / (n d) by central differences."""
    n, width = x.shape
    total, size = 0.0, 1e-5
    for i in range(n):
        for j in range(width):
            up, down = x.copy(), x.copy()
            up[i, j] += size
            down[i, j] -= size
            change = (step(up, beta, 0.0) - step(down, beta, 0.0)) / (2 * size)
            total += (change**2).sum()
    return total / (n * width)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    n=st.integers(2, 12),
    rho=st.floats(0.01, 0.95),
    beta=st.floats(0.0, 12.0),
    alpha=st.floats(0.0, 3.0),
    q=st.floats(0.1, 9.0),
)
def test_cosine_of_explicit_tokens(n: int, rho: float, beta: float, alpha: float, q: float) -> None:
    x = step(np.sqrt(q) * simplex(n, rho), beta, alpha)
    y = x / np.linalg.norm(x, axis=1, keepdims=True)
    predicted = theory.predict_simplex_cosine(n, rho, beta, alpha * np.sqrt(q))
    assert predicted == pytest.approx(y[0] @ y[1], abs=1e-9)
    assert rho - 1e-12 <= predicted <= 1.0


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("beta", [0.0, 0.7, 3.0, 11.0])
def test_gradient_of_explicit_tokens(n: int, beta: float) -> None:
    rho, q, width = 0.4, 2.5, n + 2
    x = np.zeros((n, width))
    x[:, :n] = np.sqrt(q) * simplex(n, rho)
    predicted = theory.predict_simplex_gradient(n, rho, beta, width, q)
    assert predicted == pytest.approx(jacobian_square(x, beta), rel=1e-6)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(rho=st.floats(0.05, 0.9), u=st.floats(0.0, 4.0))
def test_cosine_tends_to_its_limit_in_every_phase(rho: float, u: float) -> None:
    n, critical = 1e60, float(theory.critical_gamma_threshold(rho))
    for share in (0.9, 1.0, 1.1):
        gamma = share * critical
        finite = theory.predict_simplex_cosine(n, rho, gamma * np.log(n), u)
        assert theory.simplex_cosine_limit(gamma, rho, u) == pytest.approx(finite, abs=1e-3)


@pytest.mark.parametrize("rho", [0.2, 0.6])
def test_gradient_tends_to_its_limit_in_every_phase(rho: float) -> None:
    n, critical = 1e60, float(theory.critical_gamma_threshold(rho))
    for share in (0.9, 1.0, 1.1):
        gamma = share * critical
        finite = theory.predict_simplex_gradient(n, rho, gamma * np.log(n), n, 4.0)
        limit = theory.simplex_gradient_limit(gamma, rho, n, 4.0)
        assert limit == pytest.approx(finite, abs=1e-3)


def test_limits_in_numbers() -> None:
    assert theory.critical_gamma_threshold(0.5) == 2.0
    np.testing.assert_allclose(
        theory.simplex_cosine_limit([1.9, 2.0, 2.1], 0.5), [1.0, 4 * 0.5 / 2.5, 0.5]
    )
    np.testing.assert_allclose(
        theory.simplex_gradient_limit([1.9, 2.0, 2.1], 0.5, 4, 0.5), [0.0, 0.375, 1.5]
    )
    with_residual = theory.simplex_cosine_limit([1.9, 2.0], 0.5, 1.0)
    np.testing.assert_allclose(with_residual, [0.8, 0.5 * 4 / (2.25 + 0.75 + 0.125)])


def test_the_residual_holds_tokens_apart_in_the_contractive_phases_only() -> None:
    u = np.array([0.0, 0.5, 2.0, 50.0])
    for gamma in (1.0, 2.0):
        limit = theory.simplex_cosine_limit(gamma, 0.5, u)
        assert (np.diff(limit) < 0).all() and (limit > 0.5).all()
    assert (theory.simplex_cosine_limit(3.0, 0.5, u) == 0.5).all()


def test_phases_are_named_and_rounding_does_not_leave_the_critical_one() -> None:
    cosine = np.array([0.1, 1 / 3, 0.7])
    critical = theory.critical_gamma_threshold(cosine)
    assert theory.predict_phase(critical * (1 + 1e-14), critical).tolist() == ["critical"] * 3
    assert theory.predict_phase([0.9, 1.1], 1.0).tolist() == ["sub", "super"]
    assert theory.predict_phase(1.0, 1.0).item() == "critical"
    assert theory.PHASES == ("sub", "critical", "super")


def test_a_row_of_two_keeps_the_closed_form_finite_at_its_edges() -> None:
    assert theory.predict_simplex_cosine(2, 0.3, 0.0) == pytest.approx(1.0)
    assert theory.predict_simplex_cosine(2, 0.3, 1e6) == pytest.approx(0.3)
    assert theory.predict_simplex_cosine(10.0**300, 0.3, 0.0) == pytest.approx(1.0)


def test_sampled_tokens_near_the_simplex_obey_it_and_those_in_few_dimensions_do_not() -> None:
    """Gaussian tokens with a common part; in few dimensions their cosines differ."""
    rng = np.random.default_rng(0)
    n, rho = 300, 0.5

    def tokens(width: int) -> np.ndarray:
        common = rng.normal(size=width)
        return np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.normal(size=(n, width))

    for gamma in (1.0, 3.5):
        predicted = float(theory.predict_simplex_cosine(n, rho, gamma * np.log(n)))
        wide, narrow = (
            mean_cosine(step(tokens(width), gamma * np.log(n), 0.0)) for width in (20_000, 4)
        )
        assert wide == pytest.approx(predicted, abs=0.02)
        if gamma == 1.0:
            assert abs(narrow - predicted) > 0.1


def test_orthogonal_tokens_turn_at_half_the_critical_gamma() -> None:
    """rho = 0 is outside the theorem: between gamma 1/2 and 1 the limit is 0, not 1."""
    n, critical = 1e60, 1.0
    for share, limit in ((0.4, 1.0), (0.75, 0.0), (1.1, 0.0)):
        finite = theory.predict_simplex_cosine(n, 0.0, share * critical * np.log(n))
        assert finite == pytest.approx(limit, abs=1e-3)
    near = theory.predict_simplex_cosine(n, 0.01, 0.75 * np.log(n) / 0.99)
    assert near == pytest.approx(theory.simplex_cosine_limit(0.75 / 0.99, 0.01), abs=1e-3)


def test_clustered_tokens_leave_the_simplex_law() -> None:
    """Two clusters: above the critical gamma of the mean cosine each still contracts."""
    n, gamma = 400, 3.0
    cluster = np.repeat([0, 1], n // 2)
    gram = np.where(cluster[:, None] == cluster, 0.9, 0.1)
    np.fill_diagonal(gram, 1.0)
    x = np.linalg.cholesky(gram)
    mean = mean_cosine(x)
    assert theory.predict_phase(gamma, theory.critical_gamma_threshold(mean)).item() == "super"
    x = step(x, gamma * np.log(n), 0.0)
    y = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert y[0] @ y[1] > 0.95
    assert theory.simplex_cosine_limit(gamma, mean) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.critical_gamma_threshold(1.0), "cosine"),
        (lambda: theory.predict_simplex_cosine(1, 0.5, 1.0), "n_key"),
        (lambda: theory.predict_simplex_cosine(4, 1.0, 1.0), "cosine"),
        (lambda: theory.predict_simplex_cosine(4, 0.5, -1.0), "inverse_temperature"),
        (lambda: theory.predict_simplex_cosine(4, 0.5, 1.0, -1.0), "residual"),
        (lambda: theory.simplex_cosine_limit(-1.0, 0.5), "gamma"),
        (lambda: theory.simplex_cosine_limit(1.0, 0.0), "cosine"),
        (lambda: theory.predict_simplex_gradient(5, 0.5, 1.0, 4), "d_model must be at least"),
        (lambda: theory.predict_simplex_gradient(5, 0.5, 1.0, 5, 0.0), "square_norm"),
        (lambda: theory.simplex_gradient_limit(1.0, 0.5, 0), "d_model"),
        (lambda: theory.predict_phase(1.0, 0.0), "threshold"),
        (lambda: theory.predict_phase(np.nan, 1.0), "value"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
