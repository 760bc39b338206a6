"""The needle's signal against attention outputs, its critical exponents, and where they move."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def needle_row(n: int, margin: float, level: float = 0.0) -> np.ndarray:
    return np.array([level + margin] + [level] * (n - 1))


def signal(weights: np.ndarray, unit_norm: bool) -> float:
    """Coordinate of the output along the needle's value, with orthonormal values."""
    output = weights @ np.eye(weights.size)
    return float(output[0] / np.linalg.norm(output) if unit_norm else output[0])


@settings(max_examples=120, derandomize=True, deadline=None)
@given(
    n=st.integers(2, 200),
    margin=st.floats(-3.0, 12.0),
    beta=st.floats(0.0, 3.0),
    unit_norm=st.booleans(),
)
def test_signal_of_an_attention_output(n: int, margin: float, beta: float, unit_norm: bool) -> None:
    weights = softmax(beta * needle_row(n, margin))
    predicted = theory.predict_needle_signal(n, margin, beta, unit_norm=unit_norm)
    assert predicted == pytest.approx(signal(weights, unit_norm), rel=1e-9)


def simulated(remedy: str, row: np.ndarray) -> np.ndarray:
    """Each remedy from its own formula."""
    n = row.size
    if remedy in ("softmax", "temperature"):
        return softmax(row)
    if remedy == "sqrt_log_n":
        return softmax(row * np.sqrt(np.log(n)))
    if remedy in ("log_n", "ssmax"):
        return softmax(row * np.log(n))
    if remedy == "adaptive":
        weights = softmax(row)
        entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum()
        return softmax(row * float(theory.predict_adaptive_inverse_temperature(entropy)))
    if remedy == "entmax":
        return theory.predict_entmax_weights(row, 1.5)
    if remedy == "softmax1":
        return np.exp(row) / (1 + np.exp(row).sum())
    if remedy == "sigmoid":
        return 1 / (1 + n * np.exp(-row))
    return (row == row.max()) / (row == row.max()).sum()


@pytest.mark.parametrize("remedy", theory.NEEDLE_REMEDIES)
@pytest.mark.parametrize(
    ("n", "margin", "level", "strength"),
    [(1, 2.0, 0.3, 1.0), (2, 0.0, -1.0, 0.5), (30, 1.3, 0.7, 1.0), (500, 3.0, -0.4, 0.8)],
)
def test_every_remedy(remedy: str, n: int, margin: float, level: float, strength: float) -> None:
    weights = simulated(remedy, strength * needle_row(n, margin, level))
    given_ = {"strength": strength, "distractor_score": level}
    predicted = theory.predict_remedy_weights(remedy, n, margin, **given_)
    assert predicted.needle == pytest.approx(weights[0], rel=1e-8)
    if n > 1:
        assert predicted.distractor == pytest.approx(weights[-1], rel=1e-8)
    for unit_norm in (False, True):
        law = theory.predict_remedy_signal(remedy, n, margin, unit_norm=unit_norm, **given_)
        assert law == pytest.approx(signal(weights, unit_norm), rel=1e-8)


def test_parameters_of_the_remedies_reach_them() -> None:
    fixed = theory.predict_remedy_weights("sigmoid", [9, 900], 2.0, bias=-1.0)
    np.testing.assert_allclose(fixed.needle, 1 / (1 + np.exp(-1.0)))
    np.testing.assert_allclose(fixed.distractor, 1 / (1 + np.exp(1.0)))
    sparse = theory.predict_remedy_weights("entmax", 9, 0.5, alpha=2.0)
    assert sparse.needle == theory.predict_entmax_needle_weight(9, 0.5, 2.0)
    assert theory.predict_remedy_weights("softmax", [[2], [3]], [0.0, 1.0]).needle.shape == (2, 2)


def test_what_each_remedy_keeps_of_a_needle_in_a_very_long_row() -> None:
    n, margin = 10**12, 0.8
    kept = {
        name: float(theory.predict_remedy_weights(name, n, margin).needle)
        for name in theory.NEEDLE_REMEDIES
    }
    for name in ("softmax", "temperature", "adaptive", "softmax1", "sigmoid"):
        assert kept[name] == pytest.approx(np.exp(margin) / n, rel=1e-6), name
    assert kept["sqrt_log_n"] == pytest.approx(np.exp(margin * np.sqrt(np.log(n))) / n, rel=1e-6)
    assert kept["log_n"] == kept["ssmax"] == pytest.approx(n ** (margin - 1), rel=1e-2)
    assert kept["entmax"] == pytest.approx(0.16, rel=1e-3)
    assert kept["hardmax"] == 1.0
    strong = theory.predict_remedy_weights("ssmax", n, margin, strength=2.0)
    assert strong.needle > 1 - 1e-6


