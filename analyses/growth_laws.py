r"""How the inverse temperature that sharpens a head grows with n: which of the laws in use fits.

The measured quantity is the mean over rows of log beta(n), beta the least inverse temperature at
which the strongest key holds half of the weight. Candidates, each times a constant:

| law | beta grows as | whose |
| --- | --- | --- |
| `constant` | 1 | one temperature serves every length |
| `sqrt_log_n` | what n i.i.d. Gaussian scores need, which tends to $\sqrt{\log n}$ | theory 0, 5 |
| `log_n` | $\log(n - 1)$, one key a fixed gap above the rest | theory 2, 4 |
| `power` | $n^p$, p fitted | keys that close in on the query, theory 5 |

The first three have one parameter, the coefficient; the fourth has two. They are fitted to log beta
by (weighted) least squares and compared by Akaike's criterion, corrected for few points. The power
law, which can imitate the others, has to beat them by `SEPARATION`; of the others one has to beat
the rest by as much, else the growth is `undecided`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..interp.theory import predict_gaussian_sharpening, required_spread_bound
from .findings import Exponent
from .fits import Values, fit_exponent
from .record import Record
from .wording import format_number

__all__ = ["GROWTH_LAWS", "Growth", "GrowthFit", "fit_growth"]

GROWTH_LAWS = ("constant", "sqrt_log_n", "log_n", "power")
"""The candidates, from slow to fast."""

SEPARATION = 4.0
"""Difference of Akaike's criterion from which a law has considerably less support (Burnham and
Anderson, *Model Selection and Multimodel Inference*, 2002)."""

MIN_POINTS = 5
"""The corrected criterion of a power law is defined from 5 points on."""

SMALLEST_N_KEY = 4
"""Of two keys one always holds half; from here on the laws say something."""

_FLOOR = 1e-3
"""Misfit (relative) below which two laws are equally good."""

WORDS = {
    "constant": "stays the same",
    "sqrt_log_n": "grows as sqrt(log n)",
    "log_n": "grows as log n",
    "power": "follows a power of n",
}


@dataclass(frozen=True)
class GrowthFit(Record):
    """One candidate.

    Args:
        law: its name.
        coefficient: what the law is multiplied by (1).
        power: the exponent p of a power law; NaN for the others.
        misfit: root mean square of the relative deviation (ratio).
        criterion: Akaike's, corrected; only differences matter.
    """

    law: str
    coefficient: float
    power: float
    misfit: float
    criterion: float

    def row(self, best: float) -> dict[str, str]:
        """The fit as the cells of a table, all text."""
        return {
            "law": self.law,
            "coefficient": format_number(self.coefficient),
            "power": "" if math.isnan(self.power) else format_number(self.power),
            "misfit": format_number(self.misfit),
            "criterion above the best": format_number(self.criterion - best),
        }


@dataclass(frozen=True)
class Growth(Record):
    """How a quantity grows with the number of keys.

    Args:
        law: one of `GROWTH_LAWS`, or `undecided`.
        fits: every candidate, in the order of `GROWTH_LAWS`; empty where there are too few points.
        in_log_n: exponent against log n, with its 95 % interval: 0 constant, 1 log n.
        in_n: exponent against n: that of the power law.
        first, last: its value at the fewest and at the most keys.
        n_key_first, n_key_last: these numbers of keys.
        reason: why this law, or why none, in half a sentence.
    """

    law: str
    fits: tuple[GrowthFit, ...]
    in_log_n: Exponent
    in_n: Exponent
    first: float
    last: float
    n_key_first: float
    n_key_last: float
    reason: str

    def __str__(self) -> str:
        """The law alone: `constant`."""
        return self.law

    def __repr__(self) -> str:
        """The law, why, its exponents, and over which numbers of keys."""
        keys = f"n_key {self.n_key_first:g} to {self.n_key_last:g}"
        powers = f"exponent {self.in_log_n} of log n, {self.in_n} of n"
        return f"Growth({self.law}: {self.reason}; {powers}; {keys})"

    @property
    def falls(self) -> bool:
        """Whether it certainly falls with n."""
        return self.in_n.high < 0


def fit_growth(n_key: Values, log_value: Values, half: Values | None = None) -> Growth:
    """Fit every candidate and choose, by the rules at the top of this module.

    Args:
        n_key: `[n_key]`, increasing; points below 4 keys are left out.
        log_value: `[n_key]`, mean over rows of the logarithm; NaN where it has none.
        half: `[n_key]`, its standard errors (or anything proportional); None or any unknown or zero
            = unweighted.

    Raises:
        ValueError: shapes that differ or are not 1-d.
    """
    n, y = np.asarray(n_key, dtype=np.float64), np.asarray(log_value, dtype=np.float64)
    errors = np.full_like(y, np.nan) if half is None else np.asarray(half, dtype=np.float64)
    if n.ndim != 1 or n.shape != y.shape or errors.shape != y.shape:
        raise ValueError(
            f"growth needs n_key, log_value and half of one shape [n], got {n.shape}, {y.shape}, "
            f"{errors.shape}"
        )
    known = np.isfinite(y) & (n >= SMALLEST_N_KEY) & (n <= 2**20)
    n, y, errors = n[known], y[known], errors[known]
    value = np.exp(y)
    sems = None if not np.isfinite(errors).all() else errors * value
    in_log_n = fit_exponent(np.log(n), value, sems)
    in_n = fit_exponent(n, value, sems)
    ends = (value[0], value[-1], n[0], n[-1]) if n.size else (math.nan,) * 4
    first, last, n_first, n_last = (float(end) for end in ends)
    if np.unique(n).size < MIN_POINTS:
        fits, law = (), "undecided"
        reason = f"{np.unique(n).size} numbers of keys, at least {MIN_POINTS} are needed"
    else:
        weighted = bool(np.isfinite(errors).all() and (errors > 0).all())
        weights = (errors.min() / errors) ** 2 if weighted else np.ones(n.size)
        fits = tuple(_fit(law, n, y, weights / weights.mean()) for law in GROWTH_LAWS)
        law, reason = _choose(fits, in_n)
    return Growth(law, fits, in_log_n, in_n, first, last, n_first, n_last, reason)


def _shape(law: str, n: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of a law with one parameter, without it."""
    if law == "constant":
        return np.zeros_like(n)
    if law == "sqrt_log_n":
        return np.log(predict_gaussian_sharpening(n, 1.0))
    return np.log(required_spread_bound(n, 0.5))


