"""How far an attention output over n sampled tokens lies from that over all of them (theory 8, 10).

With keys drawn i.i.d. the output o_n of a fixed query tends to mu = E[e^l v] / E[e^l], and the
root mean square error falls as 1 / sqrt(n). Its constant is derived here; that the rate holds
uniformly over the queries of a ball, with a constant exponential in its radius, is Bohbot,
Letrouit, Peyré and Vialard, arXiv 2512.10656 (abstract), whose constant is not known here.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_whole
from .norms import output_variance_bound, output_variance_rate


def sampling_error_rate(
    probabilities: ArrayLike, scores: ArrayLike, values: ArrayLike
) -> NDArray[np.float64]:
    """Limit of sqrt(n) times the root mean square of o_n - mu: sqrt of `output_variance_rate`.

    For one query and one coordinate. Hypotheses, arguments, shapes and errors: those of
    `output_variance_rate`. Returns 1 (unit of the values), >= 0, `[*row]`.
    Source: derived here (theory 10).
    """
    return np.sqrt(output_variance_rate(probabilities, scores, values))


def sampling_error_limit(
    n_key: ArrayLike, probabilities: ArrayLike, scores: ArrayLike, values: ArrayLike
) -> NDArray[np.float64]:
    """Root mean square of o_n - mu for n large: `sampling_error_rate` / sqrt(n).

    Args:
        n_key: n, whole numbers >= 1; broadcasts against `[*row]`.
        probabilities: ratio, `[*row, token]`, sums to one.
        scores: l, `[*row, token]`, finite.
        values: v, `[*row, token]`, finite.

    Returns:
        1 (unit of the values), >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 10).
    """
    keys = check_whole("n_key", n_key)
    return sampling_error_rate(probabilities, scores, values) / np.sqrt(keys)


def sampling_error_bound(
    n_key: ArrayLike, score_limit: ArrayLike, value_limit: ArrayLike
) -> NDArray[np.float64]:
    """Upper bound of the root mean square of o_n - mu: 2 V e^(2A) / sqrt(n), at every n.

    The constant is exponential in the size of the scores, as the uniform one is in the radius.

    Arguments, hypotheses and errors: those of `output_variance_bound`. Returns 1 (unit of the
    values), >= 0, the broadcast shape. Source: derived here (theory 10).
    """
    return np.sqrt(output_variance_bound(n_key, score_limit, value_limit))
