"""What each command of the command line does. Prints nothing itself: it is given a voice."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ..interp.output_errors import sequence_errors
from ..models.adapters.dispatch import check_load_options
from ..models.adapters.tokenizers import load_tokenizer
from ..models.checkpoint import (
    Checkpoint,
    check_checkpoint_destination,
    find_checkpoint,
    load_checkpoint,
    save_checkpoint,
    shipped_checkpoints,
)
from ..models.config import TransformerConfig
from ..models.constructed import construct_set_complement
from ..models.tasks import Task, task_from_dict
from ..models.training import TrainingDiverged, discard_state, train
from .adapted import audit_adapted
from .audit_figures import adapted_figures, adapted_table_figures, audit_figures
from .audit_ledger import AuditRecord
from .auditing import audit
from .checkpoint_places import find_checkpoints
from .differences import compare_audits, render_differences
from .findings import SEVERITY
from .lengths import default_lengths
from .many_audits import audit_many, watch
from .report import render_report
from .result import StudyResult
from .rows import rows_where
from .saving import Interrupted, save_result
from .storage import check_destination
from .trend import TREND_FILE
from .what_if import WhatIf, parse_what_if
from .wording import format_number, plural

__all__ = [
    "TrainingDiverged",
    "evaluate",
    "run_audit",
    "run_checkpoints",
    "run_compare",
    "run_construct",
    "run_train",
]

Say = Callable[[str], None]


def run_train(command: Any, say: Say) -> int:
    """``resharpen train``: train, save, evaluate over lengths."""
    parameters = dict(_parameter(text) for text in command.task_parameters)
    task = task_from_dict({"name": command.task, **parameters})
    config = TransformerConfig(
        d_vocab=task.d_vocab, d_vocab_out=task.d_vocab_out, **asdict(command.model)
    )
    for length in (command.training.length, *command.lengths):
        task.check_length(length)
    several = len(command.seeds) > 1
    folders = [command.out / f"seed-{seed}" if several else command.out for seed in command.seeds]
    for folder in folders:
        check_checkpoint_destination(folder)
    place = command.out.with_name(f".{command.out.name}.training")
    trained = train(config, task, command.training, command.seeds, folder=place, progress=True)
    for checkpoint, folder in zip(trained, folders, strict=True):
        save_checkpoint(checkpoint, folder)
    discard_state(place)
    try:
        for checkpoint, folder in zip(trained, folders, strict=True):
            errors = evaluate(checkpoint, task, command.lengths or None)
            errors.to_csv(folder / "evaluation.csv", index=False)
            say(f"\n{folder} (seed {checkpoint.seed})\n{_error_text(errors)}")
    except KeyboardInterrupt as stop:
        raise Interrupted(
            f"interrupted: what was trained is in {command.out}, not all of it evaluated"
        ) from stop
    return 0


def _parameter(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``: a number, true or false, or else a word."""
    name, found, value = text.partition("=")
    if not (found and name and value):
        raise ValueError(
            f"a parameter of a task is written NAME=VALUE, such as vocabulary=64; got {text!r}"
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def evaluate(
    checkpoint: Checkpoint, task: Task, lengths: tuple[int, ...] | None = None
) -> pd.DataFrame:
    """Errors over lengths of every set of weights that a checkpoint has, one row each.

    At the last position and over all of them: see :mod:`resharpen.interp.output_errors`.

    Args:
        checkpoint: The model.
        task: What to evaluate it on.
        lengths: Lengths; every length of the task up to 64 and a ladder beyond by default.

    Returns:
        One row a set of weights, length and error, with its standard error over sequences.
    """
    frames = []
    for weights in checkpoint.weights:
        frame = sequence_errors(
            checkpoint.model(weights),
            task.sample,
            lengths or default_lengths(task),
            n_sequences=256,
        )
        frames.append(frame.assign(weights=weights))
    columns = ["weights", "length", "quantity", "unit", "mean", "sem", "n_obs"]
    return pd.concat(frames).reindex(columns=columns)


def run_construct(command: Any, say: Say) -> int:
    """``resharpen construct``: write a closed-form solution."""
    options = asdict(command)
    out = options.pop("out")
    save_checkpoint(construct_set_complement(**options), out)
    say(f"wrote {out}")
    return 0


def run_audit(command: Any, say: Say) -> int:
    """``resharpen audit``: measure, judge, report; the status says how bad it is."""
    sources = list(command.checkpoints)
    if not sources:
        raise ValueError("name at least one checkpoint: a folder, a file, or a shipped name")
    _what_ifs(command)  # refused here, before any work, if it cannot be read
    if command.jobs < 1:
        raise ValueError(f"--jobs is a number of audits at once, at least 1; got {command.jobs}")
    if not 0 <= command.poll_seconds < math.inf:
        raise ValueError(
            f"--poll-seconds is a time in seconds, zero or more; got {command.poll_seconds:g}"
        )
    if command.watch:
        return _run_many_audits(command, sources, say)
    held = [_held_in(source) for source in sources]
    if len(sources) > 1 or held[0]:
        found = [one for source, own in zip(sources, held, strict=True) for one in own or [source]]
        return _run_many_audits(command, found, say)
    if command.backend != "local" or command.address is not None:
        raise ValueError(
            "one checkpoint is audited here, in this process: leave --backend and --address out"
        )
    check_destination(command.out)
    result, figures = _audit(command, sources[0], progress=True)
    save_result(result, command.out, say, report=render_report(result, figures), summary=True)
    return int(_is_past((verdict.verdict for verdict in result.verdicts), command.fail_on))


def _run_many_audits(command: Any, sources: list[Any], say: Say) -> int:
    """Several checkpoints, or one folder that is watched; status 2 if one could not be audited."""
    settings = {
        name: value
        for name, value in asdict(command).items()
        if name not in ("checkpoints", "out", "watch", "poll_seconds", "jobs", "backend", "address")
    }
    settings.update(settings.pop("thresholds"))
    finished = 0

    def on_done(record: AuditRecord) -> None:
        nonlocal finished
        finished += record.status in ("audited", "kept")
        say(f"{record.status:11} {record.name:24} {record.verdict or record.sentence}")

    options: dict[str, Any] = {
        "audit_one": partial(_audit_one, command),
        "report": partial(_report_one, command),
        "settings": {name: str(value) for name, value in settings.items()},
        "jobs": command.jobs,
        "backend": command.backend,
        "address": command.address,
        "on_done": on_done,
    }
    if command.watch and len(sources) > 1:
        raise ValueError(f"--watch takes one folder; got {len(sources)} sources")
    try:
        if command.watch:
            records = watch(sources[0], command.out, poll_seconds=command.poll_seconds, **options)
        else:
            records = audit_many(sources, command.out, **options)
    except KeyboardInterrupt as stop:
        kept = (
            f"{plural(finished, 'finished result')} in {command.out}, and the same command goes "
            "on from there"
            if finished
            else "no audit was finished"
        )
        raise Interrupted(f"interrupted: {kept}") from stop
    trend = command.out / TREND_FILE
    if trend.exists():  # of nothing but failures none is drawn
        say(f"trend: {trend}")
    if any(record.status == "failed" for record in records):
        return 2
    return int(_is_past((record.verdict for record in records), command.fail_on))


def _held_in(source: str) -> list[Path]:
    """The checkpoints in a folder of them; none if it is a checkpoint itself, or holds none."""
    folder = Path(source)
    if not folder.is_dir() or (folder / "config.json").exists():
        return []
    return list(find_checkpoints(folder))


def _is_past(verdicts: Iterable[str], fail_on: str) -> bool:
    """Whether one is as severe as `fail_on`; an empty one is of an audit without a verdict."""
    line = SEVERITY[fail_on.upper()]
    return any(SEVERITY[verdict] >= line for verdict in verdicts if verdict)


def _audit_one(command: Any, source: Any) -> StudyResult:
    return _audit(command, str(source), progress=False)[0]


def _report_one(command: Any, result: StudyResult, source: Any) -> str:
    """The report of one of many audits, drawn from its table alone."""
    if result.provenance.resolved.get("model") is None:
        checkpoint = load_checkpoint(source)
        return render_report(result, audit_figures(result, checkpoint))
    return render_report(result, adapted_table_figures(result))


def _audit(command: Any, source: str, progress: bool) -> tuple[StudyResult, Any]:
    on_task = command.probe in (None, "task") and not command.what_if
    checkpoint = find_checkpoint(source) if on_task else None
    if checkpoint is not None and checkpoint.task is not None:
        check_load_options(checkpoint, command.dtype, command.device_map)
        return _audit_own(command, checkpoint, progress)
    return _audit_any(command, source, progress)


def _audit_own(command: Any, checkpoint: Checkpoint, progress: bool) -> tuple[StudyResult, Any]:
    """A checkpoint of ours on its own task, with the theorem's curves."""
    result = audit(
        checkpoint,
        weights=command.weights,
        lengths=command.lengths or None,
        n_sequences=command.n_sequences,
        seed=command.seed,
        thresholds=command.thresholds,
        progress=progress,
    )
    return result, audit_figures(result, checkpoint)


def _audit_any(command: Any, source: str, progress: bool) -> tuple[StudyResult, Any]:
    """Any model on a probe, or with remedies."""
    encode = load_tokenizer(source) if command.probe == "text" else None
    audited = audit_adapted(
        source,
        weights=command.weights,
        probe=command.probe,
        lengths=command.lengths or None,
        n_sequences=command.n_sequences,
        seed=command.seed,
        thresholds=command.thresholds,
        what_if=_what_ifs(command),
        encode=encode,
        text=command.text,
        past_positions=command.past_positions,
        dtype=command.dtype,
        device_map=command.device_map,
        progress=progress,
    )
    return audited.result, adapted_figures(audited)


def _what_ifs(command: Any) -> list[WhatIf]:
    """The remedies, each for the heads that are named."""
    heads = [_head(text) for text in command.what_if_heads] or None
    if heads and not command.what_if:
        raise ValueError("--what-if-heads says where a remedy is tried: name one with --what-if")
    return [parse_what_if(text, heads) for text in command.what_if]


def _head(text: str) -> tuple[int, int]:
    """Read ``LAYER.HEAD``."""
    layer, _, head = text.partition(".")
    if not (layer.isdigit() and head.isdigit()):
        raise ValueError(f"a head is written LAYER.HEAD, such as 3.4; got {text!r}")
    return int(layer), int(head)


def run_compare(command: Any, say: Say) -> int:
    """``resharpen compare``: what changed between two audits."""
    first, second = (StudyResult.load(place) for place in (command.before, command.after))
    names = (command.before.name, command.after.name)
    say(render_differences(compare_audits(first, second), names))
    return 0


def run_checkpoints(command: Any, say: Say) -> int:
    """``resharpen checkpoints``: name what ships, with one line each."""
    for name in shipped_checkpoints():
        checkpoint = load_checkpoint(name)
        origin = (
            f"trained to length {checkpoint.train_length}, seed {checkpoint.seed}"
            if checkpoint.training is not None
            else "constructed"
        )
        config = checkpoint.config
        say(f"{name:28} {config.norm_placement:9} {config.normalization_type:6} {origin}")
    return 0


_SHOWN = (
    "total_variation",
    "mean_total_variation",
    "mean_illegal_mass",
    "all_legal_rate",
    "legal_set_rate",
)
"""Errors that are said; the others stand in the file."""

_MAX_SHOWN = 8
"""Lengths that are said where there are no more."""


def _error_text(errors: pd.DataFrame) -> str:
    """A few lengths of the errors, as aligned text."""
    lengths = sorted(errors["length"].unique())
    few = len(lengths) <= _MAX_SHOWN
    shown = [s for s in lengths if few or s in (1, 2, 4, 8, 16, 32, 64, lengths[-1])]
    said = rows_where(errors, errors["quantity"].isin(_SHOWN))
    groups: Any = said.groupby(["weights", "quantity"], sort=False)
    title = f"{'weights':12} {'error':22}"
    lines = [title + "".join(f"{f'length {s}':>20}" for s in shown)]
    for (weights, quantity), rows in groups:
        means = dict(zip(rows["length"].tolist(), rows["mean"].tolist(), strict=True))
        sems = dict(zip(rows["length"].tolist(), rows["sem"].tolist(), strict=True))
        cells = [f"{format_number(means[s])} ± {format_number(sems[s])}" for s in shown]
        lines.append(f"{weights!s:12} {quantity!s:22}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)
