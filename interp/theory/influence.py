"""What one token can do to an attention output (theory 14; Hahn 2020).

Replacing one key and its value, the query kept, moves the output by

o' - o = (w' (v' - o) - w (v - o)) / W' = a' (v' - r) - a (v - r),

w = e^score, W' the new sum of the w, a and a' the weights of the key before and after, r the output
over the other keys alone. So with bounded scores and values one token among n moves it by O(1/n).
"""

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_whole
from .dispersion import weight_bounds


def predict_replacement(
    scores: ArrayLike,
    values: ArrayLike,
    key: int,
    new_score: ArrayLike,
    new_value: ArrayLike,
) -> NDArray[np.float64]:
    """Change of the output when one key is replaced: (w' (v' - o) - w (v - o)) / W'.

    Computed as a' (v' - r) - a (v - r), which keeps its digits when the key holds all the weight.
    Exact for any scores and values. Hypothesis: the query and every other key stay as they are, so
    the replaced token is not the query's own.

    Args:
        scores: `[*row, key]`, finite.
        values: `[*row, key, d_value]`, finite; leading axes broadcast.
        key: which key is replaced, from 0.
        new_score: `[*row]`, finite.
        new_value: `[*row, d_value]`, finite.

    Returns:
        `[*row, d_value]`, in the unit of the values.

    Raises:
        TypeError: if an argument is not made of real numbers, or the key is no integer.
        ValueError: if an axis, entry or the key does not fit.

    Source: derived here (theory 14).
    """
    score, value = check_real("scores", scores), check_real("values", values)
    if score.ndim < 1 or value.ndim < 2 or value.shape[-2] != score.shape[-1]:
        raise ValueError(
            "scores must have shape [*row, key] and values [*row, key, d_value] with the same "
            f"keys, got {score.shape} and {value.shape}."
        )
    key = operator.index(key)
    if not 0 <= key < score.shape[-1]:
        raise ValueError(f"key must be from 0 to {score.shape[-1] - 1}, got {key}.")
    fresh, arrived = check_real("new_score", new_score), check_real("new_value", new_value)
    gone = value[..., key, :]
    if score.shape[-1] == 1:
        return np.broadcast_arrays(arrived - gone, fresh[..., None])[0].copy()
    others, rest = np.delete(score, key, axis=-1), np.delete(value, key, axis=-2)
    total = np.logaddexp.reduce(others, axis=-1)
    kept = (np.exp(others - total[..., None])[..., None] * rest).sum(-2)
    before = np.exp(-np.logaddexp(0.0, total - score[..., key]))[..., None]
    after = np.exp(-np.logaddexp(0.0, total - fresh))[..., None]
    return after * (arrived - kept) - before * (gone - kept)


def influence_bound(
    n_key: ArrayLike, score_limit: ArrayLike, value_limit: ArrayLike
) -> NDArray[np.float64]:
    """Upper bound of the change of an attention output: 4 V e^(2A) / n.

    Hypotheses: one layer; |score| <= A and |value| <= V before and after; the replaced token is not
    the query's own, whose change moves every score.

    Args:
        n_key: n, whole numbers >= 1.
        score_limit: A, 1 (a score), >= 0; half the spread will do.
        value_limit: V, l2, >= 0. All broadcast.

    Returns:
        l2, >= 0, the broadcast shape; may be infinite.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 14). That the change is O(1/n) is Hahn 2020, Lemma 5 [second-hand].
    """
    keys, limit = check_whole("n_key", n_key), check_real("score_limit", score_limit, 0.0)
    with np.errstate(over="ignore"):
        return 4.0 * check_real("value_limit", value_limit, 0.0) * np.exp(2.0 * limit) / keys


def tight_influence_bound(
    n_key: ArrayLike, score_limit: ArrayLike, value_limit: ArrayLike
) -> NDArray[np.float64]:
    """The largest change of an attention output, attained: 2 V / (1 + (n-1) e^(-2A)).

    Proof: with a, a' the weights of the replaced key before and after, and r the average of the
    other values, o' - o = a' (v' - r) - a (v - r), at most V (a' + a + |a' - a|) = 2 V max(a, a').
    Attained by all other values at -V u with scores -A, and v = -V u replaced by V u with score A.

    Hypotheses, arguments, shapes and errors: those of `influence_bound`; at most 2 V.
    Source: derived here (extends theory 14).
    """
    limit = check_real("score_limit", score_limit, 0.0)
    largest = weight_bounds(n_key, 2.0 * limit).upper
    return 2.0 * check_real("value_limit", value_limit, 0.0) * largest
