"""One cell of the map: trained once, measured over the ladder of its task, kept on disk."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ....interp.sweeping import sweep
from ....interp.tables import concatenate
from ....models.sites import weight_rule
from ....models.tasks import seeded_generator, task_from_dict
from ...cached_rows import cached_rows
from ...runs import cached_train, code_digest, key_of, run_key
from .config import TASK_SETTINGS, Cell, RemediesConfig

STUDY = "remedies"

MEASURED = (
    "total_variation",
    "kl_divergence",
    "entropy",
    "normalised_entropy",
    "max_weight",
    "relevant_mass",
    "score_spread",
)
"""Quantities of every cell; ``total_mass`` beside them where weights need not sum to one."""

FOR_THEOREM = ("displacement", "frozen_displacement", "norm_scale")
"""What the set-complement theorem predicts from, too."""

_ELEMENTS = 2**24
"""Scores of one layer held at a time while a cell is measured."""


def cell_key(config: RemediesConfig, cell: Cell) -> str:
    """Hash that names a cell's measurement: everything it depends on, 16 hexadecimal digits."""
    task = _task(cell)
    asked = {
        "training": run_key(
            cell.model(task.d_vocab, task.d_vocab_out, trained=True),
            task,
            config.recipe(cell.task),
            config.seeds_of(cell.task),
        ),
        "cell": cell.to_dict(),
        "lengths": (*TASK_SETTINGS[cell.task].short, *TASK_SETTINGS[cell.task].lengths),
        "n_sequences": config.n_sequences,
        "measured": (*MEASURED, *FOR_THEOREM),
        "code": code_digest("interp"),
    }
    return key_of(asked)


def measure_cell(config: RemediesConfig, cell: Cell, cache: Path) -> tuple[pd.DataFrame, bool]:
    """The cell's rows of the tidy table, and whether they came from the cache.

    Training is cached for itself, so that a cell whose measurement was cut off is not trained
    again.
    """
    place = cache / "remedies" / f"{cell_key(config, cell)}.parquet"
    return cached_rows(place, partial(_measure, config, cell, cache))


def _measure(config: RemediesConfig, cell: Cell, cache: Path) -> pd.DataFrame:
    task = _task(cell)
    cfg = cell.model(task.d_vocab, task.d_vocab_out)
    trained = cell.model(task.d_vocab, task.d_vocab_out, trained=True)
    checkpoints, _ = cached_train(
        trained, task, config.recipe(cell.task), config.seeds_of(cell.task), cache
    )
    frames = []
    for checkpoint in checkpoints:
        model = replace(checkpoint, config=cfg).model()
        normalised = weight_rule(model).row_sum == 1.0
        setting = TASK_SETTINGS[cell.task]
        measures = MEASURED if normalised else (*MEASURED, "total_mass")
        if setting.short:
            measures = (*measures, *FOR_THEOREM)
        for length in (*setting.short, *setting.lengths):
            batch = _batch(config, cfg.n_heads, _n_pos(task, length))
            frames.append(
                sweep(
                    model,
                    task.sample,
                    [length],
                    measures,
                    batch=batch,
                    n_batches=config.n_sequences // batch,
                    verify=length == setting.length,
                    labels={
                        "study": STUDY,
                        "checkpoint": cell.label,
                        "task": cell.task,
                        "seed": checkpoint.seed,
                    },
                )
            )
    return concatenate(frames)


def _task(cell: Cell) -> Any:
    return task_from_dict({"name": cell.task, **TASK_SETTINGS[cell.task].parameters})


def _n_pos(task: Any, length: int) -> int:
    """Positions that an input of this length has."""
    return task.sample(seeded_generator(0), 1, length).tokens.shape[1]


def _batch(config: RemediesConfig, n_heads: int, n_pos: int) -> int:
    """Largest power of two up to the sequences asked for whose patterns fit."""
    batch = config.n_sequences & -config.n_sequences
    while batch > 1 and batch * n_heads * n_pos * n_pos > _ELEMENTS:
        batch //= 2
    return batch
