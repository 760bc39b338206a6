"""How far a one-layer attention-only model pushes present tokens below absent ones (theory 1.1).

The model is f(t) = B[k] + sum_i a_i D[t_i], where k = t_s is the last token (the query),
a_i = w_i/W are the attention weights of its row (they sum to one) and the scores depend on the
tokens alone: no positional encoding, one head. Displacement of a present token = mean logit of the
absent tokens minus its own logit. Along the key axis the **last entry is always the query's own
token**.

| here | theory 1.1 |
| --- | --- |
| `length`, `d_vocab`, `n_absent` | s, v, v - s |
| `weights` | a_i = w_i / W |
| `p`, `delta` | p_i and delta_k of the structured solution |
| `displacements` | Delta_i |

Everything in this file is derived here (theory 1.1) unless a docstring says otherwise.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_numbers, check_real, check_weights, check_whole


def predict_two_body(f1: ArrayLike, f2: ArrayLike, weights: ArrayLike) -> NDArray[np.float64]:
    """Vector at length s from the same model's vectors at lengths 1 and 2 (two-body identity).

    f_s = sum_{i != k} (a_i + a_k) f_2(i, k) - (s - 2) a_k f_1(k), exact for every s >= 1.

    Hypotheses: the vector is affine in the attention weights of one row that sums to one, and a
    key's un-normalised weight does not depend on the other keys or on positions (softmax without
    positional encoding). So it holds for the logits of a one-layer, one-head, attention-only model
    without a norm after the attention, for the residual sum before such a norm, and for one head's
    output; with several heads, predict each head's output and add.

    Args:
        f1: `[*row, d]`, the vector for the last token alone.
        f2: `[*row, s - 1, d]`, the vectors for the pairs (i, k), in the order of the keys.
        weights: `[*row, s]`, attention weights of the row at length s, last key = the token itself.

    Returns:
        `[*row, d]` in the unit of `f1`; leading axes broadcast; NaN where an input is NaN.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the shapes do not fit or the weights are no weights.

    Source: derived here (theory 1.1, two-body identity).
    """
    single, pairs = check_numbers("f1", f1), check_numbers("f2", f2)
    row = check_weights("weights", weights)
    length = row.shape[-1]
    if single.ndim < 1 or pairs.ndim < 2 or pairs.shape[-2:] != (length - 1, single.shape[-1]):
        raise ValueError(
            f"f1, f2 and weights must have shapes [*row, d], [*row, s - 1, d] and [*row, s], got "
            f"{single.shape}, {pairs.shape} and {row.shape}."
        )
    own = row[..., -1:]
    coefficients = row[..., :-1] + own
    return np.matmul(coefficients[..., None, :], pairs)[..., 0, :] - (length - 2) * own * single


def predict_balanced_displacement(
    length: ArrayLike, displacement: ArrayLike, reference_length: int = 2
) -> NDArray[np.float64]:
    """Displacement at every length from the one at length 2 (the 2/s law) or 1 (the 1/s law).

    Delta_s = (r / s) Delta_r, where r is `reference_length`.

    Hypotheses: structured solution, balanced (delta = p: both tokens of a pair are displaced
    equally), uniform attention, no norm after the attention.

    Args:
        length: whole numbers >= 1, any shape.
        displacement: logit, at the reference length; broadcasts against `length`.
        reference_length: r, usually 2 or 1.

    Returns:
        logit, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if a length is not a whole number >= 1.

    Source: derived here (theory 1.1, structure).
    """
    lengths = check_whole("length", length)
    reference = check_whole("reference_length", reference_length)
    return reference / lengths * check_numbers("displacement", displacement)


def predict_displacement(p: ArrayLike, delta: ArrayLike, weights: ArrayLike) -> NDArray[np.float64]:
    """Displacement of every present token for the structured solution.

    Delta_i = a_i p_i for i != k, and Delta_k = delta_k - (1 - a_k) p_k.

    Hypotheses: D = 1 z' + c 1' - diag(p) and B = -1 z' + c' 1' + diag(p - delta) (for d_vocab >= 4
    the only models exactly uniform on the complement at lengths 1 and 2); no norm after the
    attention.

    Args:
        p: logit, `[*row, s]`, strengths of the tokens of the row, the last one the query's.
        delta: logit, `[*row]`, displacement of the query's token at length 1.
        weights: `[*row, s]`, attention weights.

    Returns:
        logit, `[*row, s]`.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the weights are no weights or `p` has another number of tokens.

    Source: derived here (theory 1.1, structure).
    """
    row = check_weights("weights", weights)
    strength, alone = check_numbers("p", p), check_numbers("delta", delta)
    if strength.ndim == 0 or strength.shape[-1] != row.shape[-1]:
        raise ValueError(
            f"p and weights must have the same last axis (tokens of the row), got {strength.shape} "
            f"and {row.shape}."
        )
    others = (row * strength)[..., :-1]
    last = alone - (1.0 - row[..., -1]) * strength[..., -1]
    rows = np.broadcast_shapes(others.shape[:-1], last.shape)
    return np.concatenate(
        [np.broadcast_to(others, rows + others.shape[-1:]), np.broadcast_to(last, rows)[..., None]],
        axis=-1,
    )


def last_token_threshold(p: ArrayLike, delta: ArrayLike) -> NDArray[np.float64]:
    """Own weight a_k below which the last token is no longer displaced: 1 - delta_k / p_k.

    Delta_k > 0 iff a_k > 1 - delta_k / p_k. A value <= 0 means that it never fails
    (delta_k >= p_k); a value >= 1 that it fails already alone. Under uniform attention it fails
    from the length p / (p - delta) on.

    Hypotheses: structured solution, no norm after the attention.

    Args:
        p: logit, > 0, strength of the query's token.
        delta: logit, its displacement at length 1; broadcasts against `p`.

    Returns:
        ratio, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if `p` is not positive or an argument not finite.

    Source: derived here (theory 1.1, structure).
    """
    return 1.0 - check_real("delta", delta) / check_real("p", p, 0.0, open_low=True)


def oscillation_bound(
    length: ArrayLike,
    own_weight: ArrayLike,
    oscillation_at_1: ArrayLike,
    oscillation_at_2: ArrayLike,
) -> NDArray[np.float64]:
    """Upper bound of the oscillation (max - min of the logits over the absent tokens) at length s.

    osc_s <= (1 + (s - 2) a_k) max_i osc_2(i, k) + (s - 2) a_k osc_1(k) for s >= 2; osc_1 at s = 1.
    Uniform attention: <= 2 osc_2 + osc_1 at every length.

    Hypotheses: those of `predict_two_body`; the oscillations at lengths 1 and 2 are taken over the
    tokens absent at length s, or over more of them.

    Args:
        length: whole numbers >= 1.
        own_weight: a_k, ratio in [0, 1], weight of the query's own token at length s.
        oscillation_at_1: logit, >= 0, for the query's token alone.
        oscillation_at_2: logit, >= 0, the largest over the pairs (i, k). All broadcast.

    Returns:
        logit, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 1.1, "noise does not grow").
    """
    lengths = check_whole("length", length)
    first = check_real("oscillation_at_1", oscillation_at_1, 0.0)
    second = check_real("oscillation_at_2", oscillation_at_2, 0.0)
    extra = (lengths - 2.0) * check_real("own_weight", own_weight, 0.0, 1.0)
    return np.where(lengths == 1, first, (1.0 + extra) * second + extra * first)


def minimum_displacement_bound(p: ArrayLike) -> NDArray[np.float64]:
    """Upper bound of the smallest displacement for any attention that sums to one.

    min_i a_i p_i <= 1 / sum_i (1 / p_i) <= max_i p_i / s, equality at a_i proportional to 1 / p_i.
    So no temperature, length scaling or sparsity of the attention holds the displacement up.

    Hypotheses: structured solution, balanced (delta = p); weights non-negative with sum one; no
    norm after the attention.

    Args:
        p: logit, > 0, `[*row, s]`.

    Returns:
        logit, `[*row]`.

    Raises:
        TypeError: if `p` is not made of real numbers.
        ValueError: if `p` has no token or is not positive.

    Source: derived here (theory 1.1, "no temperature can help").
    """
    strength = check_real("p", p, 0.0, open_low=True)
    if strength.ndim == 0 or strength.shape[-1] == 0:
        raise ValueError(f"p must have shape [*row, s] with s >= 1, got {strength.shape}.")
    return 1.0 / (1.0 / strength).sum(axis=-1)


def minimum_width_bound(
    d_vocab: ArrayLike, balanced: bool = False, bias_rank: int = 2
) -> NDArray[np.float64]:
    """Smallest d_model with which every present token can be displaced at lengths 1 and 2.

    d_model >= v - 1; exactly balanced solutions: d_model >= 2 (v - 1) - rank(B), rank(B) <= 2.
    v - 1 is attained (delta = (1 + r) p, r > 0), at every length at once.

    Hypotheses: one layer, one head, attention only, no norm after the attention; exactly uniform on
    the complement at lengths 1 and 2 with positive displacements; d_vocab >= 4. The balanced bound
    is Sylvester's inequality for B = E U.

    Args:
        d_vocab: whole numbers >= 4.
        balanced: whether delta = p exactly.
        bias_rank: rank(B) of the balanced solution, 0, 1 or 2.

    Returns:
        1 (a width), the shape of `d_vocab`.

    Raises:
        TypeError: if `d_vocab` is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 1.1, dimensions).
    """
    vocabulary = check_whole("d_vocab", d_vocab, 4)
    rank = check_real("bias_rank", check_whole("bias_rank", bias_rank, 0), 0.0, 2.0)
    free = vocabulary - 1.0
    return np.maximum(free, 2.0 * free - rank) if balanced else free


def minimum_value_width_bound(d_vocab: ArrayLike) -> NDArray[np.float64]:
    """Smallest value width (d_head of the one head) for the same task: v - 1, attained.

    Hypotheses, range and errors: those of `minimum_width_bound`. Returns 1 (a width), the shape of
    `d_vocab`. Source: derived here (theory 1.1, dimensions).
    """
    return check_whole("d_vocab", d_vocab, 4) - 1.0
