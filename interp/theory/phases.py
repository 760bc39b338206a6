"""One attention step on equiangular tokens, and its phases in the inverse temperature (theory 4).

n tokens on the simplex: |x_i|^2 = q and <y_i, y_j> = rho for i != j, with y = x / |x|. One step is
x_i' = sum_j A_ij y_j + alpha x_i, where A_ij is proportional to e^(beta <y_i, y_j>). Every pair has
the same cosine after the step. With beta = gamma log n three phases appear as n grows:

| phase | gamma | tokens after the step (alpha = 0) | gradient |
| --- | --- | --- | --- |
| sub | < 1 / (1 - rho) | one point: cosine 1 | vanishes |
| critical | = 1 / (1 - rho) | drawn together: 4 rho / (1 + 3 rho) | a quarter |
| super | > 1 / (1 - rho) | where they were: cosine rho | that of the norm |

Source: Chen, Lin, Polyanskiy and Rigollet, arXiv 2510.05554, Theorems 2.1 and 2.4 [second-hand].
The forms at finite n and those with a residual are derived here; they have the limits reported.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_whole

PHASES = ("sub", "critical", "super")
"""Below, at and above a threshold."""

PHASE_TOLERANCE = 1e-9
"""How far from its threshold, relative to it, a value still counts as critical: rounding alone."""


def predict_phase(value: ArrayLike, threshold: ArrayLike) -> NDArray[np.str_]:
    """Name the phase: "sub" below the threshold, "critical" at it, "super" above it.

    For Chen et al. the value is gamma and the threshold `critical_gamma_threshold`; for a needle it
    is the exponent s Delta and `needle_exponent_threshold`.

    Args:
        value: 1, finite.
        threshold: 1, > 0. Broadcasts.

    Returns:
        One of `PHASES`, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: theory 3 and 4.
    """
    given = check_real("value", value)
    turn = check_real("threshold", threshold, 0.0, open_low=True)
    given, turn = np.broadcast_arrays(given, turn)
    at = np.abs(given - turn) <= PHASE_TOLERANCE * turn
    return np.asarray(np.where(at, PHASES[1], np.where(given < turn, PHASES[0], PHASES[2])))


def critical_gamma_threshold(cosine: ArrayLike) -> NDArray[np.float64]:
    """Gamma at which a token keeps half of its own weight as n grows: 1 / (1 - rho).

    Args:
        cosine: rho, in (0, 1).

    Returns:
        1, > 1, the same shape.

    Raises:
        TypeError: if the cosine is not made of real numbers.
        ValueError: if it is out of range.

    Source: Chen et al., arXiv 2510.05554, Theorem 2.1 [second-hand] (theory 4).
    """
    return 1.0 / (1.0 - check_real("cosine", cosine, 0.0, 1.0, open_low=True, open_high=True))


def _masses(
    keys: NDArray[np.float64], rho: NDArray[np.float64], beta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weight of a token on itself and the sum of its weights on the n - 1 others."""
    odds = np.log(keys - 1.0) - beta * (1.0 - rho)
    return np.exp(-np.logaddexp(0.0, odds)), np.exp(-np.logaddexp(0.0, -odds))


