"""The curve beside a cell: closed forms where a law speaks, nothing where none does."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.bounds import compare_everywhere
from resharpen.analyses.studies.remedies.config import REMEDIES, TASK_SETTINGS, Cell
from resharpen.analyses.studies.remedies.expectations import NEEDLES, expected_curves

MakeRow = Callable[..., dict]
MakeTable = Callable[..., pd.DataFrame]
NEEDLE = "argmax-retrieval"
LENGTHS = TASK_SETTINGS[NEEDLE].lengths
HEAD = {"layer": 0, "head": 0, "site": "blocks.0.attn.hook_pattern"}

FORMS = {
    # Exponent of the needle's weight, at n keys, for a margin of 2 at 8 keys.
    "softmax": lambda n: 2.0,
    "temperature": lambda n: 2.0,
    "qk_norm": lambda n: 2.0,
    "qk_norm_learned": lambda n: 2.0,
    "sigma_reparam": lambda n: 2.0,
    "sqrt_log_n": lambda n: 2.0 * math.sqrt(math.log(n) / math.log(8)),
    "log_n": lambda n: 2.0 * math.log(n, 8),
    "ssmax": lambda n: 2.0 * math.log(n, 8),
}


def weight(exponent: float, n: int) -> float:
    """e^x / (e^x + n - 1): theory 1.1."""
    return math.exp(exponent) / (math.exp(exponent) + n - 1)


@pytest.mark.parametrize("remedy", FORMS)
def test_a_needle_follows_its_closed_form_from_the_training_length(
    remedy: str, make_row: MakeRow, make_table: MakeTable
) -> None:
    """The table holds the law itself at two seeds: the curve from its first point is the law."""
    cell = Cell(remedy, "res_post", NEEDLE)
    expected = [weight(FORMS[remedy](n), n) for n in LENGTHS]
    rows = [
        make_row(cell, seed, n, "relevant_mass", value, **HEAD)
        for seed in (0, 1)
        for n, value in zip(LENGTHS, expected, strict=True)
    ]
    (curve,) = expected_curves(make_table(rows), cell)
    np.testing.assert_allclose(curve.values, expected, rtol=1e-12)
    assert (curve.kind, curve.quantity, curve.x_name) == ("fit", "relevant_mass", "n_key")
    assert list(curve.x) == list(LENGTHS)
    assert curve.checkpoint == cell.label
    assert "equal distractors" in curve.hypotheses
    finding = compare_everywhere(make_table(rows), curve)
    assert finding.max_ratio_error < 1e-12
    assert not finding.violated


def test_seeds_are_averaged_and_other_heads_ignored(
    make_row: MakeRow, make_table: MakeTable
) -> None:
    cell = Cell("softmax", "none", NEEDLE)
    rows = [
        make_row(cell, seed, n, "relevant_mass", mass, **HEAD | {"head": head})
        for n in (8, 16)
        for seed, head, mass in [(0, 0, 0.4), (1, 0, 0.6), (0, 1, 0.9), (1, 1, 0.9)]
    ]
    (curve,) = expected_curves(make_table(rows), cell)
    # 0.5 at 8 keys: e^margin = 7.
    np.testing.assert_allclose(curve.values, [0.5, 7 / (7 + 15)])


@pytest.mark.parametrize("mass", [0.0, 1.0, 0.05])
def test_no_curve_from_a_weight_that_is_no_needles(
    mass: float, make_row: MakeRow, make_table: MakeTable
) -> None:
    """None, all, or less than 1/8: the key lies below the others."""
    cell = Cell("softmax", "none", NEEDLE)
    rows = [make_row(cell, 0, n, "relevant_mass", mass, **HEAD) for n in (8, 16)]
    assert expected_curves(make_table(rows), cell) == []


def test_no_curve_where_no_law_speaks(make_row: MakeRow, make_table: MakeTable) -> None:
    def curves(remedy: str, task: str) -> list:
        cell = Cell(remedy, "none", task)
        rows = [make_row(cell, 0, n, "relevant_mass", 0.5, **HEAD) for n in (8, 16)]
        return expected_curves(make_table(rows), cell)

    assert {remedy for remedy in REMEDIES if curves(remedy, NEEDLE)} == set(FORMS)
    assert {task for task in TASK_SETTINGS if curves("softmax", task)} == set(NEEDLES)
    cell = Cell("softmax", "none", NEEDLE)
    others = make_table([make_row(cell, 0, 8, "total_variation", 0.5)])
    assert expected_curves(others, cell) == []


def test_set_complement_is_predicted_from_lengths_1_and_2(
    make_row: MakeRow, make_table: MakeTable
) -> None:
    """Theory 1.1: without norms the displacement is p / s."""
    setting = TASK_SETTINGS["set-complement"]
    lengths = (*setting.short, *setting.lengths)

    def curves(remedy: str) -> list:
        cell = Cell(remedy, "none", "set-complement")
        rows = [
            make_row(cell, 0, length, quantity, 20.0 / length)
            for length in lengths
            for quantity in ("displacement", "frozen_displacement")
        ]
        return expected_curves(make_table(rows), cell)

    found = {curve.quantity: curve for curve in curves("softmax")}
    for quantity in ("displacement", "frozen_displacement"):
        np.testing.assert_allclose(found[quantity].values, 20.0 / np.array(lengths))
        assert found[quantity].checkpoint == "softmax / none"
    assert curves("log_n")
    assert curves("sigmoid") == []  # its weights do not sum to one


def test_a_model_that_displaces_nothing_has_no_length_theorem(
    make_row: MakeRow, make_table: MakeTable
) -> None:
    """It was not trained long enough, say: no displacement disperses, and no study is stopped."""
    cell = Cell("softmax", "none", "set-complement")
    for displacement in (0.0, -0.1):
        rows = [
            make_row(cell, 0, length, quantity, displacement)
            for length in (1, 2)
            for quantity in ("displacement", "frozen_displacement")
        ]
        assert expected_curves(make_table(rows), cell) == []


def test_where_the_fit_of_the_scale_ends_the_displacement_ends_too(
    make_row: MakeRow, make_table: MakeTable
) -> None:
    """Squares 1 and 0.35 at lengths 1 and 2: 1.3 / s - 0.3 is negative at s = 6."""
    cell = Cell("softmax", "res_post", "set-complement")
    rows = [
        make_row(cell, 0, length, "norm_scale", scale, site="blocks.0.ln1_post.hook_scale")
        for length, scale in ((1, 1.0), (2, math.sqrt(0.35)))
    ]
    rows.append(make_row(cell, 0, 2, "frozen_displacement", 5.0))
    found = {(c.quantity, c.name): c for c in expected_curves(make_table(rows), cell)}
    whole = found["displacement", "2/s law x gain, from lengths 1 and 2"]
    assert list(whole.x) == [1, 2]
    assert whole.domain == (1, 2)
    np.testing.assert_allclose(whole.values, [10.0, 5.0 / math.sqrt(0.35)])
    frozen = found["frozen_displacement", "2/s law from length 2"]
    np.testing.assert_allclose(frozen.values, 10.0 / np.array([1, 2, 6, 12, 24, 48]))
    errors = [curve for (quantity, _), curve in found.items() if quantity == "total_variation"]
    assert [list(curve.x) for curve in errors] == [[1, 2]]
