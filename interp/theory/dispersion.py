"""How sharp a softmax row can be, given how far apart its scores are (theory 0, 2, 12 and 14).

A row has n visible keys (`n_key`), scores s_j after scaling, weights a = softmax(s / temperature).
The **spread** is max s - min s over the visible keys; the **deviation** is the standard deviation
of the scores under the uniform measure over the visible keys. Entropy is in nats.

A bound in the spread holds for every row whose spread is at most that: to bound a mean over rows,
pass the largest spread, not the mean one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_whole


class Bounds(NamedTuple):
    """A lower and an upper bound of the same shape."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def _n_key_and_spread(
    n_key: ArrayLike, spread: ArrayLike, temperature: ArrayLike = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The checked key count and the spread in units of the temperature."""
    keys, distance = check_whole("n_key", n_key), check_real("spread", spread, 0.0)
    return keys, distance / check_real("temperature", temperature, 0.0, open_low=True)


def entropy_limit(n_key: ArrayLike) -> NDArray[np.float64]:
    """Largest entropy of a row, reached by full dispersion: log n.

    Args: `n_key`, whole numbers >= 1. Returns nats, >= 0, the same shape. Raises ValueError for a
    count below 1. Source: elementary (theory 0).
    """
    return np.log(check_whole("n_key", n_key))


def effective_support_limit(n_key: ArrayLike) -> NDArray[np.float64]:
    """Largest effective support (1 / sum a^2 or e^H), reached by full dispersion: n.

    Args: `n_key`, whole numbers >= 1. Returns 1, >= 1, the same shape. Raises ValueError for a
    count below 1. Source: elementary (theory 0).
    """
    return check_whole("n_key", n_key)


def max_weight_limit(n_key: ArrayLike) -> NDArray[np.float64]:
    """Smallest value of the largest weight, reached by full dispersion: 1 / n.

    Args: `n_key`, whole numbers >= 1. Returns ratio in (0, 1], the same shape. Raises ValueError
    for a count below 1. Source: elementary (theory 0).
    """
    return 1.0 / check_whole("n_key", n_key)


def lemma_weight_bounds(
    n_key: ArrayLike, spread: ArrayLike, temperature: ArrayLike = 1.0
) -> Bounds:
    """Bounds of every weight: exp(-spread/theta) / n <= a_k <= exp(spread/theta) / n.

    Hypothesis: the scores of the row lie within `spread` of each other.

    Args:
        n_key: whole numbers >= 1.
        spread: 1, >= 0.
        temperature: theta > 0. All broadcast.

    Returns:
        ratio, the broadcast shape; the upper bound may exceed 1.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: Veličković et al., arXiv 2410.01104, Lemma 2.1 [second-hand] (theory 2).
    """
    keys, distance = _n_key_and_spread(n_key, spread, temperature)
    with np.errstate(over="ignore"):
        return Bounds(np.exp(-distance) / keys, np.exp(distance) / keys)


def weight_bounds(n_key: ArrayLike, spread: ArrayLike, temperature: ArrayLike = 1.0) -> Bounds:
    """Sharper bounds: 1 / (1 + (n-1) e^(spread/theta)) <= a_k <= 1 / (1 + (n-1) e^(-spread/theta)).

    Attained by one key at one end of the spread and all others at the other end. Hypothesis,
    arguments, shapes and errors: those of `lemma_weight_bounds`; range (0, 1].
    Source: derived here (theory 2).
    """
    keys, distance = _n_key_and_spread(n_key, spread, temperature)
    with np.errstate(divide="ignore"):
        others = np.log(keys - 1.0)
        return Bounds(
            np.exp(-np.logaddexp(0.0, others + distance)),
            np.exp(-np.logaddexp(0.0, others - distance)),
        )


def max_weight_bounds(n_key: ArrayLike, spread: ArrayLike, temperature: ArrayLike = 1.0) -> Bounds:
    """Bounds of the largest weight: 1 / n <= max a <= 1 / (1 + (n-1) e^(-spread/theta)).

    Arguments, shapes and errors: those of `lemma_weight_bounds`; range (0, 1].
    Source: derived here (theory 2); the lower one is full dispersion (theory 0).
    """
    keys, upper = check_whole("n_key", n_key), weight_bounds(n_key, spread, temperature).upper
    return Bounds(np.broadcast_to(1.0 / keys, upper.shape).copy(), upper)


def qk_norm_weight_bounds(n_key: ArrayLike, gain: ArrayLike) -> Bounds:
    """Bounds of every weight under QK-norm: `weight_bounds` at spread 2 g.

    Scores g <q/|q|, k/|k|> lie in [-g, g], so a fixed g guarantees dispersion.

    Args:
        n_key: whole numbers >= 1.
        gain: g >= 0, everything that multiplies the cosine. Broadcasts.

    Returns:
        ratio in (0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 12).
    """
    return weight_bounds(n_key, 2.0 * check_real("gain", gain, 0.0))


def spread_bound(
    query_singular: ArrayLike,
    key_singular: ArrayLike,
    query_norm: ArrayLike,
    key_norm: ArrayLike,
    scale: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Upper bound of the spread: 2 c sigma_max(Q) sigma_max(K) |y| max_i |x_i|.

    Hypotheses: scores c <Q y, K x_i> with no bias; y and x_i are the vectors that Q and K act on.

    Args:
        query_singular: sigma_max of the query matrix, >= 0.
        key_singular: sigma_max of the key matrix, >= 0.
        query_norm: |y|, l2, >= 0.
        key_norm: the largest |x_i| over the visible keys, l2, >= 0.
        scale: c, usually 1 / sqrt(d_head); the paper has 1. All broadcast.

    Returns:
        1 (a score), >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is negative or not finite.

    Source: Veličković et al., arXiv 2410.01104, Proposition 3.1 [second-hand] (theory 2).
    """
    return (
        2.0
        * check_real("scale", scale, 0.0)
        * check_real("query_singular", query_singular, 0.0)
        * check_real("key_singular", key_singular, 0.0)
        * check_real("query_norm", query_norm, 0.0)
        * check_real("key_norm", key_norm, 0.0)
    )


