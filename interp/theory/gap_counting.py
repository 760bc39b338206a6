r"""How far a row is from sharp, read off its scores by counting competitors (theory 5).

With the gaps $g_j = s_{\max} - s_j \ge 0$ of a row of n visible keys, the **gap count** and the
**accumulation scale** are

$$N(g) = \#\{j : g_j \le g\}, \qquad \Lambda = \sup_{g > 0} \frac{\log N(g)}{g}.$$

At inverse temperature $\beta$ the weights are $a \propto e^{\beta s}$, and since
$1 / a_{\max} = \sum_j e^{-\beta g_j} = \beta \int_0^\infty e^{-\beta g} N(g)\,dg$,

$$a_{\max} \ge 1 - \Lambda/\beta \quad (\beta > \Lambda), \qquad
  a_{\max} \le \min_g e^{\beta g} / N(g).$$

So $\Lambda$ is, within a factor, the inverse temperature at which the row turns sharp. For a finite
row both extrema lie at gaps that occur. Keys that tie at the maximum make $\Lambda$ infinite: the
weight of one of m such keys stays below 1/m whatever $\beta$, and only what comes after attention
(a norm) can give their signal back.

Source: the framework of Hayase and Karakida, arXiv 2605.12697 [second-hand]; bounds and proofs
derived here (theory 5). Scores are those of the row after scale, soft-cap and bias; a key that the
row does not see has the score minus infinity.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_numbers, check_real, check_whole
from .dispersion import Bounds, required_spread_bound

_ITERATIONS = 200
_PRECISION = 1e-14


def gap_count(scores: ArrayLike, gap: ArrayLike) -> NDArray[np.float64]:
    """N(g): how many visible keys lie within `gap` of the row's maximum, itself included.

    Args:
        scores: `[*row, key]`, the scores of each row; minus infinity where a key is hidden.
        gap: g >= 0, broadcasts with `[*row]`.

    Returns:
        1 (a count of keys), in [1, n], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if a row has no visible key or a score that is NaN or plus infinity, or a gap is
            negative.

    Source: theory 5.
    """
    gaps, reach = _gaps(scores), check_real("gap", gap, 0.0)
    return (gaps <= reach[..., None]).sum(axis=-1).astype(np.float64)


def accumulation_scale(scores: ArrayLike, tolerance: ArrayLike = 0.0) -> NDArray[np.float64]:
    """Lambda = sup over g > 0 of log N(g) / g, exact: the supremum over the gaps that occur.

    Args:
        scores: `[*row, key]`, minus infinity where a key is hidden.
        tolerance: gaps up to here are ties with the maximum (rounding of measured scores), >= 0,
            broadcasts with `[*row]`.

    Returns:
        1 (an inverse temperature), in [0, inf], the broadcast shape: 0 for a row of one key,
        infinite where keys tie at the maximum.

    Raises:
        TypeError, ValueError: as `gap_count`.

    Source: derived here (theory 5).
    """
    gaps = _sorted_gaps(scores, tolerance)
    counts = np.log(np.arange(1.0, gaps.shape[-1] + 1.0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # The first of the sorted gaps is the maximum's own, and log 1 = 0.
        rates = counts / gaps
    rates[..., 0] = 0.0
    return rates.max(axis=-1)


def accumulation_bound(n_key: ArrayLike, spread: ArrayLike) -> NDArray[np.float64]:
    """Lower bound of the accumulation scale: log n / spread, since N(spread) = n.

    Attained when all other keys lie at the bottom. A spread that does not grow makes the scale grow
    at least as log n.

    Args:
        n_key: whole numbers >= 1.
        spread: 1, >= 0. Broadcasts.

    Returns:
        1 (an inverse temperature), in [0, inf], the broadcast shape; infinite at spread 0 (n > 1).

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 5).
    """
    return _over(np.log(check_whole("n_key", n_key)), check_real("spread", spread, 0.0))


def max_weight_lower_bound(inverse_temperature: ArrayLike, scale: ArrayLike) -> NDArray[np.float64]:
    """Lower bound of the largest weight: 1 - Lambda / beta for beta > Lambda, else 0 (void).

    Args:
        inverse_temperature: beta >= 0.
        scale: Lambda >= 0 of the row, infinite allowed. Broadcasts.

    Returns:
        ratio in [0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if beta is negative or not finite, or Lambda is negative or NaN.

    Source: derived here (theory 5).
    """
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    limit = check_numbers("scale", scale)
    if not (limit >= 0).all():
        raise ValueError("scale must be an accumulation scale, 0 or more, got a negative or NaN.")
    beta, limit = np.broadcast_arrays(beta, limit)
    above = beta > limit
    return np.where(above, 1.0 - np.where(above, limit, 0.0) / np.where(above, beta, 1.0), 0.0)


def max_weight_upper_bound(
    inverse_temperature: ArrayLike, scores: ArrayLike
) -> NDArray[np.float64]:
    """Upper bound of the largest weight: min over g >= 0 of e^(beta g) / N(g).

    Args:
        inverse_temperature: beta >= 0, broadcasts with `[*row]`.
        scores: `[*row, key]`, minus infinity where a key is hidden.

    Returns:
        ratio in (0, 1], the broadcast shape.

    Raises:
        TypeError, ValueError: as `gap_count`; beta must be finite and not negative.

    Source: derived here (theory 5).
    """
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)[..., None]
    gaps = _sorted_gaps(scores)
    seen = np.isfinite(gaps)
    counts = np.log(np.arange(1.0, gaps.shape[-1] + 1.0))
    exponents = beta * np.where(seen, gaps, 0.0) - counts
    return np.exp(np.where(seen, exponents, np.inf).min(axis=-1))


def predict_max_weight(inverse_temperature: ArrayLike, scores: ArrayLike) -> NDArray[np.float64]:
    """The largest weight at another inverse temperature: 1 / sum_j e^(-beta g_j), exact.

    Args, errors: those of `max_weight_upper_bound`. Returns ratio in (0, 1].
    Source: elementary (theory 0).
    """
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    return 1.0 / _exponentials(beta, _gaps(scores)).sum(axis=-1)


def sharpening_temperature_bounds(
    scores: ArrayLike, weight: ArrayLike = 0.5, tolerance: ArrayLike = 0.0
) -> Bounds:
    """Bounds of `predict_sharpening_temperature` from the gap count alone.

    sup over g of log(w N(g)) / g <= beta <= Lambda / (1 - w), the two bounds of theory 5 turned
    round; 0 below where w n <= 1, infinite above where keys tie at the maximum.

    Arguments and errors: those of `predict_sharpening_temperature`.
    Source: derived here (theory 5).
    """
    share = _share(weight)
    gaps = _sorted_gaps(scores, tolerance)
    return Bounds(_least(gaps, share), accumulation_scale(scores, tolerance) / (1.0 - share))


def predict_sharpening_temperature(
    scores: ArrayLike, weight: ArrayLike = 0.5, tolerance: ArrayLike = 0.0
) -> NDArray[np.float64]:
    """The smallest inverse temperature at which the largest weight reaches `weight`, exact.

    The root of log sum_j e^(-beta g_j) = -log w. The left side is convex and falls, so Newton's
    method climbs to it from the lower of `sharpening_temperature_bounds` and never passes it.

    Args:
        scores: `[*row, key]`, minus infinity where a key is hidden.
        weight: w, ratio in (0, 1), broadcasts with `[*row]`.
        tolerance: gaps up to here are ties with the maximum, >= 0, broadcasts with `[*row]`.

    Returns:
        1 (an inverse temperature, in units of the one the scores were measured at), in [0, inf],
        the broadcast shape: 0 where w n <= 1, infinite where m >= 1/w keys tie at the maximum, so
        that no temperature reaches it.

    Raises:
        TypeError, ValueError: as `gap_count`; the weight must lie strictly between 0 and 1.

    Source: derived here (theory 0 and 5).
    """
    share = _share(weight)
    gaps = _sorted_gaps(scores, tolerance)
    ties = (gaps == 0).sum(axis=-1)
    beta = _least(gaps, share)
    seen = np.isfinite(gaps).sum(axis=-1)
    done = share * seen <= 1.0
    never = ~done & (share * ties >= 1.0)
    beta = np.where(done | never, 0.0, beta)
    finite = np.where(np.isfinite(gaps), gaps, 0.0)
    target = np.log(share)
    for _ in range(_ITERATIONS):
        parts = _exponentials(beta, gaps)
        total, slope = parts.sum(axis=-1), (parts * finite).sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(done | never, 0.0, (np.log(total) + target) * total / slope)
        beta = beta + np.maximum(step, 0.0)
        if not (step > _PRECISION * beta).any():
            break
    return np.where(never, np.inf, beta)


def sharpening_bound(
    n_key: ArrayLike, spread: ArrayLike, weight: ArrayLike = 0.5
) -> NDArray[np.float64]:
    """Least inverse temperature at which n keys of this spread can give one key the weight.

    log((n-1) w / (1-w)) / spread, at least 0: attained when all other keys lie at the bottom.

    Args:
        n_key: whole numbers >= 1.
        spread: 1, >= 0, at inverse temperature 1.
        weight: w, ratio in (0, 1). All broadcast.

    Returns:
        1 (an inverse temperature), in [0, inf], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 2, from `required_spread_bound`).
    """
    return _over(required_spread_bound(n_key, weight), check_real("spread", spread, 0.0))


def predict_simplex_accumulation(n_key: ArrayLike, gap: ArrayLike) -> NDArray[np.float64]:
    """Accumulation scale of one key above n - 1 equal ones: log n / gap, exact.

    On simplex tokens the gap is (1 - rho) times the score scale, which gives back the critical
    gamma_c = 1 / (1 - rho) of Chen et al., arXiv 2510.05554, Theorem 2.1 [second-hand].

    Args:
        n_key: whole numbers >= 1.
        gap: 1 (a score), > 0. Broadcasts.

    Returns:
        1 (an inverse temperature), >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 4 and 5).
    """
    return np.log(check_whole("n_key", n_key)) / check_real("gap", gap, 0.0, open_low=True)


def gaussian_accumulation_rate(n_key: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Order of the accumulation scale of i.i.d. Gaussian scores: sqrt(2 log n) / sigma.

    An order, no value: the top spacing makes Lambda this times a random factor of order 1 whose
    upper tail falls as 1/x, so that its mean over rows is infinite; look at the median or at the
    mean of log Lambda. The reason for (log n)^(1/2) scaling of i.i.d. scores.

    Args:
        n_key: whole numbers >= 1.
        deviation: sigma > 0. Broadcasts.

    Returns:
        1 (an inverse temperature), >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 5, seen numerically).
    """
    sigma = check_real("deviation", deviation, 0.0, open_low=True)
    return np.sqrt(2.0 * np.log(check_whole("n_key", n_key))) / sigma


