"""Curves of the scores carry the values of their laws and say what they are."""

import json

import numpy as np
import pytest

from resharpen.interp import theory
from resharpen.interp.theory import Curve

KEYS = np.array([1, 2, 3, 32, 400, 9000])
SCALE, SHARPENING = "log_accumulation_scale", "log_sharpening_inverse_temperature"
BUILDERS = {
    "spread": (theory.gaussian_spread_curve, (2.0,), "score_spread", "limit", 1),
    "reach": (theory.gaussian_reach_curve, (2.0,), "score_reach", "limit", 1),
    "bound": (theory.accumulation_bound_curve, (5.0,), SCALE, "lower_bound", 2),
    "simplex": (theory.simplex_accumulation_curve, (0.5,), SCALE, "exact", 2),
    "gaussian": (theory.gaussian_accumulation_curve, (2.0,), SCALE, "limit", 2),
    "sphere": (theory.sphere_accumulation_curve, (4, 2.0), SCALE, "conjecture", 1),
    "needed": (theory.sharpening_bound_curve, (5.0, 0.5), SHARPENING, "lower_bound", 3),
    "sharpening": (theory.gaussian_sharpening_curve, (2.0,), SHARPENING, "limit", 3),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_builder_places_its_curve_and_survives_json(name: str) -> None:
    build, parameters, quantity, kind, first = BUILDERS[name]
    place = {"checkpoint": "a", "layer": 0, "head": 1}
    curve = build(KEYS, *parameters, **place)
    assert (curve.quantity, curve.unit, curve.kind, curve.x_name) == (quantity, "1", kind, "n_key")
    assert {field: getattr(curve, field) for field in place} == place
    assert np.isfinite(curve.values).tolist() == (first <= KEYS).tolist()
    assert Curve.from_dict(json.loads(json.dumps(curve.to_dict(), allow_nan=False))) == curve


def test_values_are_those_of_the_laws() -> None:
    n = KEYS[3:]

    def values(name):
        build, parameters, *_ = BUILDERS[name]
        return build(KEYS, *parameters).at(n)

    np.testing.assert_allclose(values("spread"), theory.predict_gaussian_spread(n, 2.0))
    np.testing.assert_allclose(values("reach"), theory.predict_gaussian_maximum(n, 2.0))
    np.testing.assert_allclose(np.exp(values("bound")), np.log(n) / 5.0)
    np.testing.assert_allclose(np.exp(values("simplex")), np.log(n) / 0.5)
    np.testing.assert_allclose(np.exp(values("gaussian")), np.sqrt(2 * np.log(n)) / 2.0)
    np.testing.assert_allclose(np.exp(values("sphere")), n ** (2 / 3) / 2.0)
    np.testing.assert_allclose(np.exp(values("needed")), np.log(n - 1) / 5.0)
    np.testing.assert_allclose(
        np.exp(values("sharpening")), theory.predict_gaussian_sharpening(n, 2.0)
    )


def test_a_law_that_says_nothing_anywhere_is_a_curve_of_nothing() -> None:
    curve = theory.sharpening_bound_curve([1, 2], 5.0)
    assert np.isnan(curve.values).all()
    past = theory.gaussian_sharpening_curve([2**19, 2**22], 1.0)
    assert np.isfinite(past.values).tolist() == [True, False]
