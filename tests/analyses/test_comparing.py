"""Theory beside measurement: what a finding says of curves of every kind."""

import math

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.comparing import TOLERANCES, Tolerance, compare
from resharpen.analyses.findings import Finding
from resharpen.interp.tables import table
from resharpen.interp.theory.curve import Curve

X = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


def measured(values, quantity="max_weight", unit="ratio", seeds=(0,), sem=0.0, **more):
    """A table whose means are the values at lengths X, shifted a little from seed to seed."""
    return table(
        {
            "study": "s",
            "checkpoint": "c",
            "task": "t",
            "seed": seed,
            "length": int(x),
            "n_key": int(x) + 1,
            "quantity": quantity,
            "unit": unit,
            "mean": value,
            "sem": sem,
            "n_obs": 10,
            **more,
        }
        for seed in seeds
        for x, value in zip(X, values, strict=True)
    )


def curve(values, kind, quantity="max_weight", unit="ratio", x=X, **more):
    """A curve over X."""
    values = np.asarray(values, dtype=np.float64)
    known = x[np.isfinite(values)]
    return Curve(
        name="a law",
        quantity=quantity,
        unit=unit,
        x=x,
        values=values,
        kind=kind,
        hypotheses=("it holds",),
        source="made up",
        domain=(float(known.min()), float(known.max())),
        **more,
    )


def test_exact_curve_reports_all_three_deviations():
    """Absolute, relative, and in standard errors; the worst place is named."""
    values = 1 / X
    shifted = values.copy()
    shifted[3] += 0.01
    finding = compare(measured(shifted, sem=0.004), curve(values, "exact"))
    assert finding.max_error == pytest.approx(0.01)
    assert finding.max_ratio_error == pytest.approx(0.08)
    assert finding.max_sem_error == pytest.approx(2.5)
    assert finding.worst_x == 8.0
    assert not finding.violated  # 2.5 of the 4 standard errors allowed
    assert math.isnan(finding.max_violation)
    rounding_only = Tolerance(1e-4, 0, 0, "")
    strict = compare(measured(shifted, sem=0.004), curve(values, "exact"), rounding_only)
    assert strict.violated
    assert strict.n_violations == 1
    assert "DEPARTS from 'a law'" in strict.sentence


def test_exact_curve_without_sampling_error_is_held_to_rounding():
    """With a standard error of 0 nothing but rounding is allowed, and no sem error is invented."""
    finding = compare(measured(1 / X + 1e-3), curve(1 / X, "exact"))
    assert finding.violated
    assert finding.n_violations == X.size
    assert math.isnan(finding.max_sem_error)
    assert not compare(measured(1 / X + 1e-6), curve(1 / X, "exact")).violated


@pytest.mark.parametrize(("kind", "sign"), [("lower_bound", 1.0), ("upper_bound", -1.0)])
def test_bounds_report_the_violation_unclipped(kind, sign):
    """Positive beyond the bound, negative inside it: the closest approach."""
    inside = compare(measured(0.5 + sign * 0.1 / X), curve(np.full(5, 0.5), kind))
    assert inside.max_violation == pytest.approx(-0.1 / 16)
    assert (inside.violated, inside.outcome, inside.worst_x) == (False, "holds", 16.0)
    assert "closest at length 16" in inside.sentence
    crossing = measured(0.5 - sign * np.array([-1, 0.2, 0.1, -1, -1]))
    beyond = compare(crossing, curve(np.full(5, 0.5), kind))
    assert beyond.max_violation == pytest.approx(0.2)
    assert (beyond.violated, beyond.n_violations, beyond.worst_x) == (True, 2, 2.0)
    assert "VIOLATES" in beyond.sentence
    assert "2 of 5 points" in beyond.sentence


def test_rounding_at_a_tight_bound_is_no_violation():
    """H = log n to float32 is within the tolerance, a hundredth of a nat is not; both are told."""
    bound = curve(np.log(X), "upper_bound", "entropy", "nats")
    rounding = compare(measured(np.log(X) + 4e-6, "entropy", "nats"), bound)
    assert rounding.max_violation == pytest.approx(4e-6)
    assert not rounding.violated
    assert compare(measured(np.log(X) + 0.01, "entropy", "nats"), bound).violated
    assert TOLERANCES["upper_bound"].source == rounding.tolerance_source


def test_a_violation_in_one_seed_is_not_averaged_away():
    """Each row is compared on its own."""
    good = measured(np.full(5, 0.4), seeds=(0, 1, 2))
    bad = measured([0.4, 0.4, 0.6, 0.4, 0.4], seeds=(3,))
    finding = compare(pd.concat([good, bad]), curve(np.full(5, 0.5), "upper_bound"))
    assert (finding.n_violations, finding.n_points, finding.n_seeds) == (1, 20, 4)


def test_limit_reports_ratio_and_both_exponents():
    """The ratio at the largest x; exponents with their intervals, side by side."""
    finding = compare(measured(1.5 * X**-0.9), curve(1 / X, "limit"))
    assert finding.final_x == 16.0
    assert finding.final_ratio == pytest.approx(1.5 * 16**0.1)
    assert finding.exponent.value == pytest.approx(-0.9)
    assert finding.predicted_exponent.value == pytest.approx(-1.0)
    assert not finding.violated
    assert "where theory has -1.00" in finding.sentence


