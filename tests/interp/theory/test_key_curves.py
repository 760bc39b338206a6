"""Curves over n_key carry the values of their laws and say what they are."""

import json

import numpy as np
import pytest

from resharpen.interp import theory
from resharpen.interp.theory import Curve

KEYS = np.array([1, 2, 5, 32, 400, 9000])
BUILDERS = {
    "limits": lambda **place: theory.dispersion_limit_curves(KEYS, **place),
    "weights": lambda **place: theory.weight_bound_curves(KEYS, 3.0, **place),
    "entropy": lambda **place: (theory.entropy_bound_curve(KEYS, 3.0, **place),),
    "deviation": lambda **place: (theory.deviation_entropy_bound_curve(KEYS, 0.5, **place),),
    "gaussian": lambda **place: (theory.gaussian_entropy_curve(KEYS, 0.0, **place),),
    "support": lambda **place: (theory.gaussian_support_curve(KEYS, 0.0, **place),),
    "norm": lambda **place: (theory.average_norm_curve(KEYS, 3.0, 0.1, **place),),
    "rate": lambda **place: (theory.variance_rate_curve(KEYS, 3.0, **place),),
    "bound": lambda **place: (theory.variance_bound_curve(KEYS, 1.0, 2.0, **place),),
}
WHAT = {
    "limits": [
        ("entropy", "nats", "upper_bound"),
        ("effective_support", "1", "upper_bound"),
        ("max_weight", "ratio", "lower_bound"),
    ],
    "weights": [("max_weight", "ratio", "lower_bound"), ("max_weight", "ratio", "upper_bound")],
    "entropy": [("entropy", "nats", "lower_bound")],
    "deviation": [("entropy", "nats", "lower_bound")],
    "gaussian": [("entropy", "nats", "limit")],
    "support": [("effective_support", "1", "limit")],
    "norm": [("contribution_norm", "l2", "exact")],
    "rate": [("output_variance", "1", "limit")],
    "bound": [("output_variance", "1", "upper_bound")],
}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_builder_places_its_curves_and_survives_json(name: str) -> None:
    place = {"checkpoint": "a", "seed": 3, "layer": 0, "head": 1, "site": "blocks.0.hook_attn_out"}
    curves = BUILDERS[name](**place)
    assert [(c.quantity, c.unit, c.kind) for c in curves] == WHAT[name]
    for curve in curves:
        assert curve.x_name == "n_key"
        assert {field: getattr(curve, field) for field in place} == place
        assert np.isfinite(curve.values).all()
        assert Curve.from_dict(json.loads(json.dumps(curve.to_dict(), allow_nan=False))) == curve


def test_values_are_those_of_the_laws() -> None:
    entropy, support, weight = BUILDERS["limits"]()
    np.testing.assert_allclose(entropy.values, np.log(KEYS))
    np.testing.assert_allclose(support.values, KEYS)
    np.testing.assert_allclose(weight.values, 1 / KEYS)
    lower, upper = BUILDERS["weights"]()
    np.testing.assert_allclose(lower.values, 1 / KEYS)
    np.testing.assert_allclose(upper.values, 1 / (1 + (KEYS - 1) * np.exp(-3.0)))
    (least,) = BUILDERS["entropy"]()
    np.testing.assert_array_equal(least.values, theory.tight_entropy_bound(KEYS, 3.0))
    (rate,) = BUILDERS["rate"]()
    np.testing.assert_allclose(rate.values, 3 / KEYS)


def test_deviation_bound_holds_for_rows_of_that_deviation() -> None:
    rng = np.random.default_rng(0)
    for n in (2, 9, 300):
        scores = rng.normal(size=n)
        scores = 1.3 * (scores - scores.mean()) / scores.std()
        weights = np.exp(scores) / np.exp(scores).sum()
        curve = theory.deviation_entropy_bound_curve([n], 1.3)
        assert -(weights * np.log(weights)).sum() >= curve.at(n) - 1e-12


def test_spread_may_differ_from_point_to_point() -> None:
    spread = np.linspace(0.0, 5.0, KEYS.size)
    _, upper = theory.weight_bound_curves(KEYS, spread)
    for n, d, value in zip(KEYS, spread, upper.values, strict=True):
        assert value == pytest.approx(1 / (1 + (n - 1) * np.exp(-d)))


def test_gaussian_curves_begin_where_they_are_valid() -> None:
    curve = theory.gaussian_entropy_curve(KEYS, 2.0)
    assert curve.domain == (32.0, np.inf)
    assert np.isnan(curve.values).tolist() == [True, True, True, False, False, False]
    assert theory.gaussian_support_curve(KEYS, 2.0).domain == (9000.0, np.inf)
    never = theory.gaussian_entropy_curve(KEYS, 50.0)
    assert np.isnan(never.values).all() and never.domain[0] > KEYS[-1]


def test_a_point_valid_before_the_last_frozen_one_is_left_out() -> None:
    curve = theory.gaussian_entropy_curve(KEYS, [0.0, 0.1, 9.0, 0.1, 0.1, 0.1])
    assert np.isnan(curve.values).tolist() == [True, True, True, False, False, False]
    assert curve.domain == (32.0, np.inf)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="n_key"):
        theory.dispersion_limit_curves([0, 1])
    with pytest.raises(ValueError, match="strictly increasing"):
        theory.entropy_bound_curve([5, 4], 1.0)
    with pytest.raises(ValueError, match="spread"):
        theory.weight_bound_curves([1, 2], -1.0)
    with pytest.raises(ValueError, match="rate"):
        theory.variance_rate_curve([1, 2], -1.0)
