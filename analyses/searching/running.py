"""Trials side by side, each on disk as soon as it is finished, and none of them run twice.

Two files a trial in the cache, each written whole or not at all, under the trial's key: its rows
(see `trials.run_trial`), then what came of it, with how long that took. A run that diverged is
finished too. So a worker that dies loses its own trial only, and that one resumes from the last
saved training state; after the death of the whole command the same command goes on.
"""

import json
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import pandas as pd

from ...models.training import TrainingDiverged, discard_state
from ..record import Record
from ..runs import run_key
from ..side_by_side import Backend, TaskFailure, run_side_by_side
from ..storage import write_whole
from ..threads import one_thread
from ..trials import Trial, run_trial

__all__ = ["FINISHED", "Outcome", "Ran", "Status", "outcome_place", "run_outcomes"]

Name = TypeVar("Name", bound=Hashable)

Status = Literal["done", "diverged", "refused", "failed"]
"""What came of a run: rows; a loss that is no number; no such model or run; anything else."""

FINISHED: tuple[Status, ...] = ("done", "diverged")
"""Those that are kept; the others are tried again by the next call."""


@dataclass(frozen=True)
class Outcome(Record):
    """What came of a trial.

    Attributes:
        status: One of :data:`Status`.
        reason: Why there are no rows, one sentence; empty where there are.
        seconds: What training and evaluation took, NaN where nobody measured it; of a run that was
            resumed, the last part.
    """

    status: str
    reason: str
    seconds: float


@dataclass(frozen=True, eq=False)
class Ran:
    """A trial's outcome with its rows.

    Attributes:
        outcome: What came of it.
        rows: Its rows of the tidy table; None unless it is done.
        found: Whether an earlier call had finished it.
    """

    outcome: Outcome
    rows: pd.DataFrame | None
    found: bool


def run_folder(trial: Trial, cache: Path) -> Path:
    """The folder of a trial's training, as `runs.cached_train` calls it."""
    key = run_key(trial.model, trial.task, trial.training, trial.seeds)
    return cache / "runs" / key


def outcome_place(trial: Trial, cache: Path) -> Path:
    """The file that says what came of a trial."""
    return cache / "outcomes" / f"{trial.key}.json"


def run_outcomes(
    trials: Mapping[Name, Trial],
    *,
    cache: Path,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    on_done: Callable[[Name, Ran], None] = lambda name, ran: None,
) -> dict[Name, Ran]:
    """Run trials side by side, or read what an earlier call has finished of them.

    Args:
        trials: By name; all different.
        cache: Folder of what is kept; the workers of a cluster of several machines must share it.
        jobs: Trials at once; None for one a core, or all of a cluster.
        backend: Local processes, a Dask cluster, or Ray.
        address: Of a running Dask scheduler or Ray head.
        on_done: Called with the name of each trial that is done, as it is done.

    Returns:
        What came of each, in the order given.

    Raises:
        ValueError: As `run_side_by_side` raises it.
    """
    names, ran = list(trials), {}

    def note(index: int, done: Any) -> None:
        if isinstance(done, TaskFailure):
            status = "refused" if done.kind == "ValueError" else "failed"
            done = Ran(Outcome(status, done.sentence, float("nan")), None, False)
        ran[names[index]] = done
        on_done(names[index], done)

    run_side_by_side(
        [partial(_in_worker, trials[name], cache) for name in names],
        jobs=jobs,
        backend=backend,
        address=address,
        on_done=note,
    )
    return {name: ran[name] for name in names}


def _in_worker(trial: Trial, cache: Path) -> Ran:
    place, start = outcome_place(trial, cache), time.perf_counter()
    known = _read(place)
    if known is not None and known.status != "done":
        return Ran(known, None, True)
    try:
        with one_thread():
            rows, found = run_trial(trial, cache)
    except TrainingDiverged as error:
        # The state it left would only diverge again.
        discard_state(run_folder(trial, cache))
        reason = str(error).partition(";")[0]
        rows, found, outcome = None, False, Outcome("diverged", reason, _since(start))
    else:
        outcome = Outcome("done", "", float("nan") if found else _since(start))
    if found and known is not None:
        return Ran(known, rows, True)
    _write(place, outcome)
    return Ran(outcome, rows, found)


def _since(start: float) -> float:
    return time.perf_counter() - start


def _read(place: Path) -> Outcome | None:
    try:
        return Outcome.from_dict(json.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _write(place: Path, outcome: Outcome) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, json.dumps(outcome.to_dict()))
