"""What no normaliser of bounded scores can do (theory 6).

Weights alpha_i = F(l_i) / sum_j F(l_j), F > 0, of L scores in a fixed range: each one lies between
C_1 / L and C_2 / L, and the map from scores to weights has a bounded slope.

Source: Mudarisov, Burtsev, Petrova and State, arXiv 2508.17821 [second-hand]. Its Lemma 2 is
relayed as a bound 1 / (4 T) of the spectral norm of the Jacobian, which is false: at weights
(1/2, 1/2) the norm is 1 / (2 T). The slope bounds here are true and attained. Its formulas of the
top-N distance and of the geometric separability are not known here, so there is no law of them.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_weights, check_whole
from .dispersion import Bounds, lemma_weight_bounds


def normaliser_weight_bounds(n_key: ArrayLike, lowest: ArrayLike, highest: ArrayLike) -> Bounds:
    """Bounds of every weight under any positive map: (F_low / F_high) / n to (F_high / F_low) / n.

    Softmax, linear attention with bounded features, or any other F: none keeps a weight from
    falling as 1 / n while F stays between two positive numbers.

    Hypotheses: weights F(l_i) / sum_j F(l_j), where F does not depend on n and stays in
    [F_low, F_high] over the scores.

    Args:
        n_key: n, whole numbers >= 1.
        lowest: F_low > 0.
        highest: F_high >= F_low. All broadcast.

    Returns:
        ratio, > 0, the broadcast shape; the upper bound may exceed 1.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: Mudarisov et al., arXiv 2508.17821, Lemma 1 [second-hand]; constants derived here
    (theory 6).
    """
    keys = check_whole("n_key", n_key)
    low = check_real("lowest", lowest, 0.0, open_low=True)
    high = check_real("highest", highest, 0.0, open_low=True)
    if (low > high).any():
        raise ValueError(
            f"lowest must be at most highest, got {low.max():g} against {high.min():g}."
        )
    return Bounds(low / high / keys, high / low / keys)


def norm_weight_bounds(
    n_key: ArrayLike, query_norm: ArrayLike, key_norm: ArrayLike, temperature: ArrayLike = 1.0
) -> Bounds:
    """Bounds of every softmax weight from norms: e^(-2 D / T) / n <= a <= e^(2 D / T) / n.

    D = |q| max_i |k_i|: scores q'k lie in [-D, D], so this is `lemma_weight_bounds` at spread 2 D.
    `weight_bounds` at that spread is sharper.

    Args:
        n_key: n, whole numbers >= 1.
        query_norm: |q|, l2, >= 0.
        key_norm: the largest |k_i| over the visible keys, l2, >= 0.
        temperature: T > 0; sqrt(d_head) if scores are q'k / sqrt(d_head). All broadcast.

    Returns:
        ratio, the broadcast shape; the upper bound may exceed 1.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: Mudarisov et al., arXiv 2508.17821, Corollary 1 [second-hand], read with the largest key
    (theory 6).
    """
    size = check_real("query_norm", query_norm, 0.0) * check_real("key_norm", key_norm, 0.0)
    return lemma_weight_bounds(n_key, 2.0 * size, temperature)


def predict_softmax_jacobian(
    weights: ArrayLike, temperature: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Jacobian of a softmax row in its scores: (diag(a) - a a') / T.

    Args:
        weights: a, ratio, `[*row, key]`, rows that sum to one.
        temperature: T > 0; broadcasts against `[*row]`.

    Returns:
        `[*row, key, key]`, symmetric, rows that sum to zero.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the weights are none, or the temperature is not above 0.

    Source: elementary (theory 6).
    """
    share = check_weights("weights", weights)
    scale = check_real("temperature", temperature, 0.0, open_low=True)[..., None, None]
    diagonal = share[..., :, None] * np.eye(share.shape[-1])
    return (diagonal - share[..., :, None] * share[..., None, :]) / scale


def jacobian_entry_bound(temperature: ArrayLike = 1.0) -> NDArray[np.float64]:
    """Largest |d a_i / d l_j| of a softmax: 1 / (4 T), attained at a_i = 1/2.

    Args: `temperature`, T > 0. Returns 1 (inverse score), the same shape. Raises ValueError for
    T <= 0. Source: derived here (theory 6).
    """
    return 0.25 / check_real("temperature", temperature, 0.0, open_low=True)


def jacobian_norm_bound(temperature: ArrayLike = 1.0) -> NDArray[np.float64]:
    """Largest spectral norm, and largest Frobenius norm, of the Jacobian: 1 / (2 T).

    Both attained at weights (1/2, 1/2, 0, ...). Args, returns and errors: those of
    `jacobian_entry_bound`. Source: derived here (theory 6), in place of the relayed 1 / (4 T).
    """
    return 0.5 / check_real("temperature", temperature, 0.0, open_low=True)


def dispersed_jacobian_bound(
    max_weight: ArrayLike, temperature: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Upper bound of the spectral norm from the largest weight: min(max a, 1/2) / T.

    diag(a) - a a' is at most diag(a), so a row that disperses also loses its gradient.

    Args:
        max_weight: ratio in (0, 1].
        temperature: T > 0. Broadcasts.

    Returns:
        1 (inverse score), > 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (extends theory 6).
    """
    largest = check_real("max_weight", max_weight, 0.0, 1.0, open_low=True)
    scale = check_real("temperature", temperature, 0.0, open_low=True)
    return np.minimum(largest, 0.5) / scale
