"""One relevant key among many: what is left of it, with and without a norm (theory 1.1, last item).

A needle row has one key a margin Delta above n - 1 equal distractors; the values are orthonormal.
The **signal** is the coordinate of the attention output along the needle's value, or the same
after the output is divided by its length (`unit_norm`: RMSNorm or LayerNorm up to a constant, with
no other content in the stream).

| | without a norm | with one |
| --- | --- | --- |
| signal at exponent x = beta Delta | e^x / (e^x + n - 1) | e^x / sqrt(e^(2x) + n - 1) |
| falls to 1/2 at (beta fixed) | n - 1 = e^x | n - 1 = 3 e^(2x) |
| critical exponent s Delta at beta = s log n | 1 | 1/2 |

A norm never turns the output, so it moves the critical exponent and no more; the signal with a norm
is the square root of the weight of a needle of twice the margin.

Derived here (theory 1.1).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_choice, check_real, check_whole
from .phases import predict_phase
from .scalable_softmax import (
    predict_adaptive_inverse_temperature,
    predict_falling_n_key,
    predict_inverse_temperature,
    predict_needle_entropy,
    predict_needle_weight,
)
from .sigmoid import predict_sigmoid_weight
from .sparse import predict_entmax_distractor_weight, predict_entmax_needle_weight


class NeedleWeights(NamedTuple):
    """Weight of the needle and of each distractor, of the same shape."""

    needle: NDArray[np.float64]
    distractor: NDArray[np.float64]


class _Row(NamedTuple):
    """Checked arguments of a remedy, broadcast."""

    keys: NDArray[np.float64]
    margin: NDArray[np.float64]
    strength: NDArray[np.float64]
    level: NDArray[np.float64]
    alpha: NDArray[np.float64]
    bias: NDArray[np.float64]


def _softmax(row: _Row, beta: NDArray[np.float64]) -> NeedleWeights:
    """Softmax at an inverse temperature."""
    needle = predict_needle_weight(row.keys, row.margin, beta)
    return NeedleWeights(needle, needle * np.exp(-beta * row.margin))


def _scaled(law: str) -> Callable[[_Row], NeedleWeights]:
    """Softmax at the inverse temperature of a law."""
    return lambda row: _softmax(row, predict_inverse_temperature(law, row.keys, row.strength))


def _adaptive(row: _Row) -> NeedleWeights:
    """Softmax at the adaptive temperature of the row."""
    entropy = predict_needle_entropy(row.keys, row.margin, row.strength)
    return _softmax(row, row.strength * predict_adaptive_inverse_temperature(entropy))


def _entmax(row: _Row) -> NeedleWeights:
    """alpha-entmax."""
    given = (row.keys, row.margin, row.alpha, row.strength)
    return NeedleWeights(
        predict_entmax_needle_weight(*given), predict_entmax_distractor_weight(*given)
    )


def _softmax1(row: _Row) -> NeedleWeights:
    """Softmax plus one: one more key of score 0, whose weight is left out."""
    low, high = row.strength * row.level, row.strength * (row.level + row.margin)
    with np.errstate(divide="ignore"):
        total = np.logaddexp(np.logaddexp(0.0, high), np.log(row.keys - 1.0) + low)
    return NeedleWeights(np.exp(high - total), np.exp(low - total))


def _sigmoid(row: _Row) -> NeedleWeights:
    """Sigmoid attention."""
    low, high = row.strength * row.level, row.strength * (row.level + row.margin)
    return NeedleWeights(
        predict_sigmoid_weight(row.keys, high, row.bias),
        predict_sigmoid_weight(row.keys, low, row.bias),
    )


def _hardmax(row: _Row) -> NeedleWeights:
    """All mass on the largest score; equal shares if the margin is 0."""
    needle = np.where(row.margin > 0.0, 1.0, 1.0 / row.keys)
    return NeedleWeights(needle, np.where(row.margin > 0.0, 0.0, needle))


NEEDLE_REMEDIES: dict[str, Callable[[_Row], NeedleWeights]] = {
    "softmax": _scaled("fixed"),
    "temperature": _scaled("fixed"),
    "sqrt_log_n": _scaled("sqrt_log_n"),
    "log_n": _scaled("log_n"),
    "ssmax": _scaled("log_n"),
    "adaptive": _adaptive,
    "entmax": _entmax,
    "softmax1": _softmax1,
    "sigmoid": _sigmoid,
    "hardmax": _hardmax,
}
"""Remedies whose needle row is known in closed form, by the name of the normalizer."""


def predict_remedy_weights(
    remedy: str,
    n_key: ArrayLike,
    margin: ArrayLike,
    *,
    strength: ArrayLike = 1.0,
    distractor_score: ArrayLike = 0.0,
    alpha: ArrayLike = 1.5,
    bias: ArrayLike | None = None,
) -> NeedleWeights:
    """Weights of a needle row under a remedy.

    | remedy | needle | as n grows |
    | --- | --- | --- |
    | softmax, temperature | softmax at beta = s | 0, as 1/n |
    | sqrt_log_n | softmax at s (log n)^(1/2) | 0, as e^(s Delta sqrt(log n)) / n |
    | log_n, ssmax | softmax at s log n | 1 if s Delta > 1, else 0 |
    | adaptive | softmax at the polynomial of its entropy | 0, as 1/n |
    | entmax | closed form of `predict_entmax_needle_weight` | `entmax_needle_limit`, above 0 |
    | softmax1 | e^(z_0+Delta) / (1 + e^(z_0+Delta) + (n-1) e^(z_0)) | 0, as 1/n |
    | sigmoid | sigma(z_0 + Delta + b) | 0, as 1/n at b = -log n; constant at b fixed |
    | hardmax | 1 | 1 |

    Every score is multiplied by s first; z_0 only matters where weights need not sum to one.

    Args:
        remedy: one of `NEEDLE_REMEDIES`.
        n_key: n, whole numbers >= 1.
        margin: Delta, 1 (a score), >= 0.
        strength: s > 0.
        distractor_score: z_0, finite.
        alpha: of entmax, > 1.
        bias: b of sigmoid, finite; None for -log n. All broadcast.

    Returns:
        ratio in [0, 1], the broadcast shape; the second is void at n = 1, where there is no
        distractor.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the remedy is unknown or an argument out of range.

    Source: derived here (theory 1.1, 2, 3, 7 and 16).
    """
    check_choice("remedy", remedy, tuple(NEEDLE_REMEDIES))
    keys = check_whole("n_key", n_key)
    given = (
        keys,
        check_real("margin", margin, 0.0),
        check_real("strength", strength, 0.0, open_low=True),
        check_real("distractor_score", distractor_score),
        check_real("alpha", alpha, 1.0, open_low=True),
        -np.log(keys) if bias is None else check_real("bias", bias),
    )
    return NEEDLE_REMEDIES[remedy](_Row(*np.broadcast_arrays(*given)))


def predict_remedy_signal(
    remedy: str,
    n_key: ArrayLike,
    margin: ArrayLike,
    *,
    unit_norm: bool = False,
    strength: ArrayLike = 1.0,
    distractor_score: ArrayLike = 0.0,
    alpha: ArrayLike = 1.5,
    bias: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Signal of the needle under a remedy: a, or a / sqrt(a^2 + (n-1) a_0^2) after a unit norm.

    a is the weight of the needle and a_0 that of each distractor (`predict_remedy_weights`).

    Hypothesis: orthonormal values; with `unit_norm`, nothing but the attention output is normed.

    Arguments and errors: those of `predict_remedy_weights`, and `unit_norm`. Returns ratio in
    [0, 1], the broadcast shape; with `unit_norm` NaN where both weights underflow.
    Source: derived here (theory 1.1).
    """
    needle, distractor = predict_remedy_weights(
        remedy,
        n_key,
        margin,
        strength=strength,
        distractor_score=distractor_score,
        alpha=alpha,
        bias=bias,
    )
    if not unit_norm:
        return needle
    with np.errstate(invalid="ignore", divide="ignore"):
        noise = np.sqrt(check_whole("n_key", n_key) - 1.0) * distractor / needle
    return 1.0 / np.sqrt(1.0 + noise**2)


