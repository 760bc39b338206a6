r"""Which law a head's scores follow as n grows: bounded, Gaussian of fixed deviation, or growing.

The spread (max - min) of n i.i.d. Gaussian scores is $\sigma\,c(n)$ with a known $c(n)$ that tends
to $2\sqrt{2 \log n}$. So spread / c(n) is flat for Gaussian scores of fixed deviation at every n,
falls as $(\log n)^{-1/2}$ for a bounded spread and rises at least as $(\log n)^{1/2}$ for one that
grows at least as log n. Its exponent e in log n, fitted to the tail of the ladder with a 95 %
interval, decides, with the lines half way between (`exponent` = 1/4):

1. **bounded**: the interval of e lies below -1/4 (or all scores are equal).
2. **growing**: it lies above 1/4; or above 0 where the scores are certainly heavier-tailed than
   normal and a maximum linear in log n fits better than the Gaussian one (exponential tails).
3. **gaussian**: it lies between, and so does the exponent of the deviation; the maximum is that of
   n normal scores of that deviation within the factor `ratio`; excess kurtosis and Kolmogorov's
   distance are those of normal scores within `kurtosis` and `distance`.
4. **undecided** otherwise.

This is about the n that was measured: over a finite vocabulary scores are bounded in the end
(Veličković et al., arXiv 2410.01104, Theorem 2.2 [second-hand]). Theory sections 0, 2 and 5.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from ..interp.arguments import check_thresholds
from ..interp.theory import predict_gaussian_maximum, predict_gaussian_spread
from .findings import Exponent
from .fits import MIN_POINTS, fit_exponent, fit_slope, student_t_quantile
from .growth_laws import SEPARATION
from .head_ladders import HeadLadders
from .markup import html_table
from .record import Record
from .wording import format_interval, format_number, plural

__all__ = ["SCORE_LAWS", "Evidence", "LawThresholds", "ScoreLaw", "find_score_law"]

SCORE_LAWS = ("bounded", "gaussian", "growing", "undecided")
"""The laws, and what is said where none is certain."""

_LILLIEFORS = 0.63
"""Mean of sqrt(n) times Kolmogorov's distance of n normal numbers, mean and deviation fitted."""

_FLAT = 0.1
"""Slope per unit of log n that passes for none: of the spread in units of the spread (it takes ten
e-foldings of n to double), of the entropy in nats."""

_TAIL_POINTS = 4
_SMALLEST_N_KEY = 4


