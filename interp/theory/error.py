"""From displacements to the error on the set-complement task, and back (theory 1.1).

With every absent token at the same logit, the model puts exp(-Delta_i) on present token i for 1 on
each absent one. S = sum_i exp(-Delta_i) over the s present tokens decides every error.
Derived here (theory 1.1, error metric).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_numbers, check_real, check_whole


def _illegal_log_odds(
    displacements: ArrayLike, n_absent: ArrayLike, n_present: ArrayLike | None
) -> NDArray[np.float64]:
    """log(S / (v - s)) without overflow."""
    values = check_numbers("displacements", displacements)
    absent = check_whole("n_absent", n_absent)
    if n_present is not None:
        return np.log(check_whole("n_present", n_present)) - values - np.log(absent)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(
            f"displacements must have shape [*row, s] with s >= 1, got {values.shape}; give "
            "n_present if one number stands for all present tokens."
        )
    with np.errstate(invalid="ignore"):
        return np.logaddexp.reduce(-values, axis=-1) - np.log(absent)


def _softplus(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 + e^x); NaN stays NaN without a warning."""
    with np.errstate(invalid="ignore"):
        return np.logaddexp(0.0, x)


def predict_total_variation(
    displacements: ArrayLike, n_absent: ArrayLike, n_present: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Total variation to the uniform distribution on the absent tokens: S / (S + v - s).

    S = sum_i exp(-Delta_i). Hypothesis: all absent tokens have the same logit (then exact).

    Args:
        displacements: logit, `[*row, s]`, one a present token; or `[*row]` with `n_present`.
        n_absent: v - s, whole numbers >= 1; broadcasts against `[*row]`.
        n_present: s, if all present tokens have the same displacement.

    Returns:
        ratio in [0, 1], `[*row]`; NaN where a displacement is NaN.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if a count is below 1 or there is no displacement.

    Source: derived here (theory 1.1, error metric).
    """
    return np.exp(-_softplus(-_illegal_log_odds(displacements, n_absent, n_present)))


def predict_illegal_mass(
    displacements: ArrayLike, n_absent: ArrayLike, n_present: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Probability that the model puts on present tokens: S / (S + v - s).

    Equal to `predict_total_variation` when all absent tokens have the same logit. When they do not,
    with displacements counted from their mean logit, it is an upper bound (Jensen).

    Arguments, shapes, range (ratio in [0, 1]) and errors: those of `predict_total_variation`.
    Source: derived here (theory 1.1, error metric).
    """
    return predict_total_variation(displacements, n_absent, n_present)


def predict_kl_divergence(
    displacements: ArrayLike, n_absent: ArrayLike, n_present: ArrayLike | None = None
) -> NDArray[np.float64]:
    """KL(target || model) = log(1 + S / (v - s)), in nats.

    Exact when all absent tokens have the same logit; when they do not, with displacements counted
    from their mean logit, a lower bound (Jensen).

    Arguments, shapes and errors: those of `predict_total_variation`; range [0, inf).
    Source: derived here (theory 1.1, error metric).
    """
    return _softplus(_illegal_log_odds(displacements, n_absent, n_present))


def displacement_threshold(
    epsilon: ArrayLike, length: ArrayLike, d_vocab: ArrayLike
) -> NDArray[np.float64]:
    """Displacement at which the total variation is epsilon: log(s (1 - eps) / (eps (v - s))).

    TV <= epsilon iff Delta >= this. Hypotheses: all present tokens have the same displacement, all
    absent ones the same logit.

    Args:
        epsilon: ratio in (0, 1).
        length: s, whole numbers, 1 <= s < d_vocab.
        d_vocab: v. All broadcast.

    Returns:
        logit, the broadcast shape; may be negative.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 1.1, error metric).
    """
    level = check_real("epsilon", epsilon, 0.0, 1.0, open_low=True, open_high=True)
    lengths, vocabulary = check_whole("length", length), check_whole("d_vocab", d_vocab, 2)
    if (lengths >= vocabulary).any():
        raise ValueError(
            f"length must be below d_vocab, got {lengths.max():g} against {vocabulary.min():g}."
        )
    return np.log(lengths) + np.log1p(-level) - np.log(level) - np.log(vocabulary - lengths)


def predict_crossing_length(
    p: ArrayLike, epsilon: ArrayLike, d_vocab: ArrayLike
) -> NDArray[np.float64]:
    """Length at which the total variation of the model without a norm reaches epsilon.

    The root s of p / s = log(s (1 - eps) / (eps (v - s))), unique because the left side falls and
    the right side rises; TV <= epsilon at the whole lengths up to it and above epsilon past it.

    Hypotheses: balanced solution of equal strengths p, uniform attention, no norm after the
    attention.

    Args:
        p: logit, >= 0: the displacement at length 1 (twice the one at length 2).
        epsilon: ratio in (0, 1).
        d_vocab: v, whole numbers >= 2. All broadcast.

    Returns:
        1 (a length, real), in (0, d_vocab], the broadcast shape. Below 1: fails from the start;
        above d_vocab - 1: never fails on the task.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 1.1, error metric).
    """
    strength = check_real("p", p, 0.0)
    level = check_real("epsilon", epsilon, 0.0, 1.0, open_low=True, open_high=True)
    vocabulary = check_whole("d_vocab", d_vocab, 2)
    shape = np.broadcast_shapes(strength.shape, level.shape, vocabulary.shape)
    odds = np.log1p(-level) - np.log(level)
    low, high = np.zeros(shape), np.broadcast_to(vocabulary, shape).copy()
    for _ in range(1100):
        middle = 0.5 * (low + high)
        if not ((low < middle) & (middle < high)).any():
            break
        with np.errstate(divide="ignore", over="ignore"):
            passes = strength / middle >= np.log(middle) + odds - np.log(vocabulary - middle)
        low, high = np.where(passes, middle, low), np.where(passes, high, middle)
    return 0.5 * (low + high)
