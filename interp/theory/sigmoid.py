"""Rows whose weights need not sum to one: sigmoid, softmax plus one, differential (theory 16).

The **total mass** is the sum of the weights of a row. With scores in [-A, A]:

| variant | weight | total mass |
| --- | --- | --- |
| sigmoid, bias b = -log n | sigma(z_j + b) | n / (1 + n e^A) to n / (1 + n e^(-A)); e^(-A) to e^A |
| sigmoid, bias fixed | sigma(z_j + b) | grows as n |
| softmax1 | e^(z_j) / (1 + sum e^z) | below 1, and to 1 as n grows |
| differential | softmax(z)_j - lambda softmax(z')_j | 1 - lambda |

Derived here (theory 16). That b = -log n is what the paper of sigmoid attention (arXiv 2409.04431)
takes is not checked.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_numbers, check_real, check_whole
from .dispersion import Bounds, weight_bounds


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + e^(-x)) without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def _bias(keys: NDArray[np.float64], bias: ArrayLike | None) -> NDArray[np.float64]:
    """The bias given, or -log n."""
    return -np.log(keys) if bias is None else check_real("bias", bias)


def predict_sigmoid_weight(
    n_key: ArrayLike, score: ArrayLike, bias: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Weight of a key under sigmoid attention: sigma(z + b), b = -log n unless given.

    With b = -log n it is 1 / (1 + n e^(-z)): at a fixed score it falls as 1 / n, like a softmax
    weight. With a fixed bias it does not depend on the row.

    Args:
        n_key: n, whole numbers >= 1.
        score: z, 1, finite.
        bias: b, finite; None for -log n. All broadcast.

    Returns:
        ratio in [0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: sigmoid attention, arXiv 2409.04431 (theory 16).
    """
    keys = check_whole("n_key", n_key)
    weight = _sigmoid(check_real("score", score) + _bias(keys, bias))
    return np.broadcast_to(weight, np.broadcast_shapes(weight.shape, keys.shape)).copy()


def sigmoid_mass_bounds(
    n_key: ArrayLike, score_limit: ArrayLike, bias: ArrayLike | None = None
) -> Bounds:
    """Bounds of the total mass of a sigmoid row: n sigma(-A + b) <= sum a <= n sigma(A + b).

    b = -log n unless given: n / (1 + n e^A) to n / (1 + n e^(-A)), which tend to e^(-A) and e^A.
    Attained when all scores are at one end.

    Hypothesis: |z_j| <= A.

    Args:
        n_key: n, whole numbers >= 1.
        score_limit: A, 1 (a score), >= 0.
        bias: b, finite; None for -log n. All broadcast.

    Returns:
        ratio, > 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 16).
    """
    keys, limit = check_whole("n_key", n_key), check_real("score_limit", score_limit, 0.0)
    shift = _bias(keys, bias)
    return Bounds(keys * _sigmoid(shift - limit), keys * _sigmoid(shift + limit))


def predict_softmax1_mass(scores: ArrayLike) -> NDArray[np.float64]:
    """Total mass of a softmax1 row: Z / (1 + Z), Z = sum_j e^(z_j).

    softmax1 is softmax with one more key of score 0 and value 0, which takes the rest; every weight
    is its softmax weight times this mass.

    Args:
        scores: z, `[*row, key]`, minus infinity where masked.

    Returns:
        ratio in [0, 1], `[*row]`: 0 without a visible key.

    Raises:
        TypeError: if the scores are not real numbers.
        ValueError: if there is no axis of keys, or a score is NaN or plus infinity.

    Source: elementary (theory 16).
    """
    rows = check_numbers("scores", scores)
    if rows.ndim == 0 or rows.shape[-1] == 0:
        raise ValueError(
            f"scores must have shape [*row, key] with at least one key, got {rows.shape}."
        )
    if not (np.isfinite(rows) | np.isneginf(rows)).all():
        raise ValueError("scores must be finite, or minus infinity where masked.")
    return _sigmoid(np.logaddexp.reduce(rows, axis=-1))


def softmax1_mass_bounds(n_key: ArrayLike, score_limit: ArrayLike) -> Bounds:
    """Bounds of the total mass of a softmax1 row: n / (n + e^A) <= sum a <= n / (n + e^(-A)).

    Both tend to 1: with bounded scores a long row is a softmax row, and disperses like one.
    Attained when all scores are at one end.

    Hypothesis: |z_j| <= A.

    Args:
        n_key: n, whole numbers >= 1.
        score_limit: A, 1 (a score), >= 0. Broadcasts.

    Returns:
        ratio in (0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 16).
    """
    log_n = np.log(check_whole("n_key", n_key))
    limit = check_real("score_limit", score_limit, 0.0)
    return Bounds(_sigmoid(log_n - limit), _sigmoid(log_n + limit))


def predict_differential_mass(subtracted: ArrayLike) -> NDArray[np.float64]:
    """Total mass of a differential row: 1 - lambda, whatever the scores and the row's length.

    Args: `subtracted`, lambda, finite. Returns ratio, the same shape; negative if lambda > 1.
    Raises ValueError if it is not finite. Source: differential attention, arXiv 2410.05258
    (theory 16).
    """
    return 1.0 - check_real("subtracted", subtracted)


def differential_weight_bounds(
    n_key: ArrayLike, spread: ArrayLike, subtracted_spread: ArrayLike, subtracted: ArrayLike
) -> Bounds:
    """Bounds of every weight of a differential row, from `weight_bounds` of its two softmaxes.

    Lowest of the first less lambda times highest of the second, and the reverse. Both fall as 1 / n
    at fixed spreads: subtracting a second softmax does not keep a row from dispersing.

    Args:
        n_key: n, whole numbers >= 1.
        spread: 1, >= 0, of the first scores.
        subtracted_spread: 1, >= 0, of the second scores.
        subtracted: lambda >= 0. All broadcast.

    Returns:
        ratio, in [-lambda, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 2 and 16).
    """
    first, second = weight_bounds(n_key, spread), weight_bounds(n_key, subtracted_spread)
    share = check_real("subtracted", subtracted, 0.0)
    return Bounds(first.lower - share * second.upper, first.upper - share * second.lower)
