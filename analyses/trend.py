"""What changes over the checkpoints of a training run: the results in OUT as one tidy table.

================  ==============================================================================
column            meaning
================  ==============================================================================
``checkpoint``    its folder in OUT
``order``         its place in the run, from 0
``step``          the step that its name says; missing if it says none
``place``         ``model``, ``layer 3``, ``encoder layer 3``
``quantity``      ``dispersion_slope``: mean over the heads; ``heads``: how many have a label;
                  ``verdict``: the number the model was judged by; or an error, as measured at the
                  longest length
``label``         of ``heads`` and ``verdict``: ``dispersing``, ``WARN``; else empty
``length``        the longest length measured
``unit``          as in the tidy table
``value``         the number; NaN where it is not known
``low, high``     smallest and largest over the heads; NaN for other quantities
``count``         how many heads it is about; 1 for other quantities
================  ==============================================================================
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..interp.tables import table
from ..models.facts import Facts
from .audit_ledger import AuditRecord, Ledger
from .figures.trend import plot_trend
from .findings import Verdict
from .fits import fit_slope
from .head_counts import count_heads
from .head_ladders import read_heads
from .head_records import stack_prefixes
from .provenance import provenance
from .report import render_report
from .result import StudyResult
from .rows import ERRORS, distinct, over, pick, plain, rows_where
from .storage import RESULT_FILE, write_whole
from .wording import format_number, plural, quantity_words

__all__ = [
    "SCORES",
    "TREND_COLUMNS",
    "TREND_FILE",
    "Trend",
    "TrendPoint",
    "collect_trend",
    "summarise_audit",
    "write_trend",
]

TREND_FILE = "trend.html"

TREND_COLUMNS = (
    "checkpoint", "order", "step", "place", "quantity", "label", "length", "unit", "value", "low",
    "high", "count",
)  # fmt: skip
"""Columns of the trend, in order."""

SCORES = (*ERRORS, "loss", "accuracy")
"""What says how wrong a model is, best first."""

_DISPERSING = ("dispersing", "disperses")


@dataclass(frozen=True, eq=False)
class TrendPoint:
    """One result, read.

    Args:
        changed: size and time of its `result.json`.
        rows: its rows of the trend, without checkpoint, order and step.
        verdicts: on the model.
        digests: of its checkpoint's weights.
    """

    changed: tuple[int, int]
    rows: tuple[dict[str, Any], ...]
    verdicts: tuple[Verdict, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Trend(Facts):
    """The results of a folder over the steps.

    Args:
        frame: the tidy table, by order (see the top of this module).
        records: of the checkpoints in it, by order.
        points: their results, likewise.
        missing: records of the checkpoints that have no result.
    """

    frame: pd.DataFrame
    records: tuple[AuditRecord, ...]
    points: tuple[TrendPoint, ...]
    missing: tuple[AuditRecord, ...]


def collect_trend(out: Path | str, cache: dict[str, TrendPoint] | None = None) -> Trend:
    """Read the results that `audit_many` left in OUT.

    Args:
        out: the folder.
        cache: what was read before, by name; filled here, so that only new results are read.

    Raises:
        ResultError: OUT has no readable ledger, or a result in it cannot be read.
    """
    read = {} if cache is None else cache
    records, points, missing, rows = [], [], [], []
    for record in Ledger(out).records:
        file = Path(out) / record.name / RESULT_FILE
        if record.status != "audited" or not file.exists():
            missing.append(record)
            continue
        stat = file.stat()
        changed = (stat.st_size, stat.st_mtime_ns)
        if record.name not in read or read[record.name].changed != changed:
            result = StudyResult.load(file.parent)
            read[record.name] = TrendPoint(
                changed,
                tuple(summarise_audit(result)),
                tuple(one for one in result.verdicts if one.level == "model"),
                tuple(result.provenance.checkpoints.values()),
            )
        point = read[record.name]
        named = {"checkpoint": record.name, "order": len(records), "step": record.step}
        rows += [{**named, **row} for row in point.rows]
        records.append(record)
        points.append(point)
    frame = pd.DataFrame(rows, columns=list(TREND_COLUMNS)).astype(
        {
            **dict.fromkeys(("order", "step", "length", "count"), "Int64"),
            **dict.fromkeys(("checkpoint", "place", "quantity", "label", "unit"), "string"),
            **dict.fromkeys(("value", "low", "high"), "float64"),
        }
    )
    return Trend(frame, tuple(records), tuple(points), tuple(missing))


def summarise_audit(result: StudyResult) -> list[dict[str, Any]]:
    """The rows of one audit: slopes and counts of heads by layer, verdict, errors.

    What an audit tried besides (remedies) is left out: its first checkpoint counts.
    """
    names = distinct(result.table, "checkpoint")
    own = result.table
    if names:
        own = rows_where(own, own["checkpoint"] == names[0])
    lengths = distinct(own, "length")
    longest = max(lengths, default=None)

    def row(place: str, quantity: str, unit: str, value: float, **more: Any) -> dict[str, Any]:
        return {
            **{"place": place, "quantity": quantity, "label": "", "length": longest},
            **{"unit": unit, "value": value, "low": math.nan, "high": math.nan, "count": 1},
            **more,
        }

    rows = []
    for place, slopes in _slopes(own).items():
        ends = {"low": min(slopes), "high": max(slopes), "count": len(slopes)}
        rows.append(row(place, "dispersion_slope", "nats", float(np.mean(slopes)), **ends))
    layers, _ = count_heads(result.verdicts)
    total = sum((layer.labels for layer in layers), Counter[str]())
    for place, labels in (("model", total), *((layer.layer, layer.labels) for layer in layers)):
        count = labels.total()
        rows += [
            row(place, "heads", "1", float(number), label=label, count=count)
            for label, number in labels.items()
        ]
    for verdict in result.verdicts:
        if verdict.level == "model":
            rows.append(row("model", "verdict", verdict.unit, verdict.value, label=verdict.verdict))
    for quantity in SCORES:
        measured = pick(own, quantity=quantity)
        if not measured.empty:
            values = over(measured, "length")
            unit = str(measured["unit"].iloc[0])
            found = {"length": int(values.index[-1])}
            rows.append(row("model", quantity, unit, float(values.iloc[-1]), **found))
    return rows


def write_trend(out: Path | str, cache: dict[str, TrendPoint] | None = None) -> Path | None:
    """Write OUT/trend.html, whole or not at all; None if OUT has no result yet.

    Args:
        out: the folder of the results.
        cache: as for `collect_trend`.
    """
    trend = collect_trend(out, cache)
    if not trend.records:
        return None
    page = Path(out) / TREND_FILE
    write_whole(page, render_report(_as_result(trend), {"trend": plot_trend(trend.frame)}))
    return page


def _slopes(own: pd.DataFrame) -> dict[str, list[float]]:
    """The dispersion slope of every head that has one, for the model and by layer."""
    heads = [head for head in read_heads(own) if "entropy" in head.ladders]
    stacks = {id(head): (head.checkpoint, head.task, _stack(head.site)) for head in heads}
    prefix = stack_prefixes(stacks.values())
    found: dict[str, list[float]] = {"model": []}
    for head in heads:
        entropy = head["entropy"]
        slope = fit_slope(entropy.n_key, entropy.mean)
        if slope.status == "ok":
            place = f"{prefix[stacks[id(head)]]}layer {head.layer}"
            found["model"].append(slope.value)
            found.setdefault(place, []).append(slope.value)
    return {place: slopes for place, slopes in found.items() if slopes}


def _stack(site: str) -> str:
    return ".".join(part for part in site.split(".") if not part.isdigit())


def _as_result(trend: Trend) -> StudyResult:
    """The trend as a result, for the report: a verdict a checkpoint, slopes as its table."""
    slopes = rows_where(trend.frame, trend.frame["quantity"] == "dispersion_slope")
    rows = [
        {
            "study": "trend",
            "checkpoint": one["checkpoint"],
            "length": one["length"],
            "site": one["place"],
            "quantity": "dispersion_slope",
            "unit": "nats",
            "mean": one["value"],
            "n_obs": one["count"],
            "min": one["low"],
            "max": one["high"],
        }
        for one in slopes.to_dict("records")
    ]
    verdicts = []
    for record, point in zip(trend.records, trend.points, strict=True):
        for verdict in point.verdicts:
            task = verdict.subject.partition(" on ")[2] if len(point.verdicts) > 1 else ""
            subject = f"{record.name} on {task}" if task else record.name
            verdicts.append(Verdict(**{**vars(verdict), "subject": subject}))
    names = [record.name for record in trend.records]
    asked = {"checkpoints": names, "settings": dict(trend.records[-1].settings)}
    return StudyResult(
        table=table(rows),
        curves=(),
        findings=(),
        verdicts=tuple(verdicts),
        provenance=provenance(
            asked,
            asked,
            checkpoints={
                name: point.digests[0]
                for name, point in zip(names, trend.points, strict=True)
                if point.digests
            },
        ),
        sentences=tuple(_sentences(trend)),
    )


def _sentences(trend: Trend) -> list[str]:
    first, last = _when(trend.records[0]), _when(trend.records[-1])
    span = f"{plural(len(trend.records), 'checkpoint')}"
    span += f", {first} to {last}" if len(trend.records) > 1 else f", {first}"
    said = []
    model = rows_where(trend.frame, trend.frame["place"] == "model")
    slopes = rows_where(model, model["quantity"] == "dispersion_slope")["value"].tolist()
    if slopes:
        change = " to ".join(format_number(value) for value in _ends(slopes))
        said.append(f"the mean dispersion slope of the heads is {change} nats per unit of log n")
    heads = rows_where(model, model["quantity"] == "heads")
    if not heads.empty:
        shares = [_dispersing(heads, record) for record in trend.records]
        said.append(f"{' to '.join(_ends(shares))} heads disperse")
    measured = distinct(model, "quantity")
    quantity = next((name for name in SCORES if name in measured), None)
    if quantity is not None:
        errors = rows_where(model, model["quantity"] == quantity)["value"].tolist()
        change = " to ".join(format_number(value) for value in _ends(errors))
        said.append(f"the {quantity_words(quantity)} at the longest length is {change}")
    sentences = [f"{span}: {'; '.join(said) or 'nothing that has a trend was measured'}."]
    sentences += [
        f"{_when(record)} has no result ({record.status}): {record.sentence}"
        for record in trend.missing
    ]
    return sentences


def _dispersing(heads: pd.DataFrame, record: AuditRecord) -> str:
    own = rows_where(heads, heads["checkpoint"] == record.name)
    dispersing = rows_where(own, own["label"].isin(_DISPERSING))["value"].sum()
    return f"{dispersing:g} of {own['value'].sum():g}"


def _ends(values: Sequence[Any]) -> list[Any]:
    """The first and the last; one where they are the same."""
    return [values[0]] if len(values) == 1 or values[0] == values[-1] else [values[0], values[-1]]


def _when(record: AuditRecord) -> str:
    step = plain(record.step)
    return record.name if step is None else f"{record.name} (step {step})"
