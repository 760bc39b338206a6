"""Rows of the tidy table: which hold, what they say over an axis, the plain values of cells."""

from typing import Any

import numpy as np
import pandas as pd

__all__ = ["ERRORS", "distinct", "over", "pick", "places", "plain", "rows_where"]

ERRORS = ("total_variation", "kl_divergence", "illegal_mass")
"""Quantities that set the next-token distribution beside the exact one, the first to read first."""


def rows_where(frame: pd.DataFrame, mask: Any) -> pd.DataFrame:
    """The rows where the mask (one value a row) is true; a missing value is not true."""
    known = pd.array(mask, dtype="boolean").fillna(False)
    return frame.take(np.flatnonzero(known.to_numpy(dtype=bool)))


def pick(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows with status ok whose columns have the values given."""
    mask = np.array(frame["status"] == "ok", dtype=bool)
    for column, value in wanted.items():
        matches = pd.array(frame[column] == value, dtype="boolean").fillna(False)
        mask &= matches.to_numpy(dtype=bool)
    return rows_where(frame, mask)


def over(frame: pd.DataFrame, axis: str, column: str = "mean", how: str = "mean") -> pd.Series:
    """A column at each length or number of keys, increasing; several rows (seeds) are reduced.

    Args:
        frame: rows of one quantity at one place.
        axis: `length` or `n_key`.
        column: `mean`, `min`, `max` or `sem`.
        how: `mean`, `min` or `max` over the rows with the same value on the axis.
    """
    reduced: Any = frame.groupby(axis)[column].agg(how)
    return pd.Series(
        reduced.to_numpy(dtype=np.float64), index=reduced.index.to_numpy(dtype=np.float64)
    ).sort_index()


def places(frame: pd.DataFrame) -> list[tuple[int, int]]:
    """The (layer, head) pairs that the rows speak about, in order."""
    pairs = {
        (int(layer), int(head))
        for layer, head in zip(frame["layer"].tolist(), frame["head"].tolist(), strict=True)
        if plain(layer) is not None and plain(head) is not None
    }
    return sorted(pairs)


def plain(value: Any) -> Any:
    """A cell as str, int or float; None if it is missing."""
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    return value.item() if isinstance(value, np.generic) else value


def distinct(frame: pd.DataFrame, column: str) -> list[Any]:
    """The plain values of a column in the order in which they first come, the missing left out."""
    values = dict.fromkeys(plain(value) for value in frame[column].tolist())
    return [value for value in values if value is not None]
