"""Rows with exact zeros: alpha-entmax, and where it departs from softmax (theory 7).

alpha-entmax, alpha > 1: p_j = [(alpha-1) z_j - tau]_+^(1/(alpha-1)), tau such that the row sums to
one. The **support** is the set of keys with p_j > 0.

| law | alpha-entmax | softmax |
| --- | --- | --- |
| a key this far below the largest gets nothing | 1 / (alpha - 1) | no distance is enough |
| a new key of low score | changes nothing | lowers every other weight |
| entropy | at most log of the support | tends to log n with bounded scores |
| needle of margin Delta, n to infinity | min(1, ((alpha-1) Delta)^(1/(alpha-1))) | 0 |

Sources: Vasylenko, Pitorro, Martins and Treviso, arXiv 2506.16640 [second-hand] for what the
properties mean; the statements here are standard or derived here (theory 7).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_numbers, check_real, check_whole


def _check_alpha(alpha: ArrayLike) -> NDArray[np.float64]:
    """The checked alpha, above 1 (softmax is 1)."""
    return check_real("alpha", alpha, 1.0, open_low=True)


def _check_rows(name: str, scores: ArrayLike) -> NDArray[np.float64]:
    """Scores `[*row, key]`: minus infinity where masked, one finite key a row at least."""
    array = check_numbers(name, scores)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(
            f"{name} must have shape [*row, key] with at least one key, got {array.shape}."
        )
    if not (np.isfinite(array) | np.isneginf(array)).all() or np.isneginf(array).all(-1).any():
        raise ValueError(
            f"{name} must be finite, or minus infinity where masked, with a visible key in every "
            "row."
        )
    return array


def entmax_gap_threshold(alpha: ArrayLike) -> NDArray[np.float64]:
    """Distance below the largest score from which alpha-entmax gives no weight: 1 / (alpha - 1).

    Sufficient in every row, and necessary in a needle row (the other keys equal). Softmax has none.

    Args: `alpha` > 1. Returns 1 (a score), > 0, the same shape. Raises ValueError for alpha <= 1.
    Source: standard (theory 7).
    """
    return 1.0 / (_check_alpha(alpha) - 1.0)


def entmax_support_bound(scores: ArrayLike, alpha: ArrayLike) -> NDArray[np.float64]:
    """Largest support that a row can have: the keys less than 1 / (alpha - 1) below its largest.

    Args:
        scores: `[*row, key]`, with any inverse temperature applied, minus infinity where masked.
        alpha: > 1; broadcasts against `[*row]`.

    Returns:
        1 (a count of keys), >= 1, `[*row]`.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if alpha is at most 1, or a row has no visible key.

    Source: standard (theory 7).
    """
    rows = _check_rows("scores", scores)
    near = rows.max(-1, keepdims=True) - rows < entmax_gap_threshold(alpha)[..., None]
    return near.sum(-1).astype(np.float64)


def entmax_entropy_bound(support: ArrayLike) -> NDArray[np.float64]:
    """Largest entropy of a row of this support: log of the support.

    So the entropy over log n stays at or below b < 1 when the support grows as n^b, however long
    the row: a sparse row need not disperse.

    Args: `support`, whole numbers >= 1, keys with a weight above 0. Returns nats, >= 0, the same
    shape. Raises ValueError for a count below 1. Source: standard (theory 7).
    """
    return np.log(check_whole("support", support))


def _power(base: NDArray[np.float64], alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    """[base]_+^(1 / (alpha - 1))."""
    return np.maximum(base, 0.0) ** (1.0 / (alpha - 1.0))


def _threshold(
    rows: NDArray[np.float64], alpha: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(alpha - 1) z less its largest, and tau on that scale, both `[*row, key]`; by bisection."""
    scaled = (alpha - 1.0) * (rows - rows.max(-1, keepdims=True))
    low = np.full((*scaled.shape[:-1], 1), -1.0)
    high = np.zeros(low.shape)
    for _ in range(1100):
        middle = 0.5 * (low + high)
        if not ((low < middle) & (middle < high)).any():
            break
        over = _power(scaled - middle, alpha).sum(-1, keepdims=True) > 1.0
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return scaled, 0.5 * (low + high)


def predict_entmax_weights(scores: ArrayLike, alpha: ArrayLike) -> NDArray[np.float64]:
    """Weights of alpha-entmax: [(alpha-1) z_j - tau]_+^(1/(alpha-1)), tau by bisection.

    Args:
        scores: z, `[*row, key]`, minus infinity where masked.
        alpha: > 1; broadcasts against `[*row]`. 2 is sparsemax; near 1 it tends to softmax.

    Returns:
        ratio in [0, 1], `[*row, key]`, rows that sum to one.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if alpha is at most 1, or a row has no visible key.

    Source: standard (theory 7).
    """
    sharpness = _check_alpha(alpha)[..., None]
    scaled, tau = _threshold(_check_rows("scores", scores), sharpness)
    weights = _power(scaled - tau, sharpness)
    return weights / weights.sum(-1, keepdims=True)


