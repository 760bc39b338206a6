"""Theory beside measurement: one curve, the rows it speaks about, one finding.

The only module that sees both the table of measurements and the curves of theory. What is computed
depends on what the curve claims:

| kind | claim | what a finding says of it |
| --- | --- | --- |
| `exact` | measured = theory | largest deviation: absolute, relative, in standard errors |
| `lower_bound`, `upper_bound` | measured on one side | the largest violation, never clipped |
| `limit`, `conjecture` | measured / theory -> 1 | the ratio at the largest x, both exponents |
| `fit` | a description | largest deviation and both exponents |
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ..interp.tables import check_table
from ..interp.theory.curve import Curve
from ..models.facts import Facts
from .findings import Exponent, Finding
from .fits import fit_exponent, fit_slope
from .rows import ERRORS, distinct, plain, rows_where
from .seeds import SEED_COLUMNS, summarise_seeds
from .wording import format_number, format_place, plural, quantity_words

__all__ = [
    "SEED_COLUMNS",
    "TOLERANCES",
    "Tolerance",
    "compare",
    "fit_exponent",
    "fit_slope",
    "summarise_seeds",
]


@dataclass(frozen=True)
class Tolerance(Facts):
    """How far a measurement may lie from a theorem before that is a violation.

    Allowed: `absolute + relative * |theory| + sems * sem`, sem = the row's standard error.

    Args:
        absolute: in the quantity's unit, not negative.
        relative: not negative.
        sems: how many standard errors, not negative.
        source: where the numbers come from.

    Raises:
        ValueError: a number that is negative or not finite.
    """

    absolute: float
    relative: float
    sems: float
    source: str

    def __post_init__(self) -> None:
        """Check the numbers."""
        numbers = (self.absolute, self.relative, self.sems)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError(f"a tolerance needs finite numbers from 0 on, got {numbers}")


_ROUNDING = Tolerance(
    1e-5, 1e-5, 0.0, "rounding of a row statistic in float32 (4e-6 nats at 8192 keys)"
)
_SAMPLING = Tolerance(
    1e-5, 1e-4, 4.0, "rounding of a float32 forward pass, and 4 standard errors of a sample"
)

TOLERANCES: Mapping[str, Tolerance] = MappingProxyType(
    {"exact": _SAMPLING, "lower_bound": _ROUNDING, "upper_bound": _ROUNDING}
)
"""The tolerance of each kind of curve that can be violated; the other kinds claim no more than a
tendency and have none. Pass a `Tolerance` to `compare` for another."""

LOGARITHMIC = frozenset({"entropy"})
"""Quantities that grow as log x: their exponent is dH / d log x."""

LAWLESS = frozenset(ERRORS)
"""Quantities that follow neither law (an error saturates): no exponent is fitted to them."""


def compare(frame: pd.DataFrame, curve: Curve, tolerance: Tolerance | None = None) -> Finding:
    """Set a curve beside the rows of the table that it speaks about.

    Each row is compared on its own at its x: the deviation is mean - theory, in the row's unit.
    Rows that are undefined, and points outside the curve's domain, are not compared. The exponents
    are fitted to the mean over seeds at each x, weighted by its standard error (over seeds where
    there are several, else the row's), the predicted one to the curve at the same x with the same
    weights; `entropy` is fitted against log x, everything else log against log.

    Args:
        frame: a tidy table (see `interp.tables`).
        curve: what theory says.
        tolerance: None = `TOLERANCES` by the curve's kind.

    Returns:
        The finding; with status `unavailable` if the table has no such rows, `undefined` if none
        of them can be compared.

    Raises:
        ValueError: the frame is no tidy table, or its rows have another unit than the curve.
    """
    check_table(frame)
    if tolerance is None:
        tolerance = TOLERANCES.get(curve.kind, Tolerance(0.0, 0.0, 0.0, ""))
    rows = rows_where(frame, curve.matches(frame))
    units = distinct(rows, "unit")
    if len(units) > 1 or (units and units[0] != curve.unit):
        raise ValueError(
            f"the curve {curve.name!r} is in {curve.unit!r} and the table's {curve.quantity} "
            f"in {', '.join(map(repr, units))}: give both in one unit"
        )
    if rows.empty:
        return _nothing(curve, tolerance, "unavailable", "is not in the table")
    points = _points(rows, curve)
    if points.empty:
        return _nothing(curve, tolerance, "undefined", "is undefined wherever theory speaks of it")
    return _finding(points, curve, tolerance)


def _points(rows: pd.DataFrame, curve: Curve) -> pd.DataFrame:
    """The comparable rows, in the order of x, with the columns `x` and `theory` added."""
    theory = dict(zip(curve.x.tolist(), curve.values.tolist(), strict=True))
    points = rows_where(rows, rows["status"] == "ok")
    points["x"] = points[curve.x_name].astype("float64")
    points["theory"] = [theory.get(x, math.nan) for x in points["x"].tolist()]
    known = points["theory"].notna() & points["mean"].notna()
    return rows_where(points, known).sort_values(by="x", kind="stable")


def _finding(points: pd.DataFrame, curve: Curve, tolerance: Tolerance) -> Finding:
    x, measured, theory, sem = (
        points[name].to_numpy(dtype=np.float64) for name in ("x", "mean", "theory", "sem")
    )
    known_sem = np.where(np.isfinite(sem), sem, 0.0)
    allowed = tolerance.absolute + tolerance.relative * np.abs(theory) + tolerance.sems * known_sem
    deviation = measured - theory
    excess = {"lower_bound": -deviation, "upper_bound": deviation}.get(
        curve.kind, np.abs(deviation)
    )
    can_violate = curve.kind in ("exact", "lower_bound", "upper_bound")
    violations = (excess > allowed) if can_violate else np.zeros(excess.shape, dtype=bool)
    nonzero, uncertain, last = theory != 0, known_sem > 0, x == x.max()
    measured_fit, predicted_fit = _exponents(points, curve)
    places = {
        name: getattr(curve, name) if getattr(curve, name) is not None else _only(points, name)
        for name in ("checkpoint", "layer", "head", "seed")
    }
    values: dict[str, Any] = {
        **_identity(curve, tolerance),
        **places,
        "max_error": float(np.max(np.abs(deviation))),
        "max_ratio_error": _max(np.abs(deviation[nonzero] / theory[nonzero])),
        "max_sem_error": _max(np.abs(deviation[uncertain]) / known_sem[uncertain]),
        "max_violation": float(np.max(excess)) if curve.kind.endswith("_bound") else math.nan,
        "violated": bool(violations.any()),
        "n_violations": int(violations.sum()),
        "worst_x": float(x[np.argmax(excess)]),
        "final_x": float(x.max()),
        "final_ratio": _mean(measured[last & nonzero] / theory[last & nonzero]),
        "exponent": measured_fit,
        "predicted_exponent": predicted_fit,
        "n_points": len(points),
        "n_x": int(np.unique(x).size),
        "n_seeds": len({plain(seed) for seed in points["seed"].tolist()}),
        "status": "ok",
    }
    return Finding(**values, sentence=_sentence(Finding(**values, sentence="")))


def _identity(curve: Curve, tolerance: Tolerance) -> dict[str, Any]:
    return {
        "name": curve.name,
        "quantity": curve.quantity,
        "unit": curve.unit,
        "checkpoint": curve.checkpoint,
        "seed": curve.seed,
        "layer": curve.layer,
        "head": curve.head,
        "site": curve.site,
        "kind": curve.kind,
        "x_name": curve.x_name,
        "tolerance_absolute": tolerance.absolute,
        "tolerance_relative": tolerance.relative,
        "tolerance_sems": tolerance.sems,
        "tolerance_source": tolerance.source,
    }


def _nothing(curve: Curve, tolerance: Tolerance, status: str, why: str) -> Finding:
    """The finding that there is nothing to compare."""
    place = format_place(curve.checkpoint, curve.layer, curve.head, curve.site, curve.seed)
    sentence = (
        f"{place + ': ' if place else ''}{quantity_words(curve.quantity)} {why}, so "
        f"{curve.name} could not be compared."
    )
    unknown = Exponent(math.nan, math.nan, math.nan, 0, _law(curve), False, "undefined", why)
    return Finding(
        **_identity(curve, tolerance),
        max_error=math.nan,
        max_ratio_error=math.nan,
        max_sem_error=math.nan,
        max_violation=math.nan,
        violated=False,
        n_violations=0,
        worst_x=math.nan,
        final_x=math.nan,
        final_ratio=math.nan,
        exponent=unknown,
        predicted_exponent=unknown,
        n_points=0,
        n_x=0,
        n_seeds=0,
        status=status,
        sentence=sentence,
    )


def _law(curve: Curve) -> str:
    return "logarithm" if curve.quantity in LOGARITHMIC else "power"


def _exponents(points: pd.DataFrame, curve: Curve) -> tuple[Exponent, Exponent]:
    """Both exponents, from the same x with the same weights."""
    law = _law(curve)
    place = ["study", "checkpoint", "task", "layer", "head", "site"]
    why = ""
    if curve.quantity in LAWLESS:
        why = f"{quantity_words(curve.quantity)} follows no power law"
    elif len(points[place].drop_duplicates()) > 1:
        why = "the rows come from several places: compare one place at a time"
    if why:
        unknown = Exponent(math.nan, math.nan, math.nan, 0, law, False, "undefined", why)
        return unknown, unknown
    x = np.unique(points["x"].to_numpy(dtype=np.float64))
    groups = [rows_where(points, points["x"] == value) for value in x.tolist()]
    means = [group["mean"].to_numpy(dtype=np.float64) for group in groups]
    mean = np.array([values.mean() for values in means])
    theory = np.array([group["theory"].to_numpy(dtype=np.float64).mean() for group in groups])
    sem = np.array(
        [
            values.std(ddof=1) / math.sqrt(values.size) if values.size > 1 else group["sem"].iloc[0]
            for values, group in zip(means, groups, strict=True)
        ]
    )
    if law == "logarithm":
        return fit_slope(x, mean, sem), fit_slope(x, theory, sem)
    measured = fit_exponent(x, mean, sem)
    # The weight of a point is set by its measured relative error, also for the curve.
    relative = sem / np.where(mean > 0, mean, math.nan)
    return measured, fit_exponent(x, theory, np.abs(theory) * relative)


def _only(points: pd.DataFrame, column: str) -> Any:
    """The one value of a column; None if it has several or is missing."""
    values = {plain(value) for value in points[column].tolist()}
    return values.pop() if len(values) == 1 else None


def _max(values: np.ndarray) -> float:
    return float(np.max(values)) if values.size else math.nan


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if values.size else math.nan


def _sentence(finding: Finding) -> str:
    """The finding in one English sentence."""
    subject = f"{finding.place}: {quantity_words(finding.quantity)}"
    where = plural(finding.n_x, "length" if finding.x_name == "length" else "key count")
    if finding.n_seeds > 1:
        where += f" and {finding.n_seeds} seeds"
    if finding.kind in ("lower_bound", "upper_bound"):
        side = "lower" if finding.kind == "lower_bound" else "upper"
        amount = format_number(abs(finding.max_violation), finding.unit)
        at = _at(finding.worst_x, finding.x_name)
        if finding.violated:
            return (
                f"{subject} VIOLATES the {side} bound {finding.name!r} at {finding.n_violations} "
                f"of {plural(finding.n_points, 'point')}, by up to {amount} ({at})."
            )
        return (
            f"{subject} respects the {side} bound {finding.name!r} at {where}; "
            f"closest {at}, {amount} apart."
        )
    if finding.kind in ("exact", "fit"):
        errors = [format_number(finding.max_error, finding.unit)]
        if math.isfinite(finding.max_ratio_error):
            errors.append(f"{format_number(100 * finding.max_ratio_error)} %")
        if math.isfinite(finding.max_sem_error):
            errors.append(f"{format_number(finding.max_sem_error)} standard errors")
        verb = "DEPARTS from" if finding.violated else "follows"
        return f"{subject} {verb} {finding.name!r} at {where}, at most {' or '.join(errors)} apart."
    sentence = (
        f"{subject} is {format_number(finding.final_ratio)} times the {finding.kind} "
        f"{finding.name!r} {_at(finding.final_x, finding.x_name)}"
    )
    if finding.exponent.status == "ok" and finding.predicted_exponent.status == "ok":
        what = "slope" if finding.exponent.law == "logarithm" else "exponent"
        predicted = finding.predicted_exponent.value
        sentence += f"; {what} {finding.exponent} where theory has {predicted + 0.0:.2f}"
    return sentence + "."


def _at(x: float, x_name: str) -> str:
    return f"at length {x:g}" if x_name == "length" else f"at {x:g} visible keys"
