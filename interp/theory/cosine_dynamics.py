"""How the common cosine of equiangular tokens grows under attention, for each norm (theory 11).

n tokens of radius r on a simplex, <theta_i, theta_j> = c for i != j, every matrix the identity, all
tokens seen by all: they stay on a simplex, and with w = e^(-beta (1 - c)), Z = 1 + (n-1) w

    dc/dt = 2 w (1 - c) (1 + (n-1) c) / (Z s),
    <theta, A> = (1 + (n-1) c w) / Z,
    |A|^2 = (1 + 2 (n-1) c w + (n-1) w^2 (1 + (n-2) c)) / Z^2,

with the speed factor s and the speed of the radius of `speed_schemes`. It is integrated in
log(1 - c), which the tokens' meeting does not round away.

Sources: Geshkovski, Letrouit, Polyanskiy and Rigollet, *A mathematical perspective on
Transformers*, arXiv 2312.10794, section 6, for post [second-hand]; derived here for every scheme.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_whole
from .initial_value import integrate
from .shown import Shown
from .speed_schemes import (
    GROWING,
    InverseTemperature,
    SpeedScheme,
    as_scheme,
    check_times,
    predict_radius_speed,
    predict_speed_factor,
    segments,
    temperature_at,
)


@dataclass(frozen=True, eq=False, repr=False)
class CosinePath(Shown):
    """The equiangular tokens at the output times; every array has shape `[time]`, float64."""

    time: NDArray[np.float64]
    """Output times."""
    cosine: NDArray[np.float64]
    """Cosine of any two tokens, 1."""
    log_gap: NDArray[np.float64]
    """log(1 - cosine), nats: precise where the cosine rounds to 1."""
    cosine_rate: NDArray[np.float64]
    """Its growth dc/dt, 1 a unit of time."""
    radius: NDArray[np.float64]
    """Length of every token, l2."""
    speed_factor: NDArray[np.float64]
    """s, 1."""
    angular_speed: NDArray[np.float64]
    """Length of d theta / dt, radians a unit of time."""


def _attention(
    gap: NDArray[np.float64], others: float | NDArray[np.float64], beta: float | NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """-d log(1 - c)/dt at s = 1, <theta, A>, |A| and |P A| at a gap of 1 - c, with n - 1 others."""
    cosine = 1.0 - gap
    weight = np.exp(-beta * gap)
    total = 1.0 + others * weight
    spread = 1.0 + others * cosine
    pull = 2.0 * weight * spread / total
    radial = (1.0 + others * cosine * weight) / total
    square = 1.0 + 2.0 * others * cosine * weight + others * weight**2 * (spread - cosine)
    size = np.sqrt(np.maximum(square, 0.0)) / total
    # P A = (w / Z) sum over the others of P theta_k, of square length (n-1) (1-c) (1 + (n-1) c).
    across = weight / total * np.sqrt(np.maximum(others * gap * spread, 0.0))
    return pull, radial, size, across


def predict_attention_norm(
    n_key: ArrayLike, cosine: ArrayLike, inverse_temperature: ArrayLike
) -> NDArray[np.float64]:
    """Length |A| of the attention output of equiangular unit tokens, exact at every n.

    Hypotheses: query, key and value matrices the identity; every token sees all n.

    Args:
        n_key: n, whole numbers >= 2.
        cosine: c, in [-1 / (n-1), 1].
        inverse_temperature: beta >= 0. All broadcast.

    Returns:
        l2 in [0, 1], the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 11).
    """
    others, gap = _others_and_gap(n_key, cosine)
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    return _attention(gap, others, beta)[2]


def predict_cosine_rate(
    scheme: str | SpeedScheme,
    n_key: ArrayLike,
    cosine: ArrayLike,
    inverse_temperature: ArrayLike,
    radius: ArrayLike = 1.0,
    time: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Growth dc/dt of the common cosine: the formula at the head of this file.

    Hypotheses: equiangular tokens of one radius; query, key and value matrices the identity; every
    token sees all n.

    Args:
        scheme: one of `SPEED_SCHEMES`, or a `SpeedScheme` where it has parameters.
        n_key: n, whole numbers >= 2.
        cosine: c, in [-1 / (n-1), 1].
        inverse_temperature: beta >= 0.
        radius: r > 0.
        time: t >= 0. All broadcast.

    Returns:
        1 a unit of time, >= 0, the broadcast shape; NaN where the attention output of peri or ngpt
        is exactly zero.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the scheme is unknown or an argument is out of range.

    Source: derived here (theory 11).
    """
    others, gap = _others_and_gap(n_key, cosine)
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    pull, _, size, _ = _attention(gap, others, beta)
    factor = predict_speed_factor(scheme, radius, size, time)
    rate, factor = np.broadcast_arrays(pull * gap, factor)
    return np.divide(rate, factor, out=np.full(rate.shape, np.nan), where=factor > 0)


