"""Laws of a softmax row as `Curve`s over the number of visible keys (theory 0, 2, 10, 14).

Every builder takes `n_key` `[point]` (whole numbers, increasing), the parameters of its law (one
number, or one a point), and the keywords of `Place` that say which rows of the table the curve
belongs to. Formula, range and errors are those of the function that each builder names; what does
not make a `Curve` raises its ValueError.

A bound in the spread is about every row: give the largest spread (`max` of `score_spread`).
"""

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_whole
from .curve import Curve, Place
from .dispersion import (
    effective_support_limit,
    entropy_limit,
    max_weight_bounds,
    max_weight_limit,
    predict_gaussian_entropy,
    predict_gaussian_support,
    score_norm_entropy_bound,
    tight_entropy_bound,
)
from .norms import output_variance_bound, predict_average_norm

SOFTMAX = "weights are a softmax over the visible keys"
SPREAD = "every row's score spread is at most the one given"
GAUSSIAN = "scores i.i.d. Gaussian of the deviation given, many keys"
IID_KEYS = "keys drawn i.i.d. (with replacement) from a finite vocabulary, one fixed query"
EVERYWHERE = (1.0, np.inf)


def dispersion_limit_curves(n_key: ArrayLike, **place: Unpack[Place]) -> tuple[Curve, Curve, Curve]:
    """Full dispersion: `entropy_limit`, `effective_support_limit` and `max_weight_limit`."""
    x = check_whole("n_key", n_key)
    laws = (
        ("log n, full dispersion", "entropy", "nats", entropy_limit, "upper_bound"),
        ("n, full dispersion", "effective_support", "1", effective_support_limit, "upper_bound"),
        ("1/n, full dispersion", "max_weight", "ratio", max_weight_limit, "lower_bound"),
    )
    entropy, support, weight = (
        Curve(
            name=name,
            quantity=quantity,
            unit=unit,
            x=x,
            values=law(x),
            kind=kind,
            hypotheses=("weights are non-negative and sum to one",),
            source="elementary (theory 0)",
            domain=EVERYWHERE,
            x_name="n_key",
            **place,
        )
        for name, quantity, unit, law, kind in laws
    )
    return entropy, support, weight


def weight_bound_curves(
    n_key: ArrayLike, spread: ArrayLike, **place: Unpack[Place]
) -> tuple[Curve, Curve]:
    """`max_weight_bounds` of `max_weight`: the lower and the upper curve."""
    x = check_whole("n_key", n_key)
    bounds = max_weight_bounds(x, spread)
    lower, upper = (
        Curve(
            name=name,
            quantity="max_weight",
            unit="ratio",
            x=x,
            values=values,
            kind=kind,
            hypotheses=(SOFTMAX, SPREAD),
            source="derived here (theory 2, sharper form of Lemma 2.1 of arXiv 2410.01104)",
            domain=EVERYWHERE,
            x_name="n_key",
            **place,
        )
        for name, values, kind in (
            ("1/n, full dispersion", bounds.lower, "lower_bound"),
            ("largest weight that the spread allows", bounds.upper, "upper_bound"),
        )
    )
    return lower, upper