def predict_simplex_cosine(
    n_key: ArrayLike,
    cosine: ArrayLike,
    inverse_temperature: ArrayLike,
    residual: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Cosine of two tokens after one step: 1 - (1 - rho) (A - c)^2 / |x'|^2, exact at every n.

    a = 1 / (1 + (n-1) e^(-beta (1 - rho))) is a token's weight on itself, c = (1 - a) / (n - 1)
    that on each other one, A = a + u with u = alpha sqrt(q), and |x'|^2 = A^2 + 2 A (1 - a) rho +
    (1 - a)^2 (rho + (1 - rho) / (n-1)). Any law of the inverse temperature may be given.

    Hypotheses: simplex tokens; query, key and value matrices the identity; every token sees all n.

    Args:
        n_key: n, whole numbers >= 2.
        cosine: rho before the step, in [0, 1).
        inverse_temperature: beta >= 0, gamma log n in the theorem.
        residual: u = alpha sqrt(q) >= 0, what the residual keeps of the token. All broadcast.

    Returns:
        1, a cosine in [rho, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 4).
    """
    keys = check_whole("n_key", n_key, 2)
    rho = check_real("cosine", cosine, 0.0, 1.0, open_high=True)
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    own, others = _masses(keys, rho, beta)
    kept = own + check_real("residual", residual, 0.0)
    square = kept**2 + 2.0 * kept * others * rho + others**2 * (rho + (1.0 - rho) / (keys - 1.0))
    return 1.0 - (1.0 - rho) * (kept - others / (keys - 1.0)) ** 2 / square


def simplex_cosine_limit(
    gamma: ArrayLike, cosine: ArrayLike, residual: ArrayLike = 0.0
) -> NDArray[np.float64]:
    """Limit of `predict_simplex_cosine` at beta = gamma log n, n to infinity.

    With u = alpha sqrt(q) and A = 1/2 + u: rho (1 + u)^2 / (rho + 2 u rho + u^2) below the critical
    gamma, rho (A + 1/2)^2 / (A^2 + A rho + rho/4) at it, rho above it. At u = 0: 1,
    4 rho / (1 + 3 rho), rho.

    Hypotheses: those of `predict_simplex_cosine`, with rho fixed and above 0.

    Args:
        gamma: >= 0.
        cosine: rho, in (0, 1).
        residual: u >= 0. All broadcast.

    Returns:
        1, a cosine in [rho, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: Chen et al., arXiv 2510.05554, Theorem 2.1 [second-hand] at u = 0; with a residual
    derived here (theory 4).
    """
    phase = predict_phase(check_real("gamma", gamma, 0.0), critical_gamma_threshold(cosine))
    rho = check_real("cosine", cosine)
    u = check_real("residual", residual, 0.0)
    below = rho * (1.0 + u) ** 2 / (rho + 2.0 * u * rho + u**2)
    half = 0.5 + u
    at = rho * (half + 0.5) ** 2 / (half**2 + half * rho + rho / 4.0)
    return np.where(phase == "sub", below, np.where(phase == "critical", at, rho))


def predict_simplex_gradient(
    n_key: ArrayLike,
    cosine: ArrayLike,
    inverse_temperature: ArrayLike,
    d_model: ArrayLike,
    square_norm: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Mean square gradient of one step without residual, |d X' / d X|^2 / (n d), exact at every n.

    With a, c of `predict_simplex_cosine`, S = a^2 + (n-1) c^2 and T = a^3 + (n-1) c^3, it is
    1 / (q d) times the sum of the token's own block

    (d-1) a^2 + 2 a beta (1-rho) (1 - S - (1-rho) a (1-a))
    + beta^2 (1-rho)^2 (S - 2 T + S^2 - (1-rho) a^2 (1 - 2 a + S))

    and of (n-1) c^2 times that of another token

    (d-1) - 2 beta (1-rho) (rho (1-c) + a) + beta^2 (1-rho^2) (1-rho) (1 - 2 c + S).

    Hypotheses: those of `predict_simplex_cosine`, with alpha = 0; the norm x / |x| is part of the
    step.

    Args:
        n_key: n, whole numbers >= 2.
        cosine: rho, in [0, 1).
        inverse_temperature: beta >= 0.
        d_model: d, whole numbers >= n: fewer coordinates do not hold n equiangular tokens.
        square_norm: q > 0. All broadcast.

    Returns:
        1, >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 4).
    """
    keys = check_whole("n_key", n_key, 2)
    rho = check_real("cosine", cosine, 0.0, 1.0, open_high=True)
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    width, q = _width_and_square(d_model, square_norm)
    if (width < keys).any():
        raise ValueError(
            f"d_model must be at least n_key (n equiangular tokens span n directions), got "
            f"{width.min():g} against {keys.max():g}."
        )
    a, others = _masses(keys, rho, beta)
    c, far = others / (keys - 1.0), 1.0 - rho
    square, cube = a**2 + others * c, a**3 + others * c**2
    own = (
        (width - 1.0) * a**2
        + 2.0 * a * beta * far * (1.0 - square - far * a * others)
        + (beta * far) ** 2
        * (square - 2.0 * cube + square**2 - far * a**2 * (1.0 - 2.0 * a + square))
    )
    other = (
        (width - 1.0)
        - 2.0 * beta * far * (rho * (1.0 - c) + a)
        + beta**2 * (1.0 - rho**2) * far * (1.0 - 2.0 * c + square)
    )
    return (own + others * c * other) / (q * width)


def _width_and_square(
    d_model: ArrayLike, square_norm: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The checked width d and square norm q."""
    return check_whole("d_model", d_model), check_real(
        "square_norm", square_norm, 0.0, open_low=True
    )


def simplex_gradient_limit(
    gamma: ArrayLike, cosine: ArrayLike, d_model: ArrayLike, square_norm: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Limit of `predict_simplex_gradient`: 0, (1 - 1/d) / (4 q), (1 - 1/d) / q in the three phases.

    The width grows with n, since d >= n; 1 - 1/d is kept as the theorem writes it.

    Args:
        gamma: >= 0.
        cosine: rho, in (0, 1).
        d_model: d, whole numbers >= 1.
        square_norm: q > 0. All broadcast.

    Returns:
        1, >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: Chen et al., arXiv 2510.05554, Theorem 2.4 [second-hand] (theory 4); the finite form
    derived here has this limit.
    """
    phase = predict_phase(check_real("gamma", gamma, 0.0), critical_gamma_threshold(cosine))
    width, q = _width_and_square(d_model, square_norm)
    share = np.where(phase == "sub", 0.0, np.where(phase == "critical", 0.25, 1.0))
    return share * (1.0 - 1.0 / width) / q
