"""Tokens as particles that attention draws together, for each placement of the norm (theory 11).

Token j, x_j = r_j theta_j, is moved by attention to the directions of all tokens,

    A_j = sum_k a_jk V theta_k,   a_jk proportional to e^(beta <Q theta_j, K theta_k>),

and d theta_j / dt = P A_j / s_j, with the speed factor s_j and the radius of `speed_schemes`. So
x itself moves by A (pre) or A / |A| (peri), and stays on its sphere under the other schemes. A step
of the first order is a layer of the model: x + h A for pre, N(x + h A) to that order for post.

Source: Karagodin, Ge, Polyanskiy and Rigollet, *Normalization in Attention Dynamics*, arXiv
2510.22026 [second-hand] (theory 11).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_choice, check_real, check_whole
from .shown import Shown
from .speed_schemes import (
    GROWING,
    InverseTemperature,
    SpeedScheme,
    as_scheme,
    check_times,
    predict_speed_factor,
    segments,
    temperature_at,
)

STEP_METHODS = ("euler", "rk4")
"""Orders 1 and 4, with one and four attention passes a step."""

BLOCK_SCORES = 2**20
"""Scores held at once (8 MB): queries are taken in blocks of as many rows as fit."""


@dataclass(frozen=True, eq=False, repr=False)
class ParticlePath(Shown):
    """The tokens at the output times, float64."""

    time: NDArray[np.float64]
    """Shape `[time]`: output times."""
    directions: NDArray[np.float64]
    """Shape `[time, token, d_model]`: theta, of length 1."""
    radius: NDArray[np.float64]
    """Shape `[time, token]`: r, l2."""
    speed_factor: NDArray[np.float64]
    """Shape `[time, token]`: s, 1."""
    angular_speed: NDArray[np.float64]
    """Shape `[time, token]`: length of d theta / dt, radians a unit of time."""
    mean_cosine: NDArray[np.float64]
    """Shape `[time]`: mean cosine of two different tokens, 1, exact from the norm of the mean."""


def predict_random_tokens(
    n_key: int, d_model: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Draw n tokens uniformly on the unit sphere, the random start of theory 11.

    Args:
        n_key: n >= 1.
        d_model: d >= 1.
        generator: source of the randomness.

    Returns:
        Shape `[token, d_model]`, each of length 1.

    Raises:
        TypeError: if a size is not a number.
        ValueError: if a size is not whole or below 1.

    Source: theory 11.
    """
    shape = int(check_whole("n_key", n_key)), int(check_whole("d_model", d_model))
    drawn = generator.standard_normal(shape)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def predict_equiangular_tokens(n_key: int, cosine: float, d_model: int) -> NDArray[np.float64]:
    """Place n unit tokens so that any two have the same cosine: the start of the cosine equation.

    Args:
        n_key: n >= 1.
        cosine: c, in [0, 1].
        d_model: d >= n.

    Returns:
        Shape `[token, d_model]`, each of length 1.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if an argument is out of range, or the width holds no n such tokens.

    Source: theory 4 and 11.
    """
    n, d = int(check_whole("n_key", n_key)), int(check_whole("d_model", d_model))
    c = float(check_real("cosine", cosine, 0.0, 1.0))
    if d < n:
        raise ValueError(f"d_model must be at least n_key for equiangular tokens, got {d} < {n}.")
    # sqrt(1-c) e_i + b (sum of all e_k): b solves n b^2 + 2 sqrt(1-c) b = c.
    apart = math.sqrt(1.0 - c)
    together = c / (apart + math.sqrt(apart**2 + n * c))
    tokens = np.zeros((n, d))
    tokens[:, :n] = apart * np.eye(n) + together
    return tokens


