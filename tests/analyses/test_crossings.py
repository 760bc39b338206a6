"""Where a quantity falls below a level: measured, followed as far as it was seen, or unknown."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from resharpen.analyses.crossings import Crossing, find_crossing

LADDER = 2.0 ** np.arange(1, 9)


def noisy(exponent, amplitude=1.0, noise=0.02, seed=0):
    """A power law on the ladder with log-normal noise."""
    wiggle = noise * np.random.default_rng(seed).standard_normal(LADDER.size)
    return amplitude * LADDER**exponent * np.exp(wiggle)


def test_a_crossing_within_the_ladder_is_measured():
    """The first key count from which on everything is below, and the last one before."""
    found = find_crossing("max_weight", LADDER, 1 / LADDER, 0.1)
    assert (found.kind, found.n_key, found.low, found.high) == ("measured", 16, 8, 16)
    assert str(found) == "16 keys (measured)"
    assert found.sentence == "its max weight is below 0.1 from 16 keys on (measured)"
    dip = np.array([0.5, 0.05, 0.5, 0.05, 0.5, 0.09, 0.08, 0.07])
    assert find_crossing("max_weight", LADDER, dip, 0.1).n_key == 64
    always = find_crossing("max_weight", LADDER, np.full(8, 0.01), 0.1)
    assert always.n_key == 2
    assert math.isnan(always.low)


def test_an_exact_power_law_is_followed_to_its_crossing():
    """No residual, no interval: n = level^(1/exponent)."""
    found = find_crossing("max_weight", LADDER, LADDER**-0.3, 0.1)
    assert found.kind == "extrapolated"
    assert found.n_key == pytest.approx(0.1 ** (-1 / 0.3))
    assert found.low == pytest.approx(found.high) == pytest.approx(found.n_key)
    assert "extrapolated past 256 keys" in found.sentence


def test_the_interval_is_that_of_the_confidence_band():
    """At its two ends the 95 % band of scipy's line touches the level."""
    y = noisy(-0.33)
    found = find_crossing("max_weight", LADDER, y, 0.1, reach=1000)
    assert found.kind == "extrapolated"
    x = np.log(LADDER)
    line = stats.linregress(x, np.log(y))
    residual = np.log(y) - line.intercept - line.slope * x
    scale = math.sqrt(residual @ residual / (x.size - 2))
    spread = np.sum((x - x.mean()) ** 2)

    def band(n):
        off = math.log(n) - x.mean()
        half = stats.t.ppf(0.975, x.size - 2) * scale * math.sqrt(1 / x.size + off**2 / spread)
        return line.intercept + line.slope * math.log(n), half

    for end, sign in ((found.low, -1), (found.high, 1)):
        centre, half = band(end)
        assert centre + sign * half == pytest.approx(math.log(0.1))
    assert band(found.n_key)[0] == pytest.approx(math.log(0.1))
    assert found.low < found.n_key < found.high


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Of 400 noisy power laws, 95 % of the intervals hold the true crossing."""
    truth = 0.1 ** (-1 / 0.3)
    found = [
        find_crossing("w", LADDER, noisy(-0.3, noise=0.03, seed=seed), 0.1, reach=1e3)
        for seed in range(400)
    ]
    assert {crossing.kind for crossing in found} == {"extrapolated"}
    covered = np.mean([crossing.low <= truth <= crossing.high for crossing in found])
    assert 0.92 <= covered <= 0.98


def test_it_is_followed_no_further_than_it_was_seen():
    """A tail over a factor 16 is followed for another 16: 4096 keys, not more."""
    near = find_crossing("w", LADDER, LADDER**-0.28, 0.1)
    assert near.kind == "extrapolated"
    assert near.n_key < 256 * 16
    far = find_crossing("w", LADDER, LADDER**-0.27, 0.1)
    assert (far.kind, far.n_key) == ("beyond", 256 * 16)
    assert str(far) == "past 4096 keys"
    assert "stays above 0.1 to 4096 keys" in far.sentence
    unsure = find_crossing("w", LADDER, noisy(-0.27, noise=0.1), 0.1)
    assert unsure.kind == "unknown"
    assert math.isnan(unsure.n_key)
    assert "UNKNOWN" in unsure.sentence


def test_only_the_tail_is_fitted():
    """What a head does at a few keys says nothing about where it goes."""
    y = np.where(LADDER < 16, 0.9, (LADDER / 16) ** -0.5)
    found = find_crossing("w", LADDER, y, 0.1)
    assert found.n_key == pytest.approx(16 * 100)


def test_a_law_that_may_not_fall_never_crosses_for_certain():
    """Flat with noise: unknown or beyond, never a number that looks like a crossing."""
    for seed in range(30):
        y = noisy(0.0, amplitude=0.12, noise=0.2, seed=seed)
        if np.all(y[-1:] >= 0.1):
            assert find_crossing("w", LADDER, y, 0.1).kind in ("unknown", "beyond")
    rising = find_crossing("w", LADDER, noisy(0.2, amplitude=0.2), 0.1)
    assert rising.kind == "beyond"


def test_too_little_is_unknown_and_says_so():
    """Nothing, two points, a zero in the tail, or a line that is ahead of the measurement."""
    nothing = find_crossing("", [], [], 0.1)
    assert (nothing.kind, nothing.reason) == ("unknown", "nothing was measured")
    assert "where a key is lost below 0.1 is UNKNOWN" in nothing.sentence
    assert "fewer than 3 points" in find_crossing("w", [2, 4], [0.9, 0.8], 0.1).reason
    zero = find_crossing("w", [2, 4, 8, 16], [0.9, 0.0, 0.8, 0.8], 0.1)
    assert zero.kind == "unknown"
    assert "not positive" in zero.reason
    ahead = find_crossing("w", [2, 4, 8, 16, 32], [0.8, 0.5, 0.24, 0.101, 0.101], 0.1)
    assert ahead.kind == "unknown"
    assert "has crossed before 32 keys, the measurement has not" in ahead.reason


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8))
def test_a_crossing_is_consistent_with_what_was_measured(values):
    """Whatever the numbers: the kind says where the crossing lies, and it goes to JSON and back."""
    n_key = LADDER[: len(values)]
    found = find_crossing("w", n_key, values, 0.1)
    below = np.array(values) < 0.1
    assert (found.kind == "measured") == bool(below[-1])
    if found.kind == "measured":
        assert below[n_key >= found.n_key].all()
        assert not found.low >= found.n_key
    if found.kind == "extrapolated":
        assert n_key[-1] <= found.low <= found.n_key <= found.high
    assert Crossing.from_dict(found.to_dict()).to_dict() == found.to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1.0], 0.1), r"one shape \[n\], got \(2,\), \(1,\)"),
        (([2, 1], [1.0, 1.0], 0.1), "positive and increasing"),
        (([0, 1], [1.0, 1.0], 0.1), "positive and increasing"),
        (([1, 2], [1.0, math.nan], 0.1), "means that are finite"),
        (([1, 2], [1.0, 1.0], 0.0), "level above 0"),
        (([1, 2], [1.0, 1.0], 0.1, 1.0), "reach above 1"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    """One clear sentence."""
    with pytest.raises(ValueError, match=message):
        find_crossing("w", *arguments)
    with pytest.raises(ValueError, match="a crossing is one of measured"):
        Crossing("w", 0.1, "perhaps", 1.0, 1.0, 1.0, 1.0, "r")
