"""Audit one model: which heads disperse, which norms give the signal back, where precision is lost.

:func:`audit` measures, lays the theory beside it and judges; the result is the same kind of
:class:`~resharpen.analyses.result.StudyResult` that a study returns.
"""

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd

from ..interp.arguments import check_keywords
from ..interp.capturing import HookedModel
from ..interp.drawing import Sample
from ..interp.progress import Progress, advancing
from ..interp.sweeping import sweep
from ..interp.tables import concatenate
from ..interp.theory import Curve
from ..models.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from ..models.sites import weight_rule
from ..models.tasks import Task, task_from_dict
from ..models.transformer import Transformer
from .adapted import audit_adapted, check_name, source_words
from .arguments import check_run, check_task
from .bounds import compare_everywhere
from .clustering_layers import read_layer_shapes
from .clustering_rows import measure_streams
from .clustering_sentences import headline
from .expectations import (
    attention_expectations,
    constructed_expectations,
    short_expectations,
    why_no_length_theorem,
)
from .judgement import judge
from .lengths import default_lengths
from .provenance import provenance
from .result import StudyResult
from .thresholds import HeadThresholds, Thresholds
from .wording import plural


def audit(
    source: str | os.PathLike[str] | Checkpoint | HookedModel,
    *,
    weights: str = "raw",
    task: Task | None = None,
    sample: Sample | None = None,
    lengths: Iterable[int] | None = None,
    n_sequences: int | None = None,
    seed: int = 0,
    thresholds: Thresholds | None = None,
    name: str | None = None,
    progress: bool | Progress | None = None,
    **adapted: Any,
) -> StudyResult:
    """Audit a model: a checkpoint of ours on its task, a model on a sample, any other on a probe.

    What can be fed a task (``task=``, ``sample=``, or a checkpoint that names its own) is measured
    through its hook points and held against the set-complement theorem where that speaks about it.
    Everything else (Hugging Face, GGUF, state dicts, adapters) goes to
    :func:`resharpen.analyses.audit_adapted`, which takes the further keyword arguments
    (``probe=``, ``what_if=``, ``dtype=`` ...).

    Args:
        source: Path of a checkpoint, name of a shipped one, a ``Checkpoint``, or a model; or
            anything that :func:`resharpen.models.adapt` takes.
        weights: Which weights of a checkpoint: ``"raw"``, or an average such as ``"ema-0.99"``.
        task: Task to feed it; a checkpoint's own by default.
        sample: Instead of a task: ``sample(generator, batch, length)`` returning token ids
            ``[batch, pos]`` or a batch. Needs ``lengths``.
        lengths: Lengths to measure at. By default every length of the task up to 64, and a
            geometric ladder beyond. Include 1 and 2 for the theorem's predictions.
        n_sequences: Sequences a length; by default 256 of a task or sample, 8 of a probe.
        seed: Seed of the sequences.
        thresholds: Where the lines are drawn.
        name: What to call the model in tables; a checkpoint's own name by default.
        progress: ``True`` for a bar, or called as ``progress(done, total, length)``.
        **adapted: Further arguments of :func:`resharpen.analyses.audit_adapted`.

    An interrupt (ctrl-C) leaves the model as it was and gives what the finished lengths say, with a
    warning; with none finished it goes through.

    Returns:
        Table, curves, findings and verdicts (heads, layers, model).

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ValueError: If there is nothing to feed the model, a length is not possible, or arguments
            of the two kinds of audit come together.
        TypeError: If lengths, task or thresholds are of another kind.
    """
    lengths = check_run(
        lengths=lengths, n_sequences=n_sequences, seed=seed, thresholds=thresholds, kind=Thresholds
    )
    if task is not None:
        check_task(task)
    check_name(name)
    known = {**signature(audit).parameters, **signature(audit_adapted).parameters}
    check_keywords("audit", adapted, [name for name in known if name != "adapted"])
    is_fed = task is not None or sample is not None
    if is_fed and adapted:
        raise ValueError(
            f"{', '.join(f'{name}=' for name in adapted)} of an audit goes with a probe, task= and "
            "sample= with the hook points: give the one or the other"
        )
    checkpoint = find_checkpoint(source) if is_fed or not adapted else None
    own = None if checkpoint is None or checkpoint.task is None else dict(checkpoint.task)
    if not is_fed and own is None:
        return audit_adapted(
            source,
            weights=weights,
            lengths=lengths,
            n_sequences=n_sequences,
            seed=seed,
            thresholds=HeadThresholds.of(thresholds or Thresholds()),
            name=name,
            progress=progress,
            **adapted,
        ).result
    n_sequences = 256 if n_sequences is None else n_sequences
    lines = Thresholds.of(thresholds or Thresholds())
    checkpoint, model = _resolve(source, checkpoint, weights)
    label = name or (checkpoint.name if checkpoint is not None else type(model).__name__)
    if not is_fed:
        assert own is not None
        task = task_from_dict(own)
    feed = sample if sample is not None else task.sample  # type: ignore[union-attr]
    if lengths is None:
        if task is None:
            raise ValueError("give lengths= together with sample=: only a task knows its lengths")
        lengths = default_lengths(task)
    ladder = tuple(lengths)
    described = None if task is None or sample is not None else task.to_dict()
    labels = {
        "study": "audit",
        "checkpoint": label,
        "task": None if described is None else described["name"],
        "seed": None if checkpoint is None else checkpoint.seed,
    }
    with advancing(progress, f"auditing {label}", "batch") as advance:
        table = sweep(
            model,
            feed,
            ladder,
            batch=min(n_sequences, 256),
            n_batches=max(1, -(-n_sequences // 256)),
            seed=seed,
            labels=labels,
            progress=advance,
        )
    curves, no_theorem = expect(table, label, model, checkpoint, described)
    findings = [compare_everywhere(table, curve) for curve in curves]
    verdicts = judge(table, curves, label, lines, no_theorem=no_theorem)
    complete = set(table["length"].dropna()) == set(ladder)
    streams = None
    try:
        if complete:
            streams = measure_streams(
                model, feed, ladder, n_sequences=n_sequences, seed=seed, labels=labels
            )
    except KeyboardInterrupt:
        complete = False
        warnings.warn("interrupted: the streams of the model were not measured", stacklevel=2)
    sentences = _sentences(label, verdicts)
    if streams is not None:
        table = concatenate([table, streams])
        shapes = read_layer_shapes(table)
        sentences += [] if shapes is None else [headline(shapes)]
    asked = {
        "source": source_words(source),
        "weights": weights,
        "lengths": list(ladder),
        "n_sequences": n_sequences,
        "seed": seed,
    }
    resolved = {**asked, "task": described, "thresholds": asdict(lines)}
    return StudyResult(
        table=table,
        curves=tuple(curves),
        findings=tuple(findings),
        verdicts=tuple(verdicts),
        provenance=provenance(
            asked,
            resolved,
            seeds=[seed],
            checkpoints={} if checkpoint is None else {label: checkpoint.digest},
            completed=complete,
        ),
        sentences=tuple(sentences),
    )


def expect(
    table: pd.DataFrame,
    label: str,
    model: HookedModel,
    checkpoint: Checkpoint | None,
    task: dict[str, Any] | None,
) -> tuple[list[Curve], str | None]:
    """Every curve that theory has for a model, and why none predicts its length, if none does."""
    # The bounds are of the softmax of the scores; other weights have no such bound.
    curves = attention_expectations(table, label) if weight_rule(model).softmax else []
    if not isinstance(model, Transformer):
        return curves, "its class is not this toolkit's, so its structure is not known"
    ladder = table["length"].dropna().unique().astype(np.float64)
    ladder.sort()
    constructed = None if checkpoint is None else checkpoint.constructed
    exact = []
    if constructed is not None:
        exact = constructed_expectations(label, model.cfg, constructed, ladder)
    if exact:
        return [*curves, *exact], None
    short = short_expectations(table, label, model.cfg, task, ladder)
    reason = why_no_length_theorem(model.cfg, task)
    if reason is None and not short:
        reason = "lengths 1 and 2 were not both measured"
    return [*curves, *short], reason


def _resolve(
    source: Any, checkpoint: Checkpoint | None, weights: str
) -> tuple[Checkpoint | None, HookedModel]:
    if checkpoint is None and isinstance(source, str | os.PathLike):
        checkpoint = load_checkpoint(source)  # says what it is instead
    if checkpoint is not None:
        return checkpoint, checkpoint.model(weights)
    if isinstance(source, HookedModel):
        return None, source
    raise TypeError(
        "source must be a checkpoint (path, shipped name or Checkpoint) or a model with hook "
        f"points (run_with_hooks, hook_dict); got {type(source).__name__}"
    )


def _sentences(label: str, verdicts: Sequence[Any]) -> list[str]:
    heads = [verdict for verdict in verdicts if verdict.level == "head"]
    model = next(verdict for verdict in verdicts if verdict.level == "model")
    names = ("disperses", "holds", "sharpens", "unknown")
    counts = {name: sum(head.label == name for head in heads) for name in names}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    sentences = [f"{label}: {model.verdict}. {_capitalised(model.reason)}."]
    if heads:
        sentences.append(f"Of {plural(len(heads), 'head')}: {said}.")
    restoring = [v for v in verdicts if v.level == "layer" and v.label == "resharpens"]
    if any(v.level == "layer" for v in verdicts):
        layers = [v for v in verdicts if v.level == "layer"]
        sentences.append(
            f"A norm gives the dispersed signal back in {len(restoring)} of "
            f"{plural(len(layers), 'layer')}."
        )
    return sentences


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
