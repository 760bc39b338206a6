"""Growth of an inverse temperature: each law is found where it holds, and nothing is guessed."""

import json
import math

import numpy as np
import pytest

from resharpen.analyses.growth_laws import GROWTH_LAWS, Growth, fit_growth
from resharpen.interp.theory import predict_gaussian_sharpening

KEYS = np.round(8 * 2 ** (np.arange(15) / 2))
LAWS = {
    "constant": np.ones_like(KEYS),
    "sqrt_log_n": predict_gaussian_sharpening(KEYS, 0.5),
    "log_n": np.log(KEYS - 1) / 0.3,
    "power": 0.4 * KEYS**0.6,
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_each_law_is_found_with_its_coefficient(law: str, noise: float) -> None:
    rng = np.random.default_rng(0)
    logs = np.log(LAWS[law]) + noise * rng.normal(size=KEYS.size)
    found = fit_growth(KEYS, logs, None if noise == 0 else np.full(KEYS.size, noise))
    assert found.law == law, found.reason
    assert [fit.law for fit in found.fits] == list(GROWTH_LAWS)
    best = found.fits[GROWTH_LAWS.index(law)]
    coefficient = {"constant": 1.0, "sqrt_log_n": 2.0, "log_n": 1 / 0.3, "power": 0.4}[law]
    assert best.coefficient == pytest.approx(coefficient, rel=5 * noise + 1e-9)
    assert best.misfit == pytest.approx(noise, abs=noise + 1e-9)
    assert math.isnan(best.power) == (law != "power")
    if law == "power":
        assert best.power == pytest.approx(0.6, abs=noise + 1e-9)
    assert Growth.from_dict(json.loads(json.dumps(found.to_dict()))).to_dict() == found.to_dict()
    assert (found.n_key_first, found.n_key_last) == (8, 1024)


def test_noise_that_hides_the_law_is_said() -> None:
    logs = np.log(LAWS["log_n"]) + 0.5 * np.random.default_rng(2).normal(size=KEYS.size)
    found = fit_growth(KEYS, logs)
    assert found.law == "undecided"
    assert "fit about as well" in found.reason


def test_a_power_law_has_to_beat_the_others() -> None:
    """It can imitate log n over a short ladder, and does not take its place."""
    logs = np.log(LAWS["log_n"]) + 0.05 * np.random.default_rng(0).normal(size=KEYS.size)
    found = fit_growth(KEYS, logs)
    assert found.law == "log_n"
    assert found.fits[-1].misfit < 0.15


def test_a_falling_temperature_is_told() -> None:
    found = fit_growth(KEYS, -0.2 * np.log(KEYS))
    assert found.law == "power" and found.falls and "falls with n" in found.reason
    assert not fit_growth(KEYS, 0.2 * np.log(KEYS)).falls


def test_weights_favour_what_is_known_well() -> None:
    logs = np.log(LAWS["constant"]) + np.where(np.arange(KEYS.size) < 5, 1.0, 0.0)
    errors = np.where(np.arange(KEYS.size) < 5, 10.0, 0.01)
    assert fit_growth(KEYS, logs, errors).law == "constant"
    assert fit_growth(KEYS, logs).law != "constant"


def test_too_few_points_and_missing_ones() -> None:
    found = fit_growth(KEYS[:4], np.log(LAWS["log_n"][:4]))
    assert (found.law, found.fits) == ("undecided", ())
    assert "4 numbers of keys, at least 5" in found.reason
    empty = fit_growth([], [])
    assert empty.law == "undecided" and math.isnan(empty.first)
    holed = np.log(LAWS["log_n"])
    holed[3] = math.nan
    assert fit_growth(KEYS, holed).law == "log_n"
    small = np.concatenate([[2, 3], KEYS])
    assert fit_growth(small, np.concatenate([[9.0, 9.0], np.log(LAWS["log_n"])])).law == "log_n"


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="of one shape"):
        fit_growth([1.0, 2.0], [1.0])
