"""What a command leaves in its folder, and what it says of what was there before.

A result that an interrupt cut short never takes the place of a complete one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .report import render_text
from .result import REPORT_FILE, StudyResult
from .storage import find_document

__all__ = ["UNWRITTEN", "Interrupted", "save_result", "save_unless_worse", "saying_cached"]

UNWRITTEN = "interrupted: this is what was finished; no --out was given, so nothing is written"
"""Where an interrupted command has no folder."""


class Interrupted(KeyboardInterrupt):
    """An interrupt; its message is one sentence that says what was kept."""


def save_unless_worse(
    result: StudyResult,
    folder: Path | str,
    report: str | None = None,
    attachments: Mapping[str, str] | None = None,
) -> Path | None:
    """Write the folder, but not a result that was cut short over a complete one.

    Args:
        result: What to write.
        folder: The destination; see :meth:`StudyResult.save` for all of these.
        report: The text of `report.html`.
        attachments: Further texts, by file name.

    Returns:
        The folder's path, or None where what stands there was left.

    Raises:
        ResultError: as :meth:`StudyResult.save` raises it.
    """
    if not result.provenance.completed:
        before = find_document(folder)
        if before is not None and before.get("provenance", {}).get("completed"):
            return None
    return result.save(folder, report=report, attachments=attachments)


def save_result(
    result: StudyResult,
    out: Path,
    say: Callable[[str], None],
    *,
    report: str,
    attachments: Mapping[str, str] | None = None,
    summary: bool = False,
) -> None:
    """Write a command's result, then say it, what it replaced, and where its report is.

    Args:
        result: The result.
        out: Its folder.
        say: Told each line.
        report: The text of `report.html`.
        attachments: Further texts, by file name.
        summary: Whether to say the result itself too.

    Raises:
        Interrupted: The result was cut short; said after it was written, or left unwritten.
        ResultError: as :meth:`StudyResult.save` raises it.
    """
    before = find_document(out)
    place = save_unless_worse(result, out, report, attachments)
    if summary:
        say(render_text(result))
    if place is None:
        raise Interrupted(
            f"interrupted: {out} holds a complete result and is left as it was; of this run "
            "nothing is written"
        )
    replaced = None if before is None else _subject(before["provenance"]["asked"])
    if replaced is not None and replaced != _subject(result.provenance.asked):
        say(f"replaced the result of {replaced} in {out}")
    say(f"report: {place / REPORT_FILE}")
    if not result.provenance.completed:
        raise Interrupted(
            f"interrupted: what was finished is in {out}, marked as not completed; the same "
            "command measures everything anew"
        )


@contextmanager
def saying_cached() -> Iterator[None]:
    """Around work that keeps its finished parts in the cache: an interrupt of it says so."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(
            "interrupted: no result is written; the parts that are finished are in the cache, and "
            "the same command takes them from there"
        ) from stop


def _subject(asked: Mapping[str, Any]) -> str | None:
    """Of what a result is, as it was asked for: a model, a study or a space; None if unsaid."""
    if isinstance(asked.get("source"), str):
        return asked["source"].rstrip("/")
    if "study" in asked:
        return f"the study {asked['study']}"
    if "space" in asked:
        return f"the search of {asked['space']}"
    inner = [_subject(part) for part in asked.values() if isinstance(part, Mapping)]
    return next((found for found in inner if found is not None), None)
