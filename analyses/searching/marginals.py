"""The objective over one field, as a figure draws it: the trials, and their means with intervals.

A field of choices has a mean a level; a number has one a bin, the bins holding about equally many
trials. Each mean comes with its 95 % t-interval over trials.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..rows import rows_where
from ..seeds import mean_over_seeds
from .distributions import Choice, Range
from .effects import known_pairs, level_label
from .space import Space

__all__ = ["Bin", "Marginal", "marginals"]

Numbers = NDArray[np.float64]

_BIN_TRIALS = 4
_MAX_BINS = 6


@dataclass(frozen=True)
class Bin:
    """The trials at one level, or of neighbouring values.

    Attributes:
        centre: Number of the level, or the median of the values.
        mean: Mean objective.
        low: Lower end of its 95 % t-interval over trials; NaN for one trial.
        high: Upper end.
        n: Trials.
    """

    centre: float
    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, eq=False)
class Marginal:
    """The objective over one field.

    Attributes:
        field: The field, such as `model.d_model`.
        levels: Names of the levels; empty for a number.
        x: Value, or number of the level, of each trial with an objective.
        y: Its objective.
        bins: Means, by increasing centre.
        logarithmic: Whether the values were drawn evenly on a logarithmic axis.
    """

    field: str
    levels: tuple[str, ...]
    x: Numbers
    y: Numbers
    bins: tuple[Bin, ...]
    logarithmic: bool = False


def marginals(space: Space, trials: pd.DataFrame) -> list[Marginal]:
    """Every drawn field with the objectives of the trials; repeated trials count once.

    Args:
        space: What was searched.
        trials: The table of trials (see `tabulating`).
    """
    own = rows_where(trials, trials["status"] != "repeated")
    return [_marginal(own, key, one) for key, one in space.drawn.items()]


def _marginal(trials: pd.DataFrame, key: str, one: Choice | Range) -> Marginal:
    if isinstance(one, Range):
        x, y = known_pairs(trials, key, "objective")
        return Marginal(key, (), x, y, tuple(_binned(x, y)), one.logarithmic)
    levels = tuple(map(level_label, one.levels))
    numbers = [levels.index(level_label(value)) for value in trials[key].tolist()]
    x, y = known_pairs(trials.assign(**{key: numbers}), key, "objective")
    means = [_bin(float(level), y[x == level]) for level in np.unique(x)]
    return Marginal(key, levels, x, y, tuple(means))


def _binned(x: Numbers, y: Numbers) -> list[Bin]:
    n_bins = min(_MAX_BINS, x.size // _BIN_TRIALS)
    if n_bins < 2:
        return []
    # Equal values stay together, so that a bin is a stretch of the axis.
    edges = np.unique(np.quantile(x, np.arange(1, n_bins) / n_bins))
    which = np.searchsorted(edges, x, side="right")
    return [
        _bin(float(np.median(x[which == number])), y[which == number])
        for number in np.unique(which)
    ]


def _bin(centre: float, values: Numbers) -> Bin:
    mean, _, half = mean_over_seeds(values)
    return Bin(centre, mean, mean - half, mean + half, values.size)
