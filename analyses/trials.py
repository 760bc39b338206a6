"""A trial: one training run of one configuration with several seeds, and its error over lengths.

What searches and studies are made of. A trial is named by all that its rows depend on, and kept on
disk as soon as it is finished: the same trial is never run twice, and a run that is killed loses
the trials under way only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ..interp.output_errors import sequence_errors
from ..interp.tables import concatenate
from ..models.config import TransformerConfig
from ..models.facts import Facts
from ..models.tasks import Task
from ..models.training import TrainingConfig
from .cached_rows import cached_rows
from .named_runs import NamedRuns, run_named
from .runs import cached_train, code_digest, default_cache, key_of, run_key
from .side_by_side import Backend

__all__ = ["Trial", "run_trial", "run_trials"]

Say = Callable[[str], None]


@dataclass(frozen=True, repr=False)
class Trial(Facts):
    """What to train, and where to evaluate it.

    Attributes:
        model: the model; its vocabulary must be the task's.
        task: what it learns, and is evaluated on.
        training: the recipe.
        seeds: one model each, trained together.
        lengths: where the error is evaluated, in the task's own sense of length.
        n_sequences: sequences a length.
    """

    model: TransformerConfig
    task: Task
    training: TrainingConfig
    seeds: tuple[int, ...]
    lengths: tuple[int, ...]
    n_sequences: int = 512

    def to_dict(self) -> dict[str, Any]:
        """Everything that was asked for, as plain values."""
        return {
            "model": self.model.to_dict(),
            "task": self.task.to_dict(),
            "training": self.training.to_dict(),
            "seeds": list(self.seeds),
            "lengths": list(self.lengths),
            "n_sequences": self.n_sequences,
        }

    @property
    def digest(self) -> str:
        """Hash of what was asked for: equal for equal trials, whatever the code; 16 digits."""
        return key_of(self.to_dict())

    @property
    def key(self) -> str:
        """Hash of all that the rows depend on, the code among it; 16 hexadecimal digits."""
        return key_of(
            {
                "run": run_key(self.model, self.task, self.training, self.seeds),
                "lengths": list(self.lengths),
                "n_sequences": self.n_sequences,
                "code": code_digest("interp"),
            }
        )


def run_trial(trial: Trial, cache: Path) -> tuple[pd.DataFrame, bool]:
    """Train and evaluate, or read what an earlier call found.

    Training is kept for itself, so that a trial whose evaluation was cut off is not trained again.

    Args:
        trial: what to run.
        cache: folder of what is kept.

    Returns:
        The rows of :func:`~resharpen.interp.output_errors.sequence_errors` for every seed and
        every kind of weights (column `checkpoint`: `raw`, `ema-0.99`, ...), and whether they came
        from the cache.

    Raises:
        ValueError: if model, task and recipe do not fit each other, or a length is not defined.
        TrainingDiverged: if the loss stopped being a finite number.
    """
    return cached_rows(cache / "trials" / f"{trial.key}.parquet", partial(_evaluate, trial, cache))


def run_trials(
    trials: Mapping[str, Trial],
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    say: Say = lambda message: None,
) -> NamedRuns:
    """Run trials side by side; one that fails leaves the others their rows.

    Args:
        trials: by name.
        cache: folder of what is kept; None for the user's. The workers of a cluster of several
            machines must share it.
        jobs: trials at once; None for one a core, or all of a cluster.
        backend: local processes, a Dask cluster, or Ray.
        address: of a running Dask scheduler or Ray head.
        say: called with one line as each trial is done.

    Raises:
        ValueError: as :func:`~resharpen.analyses.side_by_side.run_side_by_side`.
    """
    folder = (cache or default_cache()).resolve()
    return run_named(
        {name: partial(run_trial, trial, folder) for name, trial in trials.items()},
        verb="trained",
        jobs=jobs,
        backend=backend,
        address=address,
        say=say,
    )


def _evaluate(trial: Trial, cache: Path) -> pd.DataFrame:
    checkpoints, _ = cached_train(trial.model, trial.task, trial.training, trial.seeds, cache)
    return concatenate(
        [
            sequence_errors(
                checkpoint.model(weights),
                trial.task.sample,
                trial.lengths,
                n_sequences=trial.n_sequences,
                labels={"checkpoint": weights, "task": trial.task.name, "seed": checkpoint.seed},
            )
            for checkpoint in checkpoints
            for weights in checkpoint.weights
        ]
    )