def required_spread_bound(n_key: ArrayLike, weight: ArrayLike) -> NDArray[np.float64]:
    """Least spread with which one of n keys can hold a weight w: max(0, log((n-1) w / (1-w))).

    It grows as log n: a spread that does not is a head that disperses.

    Args:
        n_key: whole numbers >= 1.
        weight: ratio in (0, 1). Broadcasts.

    Returns:
        1 (a score, in units of the temperature), >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 2, from the sharper upper bound, which is attained).
    """
    keys = check_whole("n_key", n_key)
    share = check_real("weight", weight, 0.0, 1.0, open_low=True, open_high=True)
    with np.errstate(divide="ignore"):
        needed = np.log(keys - 1.0) + np.log(share) - np.log1p(-share)
    return np.maximum(needed, 0.0)


def n_key_bound(spread: ArrayLike, weight: ArrayLike) -> NDArray[np.float64]:
    """Largest n at which a row of this spread can put weight w on one key.

    floor(1 + e^spread (1 - w) / w): at every larger n the strongest key is below w.

    Args:
        spread: 1, >= 0, the largest that the head reaches (in units of the temperature).
        weight: ratio in (0, 1). Broadcasts.

    Returns:
        1 (a count of keys), >= 1, the broadcast shape; infinite past the range of float64.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 2, from the sharper upper bound, which is attained).
    """
    distance = check_real("spread", spread, 0.0)
    share = check_real("weight", weight, 0.0, 1.0, open_low=True, open_high=True)
    with np.errstate(over="ignore"):
        largest = 1.0 + np.exp(distance + np.log1p(-share) - np.log(share))
        return np.floor(largest * (1.0 + 1e-12))


