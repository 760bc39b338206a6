"""The rule, the row, the table."""

import math

import pytest

from resharpen.analyses.seeds import Interval
from resharpen.analyses.studies.paper.claim import (
    RANGE,
    ClaimRow,
    Rule,
    claim_frame,
    claim_row,
    full_range,
    judge_claim,
    render_claims,
)

ABOVE = Rule(0.0)
BELOW = Rule(high=0.0)
NEAR = Rule(-1.05, -0.95)


def interval(low: float, high: float, runs: int = 5) -> Interval:
    return Interval((low + high) / 2, low, high, runs)


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (ABOVE, 0.1, 0.3, "holds"),
        (ABOVE, -0.3, -0.1, "does not hold"),
        (ABOVE, -0.1, 0.3, "undecided"),
        (ABOVE, 0.0, 0.0, "does not hold"),
        (BELOW, -0.3, -0.1, "holds"),
        (BELOW, 0.1, 0.3, "does not hold"),
        (BELOW, -0.1, 0.1, "undecided"),
        (NEAR, -1.01, -0.99, "holds"),
        (NEAR, -1.2, -1.1, "does not hold"),
        (NEAR, -0.5, -0.4, "does not hold"),
        (NEAR, -1.2, -0.9, "undecided"),
        (NEAR, -1.1, -1.0, "undecided"),
    ],
)
def test_an_interval_is_held_against_the_range_that_is_asked_for(
    rule: Rule, low: float, high: float, verdict: str
) -> None:
    judged = judge_claim(interval(low, high), rule)
    assert judged.verdict == verdict
    assert str(rule) in judged.reason


def test_too_few_runs_and_models_that_did_not_learn_leave_it_undecided() -> None:
    judged = judge_claim(interval(0.1, 0.2, runs=2), ABOVE)
    assert judged.verdict == "undecided"
    assert judged.reason == "2 runs, at least 3 are needed"
    assert judge_claim(interval(0.1, 0.2, runs=2), Rule(0.0, min_runs=2)).verdict == "holds"
    judged = judge_claim(interval(0.1, 0.2), ABOVE, "not learned: post")
    assert (judged.verdict, judged.reason) == ("undecided", "not learned: post")
    assert judge_claim(Interval.of([]), ABOVE).verdict == "undecided"


def test_values_that_are_all_equal_decide() -> None:
    assert judge_claim(Interval.of([0.2, 0.2, 0.2]), ABOVE).verdict == "holds"


def test_an_unknown_effect_decides_nothing() -> None:
    unknown = Interval(math.nan, math.nan, math.nan, 5)
    assert judge_claim(unknown, ABOVE).verdict == "undecided"
    assert judge_claim(unknown, BELOW).verdict == "undecided"


def test_a_rule_says_what_it_asks_for() -> None:
    assert [str(rule) for rule in (ABOVE, BELOW, NEAR)] == [
        "above 0",
        "below 0",
        "between -1.05 and -0.95",
    ]


@pytest.mark.parametrize(
    "ends", [{}, {"low": 1.0, "high": 1.0}, {"low": 2.0, "high": 1.0}, {"low": math.nan}]
)
def test_a_rule_that_asks_for_nothing_is_refused(ends: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="between two ends"):
        Rule(**ends)


def test_a_rule_needs_an_interval() -> None:
    with pytest.raises(ValueError, match="at least 2 runs"):
        Rule(0.0, min_runs=1)


def row(**given: object) -> ClaimRow:
    values: dict = {
        "key": "3a",
        "statement": "Post-norm helps | much",
        "version": "v2",
        "ran": "two blocks",
        "task": "set complement",
        "seeds": 5,
        "effect_name": "difference",
        "unit": "ratio",
        "effect": interval(-0.4, -0.2),
        "rule": Rule(high=0.0, source="a smaller error"),
        "note": "So it is.",
    }
    return claim_row(**{**values, **given})


def test_a_row_carries_its_verdict_and_its_source() -> None:
    made = row()
    assert (made.verdict, made.claim, made.source) == ("holds", 3, "v2 [second-hand]")
    assert row(version="derived here", second_hand=False).source == "derived here"
    assert row(in_the_way="not learned").verdict == "undecided"
    assert made.sentence == (
        "(3a) Post-norm helps | much: holds (difference -0.30 [-0.40, -0.20], 5 seeds; asked for: "
        "below 0)."
    )


def test_a_row_goes_to_a_record_and_comes_back() -> None:
    assert ClaimRow.from_dict(row().to_dict()) == row()


def test_small_effects_keep_their_digits() -> None:
    assert row(effect=interval(1e-6, 3e-6), unit="logit").shown_effect == (
        "2e-06 [1e-06, 3e-06] logit"
    )
    assert row(effect=interval(-0.0401, -0.0013)).shown_effect == "-0.021 [-0.040, -0.001]"
    assert row(effect=Interval.of([2.0])).shown_effect == "2"


def test_the_table_as_markdown_and_as_a_frame() -> None:
    rows = [row(), row(key="7b", effect=interval(0.1, 0.2), runs_of="languages", note="")]
    lines = render_claims(rows).splitlines()
    assert lines[0].startswith("|  | claim | what was run | seeds |")
    assert "Post-norm helps \\| much (v2 [second-hand])" in lines[2]
    assert lines[2].endswith("| below 0 | **holds** |")
    assert lines[3].endswith("| **does not hold** |")
    assert lines[5] == (
        "- **3a** -0.30 [-0.40, -0.20] lies below 0 (95 % interval over 5 seeds; threshold: a "
        "smaller error). So it is."
    )
    assert "95 % interval over 5 languages" in lines[6]
    frame = claim_frame(rows)
    assert frame["verdict"].tolist() == ["holds", "does not hold"]
    assert frame["value"].tolist() == pytest.approx([-0.3, 0.15])
    assert frame["asked below"].tolist() == [0.0, 0.0]
    assert frame["claim"].tolist() == [3, 7]


def test_a_claim_about_every_run_is_judged_by_the_range() -> None:
    values = [0.1, 5.0, 0.2, math.nan]
    ends = full_range(values)
    assert (ends.low, ends.high, ends.n_seeds) == (0.1, 5.0, 3)
    assert ends.mean == pytest.approx(5.3 / 3)
    # Scattered as they are, their 95 % interval would reach below zero.
    assert judge_claim(Interval.of(values), ABOVE).verdict == "undecided"
    assert judge_claim(ends, ABOVE).verdict == "holds"
    assert full_range([]).n_seeds == 0
    assert "(range over 5 seeds" in render_claims([row(ends=RANGE)])
