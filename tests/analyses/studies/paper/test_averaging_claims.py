"""Claims 4 and 6 on rows whose answer is known; nothing is trained."""

import dataclasses
import math
import subprocess
import sys

import pandas as pd
import pytest

from resharpen.analyses.studies.averaging.config import RAW
from resharpen.analyses.studies.averaging.noise import task_facts
from resharpen.analyses.studies.averaging.study import trial_of
from resharpen.analyses.studies.paper.averaging_claims import (
    averaging_claims,
    averaging_trials,
    dropout_claims,
    othello_claims,
)
from resharpen.analyses.studies.paper.averaging_plan import AVERAGING_PLANS
from resharpen.interp.tables import table

PLAN = AVERAGING_PLANS["quick"]
LEGAL = {setting.name: task_facts(setting).legal for setting in PLAN.graded}
NOISE = {seed: 0.01 * (seed - 2) for seed in PLAN.averaging.seeds}


def rows(
    name: str, length: int, errors: dict[str, float], quantities: tuple[str, ...]
) -> list[dict]:
    """Every kind of weights with its error; seeds differ by a little, alike in all weights."""
    return [
        {
            "checkpoint": f"{name} / {weights}",
            "seed": seed,
            "length": length,
            "quantity": quantity,
            "unit": "ratio",
            "mean": error * math.exp(noise if weights != RAW else 0.0),
            "n_obs": 4,
        }
        for weights, error in errors.items()
        for quantity in quantities
        for seed, noise in NOISE.items()
    ]


def graded(gain_of, raw: float = 0.05) -> pd.DataFrame:
    """Rows of claim 4, whose gain is a function of the cell and the legal tokens of its task."""
    found = []
    for cell in PLAN.cells():
        gain = gain_of(cell, LEGAL[cell.setting])
        errors = {RAW: raw, PLAN.average: raw * math.exp(-gain)}
        names = ("mean_total_variation", "mean_kl_divergence")
        for length in PLAN.averaging.setting(cell.setting).lengths:
            found += rows(f"averaging, {cell.label}", length, errors, names)
    return table(found)


def othello(raw: float, averaged: float) -> pd.DataFrame:
    names = ("mean_total_variation", "mean_illegal_mass", "all_legal_rate")
    found = []
    for schedule in PLAN.schedules:
        errors = {RAW: raw, PLAN.average: averaged}
        found += rows(f"othello, {schedule}", PLAN.othello_length, errors, names)
    return table(found)


def dropout(short: float, long: dict[float, float]) -> pd.DataFrame:
    found = []
    for placement in PLAN.dropout_placements:
        for probability, error in long.items():
            name = f"dropout {probability:g}, {placement}"
            found += rows(name, PLAN.dropout_lengths[0], {RAW: short}, ("total_variation",))
            for length in PLAN.dropout_lengths[1:]:
                found += rows(name, length, {RAW: error}, ("total_variation",))
    return table(found)


def test_claim_4_shares_its_training_runs_with_the_study_of_averaging() -> None:
    trials = averaging_trials(PLAN)
    for cell in PLAN.cells():
        assert trials[f"averaging, {cell.label}"] == trial_of(PLAN.averaging, cell)
    assert len(PLAN.cells()) == len(PLAN.graded) * (len(PLAN.schedules) + 1)


@pytest.mark.parametrize("plan", AVERAGING_PLANS.values(), ids=list(AVERAGING_PLANS))
def test_every_trial_can_be_run(plan) -> None:
    trials = averaging_trials(plan)
    assert {trial.model.attn_dropout for trial in trials.values()} == set(plan.dropouts)
    for trial in trials.values():
        assert len(trial.seeds) >= 5 and trial.training.length == trial.lengths[0]
        for length in trial.lengths:
            trial.task.check_length(length)
        if trial.model.positional_embedding_type == "standard":
            assert max(trial.lengths) <= trial.model.n_ctx


