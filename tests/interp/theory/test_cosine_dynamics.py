"""The cosine equation against explicit vectors, a plain integration, and a closed solution."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory
from resharpen.interp.theory.initial_value import integrate

NAMES = ("post", "pre", "peri", "ngpt", "ln_scaling")


@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    n=st.integers(2, 12),
    share=st.floats(0.0, 1.0),
    beta=st.floats(0.0, 12.0),
    r=st.floats(0.2, 5.0),
    t=st.floats(0.0, 9.0),
    name=st.sampled_from(NAMES),
)
def test_rate_equals_that_of_explicit_tokens(
    n: int, share: float, beta: float, r: float, t: float, name: str
) -> None:
    low = -0.99 / (n - 1)
    c = low + share * (0.99 - low)
    theta = np.linalg.cholesky((1 - c) * np.eye(n) + c)
    scores = np.exp(beta * (theta @ theta.T))
    output = scores / scores.sum(1, keepdims=True) @ theta
    size = np.linalg.norm(output, axis=1)
    assert theory.predict_attention_norm(n, c, beta) == pytest.approx(size[0], rel=1e-9, abs=1e-12)
    tangent = output - (output * theta).sum(1, keepdims=True) * theta
    factor = {"pre": r, "peri": r * size[0], "ngpt": size[0], "ln_scaling": math.sqrt(t + 1)}
    expected = (tangent[0] @ theta[1] + theta[0] @ tangent[1]) / factor.get(name, 1.0)
    rate = theory.predict_cosine_rate(name, n, c, beta, r, t)
    assert rate == pytest.approx(expected, rel=1e-8, abs=1e-12)


def by_small_steps(name: str, n: int, beta: float, stop: float, r: float) -> tuple[float, float]:
    """Midpoint steps of (c, r), written from theory 11."""

    def velocity(c: float, r: float, t: float) -> np.ndarray:
        e1, eg = math.exp(beta), math.exp(beta * c)
        z = e1 + (n - 1) * eg
        square = e1**2 + 2 * (n - 1) * e1 * eg * c + (n - 1) * eg**2 * (1 + (n - 2) * c)
        size, radial = math.sqrt(square) / z, (e1 + (n - 1) * c * eg) / z
        s, growth = {
            "post": (1, 0),
            "pre": (r, radial),
            "peri": (r * size, radial / size),
            "ngpt": (size, 0),
            "ln_scaling": (math.sqrt(t + 1), 0),
        }[name]
        return np.array([2 * eg * (1 - c) * (1 + (n - 1) * c) / z / s, growth])

    state, n_steps = np.array([0.0, r]), 4000
    for index in range(n_steps):
        h = stop / n_steps
        half = state + h / 2 * velocity(state[0], state[1], index * h)
        state = state + h * velocity(half[0], half[1], (index + 0.5) * h)
    return float(state[0]), float(state[1])


@pytest.mark.parametrize("name", NAMES)
def test_path_equals_plain_small_steps(name: str) -> None:
    path = theory.predict_cosine_path(name, [0.0, 1.0, 4.0], 24, 2.0, radius=1.3)
    assert path.cosine[0] == 0.0 and path.radius[0] == 1.3
    cosine, radius = by_small_steps(name, 24, 2.0, 4.0, 1.3)
    assert 0.05 < cosine < 0.999999
    assert path.cosine[-1] == pytest.approx(cosine, abs=1e-6)
    assert path.radius[-1] == pytest.approx(radius, rel=1e-6)
    assert (np.diff(path.cosine) > 0).all()
    np.testing.assert_allclose(np.exp(path.log_gap), 1 - path.cosine, atol=1e-15)
    factor = theory.predict_speed_factor(
        name, path.radius, theory.predict_attention_norm(24, path.cosine, 2.0), path.time
    )
    np.testing.assert_allclose(path.speed_factor, factor)
    rate = theory.predict_cosine_rate(name, 24, path.cosine, 2.0, path.radius, path.time)
    np.testing.assert_allclose(path.cosine_rate, rate, rtol=1e-9)


def test_post_at_zero_inverse_temperature_has_a_closed_solution() -> None:
    # dc/dt = 2 (1-c) (1 + (n-1) c) / n: (1 + (n-1) c) / (1-c) = e^(2 t).
    t = np.linspace(0.0, 15.0, 7)
    path = theory.predict_cosine_path("post", t, 10, 0.0)
    exact = np.expm1(2 * t) / (np.exp(2 * t) + 9)
    np.testing.assert_allclose(path.cosine, exact, rtol=1e-8)
    np.testing.assert_allclose(path.log_gap, np.log(10 / (np.exp(2 * t) + 9)), rtol=1e-8)


def test_mix_is_post_and_then_pre() -> None:
    turn = theory.SpeedScheme("mix", switch_time=2.0)
    path = theory.predict_cosine_path(turn, [1.0, 2.0, 5.0], 16, 1.0, radius=2.0)
    before = theory.predict_cosine_path("post", [1.0, 2.0], 16, 1.0, radius=2.0)
    np.testing.assert_allclose(path.cosine[:2], before.cosine, rtol=1e-8)
    assert path.radius[:2].tolist() == [2.0, 2.0]
    assert path.speed_factor[1] == 1.0
    after = theory.predict_cosine_path("pre", [3.0], 16, 1.0, cosine=before.cosine[1], radius=2.0)
    assert path.cosine[2] == pytest.approx(after.cosine[0], rel=1e-8)
    assert path.radius[2] == pytest.approx(after.radius[0], rel=1e-8)


def test_the_result_does_not_depend_on_the_output_times() -> None:
    fine = theory.predict_cosine_path("peri", np.linspace(0, 30, 31), 64, 3.0)
    coarse = theory.predict_cosine_path("peri", [30.0], 64, 3.0)
    assert fine.cosine[-1] == pytest.approx(coarse.cosine[0], abs=1e-8)


def test_laws_of_time_and_length() -> None:
    seen: list[int] = []

    def beta(time: float, n_key: int) -> float:
        seen.append(n_key)
        return 2.0 + 0.0 * time

    by_law = theory.predict_cosine_path("ngpt", [4.0], 50, beta)
    fixed = theory.predict_cosine_path("ngpt", [4.0], 50, 2.0)
    assert by_law.cosine == pytest.approx(fixed.cosine, rel=1e-12)
    assert set(seen) == {50}
    # Above its critical strength (1 / 0.7 here) a log n law holds tokens apart, below it does not.
    moved = {
        strength: [
            theory.predict_cosine_path(
                "post",
                [1.0],
                n,
                lambda time, n_key, s=strength: float(
                    theory.predict_inverse_temperature("log_n", n_key, s)
                ),
                cosine=0.3,
            ).cosine[0]
            - 0.3
            for n in (100, 10_000, 1_000_000)
        ]
        for strength in (2.8, 0.2)
    }
    assert (np.diff(moved[2.8]) < 0).all() and moved[2.8][-1] < 1e-4
    assert min(moved[0.2]) > 0.4
    slower = theory.SpeedScheme("ngpt", step_size=lambda time: math.exp(-time))
    late = theory.predict_cosine_path(slower, [50.0], 8, 1.0)
    # Time runs as the integral of alpha.
    same = theory.predict_cosine_path("ngpt", [1 - math.exp(-50.0)], 8, 1.0)
    assert late.cosine[0] == pytest.approx(same.cosine[0], rel=1e-7)


def test_angular_speed_is_half_the_work_of_the_cosine() -> None:
    # d<theta_i, theta_j>/dt = <theta_i', theta_j> + <theta_i, theta_j'>; at n = 2 the two tokens
    # turn in one plane, and the angle between them closes at twice the speed of each.
    path = theory.predict_cosine_path("pre", [0.5, 2.0], 2, 1.5)
    angle_rate = path.cosine_rate / np.sqrt(1 - path.cosine**2)
    np.testing.assert_allclose(2 * path.angular_speed, angle_rate, rtol=1e-9)


def test_bad_input_is_refused() -> None:
    for change, match in [
        ({"times": [1.0, 1.0]}, "times must be a non-empty list of strictly increasing"),
        ({"times": []}, "times must be a non-empty list"),
        ({"times": [-1.0]}, "times must be finite and >= 0"),
        ({"n_key": 1}, "n_key must be finite and >= 2"),
        ({"cosine": 1.0}, "strictly between"),
        ({"cosine": -0.5}, "cosine must be at least -1"),
        ({"n_key": [4, 5]}, "follows one n_key from one cosine"),
        ({"inverse_temperature": -1.0}, "inverse_temperature must be finite and >= 0"),
        ({"inverse_temperature": lambda t, n: -1.0}, r"inverse_temperature\(0, 4\) must be"),
        ({"radius": 0.0}, "radius must be finite and > 0"),
        ({"tolerance": 0.0}, "tolerance must be finite and > 0"),
        ({"scheme": "sandwich"}, "scheme must be one of"),
    ]:
        given = {"scheme": "post", "times": [1.0], "n_key": 4, "inverse_temperature": 1.0}
        with pytest.raises(ValueError, match=match):
            theory.predict_cosine_path(**(given | change))
    with pytest.raises(RuntimeError, match="stands still at time 0 of 2"):
        integrate(lambda t, x: x * np.nan, np.ones(1), 0.0, 2.0, 1e-9)
    assert math.isnan(theory.predict_cosine_rate("peri", 2, -1.0, 0.0))


def test_the_integrator_has_the_accuracy_asked_for() -> None:
    end = integrate(lambda t, x: np.array([x[1], -x[0]]), np.array([0.0, 1.0]), 0.0, 10.0, 1e-11)
    np.testing.assert_allclose(end, [math.sin(10), math.cos(10)], atol=1e-8)
    still = integrate(lambda t, x: 0 * x, np.ones(2), 3.0, 3.0, 1e-9)
    assert still.tolist() == [1.0, 1.0]
