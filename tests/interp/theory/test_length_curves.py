"""Curves over length carry the values of their laws and say what they are."""

import json
from typing import Any

import numpy as np
import pytest

from resharpen.interp import theory
from resharpen.interp.theory import Curve

LENGTHS = np.arange(1, 32)
WIDTH: dict[str, Any] = {"width": 32, "residual": 2.0, "eps": 1e-5}
BUILDERS = {
    "balanced": lambda **place: theory.balanced_displacement_curve(LENGTHS, 4.0, **place),
    "least": lambda **place: theory.minimum_displacement_bound_curve(
        LENGTHS, np.linspace(1, 9, 32), **place
    ),
    "oscillation": lambda **place: theory.oscillation_bound_curve(
        LENGTHS, 1 / LENGTHS, 0.2, 0.1, **place
    ),
    "gap": lambda **place: theory.gap_curve("post", "RMS", LENGTHS, 9.0, **WIDTH, **place),
    "frozen": lambda **place: theory.gap_curve(
        "peri", "LN", LENGTHS, 9.0, **WIDTH, frozen=True, **place
    ),
    "rescale": lambda **place: theory.displacement_rescale_curve(
        "res_post", "RMS", LENGTHS, 9.0, **WIDTH, final_norm=True, **place
    ),
    "scale": lambda **place: theory.scale_curve("post", "LN", LENGTHS, 9.0, **WIDTH, **place),
    "gain": lambda **place: theory.rescale_gain_curve("post", "LN", LENGTHS, 9.0, **WIDTH, **place),
    "short scale": lambda **place: theory.scale_from_short_curve(LENGTHS, 3.0, 2.5, **place),
    "short gain": lambda **place: theory.rescale_gain_from_short_curve(LENGTHS, 3.0, 2.5, **place),
    "error": lambda **place: theory.error_curve(
        "kl_divergence", LENGTHS, 8.0 / LENGTHS, 32, **place
    ),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_builder_places_its_curve_and_survives_json(name: str) -> None:
    place = {"checkpoint": "a", "seed": 3, "layer": 0, "head": 1, "site": "ln_final.hook_scale"}
    curve = BUILDERS[name](**place)
    assert curve.x_name == "length"
    assert {field: getattr(curve, field) for field in place} == place
    assert np.isfinite(curve.values).all()
    assert "derived here" in curve.source
    assert Curve.from_dict(json.loads(json.dumps(curve.to_dict(), allow_nan=False))) == curve
    bare = BUILDERS[name]()
    assert bare.checkpoint is None and bare.seed is None


@pytest.mark.parametrize(
    ("name", "quantity", "unit", "kind"),
    [
        ("balanced", "displacement", "logit", "exact"),
        ("least", "min_displacement", "logit", "upper_bound"),
        ("oscillation", "oscillation", "logit", "upper_bound"),
        ("gap", "displacement", "logit", "exact"),
        ("frozen", "frozen_displacement", "logit", "exact"),
        ("rescale", "displacement_rescale", "ratio", "exact"),
        ("scale", "norm_scale", "1", "exact"),
        ("gain", "rescale_gain", "ratio", "exact"),
        ("short scale", "norm_scale", "1", "fit"),
        ("short gain", "rescale_gain", "ratio", "fit"),
        ("error", "kl_divergence", "nats", "exact"),
    ],
)
def test_quantity_unit_and_kind(name: str, quantity: str, unit: str, kind: str) -> None:
    curve = BUILDERS[name]()
    assert (curve.quantity, curve.unit, curve.kind) == (quantity, unit, kind)


def test_values_are_those_of_the_laws() -> None:
    np.testing.assert_allclose(BUILDERS["balanced"]().values, 8.0 / LENGTHS)
    gap = theory.predict_gap("post", "RMS", LENGTHS, 9.0, **WIDTH)
    np.testing.assert_array_equal(BUILDERS["gap"]().values, gap)
    live, frozen = (
        theory.gap_curve(
            "res_post", "RMS", LENGTHS, 9.0, **WIDTH, final_norm=True, frozen=held
        ).values
        for held in (False, True)
    )
    np.testing.assert_allclose(BUILDERS["rescale"]().values, live / frozen)
    error = theory.error_curve("total_variation", LENGTHS, gap, 32)
    explicit = [
        theory.predict_total_variation(np.full(s, g), 32 - s)
        for s, g in zip(LENGTHS, gap, strict=True)
    ]
    np.testing.assert_allclose(error.values, explicit)


def test_least_displacement_bound_covers_any_choice_of_tokens() -> None:
    rng = np.random.default_rng(0)
    p = np.exp(rng.normal(size=12))
    curve = theory.minimum_displacement_bound_curve(np.arange(1, 13), p)
    for length in range(1, 13):
        for _ in range(30):
            tokens, weights = rng.permutation(12)[:length], rng.dirichlet(np.ones(length))
            assert (weights * p[tokens]).min() <= curve.at(length) + 1e-12
    with pytest.raises(ValueError, match="at most the number of strengths"):
        theory.minimum_displacement_bound_curve([12, 13], p)


def test_a_curve_ends_where_no_token_is_absent() -> None:
    with pytest.raises(ValueError, match="outside the domain"):
        theory.gap_curve("none", None, [31, 32], 3.0, width=32)
    with pytest.raises(ValueError, match="n_absent"):
        theory.error_curve("illegal_mass", [31, 32], 3.0, 32)


def test_a_fit_ends_where_it_becomes_infeasible() -> None:
    curve = theory.scale_from_short_curve([1, 2, 3, 5], 2.0, 1.1, hypothesis="exchangeable")
    assert curve.domain == (1.0, 3.0)
    assert np.isnan(curve.values).tolist() == [False, False, False, True]
    with pytest.raises(ValueError, match="do not fit the 'orthogonal' law"):
        theory.scale_from_short_curve([1, 2, 3], 2.0, 1.1)
    with pytest.raises(ValueError, match="do not fit"):
        theory.rescale_gain_from_short_curve([4, 8], np.nan, 1.0)


def test_hypotheses_name_the_residual_content_only_where_it_counts() -> None:
    def about_content(**options: Any) -> bool:
        curve = theory.gap_curve(lengths=[1, 2], p=3.0, normalization="RMS", width=8, **options)
        return any("norm 2" in hypothesis for hypothesis in curve.hypotheses)

    assert about_content(placement="post", residual=2.0)
    assert about_content(placement="pre", residual=2.0, final_norm=True)
    assert not about_content(placement="peri", residual=2.0)
    assert not about_content(placement="post")


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="quantity must be one of 'total_variation'"):
        theory.error_curve("accuracy", [1, 2], 1.0, 8)
    with pytest.raises(ValueError, match="strictly increasing"):
        theory.balanced_displacement_curve([2, 1], 1.0)
    with pytest.raises(ValueError, match="one-dimensional"):
        theory.balanced_displacement_curve(3, 1.0)
    with pytest.raises(TypeError, match="color"):
        theory.balanced_displacement_curve([1, 2], 1.0, color="red")
