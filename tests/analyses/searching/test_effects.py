"""Marginal effects beside scipy's, on tables whose truth is known, and how often they cover it."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from resharpen.analyses.searching.drawing import draw
from resharpen.analyses.searching.effects import (
    Effect,
    effects_frame,
    marginal_effects,
    rank_correlation,
    welch_interval,
)
from resharpen.analyses.searching.marginals import marginals
from resharpen.analyses.searching.space import Space, parse_space


def made(space: Space, objective: Any) -> pd.DataFrame:
    """A table of trials whose objective is a function of the draw."""
    draws = [draw(space, index) for index in range(space.trials)]
    rows = [
        {
            "trial": one.index,
            "status": "done",
            "objective": objective(one.values),
            "total_variation@4 raw": objective(one.values),
            **one.values,
        }
        for one in draws
    ]
    return pd.DataFrame(rows)


def effect(space: Space, trials: pd.DataFrame, field: str, level: str = "") -> Effect:
    (found,) = (
        one for one in marginal_effects(space, trials) if (one.field, one.level) == (field, level)
    )
    return found


def noise(number: int = 0) -> Any:
    return np.random.default_rng(number).standard_normal


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 11), (40, 25)])
def test_welch_is_scipys(n: int, m: int) -> None:
    x, y = 0.3 + 2 * noise(n)(n), noise(m)(m)
    test = stats.ttest_ind(x, y, equal_var=False)
    interval = test.confidence_interval(0.95)  # type: ignore[attr-defined]
    difference, low, high = welch_interval(x, y)
    assert difference == pytest.approx(x.mean() - y.mean())
    assert (low, high) == pytest.approx((interval.low, interval.high))


def test_welch_without_enough_says_so() -> None:
    one, two, none = np.array([1.0]), np.array([2.0, 3.0]), np.array([])
    assert welch_interval(one, two)[0] == -1.5
    assert np.isnan(welch_interval(one, two)[1:]).all()
    assert np.isnan(welch_interval(none, two)).all()
    same = welch_interval(np.array([1.0, 1.0]), np.array([2.0, 2.0]))
    assert same[0] == -1.0
    assert np.isnan(same[1:]).all(), "values that do not vary give no interval of width zero"


@pytest.mark.parametrize("n", [5, 12, 60])
def test_rank_correlation_is_scipys_also_with_ties(n: int) -> None:
    x = np.round(noise(n)(n), 1)
    y = np.round(x + noise(n + 1)(n), 1)
    r, low, high = rank_correlation(x, y)
    assert r == pytest.approx(stats.spearmanr(x, y).statistic)  # type: ignore[attr-defined]
    half = 1.959964 * math.sqrt((1 + r**2 / 2) / (n - 3))
    assert (low, high) == pytest.approx(
        (math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)), abs=1e-5
    )
    assert rank_correlation(np.exp(x), y)[0] == pytest.approx(r)
    assert rank_correlation(-x, y) == pytest.approx((-r, -high, -low))


def test_rank_correlations_that_have_no_interval() -> None:
    x = np.arange(8.0)
    assert rank_correlation(x, 2 * x)[0] == 1.0
    assert np.isnan(rank_correlation(x, 2 * x)[1:]).all()
    assert np.isnan(rank_correlation(x, np.ones(8))).all()
    assert np.isnan(rank_correlation(x[:4], x[:4] ** 2)).all()


@pytest.mark.parametrize("spreads", [(1.0, 1.0), (0.3, 2.0)])
def test_welch_covers_the_truth_as_often_as_it_says(spreads: tuple[float, float]) -> None:
    normal, covered, times = noise(), 0, 1500
    for _ in range(times):
        x, y = 1.0 + spreads[0] * normal(7), spreads[1] * normal(14)
        _, low, high = welch_interval(x, y)
        covered += low <= 1.0 <= high
    assert abs(covered / times - 0.95) < 3 * math.sqrt(0.95 * 0.05 / times)


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_rank_correlation_covers_the_truth_as_often_as_it_says(rho: float) -> None:
    # Spearman's correlation of a bivariate normal (Pearson 1907).
    truth = 6 / math.pi * math.asin(rho / 2)
    normal, covered, times = noise(), 0, 1000
    for _ in range(times):
        x, other = normal((2, 30))
        y = rho * x + math.sqrt(1 - rho**2) * other
        _, low, high = rank_correlation(x, y)
        covered += low <= truth <= high
    assert covered / times == pytest.approx(0.95, abs=0.025)


def test_the_truth_is_found_in_a_table_that_has_one(document: dict[str, Any]) -> None:
    document["model"]["normalization_type"] = {"choice": ["RMS", "LN", "LNPre"]}
    space, normal = parse_space({**document, "trials": 120}), noise(1)
    trials = made(
        space,
        lambda values: (
            0.5
            - 0.2 * (values["model.norm_placement"] == "post")
            + 0.1 * math.log10(values["training.learning_rate"])
            + 0.05 * normal()
        ),
    )
    post = effect(space, trials, "model.norm_placement", "post")
    assert post.kind == "level"
    assert post.reference == "pre"
    assert post.low < -0.2 < post.high < -0.1
    assert post.decided
    assert post.n + post.n_reference == 120
    assert (post.lost, post.lost_reference) == (0, 0)
    rate = effect(space, trials, "training.learning_rate")
    assert (rate.kind, rate.n) == ("rank", 120)
    assert rate.decided
    assert rate.value > 0.2
    others = [effect(space, trials, "model.normalization_type", level) for level in ("LN", "LNPre")]
    assert [one.reference for one in others] == ["RMS", "RMS"]
    assert not any(one.decided for one in others)
    assert not effect(space, trials, "model.d_model").decided
    assert {one.field for one in marginal_effects(space, trials)} == set(space.drawn)


def test_averages_are_paired_with_the_raw_weights_of_the_same_run(space: Space) -> None:
    space, normal = space.with_trials(30), noise(2)
    trials = made(space, lambda values: 5 * normal())
    gains = -0.1 + 0.02 * normal(30)
    trials["total_variation@4 ema-0.9"] = trials["total_variation@4 raw"] + gains
    trials["total_variation@2 ema-0.9"] = 7.0
    found = effect(space, trials, "weights", "ema-0.9")
    interval = stats.ttest_1samp(gains, 0.0).confidence_interval(0.95)  # type: ignore[attr-defined]
    assert (found.value, found.low, found.high) == pytest.approx(
        (gains.mean(), interval.low, interval.high)
    )
    assert (found.kind, found.reference, found.n, found.lost) == ("weights", "raw", 30, 0)
    assert found.high - found.low < 0.05, "the spread between trials does not enter"
    # An average that only some runs have is compared in those.
    trials.loc[:9, "total_variation@4 ema-0.9"] = np.nan
    found = effect(space, trials, "weights", "ema-0.9")
    assert (found.n, found.lost, found.value) == (20, 10, pytest.approx(gains[10:].mean()))


def test_repeated_trials_count_once_and_lost_ones_are_said(space: Space) -> None:
    space, normal = space.with_trials(40), noise(3)
    trials = made(space, lambda values: normal())
    before = effect(space, trials, "model.norm_placement", "post")
    repeated = trials.iloc[:5].assign(status="repeated", objective=100.0)
    both = pd.concat([trials, repeated], ignore_index=True)
    assert effect(space, both, "model.norm_placement", "post") == before
    post = (trials["model.norm_placement"] == "post").to_numpy()
    lost = np.flatnonzero(post)[:3]
    trials.loc[lost, "objective"] = np.nan
    after = effect(space, trials, "model.norm_placement", "post")
    assert (after.n, after.lost, after.n_reference) == (before.n - 3, 3, before.n_reference)
    rate = effect(space, trials, "training.learning_rate")
    assert (rate.n, rate.lost) == (37, 3)


@pytest.mark.parametrize(
    ("field", "levels", "words"),
    [
        ("model.attn_only", [True, False], ["true", "false"]),
        ("training.weight_decay", [0, 0.5], ["0", "0.5"]),
        ("model.n_heads", [1, 2, 4], ["1", "2", "4"]),
        ("training.ema_decays", [[], [0.9], [0.9, 0.5]], ["[]", "[0.9]", "[0.9, 0.5]"]),
    ],
)
def test_levels_of_every_type_find_their_trials(
    document: dict[str, Any], field: str, levels: list, words: list[str]
) -> None:
    table, _, name = field.partition(".")
    document[table][name] = {"choice": levels}
    space = parse_space({**document, "trials": 60})
    trials = made(space, lambda values: float(levels.index(_listed(values[field]))))
    trials[field] = [
        str(list(value)) if isinstance(value, tuple) else value for value in trials[field]
    ]
    for number, word in enumerate(words[1:], start=1):
        found = effect(space, trials, field, word)
        assert (found.reference, found.value) == (words[0], number)
    (marginal,) = (one for one in marginals(space, trials) if one.field == field)
    assert marginal.levels == tuple(words)
    assert [item.mean for item in marginal.bins] == list(range(len(words)))
    assert sum(item.n for item in marginal.bins) == 60


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_a_level_that_was_never_drawn_is_left_out(document: dict[str, Any]) -> None:
    document["model"]["norm_placement"] = {"choice": ["pre", "post"], "weights": [1, 1e-9]}
    space = parse_space({**document, "trials": 12})
    trials = made(space, lambda values: 1.0)
    assert all(one.field != "model.norm_placement" for one in marginal_effects(space, trials))


def test_bins_hold_all_trials_and_their_means(space: Space) -> None:
    space, normal = space.with_trials(50), noise(4)
    trials = made(space, lambda values: math.log(values["training.learning_rate"]) + normal())
    (marginal,) = (one for one in marginals(space, trials) if one.field == "training.learning_rate")
    assert marginal.logarithmic
    assert len(marginal.bins) == 6
    assert sum(item.n for item in marginal.bins) == 50
    order = np.argsort(marginal.x)
    first = marginal.y[order][: marginal.bins[0].n]
    interval = stats.ttest_1samp(first, 0.0).confidence_interval(0.95)  # type: ignore[attr-defined]
    own = marginal.bins[0]
    assert (own.mean, own.low, own.high) == pytest.approx(
        (first.mean(), interval.low, interval.high)
    )
    centres = [item.centre for item in marginal.bins]
    assert centres == sorted(centres)
    few = trials.iloc[:7]
    assert all(not one.bins for one in marginals(space, few) if not one.levels)


def test_effects_as_a_table(space: Space) -> None:
    normal = noise(5)
    effects = marginal_effects(space, made(space, lambda values: normal()))
    frame = effects_frame(effects)
    assert frame.to_dict("records") == [one.to_dict() for one in effects]
    assert list(effects_frame([]).columns) == list(frame.columns)
