"""What ``resharpen diagnose`` does. Prints nothing itself: it is given a voice."""

from collections.abc import Callable
from typing import Any

from .diagnosing import diagnose
from .diagnosis import render_diagnosis
from .figures.score_laws import plot_score_laws
from .one_head import model_options, run_options
from .report import render_report
from .saving import UNWRITTEN, Interrupted, save_result
from .storage import check_destination

__all__ = ["run_diagnose"]


def run_diagnose(command: Any, say: Callable[[str], None]) -> int:
    """Measure the head, say what was found, and write the result where a folder is named."""
    if command.out is not None:
        check_destination(command.out)
    found = diagnose(
        command.checkpoint,
        command.layer,
        command.head,
        lengths=command.lengths or None,
        n_sequences=command.n_sequences,
        **model_options(command),
        **run_options(command),
    )
    say(render_diagnosis(found))
    if command.out is not None:
        figures = {"scores": plot_score_laws(found.table, found.curves)}
        save_result(found.result, command.out, say, report=render_report(found.result, figures))
    elif not found.result.provenance.completed:
        raise Interrupted(UNWRITTEN)
    return 0
