"""Audits of many checkpoints: once each, side by side, or as a training run writes them.

OUT holds a result folder for each checkpoint, `audited.json` (what was done, and which files it was
done for) and `trend.html` (what changes over the steps).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..models.folders import check_writable
from .audit_ledger import LEDGER_FILE, AuditRecord, Ledger
from .checkpoint_places import find_checkpoints, fingerprint, step_of
from .findings import worst
from .record import encode
from .report import render_report
from .result import StudyResult
from .saving import save_unless_worse
from .side_by_side import Backend, TaskFailure, run_side_by_side
from .storage import RESULT_FILE, ResultError, check_destination
from .trend import TrendPoint, write_trend

__all__ = ["audit_many", "watch"]

AuditOne = Callable[[Any], StudyResult]
Report = Callable[[StudyResult, Any], str]


def plain_report(result: StudyResult, source: Any) -> str:
    """The report without figures."""
    return render_report(result)


def audit_many(
    sources: Iterable[Path | str],
    out: Path | str,
    *,
    audit_one: AuditOne,
    report: Report = plain_report,
    settings: Mapping[str, Any] | None = None,
    jobs: int | None = 1,
    backend: Backend = "local",
    address: str | None = None,
    on_done: Callable[[AuditRecord], None] | None = None,
    cache: dict[str, TrendPoint] | None = None,
) -> list[AuditRecord]:
    """Audit each checkpoint into OUT/<name>/, once, and draw the trend over all of OUT.

    Once: a checkpoint that OUT has the result of is kept if neither its files (sizes and times) nor
    `settings` changed. One that failed, or was interrupted, is tried again. What fails leaves a
    record with its sentence, and the others go on. Every result, the ledger and the trend are on
    disk before the next is begun or heard of, so an interrupt leaves all that is finished.

    Args:
        sources: paths of checkpoints (see `find_checkpoints`), or names that `audit_one` takes.
        out: the folder of the results.
        audit_one: from one of the sources to its result; runs in the worker.
        report: from result and source to the text of `report.html`; runs in the worker.
        settings: what `audit_one` was asked for, in JSON's types; other settings are another audit.
        jobs, backend, address: as `run_side_by_side` takes them; a single local job shows its own
            progress.
        on_done: called with each record, the kept ones first.
        cache: what earlier calls have read of OUT, and need not read again (see `collect_trend`).

    Returns:
        A record for each checkpoint, in the order given.

    Raises:
        ResultError: OUT is something else, or nothing can be written there.
        ValueError: as `run_side_by_side` raises it.
    """
    try:
        check_writable(Path(out) / LEDGER_FILE)
    except OSError as error:
        raise ResultError(str(error)) from None
    ledger, asked = Ledger(out), encode(dict(settings or {}))
    records: dict[str, AuditRecord] = {}
    todo: list[tuple[Path | str, AuditRecord]] = []
    for key, source in {Ledger.key(source): source for source in sources}.items():
        known, now = ledger.find(key), fingerprint(source)
        if known is not None and _is_done(known, now, asked, ledger.out):
            records[key] = replace(known, status="kept")
            continue
        name = ledger.name_for(key, {record.name for _, record in todo})
        records[key] = AuditRecord(name, key, step_of(key), "failed", "", "", "", now, asked)
        todo.append((source, records[key]))
    if on_done is not None:
        for record in records.values():
            if record.status == "kept":
                on_done(record)
    read = {} if cache is None else cache

    def note(index: int, done: Any) -> None:
        record = todo[index][1]
        if isinstance(done, TaskFailure):
            record = replace(record, kind=done.kind, sentence=done.sentence)
        else:
            record = replace(record, **done)
        records[record.source] = record
        ledger.put(record)
        write_trend(ledger.out, read)
        if on_done is not None:
            on_done(record)
        if record.status == "interrupted":
            raise KeyboardInterrupt

    tasks = [
        partial(_audit_to_disk, audit_one, report, source, ledger.out.resolve() / record.name)
        for source, record in todo
    ]
    run_side_by_side(tasks, jobs=jobs, backend=backend, address=address, on_done=note)
    return list(records.values())


def watch(
    folder: Path | str,
    out: Path | str,
    *,
    audit_one: AuditOne,
    report: Report = plain_report,
    settings: Mapping[str, Any] | None = None,
    poll_seconds: float = 30.0,
    pause: float = 0.5,
    stop: Callable[[], bool] | None = None,
    sleep: Callable[[float], object] = time.sleep,
    jobs: int | None = 1,
    backend: Backend = "local",
    address: str | None = None,
    on_done: Callable[[AuditRecord], None] | None = None,
) -> list[AuditRecord]:
    """Audit each checkpoint of a training run as it appears, once, until interrupted.

    A checkpoint that cannot be audited is reported with its sentence, and looked at again when its
    files change. What is still being written waits for the next look.

    Args:
        folder: where the run writes its checkpoints.
        poll_seconds: how long to wait between looks.
        pause: seconds in which a checkpoint must not change to count as written.
        stop: asked before each look; after it said True, that look is the last. None = never.
        sleep: what waits.
        out, audit_one, report, settings, jobs, backend, address, on_done: as `audit_many` takes
            them.

    Returns:
        The last record of each checkpoint that was seen, in the order in which they came.

    Raises:
        ValueError: there is no such folder, or as `audit_many` raises it.
        KeyboardInterrupt: interrupted; what is finished is in OUT.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r} to watch: make it, or correct it")
    seen: dict[str, AuditRecord] = {}
    cache: dict[str, TrendPoint] = {}
    while True:
        last = stop is not None and stop()
        found = find_checkpoints(root, pause=pause, sleep=sleep) if root.is_dir() else []
        new = [path for path in found if not _was_seen(seen.get(Ledger.key(path)), path)]
        if new:
            records = audit_many(
                new,
                out,
                audit_one=audit_one,
                report=report,
                settings=settings,
                jobs=jobs,
                backend=backend,
                address=address,
                on_done=on_done,
                cache=cache,
            )
            seen.update({record.source: record for record in records})
        if last:
            return list(seen.values())
        sleep(poll_seconds)


def _audit_to_disk(
    audit_one: AuditOne, report: Report, source: Path | str, folder: Path
) -> dict[str, str]:
    """In the worker: audit, save, and say in three words what came of it."""
    check_destination(folder)
    result = audit_one(source)
    save_unless_worse(result, folder, report(result, source))
    return {
        "status": "audited" if result.provenance.completed else "interrupted",
        "verdict": worst(one.verdict for one in result.verdicts if one.level == "model"),
        "sentence": next(iter(result.sentences), ""),
    }


def _is_done(
    record: AuditRecord, now: Mapping[str, Any], asked: Mapping[str, Any], out: Path
) -> bool:
    """Whether OUT has the result of these very files and settings; a bare name has no files."""
    return (
        record.status == "audited"
        and bool(now)
        and record.fingerprint == now
        and record.settings == asked
        and (out / record.name / RESULT_FILE).exists()
    )


def _was_seen(record: AuditRecord | None, path: Path) -> bool:
    return record is not None and record.fingerprint == fingerprint(path)
