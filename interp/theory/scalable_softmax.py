"""Inverse temperatures that grow with the row, and what they do for a needle (theory 2, 3 and 5).

A needle row has one key whose score lies a margin Delta above n - 1 equal distractors. At inverse
temperature beta its weight is 1 / (1 + (n-1) e^(-beta Delta)), so everything is in the law beta(n):

| law | beta(n) | the needle's weight falls to 1/2 at |
| --- | --- | --- |
| fixed | s | n = 1 + e^(s Delta) |
| sqrt_log_n | s (log n)^(1/2) | log n about (s Delta)^2: later, but at a finite n |
| log_n (SSMax) | s log n | n - 1 = n^(s Delta) if s Delta < 1; never if s Delta >= 1 |

With distractors at unequal margins, all of them at least Delta, the same is a lower bound.

Sources: SSMax is Nakanishi, arXiv 2501.19399 [second-hand]; margins and phases are derived here
(theory 3).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_choice, check_real, check_whole
from .phases import predict_phase

INVERSE_TEMPERATURE_LAWS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "fixed": np.ones_like,
    "sqrt_log_n": lambda log_n: np.sqrt(log_n),
    "log_n": lambda log_n: log_n,
}
"""Law of the inverse temperature in log n at strength 1, by name; SSMax is "log_n"."""

ADAPTIVE_COEFFICIENTS = (-0.037, 0.481, -2.3, 4.917, -1.791)
"""Polynomial of the adaptive temperature in the entropy (nats), highest power first."""

ADAPTIVE_ENTROPY = 0.5
"""Entropy (nats) up to which the adaptive temperature leaves a row alone."""

HIGHEST_WEIGHT = 0.9
"""Largest weight of `predict_falling_n_key`: above 0.93 the square-root law may cross it thrice."""


def predict_inverse_temperature(
    law: str,
    n_key: ArrayLike,
    strength: ArrayLike = 1.0,
    bias: ArrayLike = 0.0,
    floor: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Inverse temperature of a row: max(floor, s law(n) + b).

    SSMax is "log_n" with its s, and its bias variant with b. Scaling that begins at n_0 keys,
    max(1, log n / log n_0), is "log_n" of strength 1 / log n_0 and floor 1.

    Args:
        law: one of `INVERSE_TEMPERATURE_LAWS`.
        n_key: n, whole numbers >= 1, keys that the row sees.
        strength: s >= 0.
        bias: b, finite.
        floor: >= 0. All broadcast.

    Returns:
        1, >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the law is unknown or an argument out of range.

    Source: theory 3 and 5.
    """
    check_choice("law", law, tuple(INVERSE_TEMPERATURE_LAWS))
    growth = INVERSE_TEMPERATURE_LAWS[law](np.log(check_whole("n_key", n_key)))
    beta = check_real("strength", strength, 0.0) * growth + check_real("bias", bias)
    return np.maximum(beta, check_real("floor", floor, 0.0))


