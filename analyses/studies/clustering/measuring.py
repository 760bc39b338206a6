"""One case of the study: its models, and every row that is measured on them, kept on disk."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ....interp.capturing import capture
from ....interp.drawing import Sample, draw
from ....interp.output_errors import sequence_errors
from ....interp.stream_sweeping import list_boundaries, stream_rows
from ....interp.stream_values import BOUNDARY_UNITS, STEP_UNITS
from ....interp.tables import concatenate, table
from ....models.tasks import Task, task_from_dict
from ....models.transformer import Transformer
from ...cached_rows import cached_rows
from ...runs import cached_train, code_digest, key_of, run_key
from .assumptions import assumption_rows
from .config import TASK, Case, ClusteringConfig
from .phases import PhaseSweep, sweep_phases
from .turning import turning_rows

STUDY = "clustering"

_AT_EVERY_LENGTH = ("mean_cosine", "effective_rank")
_N_FOR_ERRORS = 64
_MEASURED_BY = ("assumptions", "measuring", "phases", "turning")


def the_task() -> Task:
    """The task that the models learn and are fed."""
    return task_from_dict(dict(TASK))


def case_key(config: ClusteringConfig, case: Case) -> str:
    """Hash of everything that the rows of a case depend on, 16 hexadecimal digits."""
    task = the_task()
    here = Path(__file__).parent
    asked = {
        "case": case.to_dict(),
        "run": run_key(
            config.model(case, task.d_vocab, task.d_vocab_out), task, config.training, config.seeds
        ),
        "lengths": list(config.lengths),
        "profile": [config.profile_length, config.n_sequences, config.threshold],
        "phase": [config.phase_length, config.n_gammas, config.phase_reach],
        "interp": code_digest("interp"),
        "code": [(here / f"{name}.py").read_text("utf-8") for name in _MEASURED_BY],
    }
    return key_of(asked)


def measure_case(config: ClusteringConfig, case: Case, cache: Path) -> tuple[pd.DataFrame, bool]:
    """The rows of every seed of a case, and whether they came from the cache.

    Raises:
        TrainingDiverged: If the loss stopped being a finite number.
    """
    place = cache / STUDY / f"{case_key(config, case)}.parquet"
    return cached_rows(place, partial(_measure, config, case, cache))


def models_of(config: ClusteringConfig, case: Case, cache: Path) -> list[tuple[int, Transformer]]:
    """Seed and model of each run of a case, trained or read from the cache if it is a trained one.

    Raises:
        TrainingDiverged: If the loss stopped being a finite number.
    """
    task = the_task()
    cfg = config.model(case, task.d_vocab, task.d_vocab_out)
    if not case.trained:
        return [(seed, Transformer(cfg, seed=seed)) for seed in config.seeds]
    checkpoints, _ = cached_train(cfg, task, config.training, config.seeds, cache)
    return [
        (seed, checkpoint.model())
        for seed, checkpoint in zip(config.seeds, checkpoints, strict=True)
    ]


def phase_depths(n_layers: int) -> tuple[int, ...]:
    """How many blocks stand before the streams on which the temperature is swept."""
    return tuple(sorted({0, n_layers // 4, n_layers // 2, n_layers}))


def cluster_profile(
    model: Transformer,
    sample: Sample,
    lengths: tuple[int, ...],
    *,
    profile_length: int,
    n_sequences: int,
    threshold: float = 0.9,
    labels: dict[str, Any] | None = None,
) -> pd.DataFrame:
    """Everything that is measured of one model's clustering, beside its placement's speed factor.

    The shape of the stream (:mod:`resharpen.interp.stream_sweeping`): mean cosine and effective
    rank at every length, the rest at the profile length; there also the turning by attention with
    the speed factor (:mod:`.turning`) and how far the model is from the assumptions
    (:mod:`.assumptions`).

    Args:
        model: One of our own models.
        sample: What it is fed.
        lengths: Lengths.
        profile_length: The one at which blocks are looked at, at least 2.
        n_sequences: Sequences a length.
        threshold: Cosine from which two positions belong to one cluster.
        labels: Columns ``study``, ``checkpoint``, ``task`` and ``seed``.
    """
    others = [length for length in lengths if length != profile_length]
    every: dict[str, Any] = {"n_sequences": n_sequences, "labels": labels}
    cells = {"threshold": threshold, "verify": False, **every}
    quantities = [*BOUNDARY_UNITS, *STEP_UNITS]
    frames = [stream_rows(model, sample, [profile_length], quantities=quantities, **cells)]
    if others:
        frames.append(stream_rows(model, sample, others, quantities=_AT_EVERY_LENGTH, **cells))
    frames.append(turning_rows(model, sample, profile_length, **every))
    frames.append(assumption_rows(model, sample, profile_length, **every))
    return concatenate(frames)


def phase_sweeps(
    config: ClusteringConfig, model: Transformer, depths: tuple[int, ...]
) -> dict[int, PhaseSweep]:
    """The sweep of the inverse temperature on the stream behind so many blocks, where it can be."""
    wanted = {b.site.name: b.depth for b in list_boundaries(model) if b.depth in depths}
    tokens = draw(the_task().sample, 0, config.phase_length, config.n_sequences).tokens

    def sweep(stream: Any) -> PhaseSweep | None:
        return sweep_phases(stream, config.n_gammas, config.phase_reach)

    found = capture(model, tokens, dict.fromkeys(wanted, sweep)).values
    return {wanted[name]: swept for name, swept in found.items() if swept is not None}


def _measure(config: ClusteringConfig, case: Case, cache: Path) -> pd.DataFrame:
    task = the_task()
    frames = []
    for seed, model in models_of(config, case, cache):
        labels = {"study": STUDY, "checkpoint": case.label, "task": task.name, "seed": seed}
        frames.append(
            cluster_profile(
                model,
                task.sample,
                config.lengths,
                profile_length=config.profile_length,
                n_sequences=config.n_sequences,
                threshold=config.threshold,
                labels=labels,
            )
        )
        frames.append(_phase_rows(config, model, labels))
        if case.trained:
            lengths = (config.training.length,)
            frames.append(
                sequence_errors(
                    model, task.sample, lengths, n_sequences=_N_FOR_ERRORS, labels=labels
                )
            )
    return concatenate(frames)


def _phase_rows(
    config: ClusteringConfig, model: Transformer, labels: dict[str, Any]
) -> pd.DataFrame:
    depths = phase_depths(model.cfg.n_layers)
    found = phase_sweeps(config, model, depths)
    boundaries = {b.depth: b for b in list_boundaries(model)}
    rows = []
    for depth in depths:
        place = {
            **labels,
            "length": config.phase_length,
            "layer": boundaries[depth].layer,
            "site": boundaries[depth].site.name,
            "unit": "1",
        }
        swept = found.get(depth)
        values = {
            "critical_gamma": None if swept is None else swept.critical,
            "phase_turn": None if swept is None else swept.turn,
            "predicted_phase_turn": None if swept is None else swept.predicted_turn,
            "cosine_spread": None if swept is None else swept.spread,
        }
        for name, value in values.items():
            known = value is not None and value == value
            cells = (
                {"mean": value, "min": value, "max": value, "n_obs": config.n_sequences}
                if known
                else {"status": "undefined"}
            )
            rows.append({**place, "quantity": name, **cells})
    return table(rows)
