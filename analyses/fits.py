"""Slopes with their 95 % t-intervals: power laws (log y against log x) and logarithmic laws.

Least squares of a line, `b = S_xy / S_xx`, with weights `w_i = 1 / sem_i^2` when standard errors
are given and all of them are known and positive. The variance of the residuals is estimated from
the residuals themselves, so only the ratios of the weights matter, and the interval is
`b ± t(0.975, n - 2) sqrt(s^2 / S_xx)`, `s^2 = sum w r^2 / (n - 2)`.

The points of a ladder of lengths measured on one model share that model: the interval speaks of how
well a line describes them, not of other seeds. For seeds see `compare.summarise_seeds`.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from .findings import Exponent

__all__ = ["fit_exponent", "fit_slope", "student_t_quantile"]

Values = Sequence[float] | NDArray[np.float64]

MIN_POINTS = 3
"""A line through two points has no residual and so no interval."""


def fit_exponent(x: Values, y: Values, sem: Values | None = None) -> Exponent:
    r"""The exponent $b$ of $y \propto x^b$: a line through $(\log x, \log y)$.

    A standard error `sem` of y becomes `sem / y` of log y. Points where x or y is not finite are
    left out as missing.

    Args:
        x: positive, any unit, 1-d.
        y: positive, any unit, same shape.
        sem: standard errors of y, in its unit; None or any unknown or zero = unweighted.

    Returns:
        The exponent (1) and its 95 % t-interval. NaN with status `undefined` and the reason if
        fewer than 3 points are left, if some x or y is not positive (a power law has no such
        points, and leaving them out would flatter the fit), or if all x are equal.

    Raises:
        ValueError: shapes that differ or are not 1-d.
    """
    return _fit(x, y, sem, law="power")


def fit_slope(x: Values, y: Values, sem: Values | None = None) -> Exponent:
    r"""The slope $b$ of $y = a + b \log x$: a line through $(\log x, y)$, natural logarithm.

    For y = entropy in nats and x = n_key this is the dispersion slope $dH/d\log n$ of theory
    section 0: 1 for a head that disperses fully, 0 for one that holds its support.

    Args:
        x: positive, any unit, 1-d.
        y: any unit, same shape.
        sem: standard errors of y, in its unit; None or any unknown or zero = unweighted.

    Returns:
        The slope (unit of y) and its 95 % t-interval, or NaN with status and reason as
        `fit_exponent`.

    Raises:
        ValueError: shapes that differ or are not 1-d.
    """
    return _fit(x, y, sem, law="logarithm")


def _fit(x: Values, y: Values, sem: Values | None, law: str) -> Exponent:
    x_values = np.asarray(x, dtype=np.float64)
    y_values = np.asarray(y, dtype=np.float64)
    sems = np.full_like(y_values, np.nan) if sem is None else np.asarray(sem, dtype=np.float64)
    if x_values.ndim != 1 or x_values.shape != y_values.shape or sems.shape != y_values.shape:
        raise ValueError(
            "a fit needs x, y and sem of one shape [n], got "
            f"{x_values.shape}, {y_values.shape}, {sems.shape}"
        )
    known = np.isfinite(x_values) & np.isfinite(y_values)
    x_values, y_values, sems = x_values[known], y_values[known], sems[known]
    n_points = int(x_values.size)
    if n_points < MIN_POINTS:
        return _undefined(n_points, law, f"{n_points} points, at least {MIN_POINTS} are needed")
    if np.any(x_values <= 0):
        return _undefined(n_points, law, "x has values that are not positive")
    if law == "power":
        if np.any(y_values <= 0):
            return _undefined(n_points, law, "values that are not positive follow no power law")
        sems = sems / y_values
        y_values = np.log(y_values)
    weighted = bool(np.all(np.isfinite(sems)) and np.all(sems > 0))
    # Only ratios of weights matter; the smallest error is scaled to 1 so that none overflows.
    weights = (sems.min() / sems) ** 2 if weighted else np.ones(n_points)
    log_x = np.log(x_values)
    x_centred = log_x - np.average(log_x, weights=weights)
    y_centred = y_values - np.average(y_values, weights=weights)
    spread = float(np.sum(weights * x_centred**2))
    if spread <= 1e-24 * max(1.0, float(np.sum(weights * log_x**2))):
        return _undefined(n_points, law, "all x are equal")
    slope = float(np.sum(weights * x_centred * y_centred)) / spread
    residuals = y_centred - slope * x_centred
    variance = float(np.sum(weights * residuals**2)) / (n_points - 2)
    half = student_t_quantile(n_points - 2) * math.sqrt(variance / spread)
    return Exponent(slope, slope - half, slope + half, n_points, law, weighted)


def _undefined(n_points: int, law: str, reason: str) -> Exponent:
    return Exponent(math.nan, math.nan, math.nan, n_points, law, False, "undefined", reason)


def student_t_quantile(degrees: int, probability: float = 0.975) -> float:
    """The quantile of Student's t: 12.706 at 1 degree of freedom, 1.960 in the limit.

    Args:
        degrees: degrees of freedom, a whole number from 1 on.
        probability: strictly between 0.5 and 1.

    Raises:
        ValueError: outside these.
    """
    if degrees < 1 or not 0.5 < probability < 1:
        raise ValueError(
            "a t quantile needs at least 1 degree of freedom and a probability between 0.5 and 1, "
            f"got {degrees} and {probability}"
        )
    return float(stdtrit(degrees, probability))
