"""From rows to the map: intervals, crossings, outcomes, and whether theory had said so."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.studies.remedies.config import TASK_SETTINGS, Cell, RemediesConfig
from resharpen.analyses.studies.remedies.mapping import (
    SHIFT,
    Interval,
    MapCell,
    build_map,
    crossing_length,
    map_frame,
)

MakeMap = Callable[..., list[MapCell]]
NEEDLE = "argmax-retrieval"
BASE = Cell("softmax", "none", NEEDLE)
SOLVED = (0.01, 0.01, 0.02, 0.02, 0.03, 0.03)
LOST = (0.01, 0.05, 0.15, 0.4, 0.6, 0.8)
LATER = (0.01, 0.02, 0.05, 0.08, 0.2, 0.5)
SOONER = (0.01, 0.2, 0.4, 0.6, 0.8, 0.9)
UNLEARNED = (0.3, 0.3, 0.4, 0.5, 0.6, 0.8)
ONE_SEED_FAILS = (*SOLVED[:-1], (0.0, 0.0, 0.0, 0.0, 0.4))


def test_interval_is_the_t_interval_over_seeds() -> None:
    """Mean 0.2, deviation 0.1, t(0.975, 2) = 4.302653: half is 4.302653 x 0.1 / sqrt(3)."""
    found = Interval.of([0.1, 0.2, 0.3])
    assert (found.mean, found.n_seeds) == (pytest.approx(0.2), 3)
    assert found.high - found.mean == pytest.approx(0.248414, abs=1e-6)
    assert found.mean - found.low == pytest.approx(0.248414, abs=1e-6)
    same = Interval.of([0.25] * 4)
    assert (same.low, same.mean, same.high) == (0.25, 0.25, 0.25)


def test_interval_of_one_seed_or_of_none_is_unknown() -> None:
    one = Interval.of([0.5, math.nan])
    assert (one.mean, one.n_seeds) == (0.5, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    for values in ([], [math.nan, math.nan]):
        none = Interval.of(values)
        assert none.n_seeds == 0
        assert math.isnan(none.mean)
    assert Interval.of([0.1, math.nan, 0.3]) == Interval.of([0.1, 0.3])


@pytest.mark.parametrize(
    ("values", "length"),
    [
        ([0.0, 0.05, 0.15, 0.5], 16 * math.sqrt(2)),  # half way from 16 to 32 on a log scale
        ([0.0, 0.0, 0.1, 0.4], 32 * 2 ** (0 / 0.3)),  # the level itself is not above it
        ([0.0, 0.0, 0.0, 0.4], 32 * 2**0.25),
        ([0.2, 0.0, 0.0, 0.0], 8.0),
        ([0.0, 0.3, 0.0, 0.3], 8 * 2 ** (1 / 3)),  # the first time counts
        ([0.0, 0.1, 0.05, 0.1], math.inf),
        ([0.05, math.nan, 0.15, 0.5], 8 * 4**0.5),  # between the lengths that are known
        ([math.nan, math.nan, 0.15, 0.5], 32.0),
    ],
)
def test_crossing_length(values: list[float], length: float) -> None:
    errors = pd.Series(values, index=[8.0, 16.0, 32.0, 64.0])
    assert crossing_length(errors, 0.1) == pytest.approx(length)


@pytest.mark.parametrize("values", [[], [math.nan, math.nan]])
def test_a_crossing_that_nobody_measured_is_unknown(values: list[float]) -> None:
    errors = pd.Series(values, index=[8.0, 16.0][: len(values)], dtype=np.float64)
    assert math.isnan(crossing_length(errors, 0.1))


@pytest.mark.parametrize(
    ("base", "own", "outcome"),
    [
        (LOST, SOLVED, "cures"),
        (LOST, LATER, "shifts"),
        (LOST, LOST, "no help"),
        (LOST, SOONER, "hurts"),
        (LOST, UNLEARNED, "not learned"),
        (LOST, ONE_SEED_FAILS, "undecided"),
        (SOLVED, SOLVED, "not needed"),
        (SOLVED, LOST, "hurts"),
        (SOLVED, UNLEARNED, "not learned"),
    ],
)
def test_outcomes(make_map: MakeMap, base: tuple, own: tuple, outcome: str) -> None:
    """Mean 0.08 of the last is below 0.1, its interval up to 0.3 is not."""
    found = make_map({BASE: base, Cell("ssmax", "none", NEEDLE): own})
    assert found[1].outcome == outcome
    assert found[0].outcome == ("not needed" if base is SOLVED else "no help")


def test_a_shift_is_a_quarter_later_and_a_harm_a_quarter_sooner(make_map: MakeMap) -> None:
    """The error passes 0.1 between 16 and 32, at 16 x 2^part."""

    def crossing_at(length: float) -> tuple[float, ...]:
        part = math.log2(length / 16)
        return (0.0, 0.1 - part / 10, 0.2 - part / 10, 0.6, 0.7, 0.8)

    cell = Cell("ssmax", "none", NEEDLE)
    for factor, outcome in (
        (SHIFT + 0.01, "shifts"),
        (SHIFT - 0.01, "no help"),
        (1 / SHIFT + 0.01, "no help"),
        (1 / SHIFT - 0.01, "hurts"),
    ):
        found = make_map({BASE: crossing_at(22), cell: crossing_at(22 * factor)})
        assert found[0].crossing == pytest.approx(22)
        assert found[1].crossing == pytest.approx(22 * factor)
        assert found[1].outcome == outcome, factor


def test_what_is_learned_is_judged_more_strictly_than_what_is_solved(make_map: MakeMap) -> None:
    """An error of 0.08 would count as solved at any longer input."""
    almost = (0.08, *SOLVED[1:])
    cell = Cell("ssmax", "none", NEEDLE)
    assert make_map({BASE: LOST, cell: almost})[1].outcome == "not learned"
    assert make_map({BASE: LOST, cell: (0.04, *SOLVED[1:-1], 0.08)})[1].outcome == "cures"


def test_crossing_is_the_median_over_seeds(make_map: MakeMap) -> None:
    """Two of five seeds never fail, one fails at once."""
    last = (0.05, 0.05, 0.3, 0.3, 0.3)
    first = (0.0, 0.0, 0.0, 0.0, 0.2)
    (found,) = make_map({BASE: (first, 0.0, 0.0, 0.0, 0.0, last)})
    assert found.crossing == pytest.approx(128 * 2 ** (1 / 3))
    assert found.seed_errors[32] == last


def test_softmax_that_fails_on_one_seed_does_not_hurt_itself(make_map: MakeMap) -> None:
    (found,) = make_map({BASE: (*SOLVED[:-1], (0.0, 0.0, 0.0, 0.0, 1.0))})
    assert found.crossing == math.inf
    assert found.outcome == "no help"


def test_one_seed_is_taken_at_its_word(make_map: MakeMap) -> None:
    found = make_map({BASE: LOST, Cell("ssmax", "none", NEEDLE): SOLVED}, n_seeds=1)
    assert found[1].outcome == "cures"
    assert math.isnan(found[1].errors[32].high)


def test_without_its_baseline_a_cell_is_undecided(make_map: MakeMap) -> None:
    """It may have failed: then nobody knows whether there was anything to cure."""
    for errors in (SOLVED, LOST):
        (found,) = make_map({Cell("ssmax", "none", NEEDLE): errors})
        assert (found.outcome, found.agrees) == ("undecided", None)


def test_variants_of_the_fair_test_have_a_baseline_of_their_own_depth(make_map: MakeMap) -> None:
    deep = Cell("softmax", "none", NEEDLE, n_layers=2, mlp=True)
    normed = Cell("softmax", "post", NEEDLE, "LN", True, n_layers=2, mlp=True)
    found = make_map({BASE: LOST, deep: SOLVED, normed: SOLVED})
    assert [cell.outcome for cell in found] == ["no help", "not needed", "not needed"]


@pytest.mark.parametrize(
    ("remedy", "placement", "own", "agrees"),
    [
        ("ssmax", "none", SOLVED, True),  # theory: cures
        ("ssmax", "none", LATER, False),
        ("softmax", "res_post", LATER, True),  # theory: shifts
        ("softmax", "res_post", SOLVED, True),  # later than the longest input
        ("softmax", "res_post", LOST, False),
        ("qk_norm", "none", LOST, True),  # theory: cannot
        ("qk_norm", "none", SOONER, True),
        ("qk_norm", "none", LATER, False),
        ("qk_norm", "none", SOLVED, False),
        ("qk_norm", "none", UNLEARNED, None),
        ("ssmax", "none", ONE_SEED_FAILS, None),
    ],
)
def test_agreement_with_theory(
    make_map: MakeMap, remedy: str, placement: str, own: tuple, agrees: bool | None
) -> None:
    cell = Cell(remedy, placement, NEEDLE)  # type: ignore[arg-type]
    found = make_map({BASE: LOST, cell: own})
    assert found[1].agrees is agrees
    assert found[0].agrees is True  # theory: cannot; measured: no help


@pytest.mark.parametrize(
    ("task", "remedy", "base", "own", "agrees"),
    [
        (NEEDLE, "ssmax", SOLVED, SOLVED, None),  # nothing was put to the test
        ("majority", "ssmax", SOLVED, SOLVED, True),  # theory: not needed
        ("majority", "ssmax", SOLVED, LOST, False),
        ("majority", "ssmax", LOST, SOLVED, False),
        ("copy", "ssmax", LOST, SOLVED, None),  # theory is silent
    ],
)
def test_agreement_where_nothing_was_to_be_cured_or_nothing_was_said(
    make_map: MakeMap, task: str, remedy: str, base: tuple, own: tuple, agrees: bool | None
) -> None:
    found = make_map({Cell("softmax", "none", task): base, Cell(remedy, "none", task): own})
    assert found[1].agrees is agrees


def test_slope_and_mass_are_those_of_the_head_that_sees_what_matters(make_map: MakeMap) -> None:
    """Head 1 has mass 4/n, 0.5 at the training length, and entropy 0.5 log n; head 0 log n."""
    (found,) = make_map({BASE: LOST}, slope=0.5)
    assert found.slope.mean == pytest.approx(0.5)
    assert found.slope.n_seeds == 5
    assert found.relevant[1].mean == pytest.approx(0.5)
    assert found.relevant[32].mean == pytest.approx(4 / 256)


def test_lengths_below_the_training_length_do_not_count(
    make_map: MakeMap, make_row: Callable[..., dict]
) -> None:
    cell = Cell("softmax", "none", "set-complement")
    extra = [
        make_row(cell, seed, length, quantity, 0.9, **place)
        for seed in range(5)
        for length in TASK_SETTINGS["set-complement"].short
        for quantity, place in (
            ("total_variation", {}),
            ("entropy", {"layer": 1, "head": 1, "site": "blocks.1.attn.hook_pattern"}),
        )
    ]
    (found,) = make_map({cell: (0.01, 0.05, 0.15, 0.4)}, extra=extra)
    assert found.crossing == pytest.approx(12 * math.sqrt(2))
    assert found.slope.mean == pytest.approx(0.5)
    assert sorted(found.seed_errors) == [1, 2, 4, 8]


def test_seeds_without_a_value_are_unknown_and_cells_without_rows_left_out(
    make_map: MakeMap, make_row: Callable[..., dict], make_table: Callable[..., pd.DataFrame]
) -> None:
    (found,) = make_map({BASE: (*LOST[:-1], (0.8, math.nan, 0.8, math.nan, 0.8))})
    assert found.errors[32].n_seeds == 3
    assert found.errors[32].mean == pytest.approx(0.8)
    rows = [make_row(BASE, 0, 8, "total_variation", 0.5)]
    cells = [Cell("ssmax", "none", NEEDLE), BASE]
    only = build_map(RemediesConfig(), make_table(rows), cells)
    assert [cell.cell for cell in only] == [BASE]
    assert only[0].outcome == "not learned"
    assert math.isnan(only[0].slope.mean)


def test_map_frame_has_a_row_a_cell(make_map: MakeMap) -> None:
    complement = Cell("softmax", "none", "set-complement")
    found = make_map({complement: (0.01, 0.05, 0.15, 0.4)})
    found += make_map({BASE: LOST, Cell("ssmax", "none", NEEDLE): LATER})
    frame = map_frame(found)
    assert list(frame["kind"]) == ["aggregation", "needle", "needle"]
    assert list(frame["model"]) == ["softmax / none", "softmax / none", "ssmax / none"]
    assert list(frame["measured"]) == ["no help", "no help", "shifts"]
    assert list(frame["predicted"]) == ["cannot", "cannot", "cures"]
    assert list(frame["agrees"]) == ["yes", "yes", "no"]
    assert set(frame["n_seeds"]) == {5}
    np.testing.assert_allclose(frame["error_8x"], [0.4, 0.4, 0.08])
    np.testing.assert_allclose(frame["error_32x"], [math.nan, 0.8, 0.5])
    np.testing.assert_allclose(frame["error_2x_low"], frame["error_2x"])
    np.testing.assert_allclose(frame["slope"], 0.5)
    np.testing.assert_allclose(frame["relevant_mass_last"], [4 / 48, 4 / 256, 4 / 256])
    assert frame["source"].str.startswith("theory ").all()
