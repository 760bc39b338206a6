"""Train every recipe once with all its averages, compare them, measure the noise beside it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ....interp.tables import concatenate
from ....interp.theory import Curve
from ....interp.theory.label_noise import label_noise_curve
from ....models.tasks import SetComplement
from ...comparing import compare
from ...named_runs import check_any_finished, run_named
from ...provenance import provenance
from ...result import StudyResult
from ...rows import distinct, pick
from ...runs import default_cache
from ...side_by_side import Backend
from ...trials import Trial, run_trials
from .config import AveragingConfig, Cell
from .gains import Gain, Scaling, find_gains, find_scalings
from .noise import AT_LOGITS, LABELS, STUDY, TaskFacts, measure_noise, task_facts, task_of
from .sentences import conclude

Say = Callable[[str], None]


@dataclass(frozen=True)
class AveragingStudy:
    """What the study leaves.

    Attributes:
        result: Table, curves, findings, sentences.
        gains: Every average of every run against its raw weights.
        scalings: How the gains change with the number of legal tokens.
        facts: Legal tokens and blind error by task.
        left_out: By label, why a run or a measurement of noise failed.
    """

    result: StudyResult
    gains: tuple[Gain, ...]
    scalings: tuple[Scaling, ...]
    facts: Mapping[str, TaskFacts]
    left_out: Mapping[str, str]


def trial_of(config: AveragingConfig, cell: Cell) -> Trial:
    """The training run of one cell and its evaluation."""
    setting = config.setting(cell.setting)
    task = task_of(setting)
    return Trial(
        setting.architecture(task.d_vocab, task.d_vocab_out),
        task,
        config.recipe(cell),
        config.seeds,
        setting.lengths,
        config.n_sequences,
    )


def run(
    config: AveragingConfig,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    say: Say = lambda message: None,
    asked: Mapping[str, object] | None = None,
) -> AveragingStudy:
    """Run the study; what an earlier run with the same cache has finished is not run again.

    Args:
        config: What to do.
        cache: Folder of what is made once; ``None`` for the user's.
        jobs: Runs side by side; ``None`` for one a core, or all of a cluster.
        backend: Where they run: local processes, a Dask cluster, or Ray.
        address: Of a running Dask scheduler or Ray head.
        say: Called with one line as each part is done.
        asked: What the user asked for, for the record; the configuration by default.

    Raises:
        ValueError: As :func:`~resharpen.analyses.side_by_side.run_side_by_side`, or if not one
            training run could be finished.
    """
    folder = (cache or default_cache()).resolve()
    where: dict[str, Any] = {"jobs": jobs, "backend": backend, "address": address}
    facts = {setting.name: task_facts(setting) for setting in config.settings}
    cells = {cell.label: cell for cell in config.cells()}
    say(f"{len(cells)} training runs, {len(config.seeds)} seeds each (kept in {folder})")
    trials = {label: trial_of(config, cell) for label, cell in cells.items()}
    runs = run_trials(trials, cache=folder, say=say, **where)
    check_any_finished(
        runs.frames, runs.failures.values(), "not one training run could be finished"
    )
    noises = run_named(
        {
            f"noise of {setting.name}": partial(measure_noise, config, setting, folder)
            for setting in config.settings
        },
        verb="measured",
        say=say,
        **where,
    )
    noise = concatenate(list(noises.frames.values()))
    left_out = {**runs.failures, **noises.failures}
    frames = {cells[label]: frame for label, frame in runs.frames.items()}
    gains = find_gains(config, frames, facts)
    scalings = find_scalings(gains)
    curves = _curves(config, noise)
    findings = [compare(_of_curve(noise, curve, task), curve) for task, curve in curves.items()]
    result = StudyResult(
        table=concatenate([*(_labelled(cell, frame) for cell, frame in frames.items()), noise]),
        curves=tuple(curves.values()),
        findings=tuple(findings),
        verdicts=(),
        provenance=provenance(
            dict(asked or config.to_dict()), config.to_dict(), seeds=config.seeds
        ),
        sentences=tuple(conclude(config, gains, scalings, facts, noise, findings)),
    )
    return AveragingStudy(result, tuple(gains), tuple(scalings), facts, left_out)


def _labelled(cell: Cell, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a trial under the study's names: the recipe joins the weights' name."""
    weights: Sequence[str] = frame["checkpoint"].tolist()
    named = frame.assign(
        study=STUDY,
        task=cell.setting,
        checkpoint=[f"{cell.recipe}, {name}" for name in weights],
    )
    return concatenate([named])


def _curves(config: AveragingConfig, noise: pd.DataFrame) -> dict[str, Curve]:
    """The closed form of the label noise at the logits, for each set-complement task measured."""
    found = {}
    for setting in config.settings:
        task = task_of(setting)
        rows = pick(noise, task=setting.name, quantity=AT_LOGITS)
        if isinstance(task, SetComplement) and not task.bos and not task.replacement and len(rows):
            lengths = np.array(sorted(distinct(rows, "length")), dtype=np.float64)
            curve = label_noise_curve(lengths, task.vocabulary, checkpoint=LABELS)
            found[setting.name] = curve
    return found


def _of_curve(noise: pd.DataFrame, curve: Curve, task: str) -> pd.DataFrame:
    """The rows that the curve of one task is about: a curve does not name its task."""
    return pick(noise, task=task, quantity=curve.quantity)
