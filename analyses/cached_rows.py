"""Measurements that are made once: tidy tables kept by the key of all they depend on."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from ..interp.tables import concatenate
from .storage import whole_file

__all__ = ["cached_rows"]


def cached_rows(place: Path, measure: Callable[[], pd.DataFrame]) -> tuple[pd.DataFrame, bool]:
    """Read the rows kept in a file, or measure them and keep them.

    The file is written whole or not at all, so that a killed run leaves none.

    Args:
        place: the Parquet file; its name must tell apart whatever gives other rows.
        measure: makes the rows.

    Returns:
        The rows, and whether they were there.
    """
    if place.exists():
        return concatenate([pd.read_parquet(place)]), True
    frame = measure()
    place.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(place) as unfinished:
        frame.to_parquet(unfinished)
    return frame, False