@pytest.mark.parametrize("unit_norm", [False, True])
def test_critical_exponent_of_log_scaling(unit_norm: bool) -> None:
    critical = theory.needle_exponent_threshold(unit_norm)
    assert critical == (0.5 if unit_norm else 1.0)
    n, exponent = 1e250, critical * np.array([0.9, 1.0, 1.1])
    finite = theory.predict_needle_signal(n, exponent, np.log(n), unit_norm=unit_norm)
    limit = theory.needle_signal_limit(exponent, unit_norm=unit_norm)
    np.testing.assert_allclose(finite, limit, atol=1e-9)
    np.testing.assert_allclose(limit, [0.0, np.sqrt(0.5) if unit_norm else 0.5, 1.0])


def test_between_the_exponents_only_the_norm_with_scaling_is_enough() -> None:
    """Norm alone fails, scaling alone fails, both together succeed."""
    n, margin = 10**9, 0.75
    alone = theory.predict_remedy_signal("softmax", n, margin, unit_norm=True)
    scaled = theory.predict_remedy_signal("log_n", n, margin)
    both = theory.predict_remedy_signal("log_n", n, margin, unit_norm=True)
    assert alone < 0.01 and scaled < 0.01 and both > 0.99


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    margin=st.floats(0.0, 6.0),
    strength=st.floats(0.1, 2.0),
    level=st.floats(0.1, 0.9),
    law=st.sampled_from(["fixed", "sqrt_log_n"]),
    unit_norm=st.booleans(),
)
def test_the_signal_falls_through_the_level_at_the_crossover(
    margin: float, strength: float, level: float, law: str, unit_norm: bool
) -> None:
    given_ = {"law": law, "strength": strength, "signal": level, "unit_norm": unit_norm}
    crossover = float(theory.predict_needle_crossover(margin, **given_))
    keys = np.array([np.floor(crossover), np.floor(crossover) + 1])
    beta = theory.predict_inverse_temperature(law, keys, strength)
    before, after = theory.predict_needle_signal(keys, margin, beta, unit_norm=unit_norm)
    assert after <= level * (1 + 1e-9)
    assert crossover < 2 or before >= level * (1 - 1e-9)


def test_the_norm_squares_the_length_that_a_margin_carries() -> None:
    margin = np.array([2.0, 5.0])
    plain = theory.predict_needle_crossover(margin)
    np.testing.assert_allclose(plain, 1 + np.exp(margin))
    normed = theory.predict_needle_crossover(margin, unit_norm=True)
    np.testing.assert_allclose(normed, 1 + 3 * np.exp(2 * margin))
    level = np.sqrt(0.5)
    normed = theory.predict_needle_crossover(margin, signal=level, unit_norm=True)
    np.testing.assert_allclose(normed - 1, (plain - 1) ** 2)
    for exponent, unit_norm, cured in ((0.6, True, True), (0.6, False, False), (0.4, True, False)):
        length = theory.predict_needle_crossover(exponent, law="log_n", unit_norm=unit_norm)
        assert (length == np.inf) == cured


def test_a_norm_gains_nothing_where_distractors_share_a_direction() -> None:
    """Values that are not orthonormal: the noise adds up, and the exponent is 1 again."""
    n, exponent = 10**6, 0.75
    weights = softmax(np.log(n) * np.array([exponent] + [0.0] * (n - 1)))
    output = np.array([weights[0], weights[1:].sum()])
    assert output[0] / np.linalg.norm(output) < 0.05
    assert theory.predict_needle_signal(n, exponent, np.log(n), unit_norm=True) > 0.99


def test_a_norm_gains_nothing_where_the_stream_holds_other_content() -> None:
    n, margin, residual = 10**4, 5.0, 1.0
    weights = softmax(needle_row(n, margin))
    with_residual = weights[0] / np.sqrt((weights**2).sum() + residual**2)
    assert with_residual < weights[0]
    assert theory.predict_needle_signal(n, margin, unit_norm=True) > 10 * weights[0]


def test_unequal_margins_leave_the_needle_law_on_the_known_side() -> None:
    rng = np.random.default_rng(0)
    n, margin = 300, 3.0
    far = needle_row(n, margin)
    far[1:] -= np.abs(rng.normal(size=n - 1))
    near = needle_row(n, margin)
    near[1:] += np.abs(rng.normal(size=n - 1))
    law = theory.predict_needle_weight(n, margin)
    assert softmax(near)[0] < 0.9 * law < 1.1 * law < softmax(far)[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.predict_remedy_weights("relu", 4, 1.0), "remedy must be one of 'softmax'"),
        (lambda: theory.predict_remedy_weights("softmax", 0, 1.0), "n_key"),
        (lambda: theory.predict_remedy_weights("softmax", 4, -1.0), "margin"),
        (lambda: theory.predict_remedy_weights("softmax", 4, 1.0, strength=0.0), "strength"),
        (lambda: theory.predict_remedy_weights("entmax", 4, 1.0, alpha=1.0), "alpha"),
        (lambda: theory.predict_remedy_weights("sigmoid", 4, 1.0, bias=np.inf), "bias"),
        (lambda: theory.predict_needle_signal(4, np.nan, unit_norm=True), "margin"),
        (lambda: theory.needle_signal_limit(-0.1), "exponent"),
        (lambda: theory.predict_needle_crossover(1.0, signal=0.95), "signal"),
        (lambda: theory.predict_needle_crossover(1.0, law="none"), "law must be one of"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