def entropy_bound(
    n_key: ArrayLike, spread: ArrayLike, temperature: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Lower bound of the entropy: log n - min(d, d^2 / 8), d = spread / theta.

    From KL(a || uniform) <= min(d, d^2 / 8). Simple, and never far off at small d; negative (void)
    once d > log n. Arguments, shapes and errors: those of `lemma_weight_bounds`. Returns nats.
    Source: derived here (theory 2).
    """
    keys, distance = _n_key_and_spread(n_key, spread, temperature)
    return np.log(keys) - np.minimum(distance, distance**2 / 8.0)


def tight_entropy_bound(
    n_key: ArrayLike, spread: ArrayLike, temperature: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """The smallest entropy that n keys of this spread can have, attained.

    min over m in 1..n-1 of log(m + (n-m) q) + d (n-m) q / (m + (n-m) q), with d = spread / theta
    and q = e^(-d): m keys at the top of the spread and the others at the bottom. For n large at
    fixed d it tends to log n - (x - 1 - log x), x = d / (1 - q), which is itself a lower bound.

    Proof: the weights with a_i <= e^d a_j for all i, j form a polytope whose extreme points have
    two levels at ratio e^d; entropy is concave, so its minimum is at one of them; as a function of
    real m the expression falls and then rises, with its turn at m/n = (x - 1) q / (1 - q).

    Arguments, shapes and errors: those of `lemma_weight_bounds`. Returns nats, in [0, log n].
    Source: derived here (extends theory 2).
    """
    keys, distance = _n_key_and_spread(n_key, spread, temperature)
    keys, distance = np.broadcast_arrays(keys, distance)
    with np.errstate(divide="ignore", invalid="ignore"):
        q, one_minus_q = np.exp(-distance), -np.expm1(-distance)
        turn = np.where(distance > 1e-4, (distance / one_minus_q - 1.0) * q / one_minus_q, 0.5)
        top = np.clip(np.floor(keys * turn)[..., None] + np.arange(2.0), 1.0, keys[..., None] - 1.0)
        bottom = (keys[..., None] - top) * q[..., None]
        entropy = np.log(top + bottom) + distance[..., None] * bottom / (top + bottom)
    return np.where(keys > 1.0, entropy.min(axis=-1), 0.0)


def score_norm_entropy_bound(n_key: ArrayLike, score_norm: ArrayLike) -> NDArray[np.float64]:
    """Smallest entropy of a row of n scores with l2 norm at most r, attained (row form).

    log(1 + (n-1) beta) + r sqrt(n (n-1)) beta / (1 + (n-1) beta), beta = exp(-r sqrt(n / (n-1))).
    Adding a constant to the scores changes nothing, so r may be that of the centred scores:
    sqrt(n) times their deviation.

    Args:
        n_key: whole numbers >= 1.
        score_norm: r, l2, >= 0. Broadcasts.

    Returns:
        nats, in [0, log n], the broadcast shape; 0 at n = 1.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: Zhai et al. (σReparam), arXiv 2303.06296, Theorem 3.1 [second-hand] (theory 14). The
    paper bounds r by the spectral norms of its query-key product and of X X'.
    """
    keys, norm = check_whole("n_key", n_key), check_real("score_norm", score_norm, 0.0)
    others = np.maximum(keys - 1.0, 1.0)
    beta = np.exp(-norm * np.sqrt((others + 1.0) / others))
    total = 1.0 + others * beta
    bound = np.log(total) + norm * np.sqrt((others + 1.0) * others) * beta / total
    return np.where(keys > 1.0, bound, 0.0)


def qk_norm_entropy_bound(n_key: ArrayLike, gain: ArrayLike) -> NDArray[np.float64]:
    """Smallest entropy of a row under QK-norm, attained: `tight_entropy_bound` at spread 2 g.

    It grows as log n at a fixed g: log n less the entropy stays below x - 1 - log x, x = 2 g /
    (1 - e^(-2g)). Arguments and errors: those of `qk_norm_weight_bounds`. Returns nats, in
    [0, log n], the broadcast shape. Source: derived here (theory 2 and 12).
    """
    return tight_entropy_bound(n_key, 2.0 * check_real("gain", gain, 0.0))


def predict_gaussian_entropy(n_key: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Entropy of a row of i.i.d. Gaussian scores: log n - sigma^2 / 2.

    Hypotheses: scores i.i.d. N(0, sigma^2), n large; valid up to the freezing transition sigma =
    sqrt(2 log n), and blurred near it: right to 0.01 nat at 0.3 of it and to 0.05 at 0.6, for
    n = 10^5.

    Args:
        n_key: whole numbers >= 1.
        deviation: sigma, 1 (a score), >= 0. Broadcasts.

    Returns:
        nats, in [0, log n], the broadcast shape; NaN past the transition.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here up to the standard random-energy limit (theory 0).
    """
    keys, sigma = check_whole("n_key", n_key), check_real("deviation", deviation, 0.0)
    return np.where(sigma**2 <= 2.0 * np.log(keys), np.log(keys) - sigma**2 / 2.0, np.nan)


def predict_gaussian_support(n_key: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Effective support 1 / sum a^2 of a row of i.i.d. Gaussian scores: n exp(-sigma^2).

    Valid while sigma <= sqrt(log n / 2): past it the annealed sum of squares fails, before the
    entropy law does. Hypotheses otherwise, arguments, shapes and errors: those of
    `predict_gaussian_entropy`. Returns 1, in [sqrt(n), n]; NaN past the validity.
    Source: derived here up to the standard random-energy limit (theory 0).
    """
    keys, sigma = check_whole("n_key", n_key), check_real("deviation", deviation, 0.0)
    valid = 2.0 * sigma**2 <= np.log(keys)
    return np.where(valid, keys * np.exp(-(np.where(valid, sigma, 0.0) ** 2)), np.nan)