def sphere_accumulation_rate(
    n_key: ArrayLike, d_head: ArrayLike, radius: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Order of the accumulation scale of keys uniform on a sphere: n^(2/(d-1)) / radius.

    For scores r <q, k>, q fixed and k i.i.d. uniform on the unit sphere of R^d. An order, no value,
    and reached only once n is past e^d or so: before, the scores look Gaussian of deviation
    r / sqrt(d).

    Args:
        n_key: whole numbers >= 1.
        d_head: d, whole numbers >= 2.
        radius: r > 0. All broadcast.

    Returns:
        1 (an inverse temperature), > 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: Bruno et al., arXiv 2605.08505 [second-hand] for the critical scale; seen numerically
    (theory 5).
    """
    width = check_whole("d_head", d_head, 2)
    size = check_real("radius", radius, 0.0, open_low=True)
    return check_whole("n_key", n_key) ** (2.0 / (width - 1.0)) / size


def _over(value: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """value / spread, 0 / 0 being 0: nothing is needed where nothing is asked."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(value > 0, value / spread, 0.0)


def _share(weight: ArrayLike) -> NDArray[np.float64]:
    return check_real("weight", weight, 0.0, 1.0, open_low=True, open_high=True)


def _gaps(scores: ArrayLike) -> NDArray[np.float64]:
    """Gaps `[*row, key]` to each row's maximum; plus infinity where a key is hidden."""
    array = check_numbers("scores", scores)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(
            f"scores must have shape [*row, key] with at least one key, got {array.shape}."
        )
    top = array.max(axis=-1, keepdims=True)
    if not np.isfinite(top).all():
        raise ValueError(
            "every row of scores needs a visible key and finite scores (minus infinity where a key "
            f"is hidden), got a row whose maximum is {top[~np.isfinite(top)][0]:g}."
        )
    return top - array


def _sorted_gaps(scores: ArrayLike, tolerance: ArrayLike = 0.0) -> NDArray[np.float64]:
    """The gaps in increasing order, those up to the tolerance set to 0."""
    gaps = np.sort(_gaps(scores), axis=-1)
    return np.where(gaps <= check_real("tolerance", tolerance, 0.0)[..., None], 0.0, gaps)


def _least(gaps: NDArray[np.float64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    """sup over the positive gaps of log(w N) / g, at least 0, from sorted gaps."""
    counts = np.arange(1.0, gaps.shape[-1] + 1.0)
    rates = np.log(share[..., None] * counts) / np.where(gaps > 0, gaps, np.inf)
    return np.maximum(rates.max(axis=-1), 0.0)


def _exponentials(beta: NDArray[np.float64], gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^(-beta g), 0 where a key is hidden, also at beta = 0."""
    seen = np.isfinite(gaps)
    return np.where(seen, np.exp(-beta[..., None] * np.where(seen, gaps, 0.0)), 0.0)