def _exponent_and_log_others(
    n_key: ArrayLike, margin: ArrayLike, inverse_temperature: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """beta Delta and log(n - 1), checked."""
    keys = check_whole("n_key", n_key)
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    with np.errstate(divide="ignore"):
        return beta * check_real("margin", margin), np.log(keys - 1.0)


def predict_needle_weight(
    n_key: ArrayLike, margin: ArrayLike, inverse_temperature: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Weight of one key a margin above n - 1 equal ones: 1 / (1 + (n-1) e^(-beta Delta)).

    The inverse temperature may follow any law of n: give its values, one an `n_key`. A key that
    every other one lies at least Delta below has at least this weight.

    Args:
        n_key: n, whole numbers >= 1.
        margin: Delta, 1 (a score), finite; negative if the key lies below the others.
        inverse_temperature: beta >= 0. All broadcast.

    Returns:
        ratio in [0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 1.1 and 3).
    """
    exponent, others = _exponent_and_log_others(n_key, margin, inverse_temperature)
    return np.exp(-np.logaddexp(0.0, others - exponent))


def predict_needle_entropy(
    n_key: ArrayLike, margin: ArrayLike, inverse_temperature: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Entropy of a needle row: log(e^x + n - 1) - x a, x = beta Delta, a the needle's weight.

    Arguments, shapes and errors: those of `predict_needle_weight`. Returns nats, in [0, log n].
    Source: derived here (theory 0).
    """
    exponent, others = _exponent_and_log_others(n_key, margin, inverse_temperature)
    rest = np.exp(-np.logaddexp(0.0, exponent - others))
    # log Z = x + log(1 + (n-1) e^(-x)): a small entropy is then a sum of small terms.
    return np.maximum(np.logaddexp(0.0, others - exponent) + exponent * rest, 0.0)


def predict_adaptive_inverse_temperature(entropy: ArrayLike) -> NDArray[np.float64]:
    """Adaptive temperature: max(1, P(H)) if H > 0.5, else 1, of a row of entropy H.

    P(H) = -0.037 H^4 + 0.481 H^3 - 2.3 H^2 + 4.917 H - 1.791 (`ADAPTIVE_COEFFICIENTS`). It exceeds
    1 only for H in [0.849, 5.944] nats, and is 2.42 at most: a row uniform over more than 381 keys
    gets no correction.

    Args:
        entropy: H, nats, >= 0, of the row before the correction.

    Returns:
        1, >= 1, the same shape.

    Raises:
        TypeError: if the entropy is not made of real numbers.
        ValueError: if it is negative or not finite.

    Source: Veličković et al., arXiv 2410.01104 [second-hand] (theory 2).
    """
    nats = check_real("entropy", entropy, 0.0)
    value = np.polyval(np.array(ADAPTIVE_COEFFICIENTS), nats)
    return np.where(nats > ADAPTIVE_ENTROPY, np.maximum(value, 1.0), 1.0)


def predict_adaptive_needle_weight(n_key: ArrayLike, margin: ArrayLike) -> NDArray[np.float64]:
    """Weight of the needle at the adaptive temperature of its own row.

    `predict_needle_weight` at beta = `predict_adaptive_inverse_temperature` of
    `predict_needle_entropy`. The same as softmax once the entropy passes 5.944 nats.

    Args:
        n_key: n, whole numbers >= 1.
        margin: Delta, 1 (a score), finite. Broadcasts.

    Returns:
        ratio in [0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 2), from the polynomial of arXiv 2410.01104 [second-hand].
    """
    beta = predict_adaptive_inverse_temperature(predict_needle_entropy(n_key, margin))
    return predict_needle_weight(n_key, margin, beta)


def predict_falling_n_key(
    law: str, margin: ArrayLike, strength: ArrayLike = 1.0, weight: ArrayLike = 0.5
) -> NDArray[np.float64]:
    """Number of keys at which the needle's weight falls to a level w.

    The root of (n-1) w / (1-w) = e^(beta(n) Delta): past it the weight is below w. Infinite where
    it never stays below: under "log_n" for s Delta > 1, and for s Delta = 1 at w <= 1/2.

    Args:
        law: one of `INVERSE_TEMPERATURE_LAWS`.
        margin: Delta, 1 (a score), >= 0.
        strength: s >= 0.
        weight: w, ratio in (0, 0.9]. All broadcast.

    Returns:
        1 (a count of keys, real), >= 1, the broadcast shape; infinite past the range of float64.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the law is unknown or an argument out of range.

    Source: derived here (theory 3).
    """
    check_choice("law", law, tuple(INVERSE_TEMPERATURE_LAWS))
    exponent = check_real("strength", strength, 0.0) * check_real("margin", margin, 0.0)
    share = check_real("weight", weight, 0.0, HIGHEST_WEIGHT, open_low=True)
    odds = np.log1p(-share) - np.log(share)
    exponent, odds = np.broadcast_arrays(exponent, odds)
    need = np.maximum(odds + 0.5, 0.0)  # log(n - 1) >= log n - 0.5 wherever log n >= 1
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if law == "fixed":
            return 1.0 + np.exp(exponent + odds)
        if law == "log_n":
            ends = (exponent > 1.0) | ((exponent == 1.0) & (odds >= 0.0))
            highest = need / (1.0 - exponent)
            at_one = -np.log1p(-np.exp(np.minimum(odds, -1e-300)))
            highest = np.where(ends, 1.0, np.where(exponent == 1.0, at_one, highest))
        else:
            ends = np.zeros(exponent.shape, dtype=bool)
            highest = ((exponent + np.sqrt(exponent**2 + 4.0 * need)) / 2.0) ** 2
        log_n = _crossing(law, exponent, odds, np.maximum(highest, 1.0))
        return np.where(ends, np.inf, np.exp(log_n))


def _crossing(
    law: str,
    exponent: NDArray[np.float64],
    odds: NDArray[np.float64],
    highest: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Bisect log(e^L - 1) = exponent law(L) + odds for L = log n, between 0 and `highest`."""
    low, high = np.zeros(exponent.shape), highest
    for _ in range(1100):
        middle = 0.5 * (low + high)
        if not ((low < middle) & (middle < high)).any():
            break
        past = middle + np.log(-np.expm1(-middle))
        past = past >= exponent * INVERSE_TEMPERATURE_LAWS[law](middle) + odds
        low, high = np.where(past, low, middle), np.where(past, middle, high)
    return 0.5 * (low + high)


def ssmax_weight_bound(
    n_key: ArrayLike, margin: ArrayLike, strength: ArrayLike
) -> NDArray[np.float64]:
    """Least weight of the largest score under SSMax: 1 / (1 + (n-1) n^(-s Delta)).

    Attained when every other score lies exactly Delta below.

    Hypothesis: every other score lies at least Delta below the largest.

    Args:
        n_key: n, whole numbers >= 1.
        margin: Delta, 1 (a score), >= 0.
        strength: s >= 0. All broadcast.

    Returns:
        ratio in (0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 3).
    """
    beta = predict_inverse_temperature("log_n", n_key, strength)
    return predict_needle_weight(n_key, check_real("margin", margin, 0.0), beta)


def _ssmax_phase(
    margin: ArrayLike, strength: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """The exponent s Delta and its phase around 1."""
    exponent = check_real("strength", strength, 0.0) * check_real("margin", margin, 0.0)
    return exponent, predict_phase(exponent, 1.0)


def ssmax_weight_limit(margin: ArrayLike, strength: ArrayLike) -> NDArray[np.float64]:
    """Limit of `ssmax_weight_bound` as n grows: 0 if s Delta < 1, 1/2 if it is 1, 1 if above.

    Args: `margin` Delta >= 0 and `strength` s >= 0; broadcast. Returns ratio, the broadcast shape.
    Raises ValueError for a negative argument. Source: derived here (theory 3).
    """
    phase = _ssmax_phase(margin, strength)[1]
    return np.where(phase == "sub", 0.0, np.where(phase == "critical", 0.5, 1.0))


def ssmax_weight_rate(
    n_key: ArrayLike, margin: ArrayLike, strength: ArrayLike
) -> NDArray[np.float64]:
    """How `ssmax_weight_bound` nears its limit: n^(s Delta - 1), 1/2, or 1 - n^(1 - s Delta).

    Above s Delta = 1 it is a lower bound of the weight; below, n / (n - 1) times it is an upper one
    at equal margins.

    Arguments, shapes and errors: those of `ssmax_weight_bound`; range [0, 1].
    Source: derived here (theory 3).
    """
    exponent, phase = _ssmax_phase(margin, strength)
    log_n = np.log(check_whole("n_key", n_key))
    tail = np.exp(-np.abs(exponent - 1.0) * log_n)
    return np.where(phase == "sub", tail, np.where(phase == "critical", 0.5, 1.0 - tail))