def entropy_bound_curve(n_key: ArrayLike, spread: ArrayLike, **place: Unpack[Place]) -> Curve:
    """`tight_entropy_bound` of `entropy`: the least entropy that the spread allows."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="least entropy that the spread allows",
        quantity="entropy",
        unit="nats",
        x=x,
        values=tight_entropy_bound(x, spread),
        kind="lower_bound",
        hypotheses=(SOFTMAX, SPREAD),
        source="derived here (extends theory 2)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def deviation_entropy_bound_curve(
    n_key: ArrayLike, deviation: ArrayLike, **place: Unpack[Place]
) -> Curve:
    """`score_norm_entropy_bound` of `entropy`, at score norm sqrt(n) times `deviation` (>= 0)."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="least entropy that the deviation allows",
        quantity="entropy",
        unit="nats",
        x=x,
        values=score_norm_entropy_bound(x, np.sqrt(x) * check_real("deviation", deviation, 0.0)),
        kind="lower_bound",
        hypotheses=(SOFTMAX, "every row's score deviation is at most the one given"),
        source="Zhai et al., arXiv 2303.06296, Theorem 3.1 in row form [second-hand] (theory 14)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def _valid_tail(
    x: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """The values after the last invalid point, NaN before; and the domain that begins there."""
    invalid = np.flatnonzero(np.isnan(values))
    first = int(invalid[-1]) + 1 if invalid.size else 0
    kept = np.where(np.arange(x.size) >= first, values, np.nan)
    if first == 0:
        return kept, EVERYWHERE
    low = float(x[first]) if first < x.size else float(np.nextafter(x[-1], np.inf))
    return kept, (low, np.inf)


def gaussian_entropy_curve(n_key: ArrayLike, deviation: ArrayLike, **place: Unpack[Place]) -> Curve:
    """`predict_gaussian_entropy` of `entropy`; its domain begins after the last frozen point."""
    x = check_whole("n_key", n_key)
    values, domain = _valid_tail(x, predict_gaussian_entropy(x, deviation))
    return Curve(
        name="Gaussian scores, log n - sigma^2/2",
        quantity="entropy",
        unit="nats",
        x=x,
        values=values,
        kind="limit",
        hypotheses=(GAUSSIAN, "deviation below sqrt(2 log n)"),
        source="derived here up to the standard random-energy limit (theory 0)",
        domain=domain,
        x_name="n_key",
        **place,
    )


def gaussian_support_curve(n_key: ArrayLike, deviation: ArrayLike, **place: Unpack[Place]) -> Curve:
    """`predict_gaussian_support` of `effective_support`; domain as `gaussian_entropy_curve`."""
    x = check_whole("n_key", n_key)
    values, domain = _valid_tail(x, predict_gaussian_support(x, deviation))
    return Curve(
        name="Gaussian scores, n exp(-sigma^2)",
        quantity="effective_support",
        unit="1",
        x=x,
        values=values,
        kind="limit",
        hypotheses=(GAUSSIAN, "deviation below sqrt(log n / 2)"),
        source="derived here up to the standard random-energy limit (theory 0)",
        domain=domain,
        x_name="n_key",
        **place,
    )


def average_norm_curve(
    n_key: ArrayLike, norm: float, cosine: float = 0.0, **place: Unpack[Place]
) -> Curve:
    """`predict_average_norm` of `contribution_norm`, a uniform average (give `site`)."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="norm of a uniform average",
        quantity="contribution_norm",
        unit="l2",
        x=x,
        values=predict_average_norm(x, norm, cosine),
        kind="exact",
        hypotheses=("uniform attention", "values of one norm, every pair at the cosine given"),
        source="elementary, derived here (theory 0 and 11)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def variance_rate_curve(n_key: ArrayLike, rate: float, **place: Unpack[Place]) -> Curve:
    """rate / n of `output_variance`, with the rate (>= 0) of `output_variance_rate`."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="variance law, rate/n",
        quantity="output_variance",
        unit="1",
        x=x,
        values=check_real("rate", rate, 0.0) / x,
        kind="limit",
        hypotheses=(IID_KEYS, "many keys"),
        source="derived here (theory 10)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def variance_bound_curve(
    n_key: ArrayLike, score_limit: float, value_limit: float, **place: Unpack[Place]
) -> Curve:
    """`output_variance_bound` of `output_variance`."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="variance bound 4 V^2 e^(4A) / n",
        quantity="output_variance",
        unit="1",
        x=x,
        values=output_variance_bound(x, score_limit, value_limit),
        kind="upper_bound",
        hypotheses=(IID_KEYS, "|score| <= A and |value| <= V"),
        source="derived here (theory 10)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )
