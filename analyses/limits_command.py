"""What ``resharpen limits`` does. Prints nothing itself: it is given a voice."""

import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..interp.tables import concatenate
from .figures.limits import plot_limits, plot_sampling_error
from .limits import SELECTED, measure_limits
from .one_head import model_options, open_head, run_options
from .report import render_report
from .result import StudyResult
from .rows import pick
from .sampling_rate import measure_sampling_rate
from .saving import UNWRITTEN, Interrupted, save_result
from .storage import check_destination

__all__ = ["run_limits"]

WIDTH = 100
"""Columns of the terminal at most."""


def run_limits(command: Any, say: Callable[[str], None]) -> int:
    """Measure the limits and the sampling rate, say them, and write both where a folder is named.

    The sampling rate is left out where the model shows no values.
    """
    if command.out is not None:
        check_destination(command.out)
    layer, head = command.layer, command.head
    opened = open_head(command.checkpoint, layer, head, **model_options(command))
    options = run_options(command)
    given = command.selected
    selected = SELECTED if given is None else int(given) if given >= 1 else given
    limits = measure_limits(
        opened,
        layer,
        head,
        selected=selected,
        lengths=command.lengths or None,
        n_sequences=command.n_sequences,
        **options,
    )
    figures = {"limits": plot_limits(limits.table, limits.curves)}
    results = [limits]
    if not pick(limits.table, quantity="selection_distance").empty:
        longest = max(command.lengths) if command.lengths else None
        rate = measure_sampling_rate(opened, layer, head, length=longest, **options)
        results.append(rate.result)
        figures["sampling"] = plot_sampling_error(rate.table, rate.curves)
    whole = _joined(results)
    lines = [
        textwrap.fill(text, WIDTH, initial_indent="* ", subsequent_indent="  ")
        for text in whole.sentences
    ]
    say("\n".join(lines) + "\n")
    for finding in whole.findings:
        if finding.violated:
            say(finding.sentence)
    if command.out is not None:
        save_result(whole, command.out, say, report=render_report(whole, figures))
    elif not whole.provenance.completed:
        raise Interrupted(UNWRITTEN)
    return 0


def _joined(results: list[StudyResult]) -> StudyResult:
    """Several results about one head as one, with the settings of each under its study's name."""
    first = results[0]
    names = [str(result.table["study"].iloc[0]) for result in results]
    asked, resolved = (
        {
            name: dict(getattr(result.provenance, what))
            for name, result in zip(names, results, strict=True)
        }
        for what in ("asked", "resolved")
    )
    return StudyResult(
        table=concatenate(result.table for result in results),
        curves=tuple(curve for result in results for curve in result.curves),
        findings=tuple(finding for result in results for finding in result.findings),
        verdicts=(),
        provenance=replace(
            first.provenance,
            asked=asked,
            resolved=resolved,
            completed=all(result.provenance.completed for result in results),
        ),
        sentences=tuple(dict.fromkeys(text for result in results for text in result.sentences)),
    )
