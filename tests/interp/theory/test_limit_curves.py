"""Curves of the limits: values of their laws, what is only reported named a conjecture."""

import json

import numpy as np
import pytest

from resharpen.interp import theory
from resharpen.interp.theory import Curve

KEYS = np.array([1, 2, 5, 32, 9000])
BUILDERS = {
    "slope": lambda **place: theory.jacobian_bound_curves(KEYS, 1 / KEYS, 2.0, **place),
    "relayed": lambda **place: (theory.relayed_jacobian_curve(KEYS, **place),),
    "distance": lambda **place: (theory.selection_distance_bound_curve(KEYS, 3.0, **place),),
    "selection": lambda **place: theory.relayed_selection_curves(KEYS, **place),
}
WHAT = {
    "slope": [
        ("jacobian_entry", "1", "upper_bound"),
        *[("jacobian_norm", "1", "upper_bound")] * 3,
    ],
    "relayed": [("jacobian_norm", "1", "conjecture")],
    "distance": [("selection_distance", "l2", "upper_bound")],
    "selection": [
        ("selection_distance", "l2", "conjecture"),
        ("separable_share", "ratio", "conjecture"),
    ],
}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_builder_places_its_curves_and_survives_json(name: str) -> None:
    place = {"checkpoint": "a", "seed": 3, "layer": 0, "head": 1, "site": "decoder.0.attn"}
    curves = BUILDERS[name](**place)
    assert [(c.quantity, c.unit, c.kind) for c in curves] == WHAT[name]
    for curve in curves:
        assert curve.x_name == "n_key" and "theory 6" in curve.source
        assert {field: getattr(curve, field) for field in place} == place
        assert Curve.from_dict(json.loads(json.dumps(curve.to_dict(), allow_nan=False))) == curve
        # What the source is only relayed to state is a conjecture, and nothing else is.
        assert ("second-hand" in curve.source) == (curve.kind == "conjecture")


def test_values_are_those_of_the_laws() -> None:
    entry, norm, weight, spread = BUILDERS["slope"]()
    assert set(entry.values) == {0.25} and set(norm.values) == {0.5}
    np.testing.assert_allclose(weight.values, np.minimum(1 / KEYS, 0.5))
    allowed = 1 / (1 + (KEYS - 1) * np.exp(-2.0))
    np.testing.assert_allclose(spread.values, np.minimum(allowed, 0.5))
    # It falls as 1/n in the end: no bounded score keeps its slope.
    assert spread.values[-1] * KEYS[-1] == pytest.approx(np.exp(2.0), rel=1e-2)
    assert set(BUILDERS["distance"]()[0].values) == {3.0}
    distance, share = BUILDERS["selection"]()
    assert set(distance.values) == {0.0} and set(share.values) == {0.8}
    assert any("false" in h for h in BUILDERS["relayed"]()[0].hypotheses)
    assert any("not established" in h for h in share.hypotheses)


def test_the_bound_by_the_spread_is_attained_where_one_key_leads() -> None:
    """One key a spread above all others: the more of them, the closer the slope to the bound."""
    spread = 3.0
    for n in (20, 100, 400):
        scores = np.zeros(n)
        scores[0] = spread
        weights = np.exp(scores) / np.exp(scores).sum()
        matrix = theory.predict_softmax_jacobian(weights)
        bound = theory.jacobian_bound_curves([n], weights.max(), spread)[3].values[0]
        assert np.linalg.norm(matrix, 2) <= bound * (1 + 1e-12)
    assert np.linalg.norm(matrix, 2) == pytest.approx(bound, rel=0.06)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: theory.jacobian_bound_curves(KEYS, 0.0, 1.0), "max_weight must be"),
        (lambda: theory.jacobian_bound_curves(KEYS, 0.5, -1.0), "spread"),
        (lambda: theory.selection_distance_bound_curve(KEYS, -1.0), "value_norm must be"),
        (lambda: theory.relayed_jacobian_curve([0]), "n_key"),
        (lambda: theory.relayed_selection_curves([3, 2]), "increasing"),
    ],
)
def test_bad_input(call, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
