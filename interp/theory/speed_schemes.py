"""Where the norm stands, as the factor that slows a token's turning (theory 11).

A token x = r theta, with theta on the unit sphere, is moved by attention A(theta) as

    d theta / dt = P A / s,    P = I - theta theta^T,

and the placement of the norm is in the speed factor s and in what becomes of the radius:

| scheme | s | dr/dt |
| --- | --- | --- |
| post | 1 | 0 |
| pre | r | <theta, A> |
| mix | 1 until the switch, then r | 0, then as pre |
| peri | r \\|A\\| | <theta, A> / \\|A\\| |
| ngpt | \\|A\\| / alpha(t) | 0 |
| ln_scaling | sqrt(t + 1) | 0 |

Sources: Karagodin, Ge, Polyanskiy and Rigollet, *Normalization in Attention Dynamics*, arXiv
2510.22026: s of post, pre, peri and ngpt [second-hand]. The radii, mix and the factor of ln_scaling
are derived here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_choice, check_real, check_whole
from .shown import Shown

SPEED_SCHEMES = ("post", "pre", "mix", "peri", "ngpt", "ln_scaling")
"""Names of the schemes, spelled as the placements of a model."""

GROWING = ("pre", "peri")
"""Schemes whose radius changes, so that x itself moves by A, or by A / |A|."""

InverseTemperature: TypeAlias = float | Callable[[float, int], float]
"""beta: a number, or a function `beta(time, n_key)` for laws of the time or of the length."""


@dataclass(frozen=True)
class SpeedScheme(Shown):
    """One row of the table above, with its parameters.

    Raises (on construction):
        TypeError: if a parameter is not a real number.
        ValueError: if the name is unknown, or a parameter is out of range, missing, or given to a
            scheme that has none.
    """

    name: str
    """One of `SPEED_SCHEMES`."""
    switch_time: float | None = None
    """Time at which mix turns from post to pre, >= 0; None for the other schemes."""
    step_size: float | Callable[[float], float] = 1.0
    """alpha of ngpt: a number > 0 or a function of the time; 1 for the other schemes."""

    def __post_init__(self) -> None:
        """Check the name and that each scheme has its own parameters."""
        check_choice("scheme", self.name, SPEED_SCHEMES)
        if (self.name == "mix") != (self.switch_time is not None):
            raise ValueError(
                f"switch_time is the turn of scheme 'mix', which needs it, and of no other scheme; "
                f"got {self.switch_time!r} for {self.name!r}."
            )
        if self.switch_time is not None:
            object.__setattr__(self, "switch_time", _number("switch_time", self.switch_time))
        if callable(self.step_size):
            given: float | None = None
        else:
            given = _number("step_size", self.step_size, open_low=True)
            object.__setattr__(self, "step_size", given)
        if self.name != "ngpt" and given != 1.0:
            raise ValueError(
                f"step_size is the alpha of scheme 'ngpt' and of no other; leave it at 1 for "
                f"{self.name!r}."
            )

    def at(self, time: float) -> str:
        """Name the scheme in force at a time: mix is post up to its switch and pre after it."""
        if self.switch_time is None:
            return self.name
        return "post" if time <= self.switch_time else "pre"

    def alpha(self, time: float) -> float:
        """Return the step size at a time.

        Raises:
            ValueError: if the function given does not give a number above 0.
        """
        if callable(self.step_size):
            return _number(f"step_size({time:g})", self.step_size(time), open_low=True)
        return self.step_size


def _number(name: str, value: ArrayLike, *, open_low: bool = False) -> float:
    """One finite number >= 0 (> 0 with `open_low`)."""
    array = check_real(name, value, 0.0, open_low=open_low)
    if array.size != 1:
        raise ValueError(f"{name} must be one number, got shape {array.shape}.")
    return float(array.reshape(()))


def as_scheme(scheme: str | SpeedScheme) -> SpeedScheme:
    """Return the scheme itself, or the one of that name with nothing to set.

    Raises:
        ValueError: if the name is unknown or its scheme needs a parameter.
    """
    return scheme if isinstance(scheme, SpeedScheme) else SpeedScheme(scheme)


def temperature_at(inverse_temperature: InverseTemperature, n_key: int) -> Callable[[float], float]:
    """Return beta as a checked function of the time alone, for n tokens.

    Raises (now for a number, later for a function):
        TypeError: if beta is not a real number.
        ValueError: if it is negative or not finite.
    """
    if callable(inverse_temperature):
        law = inverse_temperature
        return lambda time: _number(f"inverse_temperature({time:g}, {n_key})", law(time, n_key))
    fixed = _number("inverse_temperature", inverse_temperature)
    return lambda time: fixed


def check_times(times: ArrayLike) -> NDArray[np.float64]:
    """Return output times as a non-empty, strictly increasing array from 0 or later.

    Raises:
        TypeError: if the times are not real numbers.
        ValueError: if they are not so.
    """
    array = check_real("times", times, 0.0)
    if array.ndim != 1 or array.size == 0 or not (np.diff(array) > 0).all():
        raise ValueError(
            "times must be a non-empty list of strictly increasing numbers from 0 or later, got "
            f"shape {array.shape}; sort it and drop repeats."
        )
    return array


def segments(scheme: SpeedScheme, start: float, stop: float) -> list[tuple[float, float]]:
    """Cut [start, stop] where the scheme changes, so that no step runs over the change."""
    turn = math.inf if scheme.switch_time is None else scheme.switch_time
    if start < turn < stop:
        return [(start, turn), (turn, stop)]
    return [(start, stop)] if start < stop else []


def predict_speed_factor(
    scheme: str | SpeedScheme,
    radius: ArrayLike = 1.0,
    output_norm: ArrayLike = 1.0,
    time: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Speed factor s of a token: what its turning by attention is divided by.

    Args:
        scheme: one of `SPEED_SCHEMES`, or a `SpeedScheme` where it has parameters.
        radius: r, length of the residual stream, > 0.
        output_norm: |A|, length of the attention output, >= 0.
        time: t >= 0, layers so far in the continuous picture. All broadcast.

    Returns:
        1, >= 0, the broadcast shape; 0 only for peri and ngpt at |A| = 0.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the scheme is unknown or an argument is out of range.

    Source: Karagodin et al., arXiv 2510.22026 [second-hand]; mix and ln_scaling derived here
    (theory 11).
    """
    chosen = as_scheme(scheme)
    r, size, t = np.broadcast_arrays(
        check_real("radius", radius, 0.0, open_low=True),
        check_real("output_norm", output_norm, 0.0),
        check_real("time", time, 0.0),
    )
    if chosen.name == "ngpt":
        return size / _each(chosen.alpha, t)
    if chosen.name == "ln_scaling":
        return np.sqrt(t + 1.0)
    if chosen.switch_time is not None:
        return np.where(t <= chosen.switch_time, 1.0, r)
    return {"post": np.ones_like(r), "pre": r * 1.0, "peri": r * size}[chosen.name]


