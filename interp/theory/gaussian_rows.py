r"""What rows of n i.i.d. Gaussian scores look like at finite n (theory 0 and 5).

$$E \max_j s_j = \sigma \int_0^\infty 1 - \Phi(x)^n - \Phi(-x)^n \,dx \le \sigma \sqrt{2 \log n},$$

and the expected spread is twice that. The asymptotic laws are slow: at n = 1024 the maximum is 0.87
of $\sigma\sqrt{2 \log n}$, and from 16 to 1024 keys the inverse temperature that sharpens a row
grows as $(\log n)^{0.8}$ on its way to $(\log n)^{1/2}$. So measured rows are held against these.
"""

import functools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_whole

_SHARPENING: dict[int, float] = {
    3: 0.738,
    4: 1.146,
    5: 1.431,
    6: 1.647,
    8: 1.973,
    11: 2.308,
    16: 2.669,
    23: 3.009,
    32: 3.285,
    45: 3.553,
    64: 3.826,
    128: 4.331,
    256: 4.791,
    512: 5.215,
    1024: 5.608,
    2048: 5.998,
    4096: 6.347,
    8192: 6.703,
    16384: 7.046,
    32768: 7.361,
    65536: 7.658,
    131072: 7.957,
    262144: 8.250,
    524288: 8.515,
    1048576: 8.837,
}
"""Geometric mean over rows of n standard normal scores of the inverse temperature at which the
largest weight is 1/2: 200,000 simulated rows or more at each n, standard error 0.15 %."""


def predict_gaussian_maximum(n_key: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Expected maximum less the mean of n i.i.d. Gaussian scores: sigma E max of n normals.

    Args:
        n_key: whole numbers >= 1.
        deviation: sigma >= 0. Broadcasts.

    Returns:
        1 (a score), >= 0, the broadcast shape; exact to 1e-9 relative.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: elementary (order statistics).
    """
    keys, sigma = check_whole("n_key", n_key), check_real("deviation", deviation, 0.0)
    x, upper = _grid()
    # 1 - Phi^n - (1 - Phi)^n, with Phi = 1 - upper, for x >= 0.
    power = keys[..., None]
    integrand = -np.expm1(power * np.log1p(-upper)) - upper**power
    return sigma * np.maximum(np.trapezoid(integrand, x, axis=-1), 0.0)


def predict_gaussian_spread(n_key: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Expected spread, max - min, of n i.i.d. Gaussian scores: twice `predict_gaussian_maximum`.

    Arguments, errors and precision: those of `predict_gaussian_maximum`. Returns 1 (a score), >= 0.
    Source: elementary (order statistics).
    """
    return 2.0 * predict_gaussian_maximum(n_key, deviation)


def gaussian_maximum_bound(n_key: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Upper bound of the expected maximum less the mean, and its limit: sigma sqrt(2 log n).

    Arguments and errors: those of `predict_gaussian_maximum`. Returns 1 (a score), >= 0.
    Source: elementary (Jensen's inequality for the moment generating function).
    """
    sigma = check_real("deviation", deviation, 0.0)
    return sigma * np.sqrt(2.0 * np.log(check_whole("n_key", n_key)))


def predict_gaussian_sharpening(n_key: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Inverse temperature at which a row of n i.i.d. Gaussian scores has largest weight 1/2.

    The geometric mean over rows (the mean is infinite: two close rivals need any inverse
    temperature), 1 / sigma times a simulated factor (standard error 0.15 %), interpolated in log n.
    Tends to a constant times sqrt(2 log n) / sigma, slowly. Rows scatter around it by a factor of
    about e^0.6.

    Args:
        n_key: whole numbers >= 1.
        deviation: sigma > 0. Broadcasts.

    Returns:
        1 (an inverse temperature), > 0, the broadcast shape; NaN below 3 and past 2^20 keys.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: simulated here (theory 5 gives the order).
    """
    keys = check_whole("n_key", n_key)
    sigma = check_real("deviation", deviation, 0.0, open_low=True)
    sizes = np.log(np.array(list(_SHARPENING), dtype=np.float64))
    factors = np.log(np.array(list(_SHARPENING.values())))
    return np.exp(np.interp(np.log(keys), sizes, factors, np.nan, np.nan)) / sigma


@functools.cache
def _grid() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points from 0 on, and the probability that a standard normal exceeds each."""
    x = np.linspace(0.0, 16.0, 6401)
    return x, np.array([0.5 * math.erfc(point / math.sqrt(2.0)) for point in x.tolist()])
