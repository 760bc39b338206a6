"""Integration of a small system of differential equations, with the step set by the error.

The pair of Dormand and Prince (1980): a step of order 5, its error from the difference to a step of
order 4 that costs nothing more.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

NODES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
"""Where in the step each velocity is taken."""

STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
"""Weights of the earlier velocities in the state that each is taken at; the last is the step."""

ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
"""Weights of the seven velocities in the difference of the two orders."""

MOST_STEPS = 1_000_000
"""Steps between two output times before giving up."""


def integrate(
    velocity: Callable[[float, NDArray[np.float64]], NDArray[np.float64]],
    state: NDArray[np.float64],
    start: float,
    stop: float,
    tolerance: float,
) -> NDArray[np.float64]:
    """Carry `state` from `start` to `stop` along `velocity(time, state)`.

    Args:
        velocity: returns the derivative, of the shape of the state.
        state: shape `[variable]`.
        start: first time.
        stop: last time, >= start.
        tolerance: largest error a step, relative to the state or to 1, whichever is larger.

    Returns:
        The state at `stop`, of the same shape.

    Raises:
        RuntimeError: if the step shrinks to nothing: the velocity is not smooth or not finite.
    """
    time, size = start, min(1e-3, stop - start)
    for _ in range(MOST_STEPS):
        if time >= stop:
            return state
        last = size >= stop - time
        size = min(size, stop - time)
        slopes: list[NDArray[np.float64]] = []
        moved = state
        for node, weights in zip(NODES, STAGES, strict=True):
            moved = state + size * _combined(weights, slopes)
            slopes.append(velocity(time + node * size, moved))
        scale = tolerance * np.maximum(1.0, np.maximum(np.abs(state), np.abs(moved)))
        error = float((np.abs(size * _combined(ERROR, slopes)) / scale).max())
        if error <= 1.0:
            time, state = stop if last else time + size, moved
        elif not np.isfinite(error) or size <= 1e-15 * max(1.0, abs(time)):
            break
        size *= min(5.0, max(0.2, 0.9 * error**-0.2)) if error else 5.0
    raise RuntimeError(
        f"the integration stands still at time {time:g} of {stop:g}: the velocity is not smooth or "
        "not finite there; cut the time axis where a law jumps."
    )


def _combined(
    weights: tuple[float, ...], slopes: list[NDArray[np.float64]]
) -> NDArray[np.float64] | float:
    """The weighted sum of the velocities; 0 of none."""
    total: NDArray[np.float64] | float = 0.0
    for weight, slope in zip(weights, slopes, strict=True):
        total = total + weight * slope
    return total
