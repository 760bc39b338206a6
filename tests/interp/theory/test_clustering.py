"""Particles against the cosine equation, a direct integration, and their symmetries."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import ortho_group

from resharpen.interp import theory
from resharpen.interp.theory import clustering

SCHEMES = [
    theory.SpeedScheme("post"),
    theory.SpeedScheme("pre"),
    theory.SpeedScheme("mix", switch_time=1.03),
    theory.SpeedScheme("peri"),
    theory.SpeedScheme("ngpt", step_size=lambda time: 1.0 / (1.0 + 0.1 * time)),
    theory.SpeedScheme("ln_scaling"),
]
by_name = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)


def some_tokens(n: int, d: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    tokens = theory.predict_random_tokens(n, d, generator)
    return tokens * generator.uniform(0.5, 2.0, (n, 1))


@by_name
@pytest.mark.parametrize("cosine", [0.0, 0.4])
def test_equiangular_particles_follow_the_cosine_equation(
    scheme: theory.SpeedScheme, cosine: float
) -> None:
    times = [0.0, 0.5, 2.0, 6.0]
    tokens = 1.4 * theory.predict_equiangular_tokens(12, cosine, 15)
    path = theory.predict_particles(tokens, times, scheme, 2.0, step=0.05)
    expected = theory.predict_cosine_path(scheme, times, 12, 2.0, cosine, 1.4)
    np.testing.assert_allclose(path.mean_cosine, expected.cosine, atol=1e-6)
    every = np.einsum("tid,tjd->tij", path.directions, path.directions)
    apart = every[:, ~np.eye(12, dtype=bool)]
    np.testing.assert_allclose(apart, expected.cosine[:, None] + 0 * apart, atol=1e-6)
    for name in ("radius", "speed_factor", "angular_speed"):
        each = getattr(path, name)
        np.testing.assert_allclose(each, getattr(expected, name)[:, None] + 0 * each, atol=1e-5)


def direct(scheme: theory.SpeedScheme, tokens, beta, q, k, v, stop: float) -> np.ndarray:
    """Integrate (theta, r) of every token with scipy, by loops over tokens."""
    n, d = tokens.shape
    r0 = np.linalg.norm(tokens, axis=1)

    def velocity(t: float, y: np.ndarray) -> np.ndarray:
        theta, r = y[: n * d].reshape(n, d), y[n * d :]
        turn, growth = np.zeros((n, d)), np.zeros(n)
        for j in range(n):
            weights = np.array([math.exp(beta * (q @ theta[j]) @ (k @ theta[i])) for i in range(n)])
            a = sum(weights[i] * (v @ theta[i]) for i in range(n)) / weights.sum()
            size = np.linalg.norm(a)
            s, growth[j] = {
                "post": (1, 0),
                "pre": (r[j], theta[j] @ a),
                "peri": (r[j] * size, theta[j] @ a / size),
                "ngpt": (size / scheme.alpha(t) if scheme.name == "ngpt" else 1, 0),
                "ln_scaling": (math.sqrt(t + 1), 0),
            }[scheme.at(t)]
            turn[j] = (a - (a @ theta[j]) * theta[j]) / s
        return np.concatenate([turn.ravel(), growth])

    start = np.concatenate([(tokens / r0[:, None]).ravel(), r0])
    kinks = [scheme.switch_time] if scheme.switch_time else []
    now = 0.0
    for end in [*kinks, stop]:
        inside = (now + 1e-12, end)  # just after the turn of mix
        start = solve_ivp(velocity, inside, start, rtol=1e-9, atol=1e-10).y[:, -1]
        now = end
    return start[: n * d].reshape(n, d) * start[n * d :, None]


@by_name
def test_any_query_key_and_value_equals_a_direct_integration(scheme: theory.SpeedScheme) -> None:
    generator = np.random.default_rng(3)
    tokens = some_tokens(5, 3)
    q, k = generator.standard_normal((2, 2, 3))
    v = generator.standard_normal((3, 3)) + 1.5 * np.eye(3)
    path = theory.predict_particles(tokens, [1.5], scheme, 0.8, q, k, v, step=0.01)
    expected = direct(scheme, tokens, 0.8, q, k, v, 1.5)
    np.testing.assert_allclose(
        path.directions[0] * path.radius[0][:, None], expected, rtol=1e-5, atol=1e-6
    )


@by_name
def test_rotating_the_tokens_rotates_the_path(scheme: theory.SpeedScheme) -> None:
    turn = ortho_group.rvs(6, random_state=1)
    generator = np.random.default_rng(4)
    q, k, v = generator.standard_normal((3, 6, 6))
    tokens, times = some_tokens(9, 6), [0.0, 1.5]
    plain = theory.predict_particles(tokens, times, scheme, 1.2, step=0.1)
    turned = theory.predict_particles(tokens @ turn.T, times, scheme, 1.2, step=0.1)
    np.testing.assert_allclose(turned.directions, plain.directions @ turn.T, atol=1e-9)
    np.testing.assert_allclose(turned.radius, plain.radius, rtol=1e-9)
    moved = [turn @ one @ turn.T for one in (q, k, v)]
    plain = theory.predict_particles(tokens, times, scheme, 1.2, q, k, v)
    turned = theory.predict_particles(tokens @ turn.T, times, scheme, 1.2, *moved)
    np.testing.assert_allclose(turned.directions, plain.directions @ turn.T, atol=1e-8)


@by_name
def test_order_of_tokens_and_size_of_blocks_do_not_matter(
    scheme: theory.SpeedScheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, order = some_tokens(11, 4), np.random.default_rng(0).permutation(11)
    whole = theory.predict_particles(tokens, [2.0], scheme, 3.0)
    monkeypatch.setattr(clustering, "BLOCK_SCORES", 40)  # three rows at once
    parts = theory.predict_particles(tokens[order], [2.0], scheme, 3.0)
    np.testing.assert_allclose(parts.directions[0], whole.directions[0][order], atol=1e-10)


@by_name
@pytest.mark.parametrize("method", theory.STEP_METHODS)
def test_radii_stay_or_grow_as_the_scheme_says(scheme: theory.SpeedScheme, method: str) -> None:
    tokens = some_tokens(20, 5)
    path = theory.predict_particles(
        tokens, [0.0, 1.0, 3.0, 40.0], scheme, 2.0, step=0.1, method=method
    )
    np.testing.assert_allclose(np.linalg.norm(path.directions, axis=2), 1.0, atol=1e-12)
    start = np.linalg.norm(tokens, axis=1)
    np.testing.assert_allclose(path.radius[0], start, rtol=1e-14)
    if scheme.name in ("pre", "peri", "mix"):
        assert (path.radius[-1] > start + 20).all()
        assert (path.radius[-1] <= start + 40 + 1e-9).all()  # |A| <= 1
    else:
        np.testing.assert_allclose(path.radius, np.tile(start, (4, 1)), rtol=1e-12)
    if scheme.name == "mix":
        np.testing.assert_allclose(path.radius[1], start, rtol=1e-12)
    assert (np.diff(path.mean_cosine) > 0).all()
    held = scheme.name in ("pre", "peri", "mix")  # by the radius, which has grown 40-fold
    assert (0.4 < path.mean_cosine[-1] < 0.7) if held else path.mean_cosine[-1] > 0.9


def test_a_first_order_step_is_a_layer() -> None:
    tokens = some_tokens(7, 4)
    theta = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    weights = np.exp(1.5 * theta @ theta.T)
    output = weights / weights.sum(1, keepdims=True) @ theta
    pre = theory.predict_particles(tokens, [0.3], "pre", 1.5, step=0.3, method="euler")
    moved = tokens + 0.3 * output
    np.testing.assert_allclose(pre.directions[0] * pre.radius[0][:, None], moved, atol=1e-13)
    peri = theory.predict_particles(tokens, [0.3], "peri", 1.5, step=0.3, method="euler")
    moved = tokens + 0.3 * output / np.linalg.norm(output, axis=1, keepdims=True)
    np.testing.assert_allclose(peri.directions[0] * peri.radius[0][:, None], moved, atol=1e-13)
    post = theory.predict_particles(theta, [1e-4], "post", 1.5, step=1e-4, method="euler")
    layer = theta + 1e-4 * output
    layer /= np.linalg.norm(layer, axis=1, keepdims=True)
    np.testing.assert_allclose(post.directions[0], layer, atol=1e-7)  # to order h^2


def test_orders_of_the_two_methods() -> None:
    tokens = some_tokens(8, 3)

    def end(step: float, method: str) -> np.ndarray:
        path = theory.predict_particles(tokens, [1.0], "post", 2.0, step=step, method=method)
        return path.directions[0]

    exact = end(0.002, "rk4")
    error = {
        (method, step): np.abs(end(step, method) - exact).max()
        for method in theory.STEP_METHODS
        for step in (0.1, 0.05)
    }
    assert error["euler", 0.1] / error["euler", 0.05] == pytest.approx(2, rel=0.2)
    assert error["rk4", 0.1] / error["rk4", 0.05] == pytest.approx(16, rel=0.3)


def test_inverse_temperature_may_follow_time_and_length() -> None:
    tokens = some_tokens(10, 4)
    law = theory.predict_particles(tokens, [1.0], "post", lambda time, n_key: math.log(n_key))
    fixed = theory.predict_particles(tokens, [1.0], "post", math.log(10))
    np.testing.assert_array_equal(law.directions, fixed.directions)
    seen: list[float] = []

    def record(time: float, n_key: int) -> float:
        seen.append(time)
        return 1.0

    theory.predict_particles(tokens, [0.0, 0.2], "post", record, step=0.1, method="euler")
    assert seen == pytest.approx([0.0, 0.0, 0.1, 0.2])


def test_starts() -> None:
    tokens = theory.predict_random_tokens(4000, 3, np.random.default_rng(5))
    np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1.0, atol=1e-14)
    assert np.abs(tokens.mean(0)).max() < 4 / math.sqrt(3 * 4000)
    np.testing.assert_allclose(tokens.T @ tokens / 4000, np.eye(3) / 3, atol=0.03)
    for cosine in (0.0, 0.35, 1.0):
        tokens = theory.predict_equiangular_tokens(5, cosine, 7)
        gram = (1 - cosine) * np.eye(5) + cosine
        np.testing.assert_allclose(tokens @ tokens.T, gram, atol=1e-14)


def test_antipodal_tokens_stay_without_a_division_by_zero() -> None:
    tokens = np.array([[1.0, 0.0], [-1.0, 0.0]])
    for scheme in ("post", "pre", "peri", "ngpt"):
        path = theory.predict_particles(tokens, [1.0], scheme, 0.0)
        np.testing.assert_array_equal(path.directions[0], tokens)
    one = theory.predict_particles(tokens[:1], [1.0], "pre", 2.0)
    assert math.isnan(one.mean_cosine[0]) and one.radius[0, 0] == pytest.approx(2.0)


def test_bad_input_is_refused() -> None:
    tokens = some_tokens(4, 3)
    for change, match in [
        ({"tokens": tokens[0]}, r"tokens must have shape \[token, d_model\]"),
        ({"tokens": 0 * tokens}, "no zero row"),
        ({"tokens": tokens * np.nan}, "tokens must be finite"),
        ({"times": [2.0, 1.0]}, "times must be a non-empty list"),
        ({"scheme": "mix"}, "switch_time"),
        ({"method": "heun"}, "method must be one of 'euler', 'rk4'"),
        ({"step": 0.0}, "step must be finite and > 0"),
        ({"query": np.eye(4)}, r"query must have shape \[d_head, 3\]"),
        ({"key": np.ones((2, 3))}, "query and key must map to the same width, got 3 and 2"),
        ({"value": np.ones((2, 3))}, r"value must have shape \[3, 3\]"),
        ({"inverse_temperature": [1.0, 2.0]}, "inverse_temperature must be one number"),
    ]:
        with pytest.raises(ValueError, match=match):
            theory.predict_particles(**({"tokens": tokens, "times": [1.0]} | change))
    with pytest.raises(ValueError, match="d_model must be at least n_key"):
        theory.predict_equiangular_tokens(4, 0.1, 3)
    with pytest.raises(ValueError, match="n_key must be whole"):
        theory.predict_random_tokens(1.5, 3, np.random.default_rng())
