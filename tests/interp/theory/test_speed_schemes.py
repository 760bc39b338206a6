"""Speed factors, and the first and last rates of clustering, against the integrated equation."""

import numpy as np
import pytest

from resharpen.interp import theory

SCHEMES = [
    theory.SpeedScheme("post"),
    theory.SpeedScheme("pre"),
    theory.SpeedScheme("mix", switch_time=3.0),
    theory.SpeedScheme("peri"),
    theory.SpeedScheme("ngpt", step_size=0.7),
    theory.SpeedScheme("ln_scaling"),
]
by_name = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)


def fitted_slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(x, y, 1)[0])


def table_rate(name: str, n: int, beta: float, r0: float, alpha: float) -> float:
    """The column of theory 11's table, written out."""
    e = np.exp(beta)
    return {
        "post": 2 / (e + n - 1),
        "pre": 2 / (r0 * (e + n - 1)),
        "mix": 2 / (e + n - 1),
        "peri": 2 / (r0 * np.sqrt(e**2 + n - 1)),
        "ngpt": 2 * alpha / np.sqrt(e**2 + n - 1),
        "ln_scaling": 2 / (e + n - 1),
    }[name]


@by_name
@pytest.mark.parametrize(("n", "beta", "r0"), [(256, 5.0, 1.0), (32, 1.0, 2.5), (2, 0.0, 0.4)])
def test_initial_rate_is_the_tables_and_that_of_the_integrated_cosine(
    scheme: theory.SpeedScheme, n: int, beta: float, r0: float
) -> None:
    expected = table_rate(scheme.name, n, beta, r0, 0.7)
    rate = theory.initial_cosine_rate(scheme, n, beta, r0)
    assert rate == pytest.approx(expected, rel=1e-12)
    assert theory.predict_cosine_rate(scheme, n, 0.0, beta, r0) == pytest.approx(expected)
    times = np.linspace(0.0, 1e-3 / expected / n, 9)  # n c stays small: the start of the path
    path = theory.predict_cosine_path(scheme, times, n, beta, radius=r0)
    assert fitted_slope(path.time, path.cosine) == pytest.approx(expected, rel=0.02)


def test_initial_rate_of_a_long_or_sharp_row_does_not_overflow() -> None:
    for name in ("post", "peri"):
        rate = theory.initial_cosine_rate(name, [1e300, 2], [0.0, 700.0])
        assert (rate > 0).all() and np.isfinite(rate).all()


@pytest.mark.parametrize(("name", "alpha"), [("post", 1.0), ("ngpt", 1.0), ("ngpt", 0.25)])
def test_tokens_on_the_sphere_meet_exponentially(name: str, alpha: float) -> None:
    scheme = theory.SpeedScheme(name, step_size=alpha)
    path = theory.predict_cosine_path(scheme, np.linspace(20, 40, 21) / alpha, 256, 5.0)
    assert path.log_gap[-1] < -20
    assert fitted_slope(path.time, path.log_gap) == pytest.approx(-2 * alpha, rel=0.02)
    law = theory.terminal_cosine_rate(scheme, path.time)
    assert fitted_slope(np.log(law), np.log(path.cosine_rate)) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("scheme", SCHEMES[1:4], ids=lambda scheme: scheme.name)
def test_tokens_of_growing_radius_meet_as_a_power(scheme: theory.SpeedScheme) -> None:
    path = theory.predict_cosine_path(scheme, np.geomspace(1e4, 1e6, 9), 256, 5.0)
    slope = fitted_slope(np.log(path.time), np.log(path.cosine_rate))
    assert slope == pytest.approx(-3.0, rel=0.02)
    law = theory.terminal_cosine_rate(scheme, path.time)
    assert fitted_slope(np.log(path.time), np.log(law)) == pytest.approx(-3.0)
    np.testing.assert_allclose(path.radius / path.time, 1.0, atol=0.02)  # r grows as t


def test_ln_scaling_meets_as_a_stretched_exponential() -> None:
    path = theory.predict_cosine_path("ln_scaling", np.geomspace(300, 3000, 9), 256, 5.0)
    root = np.sqrt(path.time)
    assert fitted_slope(root, path.log_gap) == pytest.approx(-4.0, rel=0.02)
    law = np.log(theory.terminal_cosine_rate("ln_scaling", path.time))
    assert fitted_slope(law, np.log(path.cosine_rate)) == pytest.approx(1.0, rel=0.02)
    assert np.ptp(np.log(path.cosine_rate) - law) < 0.2  # over 130 nats


def test_factors_and_radii_in_numbers() -> None:
    r, size, t = 3.0, 0.5, 8.0
    expected = {"post": 1, "pre": 3, "peri": 1.5, "ngpt": 0.5, "ln_scaling": 3}
    for name, factor in expected.items():
        assert theory.predict_speed_factor(name, r, size, t) == factor
    growth = {"post": 0, "pre": 0.2, "peri": 0.4, "ngpt": 0, "ln_scaling": 0}
    for name, speed in growth.items():
        assert theory.predict_radius_speed(name, 0.2, size, t) == speed
    mix = theory.SpeedScheme("mix", switch_time=2.0)
    assert theory.predict_speed_factor(mix, r, size, [0, 2, 2.1]).tolist() == [1, 1, 3]
    assert theory.predict_radius_speed(mix, 0.2, size, [2, 2.1]).tolist() == [0, 0.2]
    decaying = theory.SpeedScheme("ngpt", step_size=lambda time: 1 / (1 + time))
    assert theory.predict_speed_factor(decaying, r, size, [0.0, 3.0]).tolist() == [0.5, 2.0]
    assert theory.predict_speed_factor("peri", [[1.0], [2.0]], [0.0, 1.0]).shape == (2, 2)


def test_bad_schemes_are_refused() -> None:
    for arguments, match in [
        (("layer",), "scheme must be one of 'post'"),
        (("mix",), "switch_time is the turn of scheme 'mix'"),
        (("post", 1.0), "switch_time is the turn of scheme 'mix'"),
        (("mix", -1.0), "switch_time must be finite and >= 0"),
        (("pre", None, 0.5), "step_size is the alpha of scheme 'ngpt'"),
        (("pre", None, abs), "step_size is the alpha of scheme 'ngpt'"),
        (("ngpt", None, 0.0), "step_size must be finite and > 0"),
    ]:
        with pytest.raises(ValueError, match=match):
            theory.SpeedScheme(*arguments)
    with pytest.raises(ValueError, match="switch_time"):
        theory.initial_cosine_rate("mix", 4, 1.0)
    with pytest.raises(ValueError, match="radius must be finite and > 0"):
        theory.predict_speed_factor("pre", 0.0)
    with pytest.raises(ValueError, match=r"step_size\(1\) must be finite"):
        theory.predict_speed_factor(theory.SpeedScheme("ngpt", step_size=lambda t: -t), time=1.0)
    with pytest.raises(ValueError, match="constant step_size"):
        theory.terminal_cosine_rate(theory.SpeedScheme("ngpt", step_size=abs), 1.0)
    with pytest.raises(TypeError, match="radial must be an array of real numbers"):
        theory.predict_radius_speed("pre", "fast")
