"""Claims 1, 2, 3 and 7 on made-up rows whose outcome is known."""

from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.studies.paper.claim import ClaimRow
from resharpen.analyses.studies.paper.config import PRESETS
from resharpen.analyses.studies.paper.dispersion_claims import dispersion_claims
from resharpen.analyses.studies.paper.length_claims import (
    deviation_from_law,
    length_claims,
    length_laws,
    minimal_label,
)
from resharpen.analyses.studies.paper.measured.interventions import RESCALED, TEMPERATURES
from resharpen.analyses.studies.paper.placement_claims import placement_claims, placement_label
from resharpen.analyses.studies.paper.seed_values import (
    ladders,
    paired_difference,
    share,
    why_not_learned,
)
from resharpen.analyses.studies.paper.width_claims import construct_rows, width_claims, width_label

CONFIG = replace(PRESETS["quick"], lengths=(1, 2, 8, 31), theorem_lengths=(8,), depths=(1,))
LENGTHS = CONFIG.lengths
SEEDS = range(4)
ERRORS = {1: 0.0, 2: 0.001, 8: 0.01, 31: 0.9}

Make = Callable[..., Any]


def by_key(rows: list[ClaimRow]) -> dict[str, ClaimRow]:
    return {row.key: row for row in rows}


def ladder(value: Callable[[int], float], scale: float = 1.0) -> dict[int, float]:
    return {length: scale * value(length) for length in LENGTHS}


def minimal(
    make_rows: Make, power: float = -1.0, error: float = 0.01, recovered: float = 0.0
) -> list:
    """Displacements that fall as a power of the length, in every seed a little differently."""
    label = minimal_label(8)
    scales = [1 + 0.01 * seed for seed in SEEDS]
    errors = [{**ERRORS, 8: error} for _ in SEEDS]
    fall = [ladder(lambda s: s**power, 10 * scale) for scale in scales]
    rows = make_rows(label, "total_variation", errors)
    rows += make_rows(label, "displacement", fall, unit="logit")
    rows += make_rows(label, "margin", fall, unit="logit")
    rows += make_rows(label, "balance", [ladder(lambda s: 1.0) for _ in SEEDS])
    rows += make_rows(
        label, "two_body_error", [ladder(lambda s: 1e-6) for _ in SEEDS], unit="logit"
    )
    logs = [{s: log(value) for s, value in one.items() if s > 1} for one in fall]
    rows += make_rows(label, "log_displacement", logs, unit="nats")
    weights = [{s: -log(s) for s in LENGTHS if s > 1} for _ in SEEDS]
    rows += make_rows(label, "log_weight", weights, unit="nats")
    rows += make_rows(label, "factor_error", [ladder(lambda s: 0.001) for _ in SEEDS])
    for name in TEMPERATURES:
        edited = [{31: 0.9 - recovered * 0.899} for _ in SEEDS]
        rows += make_rows(f"{label}, {name}", "total_variation", edited)
    rows += make_rows(f"{label}, {RESCALED}", "total_variation", [{31: 0.001} for _ in SEEDS])
    return rows


def test_the_law_is_told_from_another_power(make_rows: Make, make_frame: Make) -> None:
    held = by_key(length_claims(CONFIG, make_frame(minimal(make_rows))))
    assert [row.verdict for row in held.values()] == ["holds"] * 5
    assert held["1c"].effect == pytest.approx(-1)
    assert held["1b"].effect == pytest.approx(10 / 31 * 1.015)
    assert held["1d"].effect == pytest.approx(0.89)
    failed = by_key(length_claims(CONFIG, make_frame(minimal(make_rows, power=-0.5))))
    assert failed["1c"].verdict == "does not hold"
    assert failed["1c"].effect == pytest.approx(-0.5)


