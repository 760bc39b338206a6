"""The noise of the gradient along a run: what the labels add, what the inputs have anyway.

Measured at several steps of the run with a constant rate and sampled targets. Batches depend on
seed and step alone and a constant rate does not know the end of the run, so the weights after ``k``
steps are those of a run of ``k`` steps (:mod:`resharpen.interp.gradient_noise` has the formulas).
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ....interp.gradient_noise import GradientNoise, decompose_gradient
from ....interp.tables import table
from ....models import Transformer
from ....models.tasks import Task, seeded_generator, task_from_dict
from ...cached_rows import cached_rows
from ...runs import cached_train, code_digest, key_of, run_key
from .config import AveragingConfig, Cell, TaskSetting

STUDY = "averaging"

NOISES = (
    "label_noise",
    "input_noise",
    "cross_noise",
    "squared_gradient_norm",
    "sampled_noise_scale",
    "exact_noise_scale",
    "label_transmission",
)
"""Quantities at the weights, in the order of their rows."""

AT_LOGITS = "logit_label_noise"
"""The quantity at the logits, one length a position."""

LABELS = "labels"
"""What the table calls the checkpoint of rows that depend on no weights."""

_EVALUATION = 1_000_003
"""Key of the sequences that noise is measured on: past any step, so that none was trained on."""

_FACT_SEQUENCES = 1024


def task_of(setting: TaskSetting) -> Task:
    """The task of a setting."""
    return task_from_dict(setting.parameters)


@dataclass(frozen=True)
class TaskFacts:
    """What the exact targets of a task say at inputs of the training length.

    Attributes:
        legal: ``L = 1 / E Σ_i t_i^2`` over positions: the number of legal tokens where that is the
            same everywhere, else their harmonic mean, for which the label noise at the logits is
            ``1 - 1/L``.
        blind: Mean total variation of the guess that looks at nothing but the position: the mean
            target there.
    """

    legal: float
    blind: float


def task_facts(setting: TaskSetting) -> TaskFacts:
    """Legal tokens and blind error of a setting."""
    batch = task_of(setting).sample(seeded_generator(0), _FACT_SEQUENCES, setting.length)
    targets = batch.targets.double()
    apart = targets - targets.mean(0)
    return TaskFacts(
        legal=1 / float(targets.square().sum(-1).mean()),
        blind=float(apart.abs().sum(-1).mean()) / 2,
    )


def measure_noise(
    config: AveragingConfig, setting: TaskSetting, cache: Path
) -> tuple[pd.DataFrame, bool]:
    """Noise rows of one task for every seed and step, and whether they came from the cache.

    At the weights: ``checkpoint`` is the point of the run, ``length`` the training length. At the
    logits (``checkpoint`` is :data:`LABELS`): one length a position, since they depend on no
    weights.
    """
    runs = [_run(config, setting, step) for step in _steps(config, setting).values()]
    asked = {
        "runs": [run_key(*run, config.seeds) for run in runs],
        "sequences": config.noise_sequences,
        "code": code_digest("interp"),
    }
    key = key_of(asked)
    place = cache / "noise" / f"{key}.parquet"
    return cached_rows(place, partial(_measure, config, setting, cache))


def progress_label(fraction: float) -> str:
    """How the table calls a point of the run: `25 % of the run`."""
    return f"{100 * fraction:g} % of the run"


def progress_of(label: str) -> float:
    """The fraction of the run that a label of the table names; -1 for what is none."""
    number, _, rest = label.partition(" ")
    return float(number) / 100 if rest == "% of the run" else -1.0


def _steps(config: AveragingConfig, setting: TaskSetting) -> dict[float, int]:
    """Steps to measure at, by the fraction of the run, increasing."""
    whole = config.recipe(_cell(setting)).n_steps
    return {fraction: round(fraction * whole) for fraction in sorted(config.noise_steps)}


def _cell(setting: TaskSetting) -> Cell:
    return Cell(setting.name, "constant", 1.0, "sampled")


def _run(config: AveragingConfig, setting: TaskSetting, step: int) -> tuple[Any, Task, Any]:
    """Model, task and recipe of the run that ends at this step; of one step before training."""
    task = task_of(setting)
    recipe = config.recipe(_cell(setting))
    if step != recipe.n_steps:
        # The averages do not act on the run, and a short one need not reach their burn-in.
        recipe = dataclasses.replace(
            recipe,
            n_steps=max(1, step),
            warmup_steps=recipe.warmup_steps if step else 0,
            ema_decays=(),
            bema=(),
            uniform_average=False,
        )
    return setting.architecture(task.d_vocab, task.d_vocab_out), task, recipe


def _measure(config: AveragingConfig, setting: TaskSetting, cache: Path) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for number, (fraction, step) in enumerate(_steps(config, setting).items()):
        model, task, recipe = _run(config, setting, step)
        if step:
            trained = cached_train(model, task, recipe, config.seeds, cache)[0]
            networks = [checkpoint.model() for checkpoint in trained]
        else:
            networks = [Transformer(model, seed=seed).eval() for seed in config.seeds]
        for seed, network in zip(config.seeds, networks, strict=True):
            for block in network.blocks:
                block.attn.fused = False
            batch = task.sample(
                seeded_generator(seed, _EVALUATION), config.noise_sequences, setting.length
            )
            noise = decompose_gradient(network, batch.tokens, batch.targets, batch.next_tokens)
            place = {"study": STUDY, "task": setting.name, "seed": seed}
            label = progress_label(fraction)
            rows += _rows(noise, {**place, "checkpoint": label, "length": setting.length})
            if not number:
                rows += _logit_rows(noise, {**place, "checkpoint": LABELS})
    return table(rows)


def _rows(noise: GradientNoise, place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    values = (
        noise.label,
        noise.input,
        noise.cross,
        noise.squared_norm,
        noise.sampled_scale,
        noise.exact_scale,
        noise.transmission,
    )
    for quantity, value in zip(NOISES, values, strict=True):
        known = value == value
        yield {
            **place,
            "site": "weights",
            "quantity": quantity,
            "unit": "1",
            "mean": value,
            "n_obs": noise.n_sequences if known else 0,
            "status": "ok" if known else "undefined",
        }


def _logit_rows(noise: GradientNoise, place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for position, found in enumerate(noise.logit_label.unbind(1), start=1):
        yield {
            **place,
            "length": position,
            "n_key": position,
            "site": "logits",
            "quantity": AT_LOGITS,
            "unit": "1",
            "mean": float(found.mean()),
            "sem": float(found.std() / len(found) ** 0.5),
            "n_obs": len(found),
            "min": float(found.min()),
            "max": float(found.max()),
        }
