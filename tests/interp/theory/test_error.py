"""Errors from displacements against explicit distributions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory


def errors(displacements: np.ndarray, absent_logits: np.ndarray) -> tuple[float, float, float]:
    """TV, illegal mass and KL(target || model), from the two distributions written out."""
    logits = np.concatenate([absent_logits.mean() - displacements, absent_logits])
    model = np.exp(logits - logits.max())
    model = model / model.sum()
    present, absent = displacements.size, absent_logits.size
    target = np.concatenate([np.zeros(present), np.full(absent, 1 / absent)])
    divergence = (np.log(target[present:]) - np.log(model[present:])).mean()
    return 0.5 * np.abs(model - target).sum(), model[:present].sum(), float(divergence)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(1, 40), st.integers(1, 40))
def test_errors_of_a_uniform_complement(seed: int, present: int, absent: int) -> None:
    rng = np.random.default_rng(seed)
    displacements = 3.0 * rng.normal(size=present)
    variation, illegal, divergence = errors(displacements, np.full(absent, rng.normal()))
    assert theory.predict_total_variation(displacements, absent) == pytest.approx(variation)
    assert theory.predict_illegal_mass(displacements, absent) == pytest.approx(illegal)
    assert theory.predict_kl_divergence(displacements, absent) == pytest.approx(divergence)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(1, 20), st.integers(2, 20))
def test_sides_when_the_complement_is_not_uniform(seed: int, present: int, absent: int) -> None:
    rng = np.random.default_rng(seed)
    displacements = 2.0 * rng.normal(size=present)
    _, illegal, divergence = errors(displacements, rng.normal(size=absent))
    assert illegal <= theory.predict_illegal_mass(displacements, absent) + 1e-12
    assert divergence >= theory.predict_kl_divergence(displacements, absent) - 1e-12


def test_equal_displacements_by_count_are_the_same_as_written_out() -> None:
    for law in (
        theory.predict_total_variation,
        theory.predict_illegal_mass,
        theory.predict_kl_divergence,
    ):
        np.testing.assert_allclose(
            law([1.5, -2.0], 5, 3), [law([1.5] * 3, 5), law([-2.0] * 3, 5)], rtol=1e-12
        )


def test_extremes_do_not_overflow_and_nan_stays_nan() -> None:
    extremes = np.array([[1e4, 1e4], [-1e4, 0.0], [np.inf, np.inf], [np.nan, 1.0]])
    np.testing.assert_allclose(theory.predict_total_variation(extremes, 3), [0, 1, 0, np.nan])
    divergence = theory.predict_kl_divergence(extremes, 3)
    np.testing.assert_allclose(divergence, [0, 1e4 - np.log(3), 0, np.nan])


@pytest.mark.parametrize(("displacements", "absent"), [(1.0, 3), ([], 3), ([1.0], 0)])
def test_no_present_or_no_absent_token_is_refused(displacements: object, absent: int) -> None:
    with pytest.raises(ValueError, match=r"n_present|n_absent"):
        theory.predict_total_variation(displacements, absent)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(2, 200), st.floats(0.001, 0.999), st.data())
def test_threshold_is_where_the_error_is_epsilon(
    d_vocab: int, epsilon: float, data: st.DataObject
) -> None:
    length = data.draw(st.integers(1, d_vocab - 1))
    threshold = theory.displacement_threshold(epsilon, length, d_vocab)
    absent = d_vocab - length
    assert theory.predict_total_variation(threshold, absent, length) == pytest.approx(epsilon)
    assert theory.predict_total_variation(threshold + 1e-3, absent, length) < epsilon
    assert theory.predict_total_variation(threshold - 1e-3, absent, length) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "length", "d_vocab"), [(0.0, 1, 4), (1.0, 1, 4), (0.1, 4, 4), (0.1, 0, 4)]
)
def test_threshold_refuses_what_it_has_no_value_for(
    epsilon: float, length: int, d_vocab: int
) -> None:
    with pytest.raises(ValueError, match=r"epsilon|length"):
        theory.displacement_threshold(epsilon, length, d_vocab)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.floats(0.0, 300.0), st.floats(0.001, 0.999), st.integers(2, 128))
def test_crossing_length_parts_the_lengths_that_pass(
    p: float, epsilon: float, d_vocab: int
) -> None:
    crossing = float(theory.predict_crossing_length(p, epsilon, d_vocab))
    assert 0.0 < crossing <= d_vocab
    lengths = np.arange(1, d_vocab)
    error = theory.predict_total_variation(p / lengths, d_vocab - lengths, lengths)
    clear = np.abs(lengths - crossing) > 1e-6
    np.testing.assert_array_equal((error <= epsilon)[clear], (lengths <= crossing)[clear])


def test_crossing_length_closed_cases_and_broadcast() -> None:
    np.testing.assert_allclose(theory.predict_crossing_length(0.0, [0.1, 0.5], 40), [4.0, 20.0])
    out = theory.predict_crossing_length([[1.0], [40.0]], [0.05, 0.2, 0.5], 64)
    assert out.shape == (2, 3)
    assert (np.diff(out, axis=0) > 0).all() and (np.diff(out, axis=1) > 0).all()
    assert theory.predict_crossing_length(1e6, 0.1, 64) == pytest.approx(64.0)


def test_numbers_of_the_demonstration_of_the_theory() -> None:
    """v = 64, p = 40, LayerNorm gain 2.5: TV 0.22 / 0.0067 at 32 and 0.57 / 0.0092 at 48."""
    lengths = np.array([32, 48])
    bare = theory.predict_gap("none", None, lengths, 40.0, width=64)
    post = theory.predict_gap("post", "LN", lengths, 40.0, width=64, gain=2.5)
    errors_bare = theory.predict_total_variation(bare, 64 - lengths, lengths)
    errors_post = theory.predict_total_variation(post, 64 - lengths, lengths)
    np.testing.assert_allclose(errors_bare, [0.22, 0.57], atol=0.005)
    np.testing.assert_allclose(errors_post, [0.0067, 0.0092], atol=0.00005)
    assert 32 > theory.predict_crossing_length(40.0, 0.1, 64) > 16
