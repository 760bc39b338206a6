"""All trials in one table, one row a trial, and their measurements in the tidy table.

The columns of the first: `trial`, `hash`, `status`, `repeats` (the earlier trial with the same
configuration), `reason`, `seed`, `seconds`, `objective` with `objective_low` and `objective_high`
(95 % t-interval over the sequences), every drawn field (`model.d_model`), and every measured number
as `quantity@length weights`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...interp.tables import concatenate
from ..fits import student_t_quantile
from ..rows import distinct, pick
from .distributions import SameAs
from .planning import Planned
from .running import Ran
from .space import Objective, Space

__all__ = ["STUDY", "objective_of", "tidy_rows", "trials_frame", "weights_column"]

STUDY = "search"

_FIRST = (
    "trial", "hash", "status", "repeats", "reason", "seed", "seconds",
    "objective", "objective_low", "objective_high",
)  # fmt: skip


def trials_frame(space: Space, planned: Sequence[Planned], ran: Mapping[int, Ran]) -> pd.DataFrame:
    """One row a trial.

    A repeated trial has the seed and the numbers of the one that it repeats, and status `repeated`.

    Args:
        space: What was searched.
        planned: Every trial.
        ran: What came of those that were run, by index.
    """
    drawn = [*space.drawn, *(key for key, one in space.fields.items() if isinstance(one, SameAs))]
    rows = []
    for one in planned:
        own = ran.get(one.draw.index if one.repeats is None else one.repeats)
        first = planned[one.repeats if one.repeats is not None else one.draw.index]
        outcome = None if own is None else own.outcome
        rows.append(
            {
                "trial": one.draw.index,
                "hash": one.digest,
                "status": _status(one, own),
                "repeats": one.repeats,
                "reason": one.reason if outcome is None else outcome.reason,
                "seed": first.draw.seed,
                "seconds": math.nan if outcome is None else outcome.seconds,
                **_objective_cells(own, space.objective),
                **{key: _plain(one.draw.values[key]) for key in space.fields if key in drawn},
                **({} if own is None or own.rows is None else _metrics(own.rows)),
            }
        )
    frame = pd.DataFrame(rows)
    return frame.astype({"trial": "Int64", "repeats": "Int64", "seed": "Int64"})


def objective_of(rows: pd.DataFrame, objective: Objective) -> tuple[float, float, float]:
    """The objective of one run with its 95 % t-interval over the sequences; NaN if it has none."""
    found = pick(
        rows,
        quantity=objective.quantity,
        length=objective.length,
        checkpoint=objective.weights,
    )
    if len(found) != 1 or found["status"].iloc[0] != "ok":
        return math.nan, math.nan, math.nan
    mean, sem, n_obs = (float(found[name].iloc[0]) for name in ("mean", "sem", "n_obs"))
    half = student_t_quantile(int(n_obs) - 1) * sem if n_obs > 1 else math.nan
    return mean, mean - half, mean + half


def weights_column(objective: Objective, weights: str) -> str:
    """Name of the column with the objective's quantity and length, of other weights."""
    return f"{objective.quantity}@{objective.length} {weights}"


def tidy_rows(ran: Mapping[str, Ran]) -> pd.DataFrame:
    """The measurements of all runs; the column `checkpoint` says `NAME / WEIGHTS`."""
    frames = []
    for name, one in ran.items():
        if one.rows is not None:
            weights = one.rows["checkpoint"].astype("string")
            frames.append(one.rows.assign(study=STUDY, checkpoint=f"{name} / " + weights))
    return concatenate(frames)


def _status(one: Planned, own: Ran | None) -> str:
    if one.trial is None or own is None:
        return "refused"
    return "repeated" if one.repeats is not None else own.outcome.status


def _objective_cells(own: Ran | None, objective: Objective) -> dict[str, float]:
    names = ("objective", "objective_low", "objective_high")
    if own is None or own.rows is None:
        return dict.fromkeys(names, math.nan)
    return dict(zip(names, objective_of(own.rows, objective), strict=True))


def _metrics(rows: pd.DataFrame) -> dict[str, float]:
    cells = {}
    for weights in distinct(rows, "checkpoint"):
        own = pick(rows, checkpoint=weights)
        places = zip(own["quantity"], own["length"], own["mean"], strict=True)
        for quantity, length, mean in places:
            cells[f"{quantity}@{length} {weights}"] = float(np.float64(mean))
    return cells


def _plain(value: Any) -> Any:
    """A list as text, so that a column of them can be grouped and written."""
    return str(list(value)) if isinstance(value, tuple) else value
