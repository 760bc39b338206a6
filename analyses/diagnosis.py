"""What a diagnosis of one head says: the law of its scores, what would sharpen it, the evidence."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from ..interp.theory import Curve
from .crossings import Crossing
from .growth_laws import WORDS, Growth
from .markup import html_table
from .recommendations import Recommendation
from .result import StudyResult
from .rows import over, pick
from .score_laws import ScoreLaw
from .wording import format_number, format_place

__all__ = ["Diagnosis", "describe", "render_diagnosis"]

COLUMNS = {
    "score_deviation": "deviation",
    "score_spread": "spread",
    "entropy": "entropy",
    "max_weight": "max weight",
    "log_accumulation_scale": "accumulation scale",
    "log_sharpening_inverse_temperature": "inverse temperature to sharpen",
    "reachable": "rows a temperature can sharpen",
}
"""Quantities that the small table shows, with their titles."""

WIDTH = 100
"""Columns of the terminal summary at most."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """One head of one model: the law of its scores, and what would sharpen it.

    Attributes:
        checkpoint: Name of the model.
        probe: Name of what it was fed.
        layer: Which layer.
        head: Which head.
        law: The law of its scores (`bounded`, `gaussian`, `growing`, `undecided`), with evidence.
        growth: How the inverse temperature that sharpens it grows with n.
        crossing: From how many keys on it has dispersed: its largest weight is below the threshold.
        predicted_n_key: The most keys at which theory lets it hold half of its weight on one key:
            by its spread (bounded) or its deviation (gaussian); NaN otherwise.
        recommendation: Which remedy theory recommends.
        notes: What a reader should know, one sentence each.
        result: Table, curves, findings, verdict and provenance.
    """

    checkpoint: str
    probe: str
    layer: int
    head: int
    law: ScoreLaw
    growth: Growth
    crossing: Crossing
    predicted_n_key: float
    recommendation: Recommendation
    notes: tuple[str, ...]
    result: StudyResult

    @property
    def table(self) -> pd.DataFrame:
        """The tidy table (:mod:`resharpen.interp.tables`) of its score statistics."""
        return self.result.table

    @property
    def curves(self) -> tuple[Curve, ...]:
        """What theory says of them."""
        return self.result.curves

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return self.result.sentences[0]

    def rows(self) -> list[dict[str, str]]:
        """The small table, all text: one row a number of keys; geometric means of the two scales.

        At most 9 rows, evenly spaced; the longest is always there.
        """
        found = {
            name: {float(key): value for key, value in over(rows, "n_key").items()}  # type: ignore[arg-type]
            for name in COLUMNS
            if not (rows := pick(self.table, quantity=name)).empty
        }
        keys = sorted({key for values in found.values() for key in values})
        step = max(1, math.ceil(len(keys) / 9))
        shown = keys[::-1][::step][::-1]
        rows = []
        for key in shown:
            row = {"keys": f"{key:.0f}"}
            for name, title in COLUMNS.items():
                value = found.get(name, {}).get(key, math.nan)
                value = math.exp(value) if name.startswith("log_") else value
                row[title] = "–" if math.isnan(value) else format_number(value)
            rows.append(row)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Law, growth, crossing and recommendation in JSON's own types."""
        return {
            "checkpoint": self.checkpoint,
            "probe": self.probe,
            "layer": self.layer,
            "head": self.head,
            "law": self.law.to_dict(),
            "growth": self.growth.to_dict(),
            "crossing": self.crossing.to_dict(),
            "predicted_n_key": None if math.isnan(self.predicted_n_key) else self.predicted_n_key,
            "recommendation": self.recommendation.to_dict(),
            "notes": list(self.notes),
            "sentence": self.sentence,
        }

    def __repr__(self) -> str:
        """Where, the law, the remedy, the numbers of keys."""
        place = format_place(self.checkpoint, self.layer, self.head)
        return (
            f"Diagnosis({place} on {self.probe}: {self.law.law}, remedy "
            f"{self.recommendation.kind}, {self.law.n_key_first:.0f} to "
            f"{self.law.n_key_last:.0f} keys)"
        )

    def _repr_html_(self) -> str:
        """Sentences, evidence, growth and the small table for a notebook."""
        best = min((fit.criterion for fit in self.growth.fits), default=0.0)
        parts = [
            *(f"<p>{escape(text)}</p>" for text in (self.sentence, *self.notes)),
            html_table([item.row() for item in self.law.evidence]),
            html_table([fit.row(best) for fit in self.growth.fits]),
            html_table(self.rows()),
        ]
        return "".join(parts)


def describe(
    place: str,
    law: ScoreLaw,
    growth: Growth,
    crossing: Crossing,
    predicted_n_key: float,
    recommendation: Recommendation,
) -> str:
    """The verdict in one sentence."""
    keys = f"from {law.n_key_first:.0f} to {law.n_key_last:.0f} keys"
    what = {
        "bounded": f"the scores are bounded {keys}",
        "gaussian": f"the scores are Gaussian of fixed deviation "
        f"{format_number(law.deviation)} {keys}",
        "growing": f"the scores grow with n {keys}",
        "undecided": f"no law of the scores is certain {keys}",
    }[law.law]
    parts = [f"{place}: {what} ({law.reason})", crossing.sentence]
    if not math.isnan(predicted_n_key):
        size = format_number(predicted_n_key)
        parts.append(
            f"its spread lets no key hold half past {size} keys"
            if law.law == "bounded"
            else f"by theory its strongest key holds half up to about {size} keys"
        )
    if math.isfinite(growth.first) and recommendation.kind != "norm":
        how = WORDS.get(growth.law, f"grows, how is undecided ({growth.reason})")
        if growth.law == "power":
            how = f"{'falls' if growth.falls else 'grows'} as n^{growth.fits[-1].power:.2f}"
        parts.append(
            f"the inverse temperature at which its strongest key would hold half is "
            f"{format_number(growth.first)} at {growth.n_key_first:.0f} and "
            f"{format_number(growth.last)} at {growth.n_key_last:.0f} keys and {how}"
        )
    parts.append(f"remedy: {recommendation.kind} ({recommendation.reason})")
    return "; ".join(parts) + "."


def render_diagnosis(diagnosis: Diagnosis) -> str:
    """The diagnosis for a terminal, at most 100 columns: sentences, evidence, the small table."""
    sentences = [
        textwrap.fill(text, WIDTH, initial_indent="* ", subsequent_indent="  ")
        for text in (diagnosis.sentence, *diagnosis.notes)
    ]
    told = ("evidence", "measured", "speaks for")
    evidence = [{name: item.row()[name] for name in told} for item in diagnosis.law.evidence]
    blocks = ["\n".join(sentences), _aligned(evidence), _aligned(diagnosis.rows())]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _aligned(rows: Sequence[dict[str, str]]) -> str:
    """Rows as columns of text; a title that is longer than its column is broken at spaces."""
    if not rows:
        return ""
    columns = []
    for title in rows[0]:
        cells = [row[title] for row in rows]
        width = max(map(len, [*cells, *title.split()]))
        columns.append((textwrap.wrap(title, width), cells, width))
    height = max(len(head) for head, _, _ in columns)
    lines = []
    for index in range(height + len(rows)):
        parts = []
        for head, cells, width in columns:
            padded = [""] * (height - len(head)) + head + cells
            parts.append(padded[index].ljust(width))
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