def _matrix(
    name: str, value: ArrayLike | None, d_model: int, rows: int | None = None
) -> NDArray[np.float64] | None:
    """A matrix that takes tokens of the width given, transposed for rows of tokens; None = I."""
    if value is None:
        return None
    array = check_real(name, value)
    if array.ndim != 2 or array.shape[1] != d_model or (rows and array.shape[0] != rows):
        raise ValueError(
            f"{name} must have shape [{rows or 'd_head'}, {d_model}] to act on these tokens, got "
            f"{array.shape}."
        )
    return array.T


class _Attention:
    """A(theta), in blocks of queries: no array larger than the tokens or one block of scores."""

    def __init__(
        self, width: int, query: ArrayLike | None, key: ArrayLike | None, value: ArrayLike | None
    ) -> None:
        self.query = _matrix("query", query, width)
        self.key = _matrix("key", key, width)
        self.value = _matrix("value", value, width, width)
        heads = [width if one is None else one.shape[1] for one in (self.query, self.key)]
        if heads[0] != heads[1]:
            raise ValueError(
                f"query and key must map to the same width, got {heads[0]} and {heads[1]}."
            )

    def __call__(self, theta: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
        """Return A, `[token, d_model]`."""
        queries = beta * (theta if self.query is None else theta @ self.query)
        keys = theta if self.key is None else theta @ self.key
        values = theta if self.value is None else theta @ self.value
        n = len(theta)
        rows = max(1, min(n, BLOCK_SCORES // n))
        held, outputs = np.empty((rows, n)), np.empty_like(values)
        for start in range(0, n, rows):
            block = queries[start : start + rows]
            scores = held[: len(block)]
            np.matmul(block, keys.T, out=scores)
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            part = outputs[start : start + rows]
            np.matmul(scores, values, out=part)
            part /= scores.sum(axis=1, keepdims=True)
        return outputs


def _length(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Length of each row, `[token, 1]`."""
    return np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]


@dataclass(frozen=True)
class _Motion:
    """What moves the tokens at one moment; columns are `[token, 1]`."""

    theta: NDArray[np.float64]
    radius: NDArray[np.float64]
    output: NDArray[np.float64]
    factor: NDArray[np.float64]

    @staticmethod
    def at(
        x: NDArray[np.float64], scheme: SpeedScheme, time: float, attention: _Attention, beta: float
    ) -> "_Motion":
        # A token that V drives through the origin has no direction there: zero, as a norm gives.
        radius = np.maximum(_length(x), np.finfo(np.float64).tiny)
        theta = x / radius
        output = attention(theta, beta)
        needed = scheme.name in ("peri", "ngpt")
        size = _length(output) if needed else np.ones_like(radius)
        factor = predict_speed_factor(scheme, radius, size, time)
        return _Motion(theta, radius, output, factor)

    def tangent(self) -> NDArray[np.float64]:
        """P A."""
        along = np.einsum("ij,ij->i", self.theta, self.output)[:, None]
        return self.output - along * self.theta

    def velocity(self, grows: bool) -> NDArray[np.float64]:
        """dx/dt; a token whose attention output is exactly zero stays where it is."""
        ratio = np.divide(
            self.radius, self.factor, out=np.zeros_like(self.factor), where=self.factor > 0
        )
        return ratio * (self.output if grows else self.tangent())


def predict_particles(
    tokens: ArrayLike,
    times: ArrayLike,
    scheme: str | SpeedScheme = "post",
    inverse_temperature: InverseTemperature = 1.0,
    query: ArrayLike | None = None,
    key: ArrayLike | None = None,
    value: ArrayLike | None = None,
    step: float = 0.1,
    method: str = "rk4",
) -> ParticlePath:
    """Move tokens by attention from time 0 and return them at the output times.

    Hypotheses: the same attention at all times (shared weights), one head, no mask, no MLP.

    Args:
        tokens: shape `[token, d_model]`, each of length > 0; their lengths are the radii at time 0.
        times: shape `[time]`, increasing, from 0 or later. Only these states are kept.
        scheme: one of `SPEED_SCHEMES`, or a `SpeedScheme` where it has parameters.
        inverse_temperature: beta >= 0, or a function `beta(time, n_key)`: for a law of the length
            `lambda time, n_key: predict_inverse_temperature("log_n", n_key, 2.0)`.
        query: Q, shape `[d_head, d_model]`; None = the identity.
        key: K, shape `[d_head, d_model]`; None = the identity.
        value: V, shape `[d_model, d_model]`; None = the identity.
        step: longest step, > 0, a unit of time.
        method: one of `STEP_METHODS`; "euler" with step h is one layer of the model a step.

    Returns:
        The path at `times`. A token whose attention output is exactly zero does not turn.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if a shape, the scheme, the method or a range is wrong.

    Source: Karagodin et al., arXiv 2510.22026 [second-hand] (theory 11).
    """
    chosen, grid = as_scheme(scheme), check_times(times)
    check_choice("method", method, STEP_METHODS)
    longest = float(check_real("step", step, 0.0, open_low=True))
    x = check_real("tokens", tokens).copy()
    if x.ndim != 2 or x.size == 0 or not (_length(x) > 0).all():
        raise ValueError(
            f"tokens must have shape [token, d_model] and no zero row, got shape {x.shape}; drop "
            "tokens that have no direction."
        )
    attention = _Attention(x.shape[1], query, key, value)
    beta = temperature_at(inverse_temperature, len(x))
    per_token = grid.size, len(x)
    path = ParticlePath(
        time=grid,
        directions=np.empty((grid.size, *x.shape)),
        radius=np.empty(per_token),
        speed_factor=np.empty(per_token),
        angular_speed=np.empty(per_token),
        mean_cosine=np.empty(grid.size),
    )
    now = 0.0
    for index, end in enumerate(grid):
        for start, stop in segments(chosen, now, float(end)):
            kind = SpeedScheme(chosen.at(0.5 * (start + stop)), None, chosen.step_size)
            x = _carried(x, kind, start, stop, longest, method, attention, beta)
        now = float(end)
        motion = _Motion.at(x, chosen, now, attention, beta(now))
        turning = _length(motion.velocity(False)) / motion.radius
        path.directions[index] = motion.theta
        path.radius[index] = motion.radius[:, 0]
        path.speed_factor[index] = motion.factor[:, 0]
        path.angular_speed[index] = turning[:, 0]
        path.mean_cosine[index] = _mean_cosine(motion.theta)
    return path


def _carried(
    x: NDArray[np.float64],
    scheme: SpeedScheme,
    start: float,
    stop: float,
    longest: float,
    method: str,
    attention: _Attention,
    beta: Callable[[float], float],
) -> NDArray[np.float64]:
    """Tokens after equal steps, none longer than the longest, under one scheme."""
    grows = scheme.name in GROWING
    fixed = _length(x)
    # A quotient a rounding above a whole number is that number.
    n_steps = max(1, math.ceil((stop - start) / longest * (1.0 - 1e-12)))
    size = (stop - start) / n_steps

    def velocity(time: float, at: NDArray[np.float64]) -> NDArray[np.float64]:
        return _Motion.at(at, scheme, time, attention, beta(time)).velocity(grows)

    for index in range(n_steps):
        time = start + index * size
        first = velocity(time, x)
        if method == "euler":
            x = x + size * first
        else:
            second = velocity(time + size / 2, x + (size / 2) * first)
            third = velocity(time + size / 2, x + (size / 2) * second)
            fourth = velocity(time + size, x + size * third)
            x = x + (size / 6) * (first + 2.0 * (second + third) + fourth)
        if not grows:
            x *= fixed / _length(x)
    return x


def _mean_cosine(theta: NDArray[np.float64]) -> float:
    """(n^2 |mean|^2 - n) / (n (n - 1)) of unit rows; NaN for one."""
    n = len(theta)
    total = theta.sum(axis=0)
    return (float(total @ total) - n) / (n * (n - 1)) if n > 1 else math.nan
