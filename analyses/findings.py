"""What a study concludes, as records: a fitted exponent, a finding, a verdict.

A finding sets one theory curve beside what was measured; a verdict judges a head, a layer or a
model by a threshold. Both are data: who computes them (`compare`, `audit`) does not word the
report, and who words the report does not compute.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

from .markup import html_table
from .record import Record
from .wording import (
    format_interval,
    format_number,
    format_place,
    plural,
    quantity_words,
)

__all__ = ["SEVERITY", "VERDICTS", "Exponent", "Finding", "Verdict", "worst"]

VERDICTS = ("PASS", "WARN", "FAIL", "UNKNOWN")
"""The four verdicts, from good to bad, then undecided."""

SEVERITY: Mapping[str, int] = {"PASS": 0, "UNKNOWN": 1, "WARN": 2, "FAIL": 3}
"""The rank of each by what it calls for: an undecided one asks for more measurements, no more."""


def worst(verdicts: Iterable[str]) -> str:
    """The most severe of some verdicts; empty if there is none."""
    return max(verdicts, key=SEVERITY.__getitem__, default="")


@dataclass(frozen=True)
class Exponent(Record):
    """The slope of a fitted line with its 95 % t-interval.

    Args:
        value: the slope (1); NaN when it could not be fitted.
        low: lower end of the interval (1); NaN when unknown.
        high: upper end of the interval (1); NaN when unknown.
        n_points: how many points the line was fitted to.
        law: `power` for log y against log x, `logarithm` for y against log x.
        weighted: the points were weighted by their standard errors.
        status: `ok` or `undefined`.
        reason: why it is undefined, in a few words; empty when ok.
    """

    value: float
    low: float
    high: float
    n_points: int
    law: str = "power"
    weighted: bool = False
    status: str = "ok"
    reason: str = ""

    def __str__(self) -> str:
        """`-0.98 [-1.01, -0.95]`, or `unknown (why)`."""
        if self.status != "ok":
            return f"unknown ({self.reason})"
        return format_interval(self.value, self.low, self.high)

    def contains(self, value: float) -> bool:
        """Whether the interval holds this value; False when the interval is unknown."""
        return self.low <= value <= self.high


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """One theory curve beside the measurement it speaks about.

    Args:
        name: the curve's name.
        quantity: the measured quantity, as the table spells it.
        unit: its unit.
        checkpoint, layer, head, site, seed: where; None = the curve speaks about all of them.
        kind: the curve's kind (`exact`, `lower_bound`, `upper_bound`, `limit`, `conjecture`,
            `fit`).
        max_error: largest |measured - theory|, in `unit`.
        max_ratio_error: largest |measured / theory - 1| where theory is not 0.
        max_sem_error: largest |measured - theory| in standard errors of the measurement; NaN
            where none is known or all are 0.
        max_violation: for a bound, the largest amount by which the measurement lies on its wrong
            side, in `unit`; **negative** is the closest approach of a bound that holds. NaN for
            other kinds.
        tolerance_absolute: allowed deviation, in `unit`, plus
        tolerance_relative: times |theory|, plus
        tolerance_sems: times the standard error.
        tolerance_source: where these come from.
        violated: a bound is crossed, or an exact curve missed, by more than the tolerance.
        n_violations: at how many of the `n_points`.
        worst_x: where the largest violation (bounds) or deviation (else) lies, in `x_name`.
        x_name: `length` or `n_key`.
        final_x: the largest x compared.
        final_ratio: measured / theory there (mean over the rows).
        exponent: fitted to the measurement.
        predicted_exponent: fitted to the curve, at the same x with the same weights.
        n_points: rows of the table that were compared.
        n_x: distinct x among them.
        n_seeds: independent runs among them.
        status: `ok`; `unavailable`, nothing measured; `undefined`, nothing comparable.
        sentence: the finding in one sentence.
    """

    name: str
    quantity: str
    unit: str
    checkpoint: str | None
    seed: int | None
    layer: int | None
    head: int | None
    site: str | None
    kind: str
    max_error: float
    max_ratio_error: float
    max_sem_error: float
    max_violation: float
    tolerance_absolute: float
    tolerance_relative: float
    tolerance_sems: float
    tolerance_source: str
    violated: bool
    n_violations: int
    worst_x: float
    x_name: str
    final_x: float
    final_ratio: float
    exponent: Exponent
    predicted_exponent: Exponent
    n_points: int
    n_x: int
    n_seeds: int
    status: str
    sentence: str

    @property
    def place(self) -> str:
        """Where, in words: `post, layer 0, head 1`; `every checkpoint` if nowhere in particular."""
        return self._place() or "every checkpoint"

    def _place(self, short: bool = False) -> str:
        places = (self.checkpoint, self.layer, self.head, self.site, self.seed)
        return format_place(*places, short=short)

    @property
    def outcome(self) -> str:
        """`violated`, `agrees` (exact), `holds` (bound), `compared` (the rest), or `unknown`."""
        if self.status != "ok":
            return "unknown"
        if self.violated:
            return "violated"
        if self.kind == "exact":
            return "agrees"
        return "holds" if self.kind in ("lower_bound", "upper_bound") else "compared"

    def row(self) -> dict[str, str]:
        """The finding as the cells of a table, all text."""
        deviation = "unknown"
        if self.status == "ok":
            if self.kind in ("lower_bound", "upper_bound"):
                side = "beyond" if self.max_violation > 0 else "inside"
                deviation = f"{format_number(abs(self.max_violation), self.unit)} {side}"
            elif self.kind in ("limit", "conjecture"):
                deviation = f"ratio {format_number(self.final_ratio)} at {self.final_x:g}"
            else:
                deviation = f"{format_number(self.max_error, self.unit)} apart"
        return {
            "outcome": self.outcome,
            "where": self._place(short=True) or "any",
            "quantity": quantity_words(self.quantity),
            "theory": self.name,
            "kind": self.kind.replace("_", " "),
            "deviation": deviation,
            "exponent": "" if self.exponent.status != "ok" else str(self.exponent),
            "by theory": (
                ""
                if self.predicted_exponent.status != "ok"
                else f"{round(self.predicted_exponent.value, 2) + 0.0:.2f}"
            ),
        }

    def __repr__(self) -> str:
        """The outcome, where, what was compared, and at how many points."""
        row = self.row()
        return (
            f"Finding({self.outcome}: {self.name} on {row['quantity']} of {self.place}, "
            f"{row['deviation']}, {plural(self.n_points, 'point')})"
        )

    def _repr_html_(self) -> str:
        """The finding as a table of one row, and its sentence."""
        return f"{html_table([self.row()], badge='outcome')}<p>{escape(self.sentence)}</p>"


@dataclass(frozen=True)
class Verdict(Record):
    """A judgement with the threshold it was judged by.

    Args:
        subject: what is judged: `L0 H1`, `layer 0`, a checkpoint's name.
        level: `head`, `layer` or `model`.
        label: what it does: `disperses`, `holds`, `sharpens`, ...
        verdict: PASS, WARN, FAIL or UNKNOWN.
        value: the number that was judged; NaN when unknown.
        threshold: the number it was judged by; NaN when there is none.
        length_measured: the length at which the measurement crosses its threshold; NaN when it
            does not, or is not known.
        length_predicted: the same by theory.
        reason: why, in one sentence.
        unit: unit of value and threshold.
        threshold_source: where the threshold comes from.

    Raises:
        ValueError: an unknown verdict, or no reason.
    """

    subject: str
    level: str
    label: str
    verdict: str
    value: float
    threshold: float
    length_measured: float
    length_predicted: float
    reason: str
    unit: str = "1"
    threshold_source: str = ""

    def __post_init__(self) -> None:
        """Check the verdict and that it has a reason."""
        if self.verdict not in VERDICTS:
            raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}, got {self.verdict!r}")
        if not self.reason.strip():
            raise ValueError(f"the verdict on {self.subject!r} needs a reason in one sentence")
        if self.verdict == "PASS" and math.isnan(self.value):
            raise ValueError(
                f"the verdict on {self.subject!r} is PASS with an unknown value: say UNKNOWN"
            )

    def row(self) -> dict[str, str]:
        """The verdict as the cells of a table, all text; an unknown length is a dash."""
        return {
            "verdict": self.verdict,
            "subject": self.subject,
            "label": self.label,
            "value": format_number(self.value, self.unit),
            "threshold": _or_dash(self.threshold, self.unit),
            "length measured": _or_dash(self.length_measured),
            "by theory": _or_dash(self.length_predicted),
            "reason": self.reason,
        }

    def __repr__(self) -> str:
        """The verdict, on what, the value and its threshold."""
        value, threshold = (format_number(n, self.unit) for n in (self.value, self.threshold))
        return (
            f"Verdict({self.verdict} on {self.subject}: {self.label}, {value} by a threshold of "
            f"{threshold})"
        )

    def _repr_html_(self) -> str:
        """The verdict as a table of one row."""
        return html_table([self.row()], badge="verdict")


def _or_dash(value: float, unit: str = "") -> str:
    return "–" if math.isnan(value) else format_number(value, unit)
