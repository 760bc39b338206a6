"""Scales at every length from two: closed forms, exact averages over all sequences, refusals."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    p=st.floats(0.01, 100.0),
    residual=st.floats(0.0, 100.0),
    eps=st.sampled_from([0.0, 1e-5, 0.1]),
)
def test_recovers_the_post_rms_law(p: float, residual: float, eps: float) -> None:
    s = np.arange(1, 64)
    law = theory.predict_scale("post", "RMS", s, p, width=64, residual=residual, eps=eps)
    fitted = theory.predict_scale_from_short(s, law[0], law[1], eps=eps)
    np.testing.assert_allclose(fitted, law, rtol=1e-4)
    gain = theory.predict_rescale_gain_from_short(s, law[0], law[1], eps=eps)
    np.testing.assert_allclose(gain, law[0] / law, rtol=1e-4)


def test_recovers_the_crossover() -> None:
    first, second = theory.predict_scale(
        "post", "RMS", [1, 2], 12.0, width=64, residual=3.0, eps=1e-3
    )
    assert theory.predict_crossover_from_short(first, second) == pytest.approx(
        theory.predict_crossover_length(12.0, 3.0, 64, 1e-3)
    )
    assert theory.predict_crossover_from_short(np.sqrt(2.0) * 4, 4.0) > 1e12
    assert theory.predict_crossover_from_short(2.0, 2.0) == 0.0


def test_layer_norm_is_fitted_by_the_exchangeable_law() -> None:
    s = np.arange(1, 33)
    law = theory.predict_scale("peri", "LN", s, 5.0, width=32)
    assert np.isnan(theory.predict_scale_from_short(s, law[0], law[1])).all()
    fitted = theory.predict_scale_from_short(s, law[0], law[1], hypothesis="exchangeable")
    np.testing.assert_allclose(fitted[:-1], law[:-1], rtol=1e-7)


@pytest.mark.parametrize("centred", [False, True], ids=["RMSNorm", "LayerNorm"])
@pytest.mark.parametrize("seed", range(5))
def test_exchangeable_law_is_exact_over_all_sequences(seed: int, centred: bool) -> None:
    """Any embedding and any values: mean square scales over all permutations lie on the law."""
    rng = np.random.default_rng(seed)
    vocabulary, width = 6, 4
    query, values = rng.normal(size=(2, vocabulary, width)) + rng.normal(size=width)
    lengths = np.arange(1, vocabulary + 1)
    measured = []
    for length in lengths:
        tokens = np.array(list(permutations(range(vocabulary), int(length))))
        stream = query[tokens[:, -1]] + values[tokens].mean(axis=1)
        if centred:
            stream = stream - stream.mean(axis=-1, keepdims=True)
        measured.append(np.sqrt((stream**2).mean(axis=-1).mean()))
    predicted = theory.predict_scale_from_short(
        lengths, measured[0], measured[1], hypothesis="exchangeable"
    )
    np.testing.assert_allclose(predicted, measured, rtol=1e-10)


def test_infeasible_fits_are_nan() -> None:
    s = [1, 2, 3, 10]
    falls_too_fast = theory.predict_scale_from_short(s, 2.0, 1.0)
    grows = theory.predict_scale_from_short(s, 1.0, 1.1)
    assert np.isnan(falls_too_fast).all() and np.isnan(grows).all()
    signed = theory.predict_scale_from_short(s, 1.0, 1.1, hypothesis="exchangeable")
    np.testing.assert_allclose(signed**2, 1.42 - 0.42 / np.array(s))
    ends = theory.predict_scale_from_short(s, 2.0, 1.0, hypothesis="exchangeable")
    assert np.isnan(ends).tolist() == [False, False, False, True]
    np.testing.assert_allclose(ends[:3] ** 2, [4.0, 1.0, 0.0], atol=1e-12)
    gain = theory.predict_rescale_gain_from_short(s, 2.0, 1.0, hypothesis="exchangeable")
    assert np.isnan(gain).tolist() == [False, False, True, True]
    assert np.isnan(theory.predict_crossover_from_short(1.0, 1.1))


def test_a_floor_of_eps_that_the_scales_do_not_reach_is_infeasible() -> None:
    first, second = theory.predict_scale("post", "RMS", [1, 2], 5.0, width=16)
    assert np.isfinite(theory.predict_scale_from_short(9, first, second))
    assert np.isnan(theory.predict_scale_from_short(9, first, second, eps=0.1))


def test_rounding_alone_does_not_make_a_fit_infeasible() -> None:
    law = theory.predict_scale("peri", "RMS", np.arange(1, 33), 5.0, width=32)
    short = law[:2].astype(np.float32)
    for nudge in (-1e-7, 0.0, 1e-7):
        fitted = theory.predict_scale_from_short(np.arange(1, 33), short[0], short[1] * (1 + nudge))
        np.testing.assert_allclose(fitted, law, rtol=1e-5)


def test_unknown_measurements_stay_unknown_and_rows_broadcast() -> None:
    out = theory.predict_scale_from_short([[1], [4]], [2.0, np.nan], [1.7, 1.0])
    assert out.shape == (2, 2)
    assert np.isnan(out).tolist() == [[False, True], [False, True]]


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="scale_at_2 must be a scale >= 0, got -1"):
        theory.predict_scale_from_short(3, 1.0, -1.0)
    with pytest.raises(ValueError, match="hypothesis must be one of 'orthogonal', 'exchangeable'"):
        theory.predict_scale_from_short(3, 1.0, 1.0, hypothesis="hope")
    with pytest.raises(ValueError, match="length must be whole"):
        theory.predict_scale_from_short(1.5, 1.0, 1.0)
