"""What runs over several lengths gave, pooled by the number of visible keys, without a table.

The same numbers as :func:`resharpen.analyses.head_ladders.read_heads` on a profile's table: a rung
stands at the rounded geometric mean of the keys of its rows, and lengths that show the same number
of keys are averaged by their observations. A what-if is drawn from them while a slider moves.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interp.profiling.totals import Place, Totals
from ..head_ladders import HeadLadders, Ladder

__all__ = ["pool_heads", "pool_places"]

Numbers = NDArray[np.float64]


def pool_heads(runs: Iterable[Totals], task: str) -> tuple[HeadLadders, ...]:
    """The ladders of every head of runs over several lengths, from 2 keys on, without intervals.

    Args:
        runs: What each length gave.
        task: What was fed.
    """
    found: dict[tuple[str, int, int], dict[str, Ladder]] = {}
    for (site, layer, quantity), columns in _columns(runs, per_head=True).items():
        assert layer is not None
        for head in range(columns[0].shape[0]):
            n_key, mean, most = _pool(*(column[head] for column in columns), least=2)
            unknown = np.full_like(mean, np.nan)
            ladders = found.setdefault((site, layer, head), {})
            ladders[quantity] = Ladder(n_key, mean, unknown, most)
    return tuple(HeadLadders(None, task, *place, ladders=each) for place, each in found.items())


def pool_places(
    runs: Iterable[Totals], quantity: str
) -> dict[tuple[str, int | None], tuple[Numbers, Numbers]]:
    """One quantity that is no head's, by site and layer: number of keys, mean.

    Args:
        runs: What each length gave.
        quantity: Which one.
    """
    return {
        (site, layer): _pool(*(column[0] for column in columns), least=1)[:2]
        for (site, layer, name), columns in _columns(runs, per_head=False).items()
        if name == quantity
    }


def _columns(runs: Iterable[Totals], per_head: bool) -> dict[Any, list[Numbers]]:
    """By site, layer and quantity: n_key, mean, observations, largest, each ``[head, rung]``."""
    parts: dict[Any, list[list[Numbers]]] = {}
    for totals in runs:
        for key, place in totals.places.items():
            if place.first.per_head == per_head and place.first.binned is not None:
                parts.setdefault(key, []).append(_of_place(place))
    return {
        key: [np.concatenate(column, axis=1) for column in zip(*each, strict=True)]
        for key, each in parts.items()
    }


def _of_place(place: Place) -> list[Numbers]:
    summary = place.moments.result()
    n_rows, log_n = (
        np.asarray(total, dtype=np.float64) for total in (place.n_rows, place.log_n_key)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        n_key = np.round(np.exp(log_n / n_rows)).astype(np.float64)
    parts = (summary.mean, summary.n_obs, summary.max)
    return [n_key, *(np.asarray(part.double(), dtype=np.float64) for part in parts)]


def _pool(
    n_key: Numbers, mean: Numbers, count: Numbers, most: Numbers, *, least: int
) -> tuple[Numbers, Numbers, Numbers]:
    known = np.isfinite(mean) & (n_key >= least)
    keys, owner = np.unique(n_key[known], return_inverse=True)
    weight = np.bincount(owner, count[known], keys.size)
    pooled = np.bincount(owner, count[known] * mean[known], keys.size) / weight
    largest = np.full(keys.size, -np.inf)
    np.maximum.at(largest, owner, most[known])
    return keys, pooled, largest