def predict_needle_signal(
    n_key: ArrayLike,
    margin: ArrayLike,
    inverse_temperature: ArrayLike = 1.0,
    *,
    unit_norm: bool = False,
) -> NDArray[np.float64]:
    """Signal of a softmax needle: e^x / (e^x + n - 1), or e^x / sqrt(e^(2x) + n - 1) with a norm.

    x = beta Delta; the inverse temperature may follow any law of n.

    Hypothesis: orthonormal values; with `unit_norm`, nothing but the attention output is normed.

    Args:
        n_key: n, whole numbers >= 1.
        margin: Delta, 1 (a score), finite.
        inverse_temperature: beta >= 0. All broadcast.
        unit_norm: whether the output is divided by its length.

    Returns:
        ratio in [0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 1.1).
    """
    if not unit_norm:
        return predict_needle_weight(n_key, margin, inverse_temperature)
    doubled = 2.0 * check_real("margin", margin)
    return np.sqrt(predict_needle_weight(n_key, doubled, inverse_temperature))


def needle_exponent_threshold(unit_norm: bool = False) -> float:
    """Critical exponent s Delta at beta = s log n: 1, or 1/2 with a norm after the attention.

    Above it the signal tends to 1 as n grows, below it to 0. Source: derived here (theory 1.1).
    """
    return 0.5 if unit_norm else 1.0


