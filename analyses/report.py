"""A result in words: one self-contained HTML page, or a summary for the terminal.

Both say the same, in the same order: the sentences that matter, the verdicts, the findings with
violations first and none left out. They compute nothing.
"""

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .figures import figure_height, figure_json, figure_meta, plotly_script
from .figures.head_map import NEUTRAL
from .figures.theme import GRID, INK
from .findings import Finding, Verdict
from .head_counts import count_heads, has_many_heads
from .result import StudyResult
from .rows import ERRORS, distinct, rows_where
from .seeds import summarise_seeds
from .wording import plural, quantity_words

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["render_report", "render_text"]

WIDTH = 100
"""Columns of the terminal summary at most."""

_TEXT_FINDINGS = 12
_TEXT_LENGTHS = 5


def render_report(
    result: StudyResult,
    figures: Mapping[str, "Figure"] | None = None,
    lists: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The report as one HTML page that needs nothing else, not even a network.

    plotly.js stands in it once (4.6 MiB), only if there are figures. Text that came from outside is
    escaped. More than 16 heads are counted by layer, their verdicts folded away. The page and its
    figures follow the reader's light or dark scheme, also when it
    changes, and print in the light one.

    Args:
        result: what to report.
        figures: name to figure, in the order to show; heading and caption come from the figure
            (`layout.meta`), else the name is the heading. A head map (see `plot_head_map`) stands
            in a section of its own, where pointing at a head, or choosing it, shows its curves; so
            do figures of a section (`layout.meta["section"]`), after the sentences that they bring.
        lists: heading to sentences, shown after the figures; empty ones are left out.
    """
    environment = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    findings = list(result.findings)
    violated = [finding for finding in findings if finding.violated]
    others = [finding for finding in findings if not finding.violated]
    studies = ", ".join(distinct(result.table, "study")) or "study"
    drawn = [_figure(name, figure) for name, figure in (figures or {}).items()]
    shown, folded = _fold(result.verdicts)
    provenance = result.provenance
    return template.render(
        title=f"resharpen: {quantity_words(studies)}",
        holds=_holds(result),
        sentences=result.sentences,
        verdicts=[verdict.row() for verdict in shown],
        head_verdicts=[verdict.row() for verdict in folded if verdict.level == "head"],
        layers=_layer_rows(result.verdicts),
        thresholds=_distinct(verdict.threshold_source for verdict in result.verdicts),
        figures=[figure for figure in drawn if not (figure["chooses"] or figure["section"])],
        sections=_sections(drawn),
        head_maps=[figure for figure in drawn if figure["chooses"]],
        lists={heading: list(items) for heading, items in (lists or {}).items() if items},
        findings=findings,
        violations=len(violated),
        violated_rows=[finding.row() for finding in violated],
        violated_sentences=[finding.sentence for finding in violated],
        other_rows=[finding.row() for finding in others],
        other_sentences=[finding.sentence for finding in others],
        tolerances=_distinct(finding.tolerance_source for finding in findings),
        provenance=provenance,
        asked=json.dumps(provenance.asked, indent=1, ensure_ascii=False),
        resolved=json.dumps(provenance.resolved, indent=1, ensure_ascii=False),
        plotly=Markup(plotly_script()) if drawn else "",
        ink=INK,
        grid=GRID,
        neutral=NEUTRAL,
    )


def render_text(result: StudyResult) -> str:
    """The result for a terminal: plain text, aligned, at most 100 columns wide.

    The sentences that matter, the error of each checkpoint at a few lengths, the verdicts (more
    than 16 heads counted by layer), and the findings: every violation, and the first dozen of the
    rest.
    """
    blocks = []
    if not result.provenance.completed:
        blocks.append("NOT COMPLETED: the run was interrupted, this is what was finished.")
    blocks.append("\n".join(_wrap(sentence, "* ") for sentence in result.sentences))
    blocks.append(_error_text(result))
    blocks.append(_verdicts_text(result.verdicts))
    blocks.append(_findings_text(result.findings))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _figure(name: str, figure: "Figure") -> dict[str, Any]:
    meta = figure_meta(figure)
    return {
        "title": meta.get("title", name),
        "caption": meta.get("caption", ""),
        "chooses": meta.get("chooses", ""),
        "section": meta.get("section", ""),
        "notes": meta.get("notes", []),
        "height": figure_height(figure),
        "json": Markup(figure_json(figure)),
    }


def _sections(figures: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The figures that stand under a heading of their own, by heading."""
    found: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        if figure["section"]:
            found.setdefault(figure["section"], []).append(figure)
    return found


def _fold(verdicts: Sequence[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
    """The verdicts to show, and those that a table of layers stands for: many heads, and layers."""
    if not has_many_heads(verdicts):
        return list(verdicts), []
    shown = [verdict for verdict in verdicts if verdict.level not in ("head", "layer")]
    return shown, [verdict for verdict in verdicts if verdict.level in ("head", "layer")]


def _layer_rows(verdicts: Sequence[Verdict]) -> list[dict[str, str]]:
    """The heads counted by layer; nothing where they are few enough to be told one by one."""
    if not has_many_heads(verdicts):
        return []
    layers, labels = count_heads(verdicts)
    return [layer.row(labels) for layer in layers]


def _holds(result: StudyResult) -> str:
    """What was measured, in one line."""
    table = result.table
    parts = [plural(len(distinct(table, "checkpoint")), "checkpoint")]
    seeds = distinct(table, "seed")
    if seeds:
        parts.append(plural(len(seeds), "seed"))
    lengths = table["length"].dropna()
    if len(lengths):
        parts.append(f"lengths {lengths.min()} to {lengths.max()} tokens")
    parts.append(plural(len(table), "measurement"))
    parts.append(plural(len(result.curves), "theory curve"))
    return " · ".join(parts)


def _distinct(texts: Any) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


def _wrap(text: str, first: str) -> str:
    rest = " " * len(first)
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def _align(rows: Sequence[Sequence[str]], may_cut: int) -> str:
    """Columns flush left, two spaces apart, a rule under the first row.

    Only the column `may_cut`, which holds words, gives way where a line would be too long.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    excess = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    widths[may_cut] = max(8, widths[may_cut] - max(0, excess))
    lines = []
    for row in (rows[0], ["-" * width for width in widths], *rows[1:]):
        cells = [_cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _error_text(result: StudyResult) -> str:
    """Mean error of each checkpoint at a few lengths, half the width of the interval beside it."""
    table = result.table
    if len(distinct(table, "task")) > 1:
        return ""  # Their lengths and errors do not belong in one table.
    measured = distinct(table, "quantity")
    quantity = next((name for name in ERRORS if name in measured), None)
    if quantity is None:
        return ""
    summary = summarise_seeds(rows_where(table, table["quantity"] == quantity))
    lengths = np.array(sorted(distinct(summary, "length")), dtype=int)
    chosen = lengths[np.unique(np.linspace(0, lengths.size - 1, _TEXT_LENGTHS).round().astype(int))]
    rows = [["checkpoint", *(f"length {length}" for length in chosen)]]
    for checkpoint in distinct(summary, "checkpoint"):
        own = rows_where(summary, summary["checkpoint"] == checkpoint)
        cells = [_mean_cell(rows_where(own, own["length"] == length)) for length in chosen]
        rows.append([checkpoint, *cells])
    words = quantity_words(quantity).capitalize()
    return f"{words}, mean ± half the 95 % interval over seeds:\n{_align(rows, may_cut=0)}"


def _mean_cell(found: pd.DataFrame) -> str:
    if len(found) != 1 or found["status"].iloc[0] != "ok":
        return "unknown"
    mean, high = float(found["mean"].iloc[0]), float(found["high"].iloc[0])
    if 0 < mean < 0.001 and not high >= 0.001:
        return "<0.001"
    return f"{mean:.3f}" if np.isnan(high) else f"{mean:.3f} ±{high - mean:.3f}"


def _verdicts_text(verdicts: Sequence[Verdict]) -> str:
    shown, _ = _fold(verdicts)
    blocks = []
    if layers := _layer_rows(verdicts):
        heads = sum(verdict.level == "head" for verdict in verdicts)
        rows = [list(layers[0]), *(list(row.values()) for row in layers)]
        blocks.append(f"{plural(heads, 'head')}, counted by layer:\n{_align(rows, may_cut=0)}")
    if shown:
        columns = (
            "subject", "verdict", "label", "value", "threshold", "length measured", "by theory"
        )  # fmt: skip
        rows = [verdict.row() for verdict in shown]
        lines = [_align([columns, *([row[name] for name in columns] for row in rows)], may_cut=0)]
        lines += [
            _wrap(f"{verdict.subject}: {verdict.reason}", "  ")
            for verdict in shown
            if verdict.verdict != "PASS"
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _findings_text(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    violated = [finding for finding in findings if finding.violated]
    others = [finding for finding in findings if not finding.violated]
    lines = [f"{plural(len(findings), 'theory curve')} compared, {len(violated)} violated."]
    lines += [_wrap(finding.sentence, "! ") for finding in violated]
    shown = others[:_TEXT_FINDINGS]
    if shown:
        rows = [["where", "quantity", "theory", "deviation", "exponent (theory)", "outcome"]]
        for finding in shown:
            row = finding.row()
            exponent = row["exponent"].split(" ")[0]
            if exponent and row["by theory"]:
                exponent += f" ({row['by theory']})"
            cells = (row["where"], row["quantity"], row["theory"], row["deviation"], exponent)
            rows.append([*cells, row["outcome"]])
        lines.append(_align(rows, may_cut=2))
    if len(others) > len(shown):
        lines.append(f"and {len(others) - len(shown)} more, none violated")
    return "\n".join(lines)
