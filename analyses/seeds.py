"""Across seeds: independent runs of one configuration, averaged place by place."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..interp.tables import check_table
from ..models.facts import Facts
from .fits import student_t_quantile
from .rows import rows_where

__all__ = ["SEED_COLUMNS", "Interval", "mean_over_seeds", "summarise_seeds"]

SEED_COLUMNS = (
    "study",
    "checkpoint",
    "task",
    "length",
    "n_key",
    "layer",
    "head",
    "site",
    "quantity",
    "unit",
    "mean",
    "low",
    "high",
    "sem",
    "n_seeds",
    "n_missing",
    "min",
    "max",
    "status",
)
"""Columns of `summarise_seeds`, in order."""

_PLACE_COLUMNS = list(SEED_COLUMNS[:10])


def mean_over_seeds(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean, its standard error over seeds, and half its 95 % t-interval.

    NaN where undefined: all three without a value, the latter two with one.
    """
    if not values.size:
        return math.nan, math.nan, math.nan
    if values.size < 2:
        return float(values.mean()), math.nan, math.nan
    sem = float(values.std(ddof=1) / math.sqrt(values.size))
    return float(values.mean()), sem, student_t_quantile(values.size - 1) * sem


@dataclass(frozen=True)
class Interval(Facts):
    """A mean over seeds with its 95 % t-interval; low and high are NaN for one seed."""

    mean: float
    low: float
    high: float
    n_seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Summarise one value a seed; seeds without a value (NaN) are left out."""
        known = np.array([value for value in values if value == value], dtype=np.float64)
        mean, _, half = mean_over_seeds(known)
        return cls(mean, mean - half, mean + half, len(known))


def summarise_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds at each place, with the 95 % t-interval of the seed means.

    Seeds are independent runs, so each seed's mean is one observation:
    `mean ± t(0.975, k - 1) s / sqrt(k)`, k = number of seeds with status ok. The standard errors
    within the runs (over sequences) do not enter.

    Args:
        frame: a tidy table. Rows without a seed count as one run.

    Returns:
        A frame with the columns `SEED_COLUMNS`, one row a place and quantity, in the table's order:
        `mean`, `low`, `high`, `sem` (standard error over seeds), `min`, `max` (smallest and largest
        seed mean) in the row's unit; `n_seeds` = seeds averaged, `n_missing` = seeds whose row is
        not ok. With one seed `sem`, `low` and `high` are NaN. With none the status is that of the
        first row.

    Raises:
        ValueError: the frame is no tidy table, or has two rows for one seed, place and quantity.
    """
    check_table(frame)
    twice = frame.duplicated([*_PLACE_COLUMNS, "seed"])
    if twice.any():
        row = rows_where(frame, twice).iloc[0]
        raise ValueError(
            f"two rows for one seed: {row['quantity']} of {row['checkpoint']} at length "
            f"{row['length']}, seed {row['seed']}; give each run its own seed"
        )
    rows = []
    for key, group in frame.groupby(_PLACE_COLUMNS, dropna=False, sort=False):
        means = group.loc[group["status"] == "ok", "mean"].to_numpy(dtype=np.float64)
        count = int(means.size)
        mean, sem, half = mean_over_seeds(means)
        rows.append(
            (
                *cast(tuple, key),
                mean,
                mean - half,
                mean + half,
                sem,
                count,
                len(group) - count,
                float(means.min()) if count else math.nan,
                float(means.max()) if count else math.nan,
                "ok" if count else group["status"].iloc[0],
            )
        )
    summary = pd.DataFrame(rows, columns=list(SEED_COLUMNS))
    kept = {column: frame[column].dtype for column in SEED_COLUMNS if column in frame}
    return summary.astype({**kept, "n_seeds": "int64", "n_missing": "int64"})