@dataclass(frozen=True)
class LawThresholds(Record):
    """Where the lines between the laws are drawn.

    Args:
        exponent: exponent of log n, half way between a bounded spread (-1/2), Gaussian scores (0)
            and a spread that grows as log n (1/2), both measured against Gaussian scores (1).
        ratio: factor within which the maximum is that of normal scores (1, above 1).
        kurtosis: excess kurtosis within which scores are near normal (1).
        distance: Kolmogorov's distance from normal, beyond what normal scores show, within which
            they are near normal (ratio); 0.06 for uniform and for Laplace scores.
        tail: laws are fitted from the longest n_key divided by this on (1, above 1).
    """

    exponent: float = 0.25
    ratio: float = 1.25
    kurtosis: float = 1.0
    distance: float = 0.05
    tail: float = 16.0

    def __post_init__(self) -> None:
        """Check that they are finite numbers, and the ranges."""
        check_thresholds(self)
        if not 0 < self.exponent < 0.5:
            raise ValueError(f"the exponent threshold must lie in (0, 0.5); got {self.exponent}")
        for name in ("ratio", "tail"):
            if not getattr(self, name) > 1:
                raise ValueError(f"{name} must be above 1; got {getattr(self, name)}")
        for name in ("kurtosis", "distance"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0; got {getattr(self, name)}")


@dataclass(frozen=True)
class Evidence(Record):
    """One number that speaks for or against a law.

    Args:
        name: what was measured, in words.
        value, low, high: the number and its 95 % interval; NaN where unknown.
        unit: its unit.
        bounded, gaussian, growing: what each law expects of it; empty = it says nothing.
        speaks_for: the laws whose expectation it meets.
        reason: why it is unknown; empty when known.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    bounded: str
    gaussian: str
    growing: str
    speaks_for: tuple[str, ...]
    reason: str = ""

    def __str__(self) -> str:
        """The number with its interval, or `unknown`."""
        if math.isnan(self.value):
            return "unknown"
        return format_interval(self.value, self.low, self.high)

    def row(self) -> dict[str, str]:
        """The evidence as the cells of a table, all text."""
        return {
            "evidence": self.name,
            "measured": str(self),
            "bounded": self.bounded or "–",
            "gaussian": self.gaussian or "–",
            "growing": self.growing or "–",
            "speaks for": ", ".join(self.speaks_for) or "none",
        }


@dataclass(frozen=True)
class ScoreLaw(Record):
    """The law of one head's scores, with its evidence.

    Args:
        law: one of `SCORE_LAWS`.
        evidence: every number that was looked at.
        n_key_first, n_key_last: the numbers of keys over which it was fitted.
        deviation: the deviation of the scores over them (1).
        spread: their largest spread (1).
        reason: why this law, in half a sentence.
    """

    law: str
    evidence: tuple[Evidence, ...]
    n_key_first: float
    n_key_last: float
    deviation: float
    spread: float
    reason: str

    def __str__(self) -> str:
        """The law alone: `bounded`."""
        return self.law

    def __repr__(self) -> str:
        """The law, why, over which numbers of keys, and how much evidence there is."""
        keys = f"n_key {self.n_key_first:g} to {self.n_key_last:g}"
        pieces = plural(len(self.evidence), "piece")
        return f"ScoreLaw({self.law}: {self.reason}; {keys}; {pieces} of evidence)"

    def _repr_html_(self) -> str:
        """The same as a table for a notebook, a row for each piece of evidence."""
        head = f"<p>{escape(repr(self))}</p>"
        return head + (html_table([item.row() for item in self.evidence]) if self.evidence else "")


def find_score_law(head: HeadLadders, thresholds: LawThresholds | None = None) -> ScoreLaw:
    """Decide by the rules at the top of this module.

    Args:
        head: the ladders of one head; `score_spread`, `score_deviation`, `score_reach`,
            `excess_kurtosis`, `normality_distance` and `entropy` are read.
        thresholds: where the lines are drawn; None = the defaults.
    """
    lines = thresholds or LawThresholds()
    tail = _Tail.of(head, lines)
    if not tail.n.size:
        unknown = math.nan
        return ScoreLaw(
            "undecided", (), unknown, unknown, unknown, unknown, "no scores were measured"
        )
    first, last = float(tail.n[0]), float(tail.n[-1])
    largest = float(head["score_spread"].max.max())
    deviation = float(tail["score_deviation"].mean())
    evidence, exponent = _collect(tail, lines)
    if tail.equal:
        law, reason = "bounded", "all scores of a row are equal"
    else:
        law, reason = _decide(exponent, evidence, tail, lines)
    found = tuple(evidence.values())
    return ScoreLaw(law, found, first, last, deviation, largest, reason)


@dataclass(frozen=True)
class _Tail:
    """The tail of the ladder: every quantity at the same numbers of keys; NaN where it has none."""

    n: NDArray[np.float64]
    mean: Mapping[str, NDArray[np.float64]]
    half: Mapping[str, NDArray[np.float64]]

    @classmethod
    def of(cls, head: HeadLadders, lines: LawThresholds) -> "_Tail":
        n = head["score_spread"].n_key
        kept = n >= max(_SMALLEST_N_KEY, n.max(initial=0.0) / lines.tail)
        n = n[kept] if kept.sum() >= _TAIL_POINTS else n
        mean, half = {}, {}
        for name, ladder in head.ladders.items():
            place = {key: index for index, key in enumerate(ladder.n_key.tolist())}
            index = [place.get(key, -1) for key in n.tolist()]
            padded = np.append(ladder.mean, math.nan), np.append(ladder.half, math.nan)
            mean[name], half[name] = padded[0][index], padded[1][index]
        return cls(n, mean, half)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.mean.get(name, np.full(self.n.shape, math.nan))

    def error(self, name: str) -> NDArray[np.float64]:
        return self.half.get(name, np.full(self.n.shape, math.nan))

    @property
    def equal(self) -> bool:
        """Whether the scores of a row are equal but for rounding."""
        level = np.abs(self["score_max"])
        return bool((self["score_spread"] <= 1e-5 * np.maximum(level, 1e-30)).all())


def _collect(tail: _Tail, lines: LawThresholds) -> tuple[dict[str, Evidence], Exponent]:
    """Every piece of evidence, and the exponent that decides first."""
    n, log_n = tail.n, np.log(tail.n)
    line = lines.exponent
    reference = predict_gaussian_spread(n, 1.0)
    against = fit_exponent(
        log_n, tail["score_spread"] / reference, tail.error("score_spread") / reference
    )
    unbiased = np.sqrt(n / (n - 1.0))
    sigma = tail["score_deviation"] * unbiased
    fixed = fit_exponent(log_n, sigma, tail.error("score_deviation") * unbiased)
    slope = fit_slope(n, tail["score_spread"], tail.error("score_spread"))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = _mean(tail["score_reach"] / (sigma * predict_gaussian_maximum(n, 1.0)))
    kurtosis = _mean(tail["excess_kurtosis"])
    distance = _mean(tail["normality_distance"] - _LILLIEFORS / np.sqrt(n))
    entropy = fit_slope(n, tail["entropy"], tail.error("entropy"))
    gaussian = fit_slope(n, reference, tail.error("score_spread"))
    expected = float(sigma.mean()) * gaussian.value
    flat = _FLAT * float(tail["score_spread"].max())
    level = entropy.low <= 1 + _FLAT and entropy.high >= 1 - _FLAT
    found = {
        "against": _of_exponent(
            against, "spread against Gaussian scores, exponent of log n",
            (f"below -{line:g}", f"within {line:g} of 0", f"above {line:g}"),
            (against.high < -line, _within(against, line), against.low > line),
        ),
        "slope": _of_exponent(
            slope, "spread per unit of log n",
            (f"0 within {flat:.2g}", format_number(expected), "more"),
            (
                -flat <= slope.low and slope.high <= flat,
                slope.contains(expected),
                slope.low > expected,
            ),
        ),
        "deviation": _of_exponent(
            fixed, "deviation, exponent of log n",
            ("", f"within {line:g} of 0", ""),
            (False, _within(fixed, line), False),
        ),
        "maximum": _of_mean(
            ratio, "maximum against that of normal scores", "ratio",
            f"1 within a factor {lines.ratio:g}",
            ratio[1] >= 1 / lines.ratio and ratio[2] <= lines.ratio,
        ),
        "kurtosis": _of_mean(
            kurtosis, "excess kurtosis", "1", f"0 within {lines.kurtosis:g}",
            -lines.kurtosis <= kurtosis[1] and kurtosis[2] <= lines.kurtosis,
        ),
        "distance": _of_mean(
            distance, "distance from normal, beyond chance", "ratio",
            f"at most {lines.distance:g}", distance[2] <= lines.distance,
        ),
        "entropy": _of_exponent(
            entropy, "entropy per unit of log n (nats)",
            (f"1 within {_FLAT:g}", f"1 within {_FLAT:g}", "below"),
            (level, level, entropy.high < 1 - _FLAT),
        ),
    }  # fmt: skip
    return found, against


def _decide(
    exponent: Exponent, evidence: Mapping[str, Evidence], tail: _Tail, lines: LawThresholds
) -> tuple[str, str]:
    line = lines.exponent
    if exponent.status != "ok":
        return "undecided", f"its spread over n is not determined: {exponent.reason}"
    said = f"its spread goes as (log n)^({exponent}) times that of Gaussian scores"
    if exponent.high < -line:
        return "bounded", said
    if exponent.low > line:
        return "growing", said
    heavy = evidence["kurtosis"].low > lines.kurtosis
    if exponent.low > 0 and heavy and _linear_maximum(tail):
        return "growing", (
            "its scores are heavier-tailed than normal and their maximum is linear in log n"
        )
    if not _within(exponent, line):
        return "undecided", f"{said}, an interval that holds more than one law"
    names = {
        "deviation": "its deviation changes with n, or not enough is known of it",
        "maximum": "its maximum is not that of normal scores",
        "kurtosis": "its tails are not those of normal scores",
        "distance": "the shape of its scores is not normal",
    }
    against = [
        f"{text} ({evidence[name]})"
        for name, text in names.items()
        if "gaussian" not in evidence[name].speaks_for
    ]
    if against:
        return "undecided", f"its spread grows as that of Gaussian scores, but {against[0]}"
    return "gaussian", f"its deviation is fixed, its shape normal, and {said}"


def _linear_maximum(tail: _Tail) -> bool:
    """Whether the maximum is better described as a + b log n, b > 0, than as k times Gaussian."""
    y, count = tail["score_reach"], tail.n.size
    if count < 5 or not np.isfinite(y).all():
        return False
    slope, level = np.polyfit(np.log(tail.n), y, 1)
    linear = float(np.mean((y - level - slope * np.log(tail.n)) ** 2))
    reference = predict_gaussian_maximum(tail.n, 1.0)
    gaussian = float(np.mean((y - reference * (y @ reference) / (reference @ reference)) ** 2))
    floor = (1e-3 * float(np.mean(np.abs(y)))) ** 2

    def criterion(square: float, parameters: int) -> float:
        penalty = 2.0 * parameters * count / (count - parameters - 1)
        return count * math.log(square + floor) + penalty

    return slope > 0 and criterion(linear, 3) + SEPARATION <= criterion(gaussian, 2)


def _within(exponent: Exponent, line: float) -> bool:
    return -line < exponent.low and exponent.high < line


def _mean(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean over the tail with its 95 % t-interval; NaN where fewer than 3 points are known."""
    known = values[np.isfinite(values)]
    if known.size < MIN_POINTS:
        return math.nan, math.nan, math.nan
    mean = float(known.mean())
    half = student_t_quantile(known.size - 1) * float(known.std(ddof=1)) / math.sqrt(known.size)
    return mean, mean - half, mean + half


def _of_exponent(
    fit: Exponent, name: str, expects: tuple[str, str, str], holds: tuple[bool, bool, bool]
) -> Evidence:
    laws = tuple(law for law, held in zip(SCORE_LAWS, holds, strict=False) if held)
    return Evidence(name, fit.value, fit.low, fit.high, "1", *expects, laws, fit.reason)


def _of_mean(
    mean: tuple[float, float, float], name: str, unit: str, expects: str, holds: bool
) -> Evidence:
    reason = "" if math.isfinite(mean[0]) else "too few points"
    laws = ("gaussian",) if holds else ()
    return Evidence(name, *mean, unit, "", expects, "", laws, reason)