def test_entropy_is_fitted_against_log_n():
    """The dispersion slope, not an exponent."""
    finding = compare(
        measured(0.8 * np.log(X), "entropy", "nats"), curve(np.log(X), "limit", "entropy", "nats")
    )
    assert finding.exponent.law == "logarithm"
    assert finding.exponent.value == pytest.approx(0.8)
    assert finding.predicted_exponent.value == pytest.approx(1.0)


def test_errors_get_no_exponent():
    """Total variation saturates at 1."""
    finding = compare(
        measured(np.linspace(0.1, 0.9, 5), "total_variation"),
        curve(np.linspace(0.1, 0.9, 5), "limit", "total_variation"),
    )
    assert finding.exponent.status == "undefined"
    assert "exponent" not in finding.sentence


def test_exponents_are_not_fitted_across_places():
    """A curve for any head is compared with every head, but no line is drawn through all."""
    frame = pd.concat([measured(1 / X, layer=0, head=head) for head in (0, 1)])
    finding = compare(frame, curve(1 / X, "exact"))
    assert (finding.n_points, finding.head, finding.layer) == (10, None, 0)
    assert "one place at a time" in finding.exponent.reason


def test_curve_over_keys_is_matched_by_n_key():
    """n_key, not length: here they differ by one."""
    finding = compare(measured(1 / (X + 1)), curve(1 / (X + 1), "exact", x=X + 1, x_name="n_key"))
    assert (finding.n_points, finding.max_error) == (5, 0.0)
    off = compare(measured(1 / X), curve(1 / X, "exact", x_name="n_key"))
    assert off.n_points == 1  # of 2, 3, 5, 9 and 17 keys one is on the grid 1, 2, 4, 8, 16
    assert off.max_error == pytest.approx(0.5)  # 1 at length 1, against 1/2 at 2 keys


def test_only_the_rows_the_curve_speaks_about():
    """Checkpoint, layer, head and seed narrow it down."""
    frame = pd.concat([measured(k / X, layer=0, head=k, seeds=(k,)) for k in (1, 2)])
    finding = compare(frame, curve(2 / X, "exact", layer=0, head=2, seed=2))
    assert (finding.max_error, finding.n_points, finding.place) == (
        0.0,
        5,
        "c, layer 0, head 2, seed 2",
    )


def test_points_outside_the_domain_or_undefined_are_not_compared():
    """NaN of the curve, rows that are not ok."""
    frame = measured(1 / X)
    frame.loc[4, ["mean", "sem", "status"]] = [math.nan, math.nan, "undefined"]
    finding = compare(frame, curve([math.nan, 0.5, 0.25, 0.125, 1 / 16], "exact"))
    assert (finding.n_points, finding.final_x, finding.max_error) == (3, 8.0, 0.0)


def test_nothing_to_compare_is_unknown_with_a_status():
    """Unavailable if not measured, undefined if nothing overlaps; never violated, never agreed."""
    gone = compare(measured(1 / X), curve(1 / X, "exact", quantity="sink_mass"))
    assert (gone.status, gone.outcome, gone.violated) == ("unavailable", "unknown", False)
    apart = compare(measured(1 / X), curve(1 / X, "exact", x=X + 100))
    assert (apart.status, apart.outcome, apart.n_points) == ("undefined", "unknown", 0)
    for finding in (gone, apart):
        assert math.isnan(finding.max_error)
        assert "could not be compared" in finding.sentence


def test_a_theory_of_zero_has_no_relative_error():
    """Absolute error still counts."""
    finding = compare(measured(np.full(5, 0.25)), curve(np.zeros(5), "fit"))
    assert finding.max_error == 0.25
    assert math.isnan(finding.max_ratio_error)
    assert math.isnan(finding.final_ratio)


def test_other_units_are_refused():
    """Nats against bits would be a silent factor."""
    with pytest.raises(ValueError, match="in 'bits' and the table's entropy in 'nats'"):
        compare(measured(X, "entropy", "nats"), curve(X, "exact", "entropy", "bits"))


def test_a_frame_that_is_no_table_is_refused():
    """By the table's own check."""
    with pytest.raises(ValueError, match="missing: study"):
        compare(measured(1 / X).drop(columns="study"), curve(1 / X, "exact"))


@pytest.mark.parametrize("numbers", [(-1.0, 0.0, 0.0), (0.0, math.nan, 0.0), (0.0, 0.0, math.inf)])
def test_tolerance_is_checked(numbers):
    """Negative or not finite is refused."""
    with pytest.raises(ValueError, match="finite numbers from 0 on"):
        Tolerance(absolute=numbers[0], relative=numbers[1], sems=numbers[2], source="test")


def test_findings_survive_json(study_result):
    """Every field comes back, NaN as NaN."""
    for finding in study_result.findings:
        again = Finding.from_dict(finding.to_dict())
        assert again.to_dict() == finding.to_dict()
        assert math.isnan(again.max_violation) == math.isnan(finding.max_violation)


def test_the_synthetic_study_recovers_its_own_laws(study_result):
    """The exponents of theory 1.1: -1 without a norm, -1/2 with one before the add."""
    by_place = {
        finding.checkpoint: finding
        for finding in study_result.findings
        if finding.quantity == "displacement"
    }
    assert by_place["none"].exponent.value == pytest.approx(-1.0, abs=0.02)
    assert by_place["res_post"].exponent.value == pytest.approx(-0.5, abs=0.02)
    assert -1 < by_place["post"].exponent.value < -0.5
    assert [finding.name for finding in study_result.violations] == ["a bound that is <too> tight"]
