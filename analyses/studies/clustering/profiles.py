"""From the table of the study to lines over blocks and over lengths, mean over seeds with interval.

Depth is the number of blocks that stand before a place: 0 for the stream that enters the first
block, ``layer + 1`` for what leaves block ``layer`` or happens in it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...rows import pick, rows_where
from ...seeds import mean_over_seeds

_ENTRANCES = ("hook_resid_pre", "hook_embed")


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % t-interval; NaN where unknown.

    Attributes:
        mean: The mean.
        low: Lower end.
        high: Upper end.
        n_seeds: Seeds that have a value.
    """

    mean: float
    low: float
    high: float
    n_seeds: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> "Estimate":
        """From one value a seed; NaN is no value."""
        known = values[np.isfinite(values)]
        mean, _, half = mean_over_seeds(known)
        return cls(mean, mean - half, mean + half, int(known.size))


@dataclass(frozen=True, eq=False)
class Profile:
    """One quantity over depth or over length.

    Attributes:
        x: Depths, or lengths, increasing.
        seeds: By seed, its value at each x, ``[seed, x]``; NaN where it has none.
    """

    x: NDArray[np.float64]
    seeds: NDArray[np.float64]

    @property
    def estimates(self) -> list[Estimate]:
        """Mean over seeds at each x."""
        return [Estimate.of(column) for column in self.seeds.T]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean over seeds."""
        return np.array([estimate.mean for estimate in self.estimates])

    @property
    def low(self) -> NDArray[np.float64]:
        """Lower ends of the intervals."""
        return np.array([estimate.low for estimate in self.estimates])

    @property
    def high(self) -> NDArray[np.float64]:
        """Upper ends of the intervals."""
        return np.array([estimate.high for estimate in self.estimates])

    def each_seed(self, function: Callable[[NDArray[np.float64]], float]) -> Estimate:
        """A number of each seed's line, and its mean."""
        return Estimate.of(np.array([function(line) for line in self.seeds]))


def over_depth(table: pd.DataFrame, checkpoint: str, quantity: str, length: int) -> Profile:
    """A quantity block by block, at one length."""
    rows = pick(table, checkpoint=checkpoint, quantity=quantity, length=length)
    entrance = np.array(
        [str(site).rsplit(".", 1)[-1] in _ENTRANCES for site in rows["site"].tolist()], dtype=bool
    )
    layers = rows["layer"].to_numpy(dtype=np.float64, na_value=np.nan)
    return _profile(rows, np.where(entrance, 0.0, layers + 1.0))


def over_length(table: pd.DataFrame, checkpoint: str, quantity: str, depth: int) -> Profile:
    """A quantity of the stream behind so many blocks (at least one), at every length."""
    rows = pick(table, checkpoint=checkpoint, quantity=quantity, layer=depth - 1)
    leaving = rows_where(rows, rows["site"] != "blocks.0.hook_resid_pre")
    return _profile(leaving, leaving["length"].to_numpy(dtype=np.float64))


def first_reach(x: NDArray[np.float64], y: NDArray[np.float64], level: float) -> float:
    """Where a line first reaches a level, interpolated; its first x if it is there from the start.

    Infinite if it never does.
    """
    reached = np.flatnonzero(y >= level)
    if not reached.size:
        return math.inf
    at = int(reached[0])
    if at == 0:
        return float(x[0])
    share = (level - y[at - 1]) / (y[at] - y[at - 1])
    return float(x[at - 1] + share * (x[at] - x[at - 1]))


def _profile(rows: pd.DataFrame, x: NDArray[np.float64]) -> Profile:
    seeds = rows["seed"].fillna(-1).to_numpy(dtype=np.int64)
    values = rows["mean"].to_numpy(dtype=np.float64)
    grid, names = np.unique(x), np.unique(seeds)
    lines = np.full((names.size, grid.size), np.nan)
    lines[np.searchsorted(names, seeds), np.searchsorted(grid, x)] = values
    return Profile(grid, lines)
