r"""Where a quantity falls below a level: measured, or followed a little past what was measured.

A power law $y \propto n^b$ is fitted to the tail of the ladder, a line $\alpha + b(x - \bar x)$
through $(x, y) = (\log n, \log y)$, and followed **as far ahead as it was seen**: a tail over a
factor f of n is followed to f times the longest n. The interval holds every n at which the 95 %
confidence band of the line reaches the level,

$$|\alpha + b (x - \bar x) - \log y_0|
    \le t_{0.975, k-2}\, s \sqrt{1/k + (x - \bar x)^2 / S_{xx}},$$

which is Fieller's interval: finite exactly where the interval of b excludes 0.
"""

import math
from dataclasses import dataclass

import numpy as np

from .fits import MIN_POINTS, Values, student_t_quantile
from .record import Record
from .wording import format_number, quantity_words

__all__ = ["KINDS", "Crossing", "find_crossing"]

KINDS = ("measured", "extrapolated", "beyond", "unknown")
"""What is known of a crossing, from most to least."""


@dataclass(frozen=True)
class Crossing(Record):
    """Where a quantity of a head falls below a level, and how that is known.

    Args:
        quantity: what falls; empty if nothing was measured.
        level: the level, in the unit of the quantity.
        kind: `measured`, within the ladder; `extrapolated`, past it, by the fitted power law;
            `beyond`, not as far as the power law may be followed; `unknown`.
        n_key: measured: the first number of keys of the ladder from which on it lies below;
            extrapolated: where the line crosses; beyond: how far it certainly stays above; unknown:
            NaN.
        low: measured: the last number of keys before, NaN if there is none; extrapolated: lower
            end of the 95 % interval.
        high: measured: the same as `n_key`; extrapolated: upper end of the interval.
        longest: the largest number of keys measured.
        reason: how it is known, or why it is not, in a few words.

    Raises:
        ValueError: an unknown kind.
    """

    quantity: str
    level: float
    kind: str
    n_key: float
    low: float
    high: float
    longest: float
    reason: str

    def __post_init__(self) -> None:
        """Check the kind."""
        if self.kind not in KINDS:
            raise ValueError(f"a crossing is one of {', '.join(KINDS)}, got {self.kind!r}")

    def __str__(self) -> str:
        """`64 keys (measured)`, `90 keys [70, 120] (extrapolated)`, `past 99 keys`, `UNKNOWN`."""
        if self.kind == "unknown":
            return "UNKNOWN"
        if self.kind == "measured":
            return f"{self.n_key:.0f} keys (measured)"
        if self.kind == "beyond":
            return f"past {_keys(self.n_key)} keys"
        ends = f"[{_keys(self.low)}, {_keys(self.high)}]"
        return f"{_keys(self.n_key)} keys {ends} (extrapolated)"

    @property
    def sentence(self) -> str:
        """The crossing in half a sentence, without a full stop."""
        if self.kind == "unknown":
            what = (
                f"its {quantity_words(self.quantity)} falls" if self.quantity else "a key is lost"
            )
            return f"where {what} below {format_number(self.level)} is UNKNOWN: {self.reason}"
        what, level = quantity_words(self.quantity), format_number(self.level)
        if self.kind == "measured":
            return f"its {what} is below {level} from {self.n_key:.0f} keys on (measured)"
        if self.kind == "beyond":
            return f"its {what} stays above {level} to {_keys(self.n_key)} keys ({self.reason})"
        return (
            f"its {what} falls below {level} at {_keys(self.n_key)} keys "
            f"[{_keys(self.low)}, {_keys(self.high)}] ({self.reason})"
        )