def test_a_gain_that_grows_with_the_legal_tokens_holds() -> None:
    frame = graded(lambda cell, legal: 0.4 * math.log(legal) if cell.targets == "sampled" else 0.1)
    claims = averaging_claims(PLAN, frame)
    assert [row.key for row in claims] == ["4a", "4b", "4c", "4d", "4e"]
    assert {row.verdict for row in claims} == {"holds"}
    most = max(LEGAL, key=LEGAL.__getitem__)
    assert claims[0].task == most
    assert claims[0].effect == pytest.approx(0.4 * math.log(LEGAL[most]))
    assert claims[1].effect == pytest.approx(0.4)
    mean = sum(0.4 * math.log(legal) - 0.1 for legal in LEGAL.values()) / len(LEGAL)
    assert claims[-1].effect == pytest.approx(mean)
    assert all(row.runs == len(PLAN.averaging.seeds) for row in claims)


def test_a_gain_that_falls_and_is_larger_with_exact_targets_does_not() -> None:
    claims = averaging_claims(
        PLAN,
        graded(
            lambda cell, legal: (2 if cell.targets == "exact" else 1) * (1 - 0.2 * math.log(legal))
        ),
    )
    by_key = {row.key: row for row in claims}
    assert by_key["4a"].verdict == "holds"
    assert by_key["4b"].verdict == by_key["4e"].verdict == "does not hold"
    assert by_key["4b"].effect == pytest.approx(-0.2)


def test_what_was_not_learned_is_undecided() -> None:
    claims = averaging_claims(PLAN, graded(lambda cell, legal: 0.1, raw=0.9))
    assert {row.verdict for row in claims} == {"undecided"}
    assert all("not learned" in row.reason for row in claims)


def test_othello_is_judged_at_every_schedule() -> None:
    claims = othello_claims(PLAN, othello(0.4, 0.3))
    assert [row.key for row in claims] == ["6a", "6b"]
    assert all(row.verdict == "holds" for row in claims)
    assert claims[0].effect == pytest.approx(math.log(4 / 3))
    assert "rate of all positions legal 0.4 raw" in claims[0].note
    unlearned = othello_claims(PLAN, othello(0.75, 0.7))
    assert {row.verdict for row in unlearned} == {"undecided"}


def test_dropout_is_judged_at_the_longest_input() -> None:
    claims = dropout_claims(PLAN, dropout(0.01, {0.0: 0.2, 0.1: 0.15, 0.3: 0.4}))
    assert [row.key for row in claims] == ["6c", "6d", "6e", "6f"]
    assert [row.verdict for row in claims] == ["holds", "does not hold"] * 2
    assert claims[0].effect == pytest.approx(-0.05)
    assert "difference 0.0000 [0.0000, 0.0000] at length 8; -0.05" in claims[0].note
    unlearned = dropout_claims(PLAN, dropout(0.2, {0.0: 0.2, 0.1: 0.15, 0.3: 0.4}))
    assert {row.verdict for row in unlearned} == {"undecided"}


def test_claims_of_what_was_not_run_are_undecided() -> None:
    empty = table([])
    claims = [
        *averaging_claims(PLAN, empty),
        *othello_claims(PLAN, empty),
        *dropout_claims(PLAN, empty),
    ]
    assert {row.verdict for row in claims} == {"undecided"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"average": "ema-0.5"}, "average must be one that is kept"),
        ({"schedules": ("linear",)}, "must hold 'constant'"),
        ({"dropouts": (0.1, 0.3)}, "must begin with 0"),
        ({"dropout_lengths": (4, 31)}, "must begin with the training length"),
        ({"dropout_lengths": (8,)}, "and go on"),
    ],
)
def test_a_plan_that_cannot_answer_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PLAN, **change)


def test_reading_a_plan_does_not_load_torch() -> None:
    code = (
        "import resharpen.analyses.studies.paper.averaging_plan, sys; "
        "assert not {'torch', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