def needle_signal_limit(exponent: ArrayLike, *, unit_norm: bool = False) -> NDArray[np.float64]:
    """Limit of the signal at beta = s log n: 1 above the critical exponent, 0 below it.

    At it, 1/2 without a norm and 1/sqrt(2) with one.

    Args:
        exponent: s Delta >= 0.
        unit_norm: whether the output is divided by its length.

    Returns:
        ratio, the same shape.

    Raises:
        TypeError: if the exponent is not made of real numbers.
        ValueError: if it is out of range.

    Source: derived here (theory 1.1).
    """
    phase = predict_phase(
        check_real("exponent", exponent, 0.0), needle_exponent_threshold(unit_norm)
    )
    middle = np.sqrt(0.5) if unit_norm else 0.5
    return np.where(phase == "sub", 0.0, np.where(phase == "critical", middle, 1.0))


def predict_needle_crossover(
    margin: ArrayLike,
    *,
    law: str = "fixed",
    strength: ArrayLike = 1.0,
    signal: ArrayLike = 0.5,
    unit_norm: bool = False,
) -> NDArray[np.float64]:
    """Number of keys at which the signal of a softmax needle falls to a level.

    At a fixed beta: 1 + e^x (1 - w) / w without a norm, 1 + e^(2x) (1 - w^2) / w^2 with one: the
    norm squares the length that a margin carries. Other laws: `predict_falling_n_key`, with a norm
    at twice the margin and the square of the level.

    Args:
        margin: Delta, 1 (a score), >= 0.
        law: one of `INVERSE_TEMPERATURE_LAWS`.
        strength: s >= 0.
        signal: w, ratio in (0, 0.9]. All broadcast.
        unit_norm: whether the output is divided by its length.

    Returns:
        1 (a count of keys, real), >= 1, the broadcast shape; infinite where it never falls that
        low, or past the range of float64.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the law is unknown or an argument out of range.

    Source: derived here (theory 1.1).
    """
    level = check_real("signal", signal, 0.0, 0.9, open_low=True)
    if not unit_norm:
        return predict_falling_n_key(law, margin, strength, level)
    doubled = 2.0 * check_real("margin", margin, 0.0)
    return predict_falling_n_key(law, doubled, strength, level**2)