def test_a_model_that_did_not_learn_decides_nothing(make_rows: Make, make_frame: Make) -> None:
    frame = make_frame(minimal(make_rows, error=0.2))
    rows = [*length_claims(CONFIG, frame), *dispersion_claims(CONFIG, frame)]
    assert {row.verdict for row in rows} == {"undecided"}
    assert "not learned: minimal model trained at 8 (error 0.2 at length 8)" in rows[0].reason


def test_the_law_is_drawn_through_the_value_at_length_two(
    make_rows: Make, make_frame: Make
) -> None:
    (curve,) = length_laws(CONFIG, make_frame(minimal(make_rows)))
    assert curve.checkpoint == "minimal model trained at 8"
    np.testing.assert_allclose(curve.values, 10 * 1.015 / np.array(LENGTHS))
    assert deviation_from_law({1: 99.0, 2: 10.0, 4: 5.0, 10: 2.2}) == pytest.approx(0.1)


def test_dispersion_explains_what_the_weights_explain(make_rows: Make, make_frame: Make) -> None:
    held = by_key(dispersion_claims(CONFIG, make_frame(minimal(make_rows))))
    assert [row.verdict for row in held.values()] == ["holds"] * 3
    assert held["2a"].effect == pytest.approx(1)
    assert held["2b"].effect == pytest.approx(1)
    assert held["2c"].effect == pytest.approx(0)
    # The displacement falls twice as fast as the weights; a temperature brings half of it back.
    frame = make_frame(minimal(make_rows, power=-2.0, recovered=0.5))
    failed = by_key(dispersion_claims(CONFIG, frame))
    assert failed["2a"].effect == pytest.approx(0.5)
    assert failed["2c"].effect == pytest.approx(0.5)
    assert (failed["2a"].verdict, failed["2c"].verdict) == ("does not hold", "does not hold")


def placements(make_rows: Make, at_longest: dict[tuple[str, bool], float]) -> list:
    rows = []
    for (placement, final), error in at_longest.items():
        label = placement_label(placement, 1, final)
        errors = [{**ERRORS, 31: error + 0.001 * seed} for seed in SEEDS]
        rows += make_rows(label, "total_variation", errors)
        heavy = 20.0 if final else 4.0
        rows += make_rows(label, "outweighing", [ladder(lambda s, w=heavy: w) for _ in SEEDS])
    post = placement_label("post", 1)
    live, frozen = ladder(lambda s: s**-0.5), ladder(lambda s: 1 / s)
    rows += make_rows(post, "displacement", [live for _ in SEEDS], unit="logit")
    rows += make_rows(post, "frozen_displacement", [frozen for _ in SEEDS], unit="logit")
    rows += make_rows(post, "frozen_total_variation", [ERRORS for _ in SEEDS])
    rows += make_rows(f"{post}, output times 5", "total_variation", [{31: 0.2} for _ in SEEDS])
    return rows


def test_placements_are_compared_seed_by_seed(make_rows: Make, make_frame: Make) -> None:
    errors = {
        ("none", False): 0.9,
        ("pre", False): 0.8,
        ("post", False): 0.5,
        ("res_post", False): 0.1,
        ("peri", False): 0.8,
        ("pre", True): 0.2,
    }
    rows = by_key(placement_claims(CONFIG, make_frame(placements(make_rows, errors))))
    found = {key: (row.verdict, round(row.effect, 3)) for key, row in rows.items()}
    assert found == {
        "3a": ("holds", -0.3),
        "3b": ("holds", -0.4),
        "3c": ("does not hold", 0.3),
        "3d": ("holds", -0.7),
        "3e": ("does not hold", 0.0),
        "3f": ("holds", 0.5),  # half of the fall is given back
        "3g": ("holds", round(log(5), 3)),
        "3h": ("holds", 1.005),
    }
    assert rows["3c"].note.startswith("post-norm, 1 block: 0.50")


