"""What ``resharpen diagnose`` does. Prints nothing itself: it is given a voice."""

from collections.abc import Callable
from typing import Any

from ..models.adapters.tokenizers import load_tokenizer
from .diagnosing import diagnose
from .diagnosis import render_diagnosis
from .figures.score_laws import plot_score_laws
from .report import render_report
from .storage import check_destination

__all__ = ["run_diagnose"]


def run_diagnose(command: Any, say: Callable[[str], None]) -> int:
    """Measure the head, say what was found, and write the result where a folder is named."""
    if command.out is not None:
        check_destination(command.out)
    source = command.checkpoint
    found = diagnose(
        source,
        command.layer,
        command.head,
        lengths=command.lengths or None,
        probe=command.probe,
        n_sequences=command.n_sequences,
        seed=command.seed,
        encode=load_tokenizer(source) if command.probe == "text" else None,
        text=command.text,
        past_positions=command.past_positions,
        weights=command.weights,
        dtype=command.dtype,
        device_map=command.device_map,
        progress=True,
    )
    say(render_diagnosis(found))
    if command.out is not None:
        figures = {"scores": plot_score_laws(found.table, found.curves)}
        place = found.result.save(command.out, report=render_report(found.result, figures))
        say(f"report: {place / 'report.html'}")
    return 0
