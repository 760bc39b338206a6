"""Scales of a norm at every length from the two measured at lengths 1 and 2.

scale(s)^2 = alpha + beta / s, so two lengths fix it: beta = 2 (scale(1)^2 - scale(2)^2) and
alpha = 2 scale(2)^2 - scale(1)^2. Two sets of hypotheses give this law, and they differ in what
fits are possible:

* "orthogonal": the closed form of theory 1.1 for RMSNorm, alpha = b^2 / D + eps, beta = p^2 / D.
  Feasible if alpha >= eps and beta >= 0.
* "exchangeable": uniform attention over distinct tokens drawn without order or preference, in a
  stream x_k + (1/s) sum_i u_i with any vectors x, u and a norm that is RMSNorm or LayerNorm. Then
  the **mean square** of the scale over sequences is exactly of this form, because every term of
  |x_k + (1/s) sum_i u_i|^2 averages to a constant or to a multiple of 1/s. Feasible where
  alpha + beta / s > 0; alpha or beta may be negative (a scale that grows, or a LayerNorm).

Both are derived here (theory 1.1; the exchangeable form extends it).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_choice, check_numbers, check_real, check_whole

SCALE_HYPOTHESES = ("orthogonal", "exchangeable")
"""The two sets of hypotheses above."""

FIT_TOLERANCE = 1e-6
"""How far below its floor, relative to scale(1)^2, a coefficient may fall by rounding alone."""


def _fit(
    scale_at_1: ArrayLike, scale_at_2: ArrayLike, hypothesis: str, eps: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """alpha, beta and eps of shape `[*row]`; NaN where the fit is infeasible."""
    check_choice("hypothesis", hypothesis, SCALE_HYPOTHESES)
    first, second = check_numbers("scale_at_1", scale_at_1), check_numbers("scale_at_2", scale_at_2)
    for name, scale in (("scale_at_1", first), ("scale_at_2", second)):
        if (scale < 0.0).any():
            raise ValueError(f"{name} must be a scale >= 0, got {scale[scale < 0.0].flat[0]:g}.")
    floor = check_real("eps", eps, 0.0)
    alpha = 2.0 * second**2 - first**2
    beta = 2.0 * (first**2 - second**2)
    if hypothesis == "orthogonal":
        slack = FIT_TOLERANCE * first**2
        feasible = (alpha >= floor - slack) & (beta >= -slack)
        alpha = np.where(feasible, np.maximum(alpha, floor), np.nan)
        beta = np.where(feasible, np.maximum(beta, 0.0), np.nan)
    return alpha, beta, floor


def predict_scale_from_short(
    length: ArrayLike,
    scale_at_1: ArrayLike,
    scale_at_2: ArrayLike,
    *,
    hypothesis: str = "orthogonal",
    eps: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Scale at length s from the scales at lengths 1 and 2: sqrt(alpha + beta / s).

    Args:
        length: s, whole numbers >= 1.
        scale_at_1: 1 (a scale), >= 0; root mean square over sequences if "exchangeable".
        scale_at_2: the same at length 2.
        hypothesis: "orthogonal" or "exchangeable", see the module.
        eps: of the norm, the least alpha that "orthogonal" allows. All broadcast.

    Returns:
        1 (a scale), the broadcast shape; NaN where the fit is infeasible or a scale is NaN. A fit
        is infeasible if "orthogonal" needs b^2 < 0 (the scale falls faster than s^(-1/2)) or
        p^2 < 0 (it grows), and past the length where "exchangeable" gives a negative square.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if a scale is negative, a length not whole, or the hypothesis unknown.

    Source: derived here (theory 1.1; the exchangeable form extends it).
    """
    alpha, beta, _ = _fit(scale_at_1, scale_at_2, hypothesis, eps)
    square = alpha + beta / check_whole("length", length)
    return np.sqrt(np.where(square >= 0.0, square, np.nan))


def predict_rescale_gain_from_short(
    length: ArrayLike,
    scale_at_1: ArrayLike,
    scale_at_2: ArrayLike,
    *,
    hypothesis: str = "orthogonal",
    eps: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Rescale gain scale(1) / scale(s) from the scales at lengths 1 and 2.

    Arguments, hypotheses and errors: those of `predict_scale_from_short`. Returns ratio, the
    broadcast shape; NaN where that is NaN or 0. Source: derived here (theory 1.1).
    """
    scale = predict_scale_from_short(length, scale_at_1, scale_at_2, hypothesis=hypothesis, eps=eps)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0.0, check_numbers("scale_at_1", scale_at_1) / scale, np.nan)


def predict_crossover_from_short(
    scale_at_1: ArrayLike, scale_at_2: ArrayLike
) -> NDArray[np.float64]:
    """Crossover length s* = beta / alpha = p^2 / (b^2 + D eps) from two measured scales.

    The length up to which the norm resharpens, under "orthogonal".

    Args:
        scale_at_1: 1 (a scale), >= 0.
        scale_at_2: the same at length 2; broadcasts.

    Returns:
        1 (a length, real), >= 0; infinite if nothing but the pattern is seen; NaN where the fit is
        infeasible.

    Raises:
        TypeError: if a scale is not made of real numbers.
        ValueError: if a scale is negative.

    Source: derived here (theory 1.1).
    """
    alpha, beta, _ = _fit(scale_at_1, scale_at_2, "orthogonal", 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return beta / alpha
