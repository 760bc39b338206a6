"""Norms and variances of what attention adds to the stream, as the row grows (theory 10 and 12)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_weights, check_whole


def output_variance_rate(
    probabilities: ArrayLike, scores: ArrayLike, values: ArrayLike
) -> NDArray[np.float64]:
    """Limit of n Var(o_n): E[e^(2 l) (v - mu)^2] / (E e^l)^2, mu = E[e^l v] / E[e^l].

    o_n is one coordinate of the attention output of a fixed query over n keys; the variance is over
    sequences. So Var(o_n) is about rate / n.

    Hypotheses: keys i.i.d. from a finite vocabulary (drawn with replacement), score l and value v
    functions of the token; no zero-mean values needed; n large.

    Args:
        probabilities: ratio, `[*row, token]`, sums to one.
        scores: l, 1, `[*row, token]`, finite.
        values: v, `[*row, token]`, finite; one coordinate a row. Leading axes broadcast.

    Returns:
        1 (value squared), >= 0, `[*row]`.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the probabilities are none, or an axis or entry does not fit.

    Source: derived here (theory 10). That the variance vanishes is Proposition 1 of Li et al.,
    arXiv 2504.02827 [second-hand].
    """
    share = check_weights("probabilities", probabilities)
    score, value = check_real("scores", scores), check_real("values", values)
    for name, array in (("scores", score), ("values", value)):
        if array.ndim == 0 or array.shape[-1] != share.shape[-1]:
            raise ValueError(
                f"{name} must have shape [*row, token] with {share.shape[-1]} tokens like "
                f"probabilities, got {array.shape}."
            )
    tilted = share * np.exp(score - score.max(axis=-1, keepdims=True))
    tilted = tilted / tilted.sum(axis=-1, keepdims=True)
    mean = (tilted * value).sum(axis=-1, keepdims=True)
    inverse = np.where(share > 0.0, 1.0 / np.where(share > 0.0, share, 1.0), 0.0)
    return (tilted**2 * inverse * (value - mean) ** 2).sum(axis=-1)


def output_variance_bound(
    n_key: ArrayLike, score_limit: ArrayLike, value_limit: ArrayLike
) -> NDArray[np.float64]:
    """Upper bound of the variance of an attention output coordinate: 4 V^2 e^(4A) / n.

    It bounds E(o_n - mu)^2 (mu as in `output_variance_rate`), hence the variance over sequences.

    Hypotheses: keys i.i.d. from a finite vocabulary, fixed query, |score| <= A, |value| <= V.

    Args:
        n_key: whole numbers >= 1.
        score_limit: A, 1, >= 0; half the spread over the vocabulary will do.
        value_limit: V, >= 0. All broadcast.

    Returns:
        1 (value squared), >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 10).
    """
    keys, score = check_whole("n_key", n_key), check_real("score_limit", score_limit, 0.0)
    value = check_real("value_limit", value_limit, 0.0)
    with np.errstate(over="ignore"):
        return 4.0 * value**2 * np.exp(4.0 * score) / keys


def predict_average_norm(
    support: ArrayLike, norm: ArrayLike, cosine: ArrayLike = 0.0
) -> NDArray[np.float64]:
    """Norm of a weighted average of values: c sqrt(rho + (1 - rho) / N), N = 1 / sum a^2.

    Uniform weights over n orthogonal values: c / sqrt(n). So the attention output shrinks with the
    effective support, down to the floor c sqrt(rho) that the values have in common.

    Hypotheses: all values have norm c and every pair the cosine rho; weights sum to one.

    Args:
        support: N, 1, >= 1, effective support of the row (n if uniform).
        norm: c, l2, >= 0.
        cosine: rho, in [-1, 1]; rho >= -1 / (n - 1) is needed for n such values to exist. All
            broadcast.

    Returns:
        l2, the broadcast shape; NaN where rho is too negative for that support.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: elementary, derived here (theory 0 and 11).
    """
    keys = check_real("support", support, 1.0)
    rho = check_real("cosine", cosine, -1.0, 1.0)
    square = rho + (1.0 - rho) / keys
    return check_real("norm", norm, 0.0) * np.sqrt(np.where(square >= 0.0, square, np.nan))


def peri_norm_bound(
    norm_at_0: ArrayLike, n_sublayers: ArrayLike, gain: ArrayLike, d_model: ArrayLike
) -> NDArray[np.float64]:
    """Upper bound of the residual norm after L sub-layers with a norm on their output.

    |x_L| <= |x_0| + L g sqrt(d_model): linear in depth, and free of the length.

    Hypotheses: placement "peri" or "res_post", RMSNorm or LayerNorm without bias, gains of absolute
    value at most g, any eps >= 0.

    Args:
        norm_at_0: |x_0|, l2, >= 0.
        n_sublayers: L, whole numbers >= 0 (attention and MLP count one each).
        gain: g >= 0.
        d_model: whole numbers >= 1. All broadcast.

    Returns:
        l2, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 12); linear growth of the variance is reported by Kim et al.
    (Peri-LN), arXiv 2502.02732 [second-hand].
    """
    start = check_real("norm_at_0", norm_at_0, 0.0)
    step = check_real("gain", gain, 0.0) * np.sqrt(check_whole("d_model", d_model))
    return start + check_whole("n_sublayers", n_sublayers, 0) * step
