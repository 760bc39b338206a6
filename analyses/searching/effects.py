r"""What each field does to the objective, over all trials: marginal effects with 95 % intervals.

Fields are drawn independently of each other, so the difference between two levels of one field is
its effect averaged over the distributions of all others. With $m$, $s^2$ and $n$ mean, variance
and number of the trials at a level:

    a level against the first    $m_1 - m_0 \pm t(0.975, ν) \sqrt{s_1^2 / n_1 + s_0^2 / n_0}$,
                                 ν by Welch and Satterthwaite (Welch 1947, Biometrika 34, 28-35)
    an average of the weights    the mean over trials of (average - raw), which come from one run:
    against the raw ones         a t-interval of the paired differences
    a number                     Spearman's rank correlation $r$ with
                                 $\tanh(\operatorname{atanh} r \pm 1.96 \sqrt{(1 + r^2/2)/(n - 3)})$
                                 (Bonett & Wright 2000, Psychometrika 65, 23-28)

Each interval stands for itself: nothing is corrected for how many there are, and the report says
how many. A trial without a value (refused, diverged, failed) is in no mean: `lost` counts them, and
an effect whose levels lose differently many compares what is left of both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from ..record import Record
from ..rows import rows_where
from ..seeds import mean_over_seeds
from .distributions import Choice
from .space import Space
from .tabulating import weights_column

__all__ = [
    "Effect",
    "EffectKind",
    "effects_frame",
    "known_pairs",
    "level_label",
    "level_values",
    "marginal_effects",
    "rank_correlation",
    "welch_interval",
]

EffectKind = Literal["level", "weights", "rank"]

Numbers = NDArray[np.float64]
Interval = tuple[float, float, float]

MIN_RANKS = 5
"""Fewer pairs have no interval of a rank correlation worth the name."""

_NORMAL = 1.959963984540054


@dataclass(frozen=True)
class Effect(Record):
    """One comparison.

    Attributes:
        kind: `level` (a level of a field against the first), `weights` (averaged weights against
            the raw ones), or `rank` (a number's rank correlation with the objective).
        field: The field, such as `model.norm_placement`; `weights` for averages.
        level: What is compared; empty for a number.
        reference: With what; empty for a number.
        value: The difference of the objective, in its unit, or the correlation (1).
        low: Lower end of the 95 % interval, NaN if there are too few trials.
        high: Upper end.
        n: Trials at the level; pairs.
        n_reference: Trials at the reference; pairs.
        lost: Trials at the level without a value.
        lost_reference: Trials at the reference without a value.
    """

    kind: str
    field: str
    level: str
    reference: str
    value: float
    low: float
    high: float
    n: int
    n_reference: int
    lost: int
    lost_reference: int

    @property
    def decided(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def marginal_effects(space: Space, trials: pd.DataFrame) -> list[Effect]:
    """Every comparison that the space and its trials allow.

    Args:
        space: What was searched.
        trials: The table of trials (see `tabulating`).
    """
    own = rows_where(trials, trials["status"] != "repeated")
    effects = _weights_effects(space, own)
    for key, one in space.drawn.items():
        if isinstance(one, Choice):
            values = level_values(own, key)
            first, *others = ((level, values[level]) for level in map(level_label, one.levels)
                              if level in values)  # fmt: skip
            effects += [_level_effect(key, other, first) for other in others]
        else:
            x, y = known_pairs(own, key, "objective")
            correlation, low, high = rank_correlation(x, y)
            lost = len(own) - x.size
            effects.append(
                Effect("rank", key, "", "", correlation, low, high, x.size, x.size, lost, lost)
            )
    return effects


def effects_frame(effects: Sequence[Effect]) -> pd.DataFrame:
    """The effects as a table, one row each."""
    return pd.DataFrame([vars(one) for one in effects], columns=list(Effect.__annotations__))


def level_values(trials: pd.DataFrame, key: str) -> dict[str, Numbers]:
    """The objectives of the trials at each level of a field, NaN for those without one."""
    labels = np.array([level_label(value) for value in trials[key].tolist()])
    objective = trials["objective"].to_numpy(dtype=np.float64)
    return {level: objective[labels == level] for level in dict.fromkeys(labels.tolist())}


def welch_interval(values: Numbers, reference: Numbers) -> Interval:
    """Difference of two means and its 95 % interval by Welch's t; NaN ends where it has none.

    It has none with fewer than two values on a side, or where no side varies.
    """
    if not (values.size and reference.size):
        return math.nan, math.nan, math.nan
    difference = float(values.mean() - reference.mean())
    if min(values.size, reference.size) < 2:
        return difference, math.nan, math.nan
    shares = np.array([one.var(ddof=1) / one.size for one in (values, reference)])
    total = float(shares.sum())
    if total == 0:
        return difference, math.nan, math.nan
    degrees = total**2 / float(np.sum(shares**2 / [values.size - 1, reference.size - 1]))
    half = float(stdtrit(degrees, 0.975)) * math.sqrt(total)
    return difference, difference - half, difference + half


def rank_correlation(x: Numbers, y: Numbers) -> Interval:
    """Spearman's correlation, ties at their mean rank, and its 95 % interval.

    NaN throughout with fewer than five pairs, or if x or y does not vary.
    """
    if x.size < MIN_RANKS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan, math.nan, math.nan
    r = float(np.corrcoef(pd.Series(x).rank(), pd.Series(y).rank())[0, 1])
    if abs(r) >= 1 - 1e-12:
        return math.copysign(1.0, r), math.nan, math.nan
    half = _NORMAL * math.sqrt((1 + r**2 / 2) / (x.size - 3))
    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def _level_effect(key: str, level: tuple[str, Numbers], reference: tuple[str, Numbers]) -> Effect:
    (name, values), (reference_name, others) = level, reference
    known, known_others = values[np.isfinite(values)], others[np.isfinite(others)]
    return Effect(
        "level",
        key,
        name,
        reference_name,
        *welch_interval(known, known_others),
        known.size,
        known_others.size,
        values.size - known.size,
        others.size - known_others.size,
    )


def _weights_effects(space: Space, trials: pd.DataFrame) -> list[Effect]:
    """Each average against the raw weights of the same runs."""
    raw = weights_column(space.objective, "raw")
    stem = raw.removesuffix("raw")
    effects = []
    for column in trials.columns:
        if column == raw or not column.startswith(stem):
            continue
        before, after = known_pairs(trials, raw, column)
        mean, _, half = mean_over_seeds(after - before)
        lost = int(np.isfinite(trials[raw].to_numpy(dtype=np.float64)).sum()) - before.size
        effects.append(
            Effect(
                "weights",
                "weights",
                column.removeprefix(stem),
                "raw",
                mean,
                mean - half,
                mean + half,
                before.size,
                before.size,
                lost,
                0,
            )
        )
    return effects


def known_pairs(trials: pd.DataFrame, first: str, second: str) -> tuple[Numbers, Numbers]:
    """Two columns where both are known."""
    x = trials[first].to_numpy(dtype=np.float64)
    y = trials[second].to_numpy(dtype=np.float64)
    known = np.isfinite(x) & np.isfinite(y)
    return x[known], y[known]


def level_label(value: Any) -> str:
    """A level as text, the same from the space and from the table."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(list(value)) if isinstance(value, tuple) else str(value)
