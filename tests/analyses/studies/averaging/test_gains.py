"""Gains and scalings on rows whose answer is known."""

import math

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.fits import student_t_quantile
from resharpen.analyses.seeds import Interval
from resharpen.analyses.studies.averaging.config import AveragingConfig, Cell, set_complement
from resharpen.analyses.studies.averaging.gains import (
    Gain,
    contrast,
    decide,
    find_gains,
    find_scalings,
    gain_frame,
    learned_settings,
    log_ratios,
)
from resharpen.analyses.studies.averaging.noise import TaskFacts
from resharpen.interp.tables import table
from resharpen.models import TrainingConfig

VOCABULARIES = (8, 16, 32)
CONFIG = AveragingConfig(
    settings=tuple(set_complement(vocabulary) for vocabulary in VOCABULARIES),
    schedules=("constant",),
    seeds=(0, 1, 2),
    training=TrainingConfig(n_steps=40, ema_decays=(0.9,)),
)
FACTS = {
    setting.name: TaskFacts(legal=float(vocabulary), blind=0.5)
    for setting, vocabulary in zip(CONFIG.settings, VOCABULARIES, strict=True)
}
NOISE = {0: -0.1, 1: 0.0, 2: 0.1}
"""What each seed adds to the gain; it cancels in the mean."""


def rows(raw: float, gain: float) -> pd.DataFrame:
    """Errors of raw weights and of an average that is smaller by ``e^gain``."""
    found = []
    for length in (4, 7):
        for seed, noise in NOISE.items():
            for quantity in ("mean_total_variation", "mean_kl_divergence"):
                for weights, error in (("raw", raw), ("ema-0.9", raw * math.exp(-gain - noise))):
                    found.append(
                        {
                            "checkpoint": weights,
                            "seed": seed,
                            "length": length,
                            "quantity": quantity,
                            "unit": "ratio",
                            "mean": error,
                            "n_obs": 8,
                        }
                    )
    return table(found)


@pytest.fixture
def frames() -> dict[Cell, pd.DataFrame]:
    """A gain that grows by 0.3 nats for each factor e with sampled targets, and is 0.2 else."""
    return {
        cell: rows(
            0.2, 0.3 * math.log(FACTS[cell.setting].legal) if cell.targets == "sampled" else 0.2
        )
        for cell in CONFIG.cells()
    }


def test_a_gain_is_the_paired_log_ratio_with_its_interval(frames) -> None:
    found = find_gains(CONFIG, frames, FACTS)
    assert len(found) == len(frames) * 2 * 2
    one = next(g for g in found if g.legal == 8 and g.cell.targets == "sampled")
    assert one.learned and not one.longer
    expected = 0.3 * math.log(8)
    half = student_t_quantile(2) * 0.1 / math.sqrt(3)
    assert one.gain.mean == pytest.approx(expected)
    assert (one.gain.low, one.gain.high) == pytest.approx((expected - half, expected + half))
    assert one.outcome == "helps"
    averaged = np.mean([0.2 * math.exp(-expected - noise) for noise in NOISE.values()])
    assert one.difference.mean == pytest.approx(averaged - 0.2)


def test_the_scaling_is_the_slope_over_the_log_of_the_legal_tokens(frames) -> None:
    scalings = find_scalings(find_gains(CONFIG, frames, FACTS))
    by_recipe = {
        item.recipe: item
        for item in scalings
        if item.quantity == "mean_total_variation" and not item.longer
    }
    assert by_recipe["constant, sampled"].slope.mean == pytest.approx(0.3)
    assert by_recipe["constant, sampled"].outcome == "helps"
    assert by_recipe["constant, exact"].slope.mean == pytest.approx(0.0, abs=1e-9)
    assert by_recipe["constant, sampled"].n_tasks == 3


def test_a_task_that_nothing_learned_is_marked_and_kept_out_of_the_scaling(frames) -> None:
    hard = CONFIG.settings[-1].name
    for cell in frames:
        if cell.setting == hard:
            frames[cell] = rows(0.4, 0.1)
    assert learned_settings(CONFIG, frames, FACTS) == {s.name for s in CONFIG.settings[:-1]}
    gains = find_gains(CONFIG, frames, FACTS)
    assert {item.cell.setting for item in gains if not item.learned} == {hard}
    assert find_scalings(gains) == []


def test_contrast_is_paired_by_seed(frames) -> None:
    gains = [g for g in find_gains(CONFIG, frames, FACTS) if g.legal == 32]
    sampled, exact = (
        next(g for g in gains if g.cell.targets == targets) for targets in ("sampled", "exact")
    )
    # Both carry the same noise, seed by seed, so nothing is left of it.
    found = contrast(sampled, exact)
    assert found.mean == pytest.approx(0.3 * math.log(32) - 0.2)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([1.0, 1.1, 0.9], "helps"),
        ([-1.0, -1.1, -0.9], "hurts"),
        ([1.0, -1.0, 0.1], "undecided"),
        ([1.0, 1.0], "undecided"),
        ([], "undecided"),
    ],
)
def test_an_interval_decides_only_if_it_leaves_out_zero_on_three_seeds(values, outcome) -> None:
    assert decide(Interval.of(values)) == outcome


def test_an_error_of_zero_has_no_ratio() -> None:
    found = log_ratios({0: 0.0, 1: 0.2, 2: 0.1}, {0: 0.1, 1: 0.1})
    assert math.isnan(found[0]) and found[1] == pytest.approx(math.log(2)) and 2 not in found


def test_the_frame_has_a_row_a_gain(frames) -> None:
    gains: list[Gain] = find_gains(CONFIG, frames, FACTS)
    frame = gain_frame(gains)
    assert len(frame) == len(gains)
    row = frame[(frame["task"] == CONFIG.settings[0].name) & (frame["targets"] == "exact")].iloc[0]
    assert row["raw"] == pytest.approx(0.2) and row["gain"] == pytest.approx(0.2)
    assert row["gain_low"] < row["gain"] < row["gain_high"] and row["n_seeds"] == 3