def _each(function: Callable[[float], float], time: NDArray[np.float64]) -> NDArray[np.float64]:
    """A function of one time at every time."""
    values = [function(float(t)) for t in time.ravel()]
    return np.array(values, dtype=np.float64).reshape(time.shape)


def predict_radius_speed(
    scheme: str | SpeedScheme,
    radial: ArrayLike,
    output_norm: ArrayLike = 1.0,
    time: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Speed dr/dt of the radius: <theta, A> for pre, <theta, A> / |A| for peri, 0 on the sphere.

    Args:
        scheme: one of `SPEED_SCHEMES`, or a `SpeedScheme` where it has parameters.
        radial: <theta, A>, the part of the attention output along the token, finite.
        output_norm: |A| > 0.
        time: t >= 0, which decides for mix alone. All broadcast.

    Returns:
        l2 a unit of time, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the scheme is unknown or an argument is out of range.

    Source: derived here, from dx/dt = A and dx/dt = A / |A| (theory 11).
    """
    chosen = as_scheme(scheme)
    along, size, t = np.broadcast_arrays(
        check_real("radial", radial),
        check_real("output_norm", output_norm, 0.0, open_low=True),
        check_real("time", time, 0.0),
    )
    if chosen.switch_time is not None:
        return np.where(t <= chosen.switch_time, 0.0, along)
    if chosen.name == "pre":
        return along * 1.0
    return along / size if chosen.name == "peri" else np.zeros_like(along)


def initial_cosine_rate(
    scheme: str | SpeedScheme,
    n_key: ArrayLike,
    inverse_temperature: ArrayLike,
    radius: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """How fast the cosine of orthogonal tokens grows at time 0.

    2 / (e^beta + n - 1) for post, mix and ln_scaling, the same over r for pre, and
    2 / (r sqrt(e^(2 beta) + n - 1)) for peri and 2 alpha / sqrt(e^(2 beta) + n - 1) for ngpt.

    Hypotheses: query, key and value matrices the identity; every token sees all n; tokens start
    orthogonal, all of radius r.

    Args:
        scheme: one of `SPEED_SCHEMES`, or a `SpeedScheme` where it has parameters.
        n_key: n, whole numbers >= 2.
        inverse_temperature: beta >= 0.
        radius: r > 0, which matters to pre and peri. All broadcast.

    Returns:
        1 a unit of time, > 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the scheme is unknown or an argument is out of range.

    Source: Karagodin et al., arXiv 2510.22026 [second-hand], confirmed here by integration
    (theory 11).
    """
    chosen = as_scheme(scheme)
    others = np.log(check_whole("n_key", n_key, 2) - 1.0)
    beta = check_real("inverse_temperature", inverse_temperature, 0.0)
    r = check_real("radius", radius, 0.0, open_low=True)
    others, beta, r = np.broadcast_arrays(others, beta, r)
    kind = chosen.at(0.0)
    if kind in ("peri", "ngpt"):
        rate = 2.0 * np.exp(-0.5 * np.logaddexp(2.0 * beta, others))
    else:
        rate = 2.0 * np.exp(-np.logaddexp(beta, others))
    if kind in GROWING:
        return rate / r
    return rate * chosen.alpha(0.0) if kind == "ngpt" else rate


def terminal_cosine_rate(
    scheme: str | SpeedScheme, time: ArrayLike, constant: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Law by which the cosine still grows when the tokens have almost met.

    C e^(-2 t) for post, C e^(-2 alpha t) for ngpt, C / t^3 for pre, mix and peri (whose radius
    grows as t), C e^(-4 sqrt(t)) / sqrt(t) for ln_scaling. C depends on the whole path.

    Hypotheses: query, key and value matrices the identity; every token sees all n; the tokens draw
    together; t is large.

    Args:
        scheme: one of `SPEED_SCHEMES`, or a `SpeedScheme` where it has parameters; alpha of ngpt
            a number.
        time: t > 0.
        constant: C >= 0. Broadcasts.

    Returns:
        1 a unit of time, >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the scheme is unknown, its alpha is a function, or an argument is out of
            range.

    Source: Karagodin et al., arXiv 2510.22026 [second-hand], confirmed here by integration
    (theory 11).
    """
    chosen = as_scheme(scheme)
    t = check_real("time", time, 0.0, open_low=True)
    level = check_real("constant", constant, 0.0)
    if chosen.name in ("post", "ngpt"):
        if callable(chosen.step_size):
            raise ValueError(
                "the terminal law of ngpt is known for a constant step_size, got a function; "
                "integrate predict_cosine_path instead."
            )
        return level * np.exp(-2.0 * chosen.step_size * t)
    if chosen.name == "ln_scaling":
        return level * np.exp(-4.0 * np.sqrt(t)) / np.sqrt(t)
    return level / t**3