def test_a_placement_that_was_not_run_is_undecided(make_rows: Make, make_frame: Make) -> None:
    errors = {("pre", False): 0.8, ("post", False): 0.5}
    rows = by_key(placement_claims(CONFIG, make_frame(placements(make_rows, errors))))
    assert rows["3a"].verdict == "holds"
    assert rows["3b"].verdict == rows["3c"].verdict == rows["3g"].verdict == "undecided"
    assert "no norm, 1 block (error unknown at length 8)" in rows["3b"].reason


def widths(make_rows: Make, margins: dict[str, list[float]]) -> list:
    rows = []
    for label, values in margins.items():
        worst = [{1: 9.0, 2: value} for value in values]
        rows += make_rows(label, "margin", worst, unit="logit")
        error = 0.0 if label == "d_v = 7" else 0.03
        rows += make_rows(label, "total_variation", [{2: error + 1e-4 * s} for s in SEEDS])
    return rows


def test_a_bound_is_judged_by_every_seed(make_rows: Make, make_frame: Make) -> None:
    margins = {
        width_label("d_model", 6): [-0.01, -0.02, -3.0, -0.01],
        width_label("d_model", 7): [-0.01, 2.0, 2.0, 2.0],
        width_label("d_v", 5): [-0.1, -0.2, -0.3, -0.4],
        width_label("d_v", 6): [0.1, 0.2, 0.3, 0.4],
        width_label("d_v", 7): [1.0, 2.0, 3.0, 4.0],
    }
    frame = make_frame(widths(make_rows, margins))
    rows = by_key(width_claims(CONFIG, frame, construct_rows()))
    assert {key: row.verdict for key, row in rows.items()} == {
        "7a": "holds",
        "7b": "holds",
        "7c": "undecided",
        "7d": "does not hold",
        "7e": "holds",
        "7f": "holds",
        "7g": "holds",
    }
    assert rows["7a"].high == -0.01
    assert "3 of 4 seeds do" in rows["7c"].note
    assert (rows["7b"].runs, rows["7b"].runs_of) == (4, "vocabularies")


def test_the_tight_solution_orders_every_input_by_its_closed_form() -> None:
    frame = construct_rows()
    assert (frame["status"] == "ok").all()
    own = frame[frame["quantity"] == "margin"].set_index(["checkpoint", "length"])
    # p = 40 and delta = 80: the other tokens are displaced by p / s, the last by more.
    for vocabulary, length in ((6, 2), (8, 7), (12, 5)):
        place = (f"constructed, {vocabulary} tokens", length)
        assert own["min"][place] == pytest.approx(40 / length, rel=1e-3)


def test_seeds_are_paired_by_name_and_missing_ones_left_out(
    make_rows: Make, make_frame: Make
) -> None:
    difference = paired_difference({0: 1.0, 1: 3.0, 2: 9.0}, {2: 8.0, 1: 1.0, 5: 0.0})
    assert (difference.mean, difference.n_seeds) == (1.5, 2)
    frame = make_frame(make_rows("a", "margin", [{1: 2.0, 4: 1.0}, {4: float("nan"), 1: 3.0}]))
    assert ladders(frame, "a", "margin") == {0: {1: 2.0, 4: 1.0}, 1: {1: 3.0}}
    assert share(1.0, 4.0) == 0.25
    assert np.isnan(share(1.0, 0.0))


def test_it_is_said_which_models_did_not_learn(make_rows: Make, make_frame: Make) -> None:
    rows = make_rows("good", "total_variation", [{4: 0.01}, {4: 0.03}])
    rows += make_rows("bad", "total_variation", [{4: 0.01}, {4: 0.3}])
    frame: pd.DataFrame = make_frame(rows)
    assert why_not_learned(frame, ["good"], 4, 0.05) == ""
    said = why_not_learned(frame, ["good", "bad", "absent"], 4, 0.05)
    assert said == (
        "not learned: bad (error 0.155 at length 4), absent (error unknown at length 4); learned "
        "is at most 0.05"
    )
