"""Curves of the remedies carry the values of their laws and say what they are."""

import json

import numpy as np
import pytest

from resharpen.interp import theory
from resharpen.interp.theory import Curve

KEYS = np.array([2, 5, 32, 400, 9000])
BUILDERS = {
    "needle": lambda **place: (theory.needle_weight_curve("entmax", KEYS, 1.0, **place),),
    "signal": lambda **place: (
        theory.needle_signal_curve("log_n", KEYS, 0.6, unit_norm=True, **place),
    ),
    "ssmax": lambda **place: (theory.ssmax_weight_bound_curve(KEYS, 2.0, 0.43, **place),),
    "qk": lambda **place: theory.qk_norm_bound_curves(KEYS, 4.0, **place),
    "support": lambda **place: (theory.entmax_entropy_bound_curve(KEYS, 2, **place),),
    "mass": lambda **place: theory.sigmoid_mass_bound_curves(KEYS, 1.0, **place),
    "cosine": lambda **place: theory.simplex_cosine_curves(KEYS, 0.3, 1.0, 0.5, **place),
    "influence": lambda **place: (theory.influence_bound_curve(KEYS, 1.0, 2.0, **place),),
    "sampling": lambda **place: (theory.sampling_error_curve(KEYS, 2.0, **place),),
    "uniform": lambda **place: (theory.sampling_error_curve(KEYS, 2.0, uniform=True, **place),),
}
WHAT = {
    "needle": [("relevant_mass", "ratio", "exact")],
    "signal": [("needle_signal", "ratio", "exact")],
    "ssmax": [("max_weight", "ratio", "lower_bound")],
    "qk": [("max_weight", "ratio", "upper_bound"), ("entropy", "nats", "lower_bound")],
    "support": [("entropy", "nats", "upper_bound")],
    "mass": [("total_mass", "ratio", "lower_bound"), ("total_mass", "ratio", "upper_bound")],
    "cosine": [("token_cosine", "ratio", "exact"), ("token_cosine", "ratio", "limit")],
    "influence": [("influence", "l2", "upper_bound")],
    "sampling": [("sampling_error", "1", "limit")],
    "uniform": [("sampling_error", "1", "conjecture")],
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


@pytest.mark.parametrize("remedy", theory.NEEDLE_REMEDIES)
def test_every_remedy_has_its_curves(remedy: str) -> None:
    weight = theory.needle_weight_curve(remedy, KEYS, 1.2, strength=0.9)
    law = theory.predict_remedy_weights(remedy, KEYS, 1.2, strength=0.9)
    np.testing.assert_array_equal(weight.values, law.needle)
    for unit_norm in (False, True):
        signal = theory.needle_signal_curve(remedy, KEYS, 1.2, unit_norm=unit_norm, strength=0.9)
        expected = theory.predict_remedy_signal(
            remedy, KEYS, 1.2, unit_norm=unit_norm, strength=0.9
        )
        np.testing.assert_array_equal(signal.values, expected)
        assert ("norm" in signal.name) == unit_norm
        assert any("norm" in h and "content" in h for h in signal.hypotheses) == unit_norm
    unsummed = remedy in ("softmax1", "sigmoid")
    assert any("sum to one" in hypothesis for hypothesis in weight.hypotheses) == unsummed
    assert remedy in weight.name and "theory" in weight.source


def test_values_are_those_of_the_laws() -> None:
    (ssmax,) = BUILDERS["ssmax"]()
    np.testing.assert_allclose(ssmax.values, 1 / (1 + (KEYS - 1) * KEYS**-0.86))
    weight, entropy = BUILDERS["qk"]()
    np.testing.assert_allclose(weight.values, 1 / (1 + (KEYS - 1) * np.exp(-8.0)))
    np.testing.assert_allclose(entropy.values, theory.tight_entropy_bound(KEYS, 8.0))
    (support,) = BUILDERS["support"]()
    np.testing.assert_allclose(support.values, np.log(2))
    lower, upper = BUILDERS["mass"]()
    np.testing.assert_allclose(lower.values, KEYS / (1 + KEYS * np.e))
    np.testing.assert_allclose(upper.values, KEYS / (1 + KEYS / np.e))
    exact, limit = BUILDERS["cosine"]()
    law = theory.predict_simplex_cosine(KEYS, 0.3, np.log(KEYS), 0.5)
    np.testing.assert_array_equal(exact.values, law)
    np.testing.assert_allclose(limit.values, theory.simplex_cosine_limit(1.0, 0.3, 0.5))
    (influence,) = BUILDERS["influence"]()
    np.testing.assert_allclose(influence.values, 8 * np.exp(2) / KEYS)
    (sampling,) = BUILDERS["sampling"]()
    np.testing.assert_allclose(sampling.values, 2 / np.sqrt(KEYS))


def test_a_support_may_grow_with_the_row_but_not_past_it() -> None:
    curve = theory.entmax_entropy_bound_curve(KEYS, [2, 3, 6, 20, 95])
    np.testing.assert_allclose(curve.values, np.log([2, 3, 6, 20, 95]))
    with pytest.raises(ValueError, match="support must be at most n_key"):
        theory.entmax_entropy_bound_curve(KEYS, 3)


def test_a_curve_over_one_token_is_refused_where_the_law_needs_two() -> None:
    with pytest.raises(ValueError, match="n_key"):
        theory.simplex_cosine_curves([1, 2], 0.3, 1.0)


def test_an_unknown_remedy_is_named() -> None:
    with pytest.raises(ValueError, match="remedy must be one of"):
        theory.needle_weight_curve("relu", KEYS, 1.0)