def find_crossing(
    quantity: str, n_key: Values, mean: Values, level: float, reach: float = 16.0
) -> Crossing:
    """Where a quantity falls below a level and stays there.

    Args:
        quantity: its name.
        n_key: `[n_key]`, increasing, positive.
        mean: `[n_key]`, the same shape, finite.
        level: in the unit of `mean`, positive.
        reach: the fitted tail starts at the longest n_key divided by this (1, above 1).

    Returns:
        The crossing; `unknown` with its reason if it is neither measured nor within reach.

    Raises:
        ValueError: shapes that differ or are not 1-d, n_key not increasing, a mean that is not
            finite, level not positive, or reach not above 1.
    """
    x, y = np.asarray(n_key, dtype=np.float64), np.asarray(mean, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(
            f"a crossing needs n_key and mean of one shape [n], got {x.shape}, {y.shape}"
        )
    if np.any(x <= 0) or np.any(np.diff(x) <= 0) or not np.all(np.isfinite(y)):
        raise ValueError(
            "a crossing needs n_key positive and increasing, and means that are finite"
        )
    if not level > 0 or not reach > 1:
        raise ValueError(
            f"a crossing needs a level above 0 and a reach above 1, got {level}, {reach}"
        )
    if not x.size:
        return _unknown(quantity, level, math.nan, "nothing was measured")
    longest, below = float(x[-1]), y < level
    if below[-1]:
        first = int(x.size - np.argmin(below[::-1])) if not below.all() else 0
        before = float(x[first - 1]) if first else math.nan
        found = float(x[first])
        return Crossing(
            quantity, level, "measured", found, before, found, longest, "within what was measured"
        )
    tail = x >= longest / reach
    if tail.sum() < MIN_POINTS:
        few = f"fewer than {MIN_POINTS} points from {longest / reach:g} keys on"
        return _unknown(quantity, level, longest, few)
    if np.any(y[tail] <= 0):
        odd = "values that are not positive follow no power law"
        return _unknown(quantity, level, longest, odd)
    return _follow(quantity, x[tail], y[tail], level)


def _follow(quantity: str, n_key: np.ndarray, mean: np.ndarray, level: float) -> Crossing:
    """The crossing by the power law through these points, all of them positive."""
    longest, count = float(n_key[-1]), n_key.size
    x, y = np.log(n_key), np.log(mean) - math.log(level)
    centre, height = float(x.mean()), float(y.mean())
    spread = float(np.sum((x - centre) ** 2))
    slope = float(np.sum((x - centre) * y)) / spread
    residuals = y - height - slope * (x - centre)
    variance = float(np.sum(residuals**2)) / (count - 2)
    margin = student_t_quantile(count - 2) ** 2 * variance
    end = float(2 * x[-1] - x[0]) - centre

    far = longest * longest / float(n_key[0])
    if height + slope * end > math.sqrt(margin * (1 / count + end**2 / spread)):
        reason = f"followed from {_keys(longest)} keys by its power law"
        return Crossing(quantity, level, "beyond", far, math.nan, math.nan, longest, reason)
    # Fieller: (height + slope u)^2 = margin (1/count + u^2/spread), u = x - centre.
    a, c = slope**2 - margin / spread, height**2 - margin / count
    if slope >= 0 or a <= 0:
        reason = f"its power law past {_keys(longest)} keys is not certain to fall"
        return _unknown(quantity, level, longest, reason)
    root = math.sqrt(max(0.0, (height * slope) ** 2 - a * c))
    low, high = (math.exp(centre + (-height * slope + sign * root) / a) for sign in (-1, 1))
    value = math.exp(centre - height / slope)
    if not longest < value <= far:
        reason = (
            f"its power law crosses past {_keys(far)} keys, further than it may be followed"
            if value > far
            else f"its power law has crossed before {_keys(longest)} keys, the measurement has not"
        )
        return _unknown(quantity, level, longest, reason)
    return Crossing(
        quantity,
        level,
        "extrapolated",
        value,
        max(low, longest),
        high,
        longest,
        f"extrapolated past {_keys(longest)} keys",
    )


def _unknown(quantity: str, level: float, longest: float, reason: str) -> Crossing:
    return Crossing(quantity, level, "unknown", math.nan, math.nan, math.nan, longest, reason)


def _keys(count: float) -> str:
    """A number of keys: whole, or three digits from a million on."""
    return f"{count:.0f}" if count < 1e6 else f"{count:.3g}"
