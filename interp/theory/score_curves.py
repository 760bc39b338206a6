"""Laws of the scores themselves as `Curve`s over the number of visible keys (theory 0 and 5).

As in `key_curves`: every builder takes `n_key` `[point]` (whole numbers, increasing), the
parameters of its law (one number, or one a point) and the keywords of `Place`. The accumulation
scale and the sharpening inverse temperature stand in the table as the mean of their logarithm
(their own mean over rows is infinite), so these curves are logarithms too.
"""

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_whole
from .curve import Curve, Place
from .gap_counting import (
    accumulation_bound,
    gaussian_accumulation_rate,
    predict_simplex_accumulation,
    sharpening_bound,
    sphere_accumulation_rate,
)
from .gaussian_rows import (
    predict_gaussian_maximum,
    predict_gaussian_sharpening,
    predict_gaussian_spread,
)
from .key_curves import EVERYWHERE, GAUSSIAN, SPREAD

SCALE = "log_accumulation_scale"
SHARPENING = "log_sharpening_inverse_temperature"
_TEMPERATURE = "derived here (theory 5)"


def gaussian_spread_curve(n_key: ArrayLike, deviation: ArrayLike, **place: Unpack[Place]) -> Curve:
    """`predict_gaussian_spread` of `score_spread`."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="Gaussian scores, expected spread",
        quantity="score_spread",
        unit="1",
        x=x,
        values=predict_gaussian_spread(x, deviation),
        kind="limit",
        hypotheses=("scores i.i.d. Gaussian of the deviation given",),
        source="elementary: order statistics (theory 0)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def gaussian_reach_curve(n_key: ArrayLike, deviation: ArrayLike, **place: Unpack[Place]) -> Curve:
    """`predict_gaussian_maximum` of `score_reach`, the maximum less the mean."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="Gaussian scores, expected maximum, tends to sigma sqrt(2 log n)",
        quantity="score_reach",
        unit="1",
        x=x,
        values=predict_gaussian_maximum(x, deviation),
        kind="limit",
        hypotheses=("scores i.i.d. Gaussian of the deviation given",),
        source="elementary: order statistics (theory 0)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def accumulation_bound_curve(n_key: ArrayLike, spread: ArrayLike, **place: Unpack[Place]) -> Curve:
    """`accumulation_bound`, its logarithm, for rows whose spread is at most the one given (> 0).

    Points of one key, where the scale is 0, lie outside its domain.
    """
    x = check_whole("n_key", n_key)
    return _logarithm(
        x,
        accumulation_bound(x, spread),
        name="least accumulation scale that the spread allows, log n / spread",
        quantity=SCALE,
        kind="lower_bound",
        hypotheses=(SPREAD,),
        source=_TEMPERATURE,
        place=place,
    )


def simplex_accumulation_curve(n_key: ArrayLike, gap: ArrayLike, **place: Unpack[Place]) -> Curve:
    """`predict_simplex_accumulation`, its logarithm; one key lies outside its domain."""
    x = check_whole("n_key", n_key)
    return _logarithm(
        x,
        predict_simplex_accumulation(x, gap),
        name="one key above equal ones, log n / gap",
        quantity=SCALE,
        kind="exact",
        hypotheses=("one key at the gap given above all others, which have equal scores",),
        source="derived here (theory 4 and 5)",
        place=place,
    )


def gaussian_accumulation_curve(
    n_key: ArrayLike, deviation: ArrayLike, **place: Unpack[Place]
) -> Curve:
    """`gaussian_accumulation_rate`, its logarithm; one key lies outside its domain."""
    x = check_whole("n_key", n_key)
    return _logarithm(
        x,
        gaussian_accumulation_rate(x, deviation),
        name="Gaussian scores, order sqrt(2 log n) / sigma",
        quantity=SCALE,
        kind="limit",
        hypotheses=(GAUSSIAN, "up to a random factor of order 1 from the top spacings"),
        source="derived here, seen numerically (theory 5)",
        place=place,
    )


def sphere_accumulation_curve(
    n_key: ArrayLike, d_head: ArrayLike, radius: ArrayLike = 1.0, **place: Unpack[Place]
) -> Curve:
    """`sphere_accumulation_rate`, its logarithm: a conjecture, up to a constant."""
    x = check_whole("n_key", n_key)
    return _logarithm(
        x,
        sphere_accumulation_rate(x, d_head, radius),
        name="keys uniform on a sphere, order n^(2/(d-1))",
        quantity=SCALE,
        kind="conjecture",
        hypotheses=("keys i.i.d. uniform on a sphere, one fixed query", "up to a constant"),
        source="Bruno et al., arXiv 2605.08505 [second-hand]; seen numerically (theory 5)",
        place=place,
    )


def sharpening_bound_curve(
    n_key: ArrayLike, spread: ArrayLike, weight: float = 0.5, **place: Unpack[Place]
) -> Curve:
    """`sharpening_bound`, its logarithm, for rows whose spread is at most the one given (> 0).

    Points where nothing is needed (w n <= 1, or so few keys) lie outside its domain.
    """
    x = check_whole("n_key", n_key)
    return _logarithm(
        x,
        sharpening_bound(x, spread, weight),
        name=f"least inverse temperature for a weight of {weight:g} that the spread allows",
        quantity=SHARPENING,
        kind="lower_bound",
        hypotheses=(SPREAD,),
        source="derived here (theory 2)",
        place=place,
    )


def gaussian_sharpening_curve(
    n_key: ArrayLike, deviation: ArrayLike, **place: Unpack[Place]
) -> Curve:
    """`predict_gaussian_sharpening`, its logarithm, from 3 to 2^20 keys."""
    x = check_whole("n_key", n_key)
    return _logarithm(
        x,
        predict_gaussian_sharpening(x, deviation),
        name="Gaussian scores, tends to order sqrt(log n) / sigma",
        quantity=SHARPENING,
        kind="limit",
        hypotheses=("scores i.i.d. Gaussian of the deviation given", "weight 1/2"),
        source="simulated here; the order is derived (theory 5)",
        place=place,
    )


def _logarithm(
    x: NDArray[np.float64],
    values: NDArray[np.float64],
    *,
    name: str,
    quantity: str,
    kind: str,
    hypotheses: tuple[str, ...],
    source: str,
    place: Place,
) -> Curve:
    """The logarithm of a law where it is positive and finite: one stretch of its x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    known = np.flatnonzero(np.isfinite(logs))
    if known.size:
        first, last = int(known[0]), int(known[-1])
        low = 1.0 if first == 0 else float(x[first])
        domain = (low, np.inf if last == x.size - 1 else float(x[last]))
    else:
        domain = (float(np.nextafter(x[-1], np.inf)), np.inf)
        logs = np.full_like(logs, np.nan)
    inside = (x >= domain[0]) & (x <= domain[1])
    return Curve(
        name=name,
        quantity=quantity,
        unit="1",
        x=x,
        values=np.where(inside, logs, np.nan),
        kind=kind,
        hypotheses=hypotheses,
        source=source,
        domain=domain,
        x_name="n_key",
        **place,
    )