def _others_and_gap(
    n_key: ArrayLike, cosine: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """n - 1 and 1 - c, broadcast, for cosines that n equiangular tokens can have."""
    others = check_whole("n_key", n_key, 2) - 1.0
    others, c = np.broadcast_arrays(others, check_real("cosine", cosine, -1.0, 1.0))
    low = c < -1.0 / others
    if low.any():
        raise ValueError(
            f"cosine must be at least -1 / (n_key - 1), the least that equiangular tokens can have;"
            f" got {c[low][0]:g} for n_key {others[low][0] + 1:g}."
        )
    return others, 1.0 - c


def predict_cosine_path(
    scheme: str | SpeedScheme,
    times: ArrayLike,
    n_key: int,
    inverse_temperature: InverseTemperature,
    cosine: float = 0.0,
    radius: float = 1.0,
    tolerance: float = 1e-10,
) -> CosinePath:
    """Integrate the common cosine, and the radius, of n equiangular tokens from time 0.

    Hypotheses: those of `predict_cosine_rate`.

    Args:
        scheme: one of `SPEED_SCHEMES`, or a `SpeedScheme` where it has parameters.
        times: shape `[time]`, increasing, from 0 or later.
        n_key: n >= 2.
        inverse_temperature: beta >= 0, or a function `beta(time, n_key)`, smooth in the time.
        cosine: c at time 0, in (-1 / (n-1), 1); at either end nothing ever moves.
        radius: r > 0 at time 0.
        tolerance: relative error of one step of the integration, > 0.

    Returns:
        The path at `times`.

    Raises:
        TypeError: if an argument is not a real number.
        ValueError: if the scheme is unknown or an argument is out of range.
        RuntimeError: if a function given for beta or alpha jumps, so that no step is small enough.

    Source: derived here (theory 11).
    """
    chosen, grid = as_scheme(scheme), check_times(times)
    others, gap = _others_and_gap(n_key, cosine)
    if others.size != 1 or not -1.0 / others < 1.0 - gap < 1.0:
        raise ValueError(
            "predict_cosine_path follows one n_key from one cosine strictly between "
            f"-1 / (n_key - 1) and 1; got {n_key!r} and {cosine!r}."
        )
    rest = float(others)
    beta = temperature_at(inverse_temperature, int(n_key))
    r0 = float(check_real("radius", radius, 0.0, open_low=True))
    most = float(check_real("tolerance", tolerance, 0.0, open_low=True))

    state, now, rows = np.array([np.log(float(gap)), r0]), 0.0, []
    for end in grid:
        for start, stop in segments(chosen, now, float(end)):
            kind = SpeedScheme(chosen.at(0.5 * (start + stop)), None, chosen.step_size)

            def velocity(
                time: float, x: NDArray[np.float64], kind: SpeedScheme = kind
            ) -> NDArray[np.float64]:
                pull, radial, size, _ = _attention(np.exp(x[0]), rest, beta(time))
                growth = predict_radius_speed(kind, radial, size) if kind.name in GROWING else 0.0
                return np.array([-pull / predict_speed_factor(kind, x[1], size, time), growth])

            state = integrate(velocity, state, start, stop, most)
        now = float(end)
        here = np.exp(state[0])
        pull, _, size, across = _attention(here, rest, beta(now))
        factor = predict_speed_factor(chosen, state[1], size, now)
        rows.append((state[0], pull * here / factor, state[1], factor, across / factor))
    log_gap, rate, r, factor, turn = np.array(rows, dtype=np.float64).T
    return CosinePath(grid, -np.expm1(log_gap), log_gap, rate, r, factor, turn)