def entmax_score_threshold(scores: ArrayLike, alpha: ArrayLike) -> NDArray[np.float64]:
    """Score up to which a new key changes no weight of the row: tau / (alpha - 1).

    Any number of keys at or below it may be added: they get no weight and the others keep theirs
    ("non-vanishing"). Above it a new key takes weight from the row.

    Arguments and errors: those of `predict_entmax_weights`. Returns 1 (a score), `[*row]`.
    Source: standard (theory 7).
    """
    sharpness = _check_alpha(alpha)[..., None]
    rows = _check_rows("scores", scores)
    tau = _threshold(rows, sharpness)[1]
    return (rows.max(-1, keepdims=True) + tau / (sharpness - 1.0))[..., 0]


def predict_softmax_retention(scores: ArrayLike, added: ArrayLike) -> NDArray[np.float64]:
    """What softmax leaves of every weight when keys are added: Z / (Z + Z_added), always below 1.

    Args:
        scores: `[*row, key]`, minus infinity where masked.
        added: `[*row, new]`, scores of the new keys; leading axes broadcast.

    Returns:
        ratio in [0, 1), `[*row]`: new weight over old weight, the same for every old key; 1 where
        float64 cannot tell it from 1.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if a row has no visible key.

    Source: elementary (theory 7).
    """
    old = np.logaddexp.reduce(_check_rows("scores", scores), axis=-1)
    new = np.logaddexp.reduce(_check_rows("added", added), axis=-1)
    return np.exp(-np.logaddexp(0.0, new - old))


def _needle_weights(
    n_key: ArrayLike, margin: ArrayLike, alpha: ArrayLike, inverse_temperature: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weight of the needle and of each distractor, broadcast."""
    keys, sharpness = check_whole("n_key", n_key), _check_alpha(alpha)
    exponent = check_real("margin", margin, 0.0) * check_real(
        "inverse_temperature", inverse_temperature, 0.0
    )
    keys, sharpness, gap = np.broadcast_arrays(keys, sharpness, (sharpness - 1.0) * exponent)
    low, high = np.zeros(keys.shape), 1.0 / keys
    for _ in range(1100):
        middle = 0.5 * (low + high)
        if not ((low < middle) & (middle < high)).any():
            break
        with np.errstate(over="ignore"):
            needle = _power(middle ** (sharpness - 1.0) + gap, sharpness)
        over = needle + (keys - 1.0) * middle > 1.0
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    other = 0.5 * (low + high)
    half = np.minimum(gap, 1.0)  # at alpha 3/2 the roots of the weights differ by this
    root = (1.0 - half**2) / (half + np.sqrt(half**2 + keys * (1.0 - half**2)))
    other = np.where(sharpness == 1.5, root**2, other)
    other = np.where(sharpness == 2.0, (1.0 - half) / keys, other)
    other = np.where((gap >= 1.0) & (keys > 1.0), 0.0, other)
    with np.errstate(over="ignore"):
        needle = _power(other ** (sharpness - 1.0) + gap, sharpness)
    needle = np.where((gap >= 1.0) | (keys == 1.0), 1.0, needle)
    return needle, other


def predict_entmax_needle_weight(
    n_key: ArrayLike,
    margin: ArrayLike,
    alpha: ArrayLike = 1.5,
    inverse_temperature: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Weight of one key a margin above n - 1 equal ones under alpha-entmax.

    With g = (alpha - 1) beta Delta: 1 if g >= 1, else p with p^(alpha-1) - p_0^(alpha-1) = g and
    p + (n-1) p_0 = 1. Closed at alpha = 2, p = g + (1 - g) / n, and at alpha = 3/2, p = (y + g)^2,
    y = (1 - g^2) / (g + sqrt(g^2 + n (1 - g^2))); by bisection otherwise.

    Args:
        n_key: n, whole numbers >= 1.
        margin: Delta, 1 (a score), >= 0.
        alpha: > 1.
        inverse_temperature: beta >= 0; d + b (log n)^g for ASEntmax. All broadcast.

    Returns:
        ratio in (0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 7, two levels of scores).
    """
    return _needle_weights(n_key, margin, alpha, inverse_temperature)[0]


def predict_entmax_distractor_weight(
    n_key: ArrayLike,
    margin: ArrayLike,
    alpha: ArrayLike = 1.5,
    inverse_temperature: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Weight p_0 of each of the n - 1 equal keys of `predict_entmax_needle_weight`; 0 if g >= 1.

    Arguments, shapes and errors: those of `predict_entmax_needle_weight`. Returns ratio, in
    [0, 1 / n]; meaningless (there is no such key) at n = 1. Source: derived here (theory 7).
    """
    return _needle_weights(n_key, margin, alpha, inverse_temperature)[1]


def entmax_needle_limit(
    margin: ArrayLike, alpha: ArrayLike = 1.5, inverse_temperature: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Weight that a needle keeps under alpha-entmax as n grows: min(1, g^(1/(alpha-1))).

    g = (alpha - 1) beta Delta. Above 0 for every margin above 0, where softmax tends to 0; a lower
    bound at every n. It is 1 from beta Delta = 1 / (alpha - 1) on.

    Args:
        margin: Delta, 1 (a score), >= 0.
        alpha: > 1.
        inverse_temperature: beta >= 0. All broadcast.

    Returns:
        ratio in [0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 7, two levels of scores).
    """
    sharpness = _check_alpha(alpha)
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    gap = (sharpness - 1.0) * check_real("margin", margin, 0.0) * beta
    return _power(np.minimum(gap, 1.0), sharpness)