def _fit(
    law: str, n: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]
) -> GrowthFit:
    power = math.nan
    if law == "power":
        x = np.log(n)
        centred = x - np.average(x, weights=weights)
        power = float(np.sum(weights * centred * y) / np.sum(weights * centred**2))
        shape, parameters = power * x, 3
    else:
        shape, parameters = _shape(law, n), 2
    level = float(np.average(y - shape, weights=weights))
    square = float(np.average((y - shape - level) ** 2, weights=weights))
    count = n.size
    penalty = 2.0 * parameters * count / (count - parameters - 1)
    criterion = count * math.log(square + _FLOOR**2) + penalty
    return GrowthFit(law, math.exp(level), power, math.sqrt(square), criterion)


def _choose(fits: tuple[GrowthFit, ...], in_n: Exponent) -> tuple[str, str]:
    simple = sorted(fits[:-1], key=lambda fit: fit.criterion)
    best, second, power = simple[0], simple[1], fits[-1]
    if power.criterion + SEPARATION <= best.criterion:
        if in_n.high < 0:
            return "power", f"it falls with n, as n^{power.power:.2f}"
        return "power", f"n^{power.power:.2f} fits better than {best.law} and the others"
    if best.criterion + SEPARATION <= second.criterion:
        return best.law, f"{best.law} fits better than {second.law} and the others"
    near = [fit.law for fit in simple if fit.criterion < best.criterion + SEPARATION]
    return "undecided", f"{' and '.join(sorted(near, key=GROWTH_LAWS.index))} fit about as well"
