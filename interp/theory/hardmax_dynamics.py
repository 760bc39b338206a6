"""Attention that looks at the best key alone: tokens, their leaders and their norms (theory 11).

    z_i <- (z_i + alpha mean over j in C_i of z_j) / (1 + alpha),   C_i = argmax_j <z_i, z_j>,

with ties averaged. A token whose best key is itself alone, C_i = {i}, is a leader. Three facts hold
at every step (derived here):

- |z_i| never falls: <z_i, z_i'> = (|z_i|^2 + alpha max_j <z_i, z_j>) / (1 + alpha) >= |z_i|^2.
- max_i |z_i| never grows: every new token is a mean of old ones.
- A leader stays where it is and stays a leader: every other z_j' is a mean of old tokens with some
  weight on z_j, and <z_i, z_j> < |z_i|^2.

Source: Alcalde, Fantuzzi and Zuazua, *Clustering in pure-attention hardmax transformers and its
role in sentiment analysis*, arXiv 2407.01602: the step [paper], leaders [second-hand].
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real, check_whole
from .clustering import BLOCK_SCORES
from .dispersion import Bounds
from .shown import Shown


@dataclass(frozen=True, eq=False, repr=False)
class HardmaxPath(Shown):
    """The tokens after each number of steps that was asked for."""

    steps: NDArray[np.int64]
    """Shape `[time]`: how many steps were made."""
    tokens: NDArray[np.float64]
    """Shape `[time, token, d_model]`."""
    norms: NDArray[np.float64]
    """Shape `[time, token]`, l2: never falls along time."""
    leaders: NDArray[np.bool_]
    """Shape `[time, token]`: whether the token's best key is itself alone."""


def _followed(
    tokens: NDArray[np.float64], tolerance: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The mean of the best keys of each token, and whether that is the token alone."""
    n = len(tokens)
    rows = max(1, min(n, BLOCK_SCORES // n))
    means, leaders = np.empty_like(tokens), np.empty(n, dtype=bool)
    for start in range(0, n, rows):
        block = tokens[start : start + rows]
        scores = block @ tokens.T
        best = scores.max(axis=1, keepdims=True)
        chosen = scores >= best - tolerance * np.abs(best)
        count = chosen.sum(axis=1)
        means[start : start + rows] = (chosen @ tokens) / count[:, None]
        index = np.arange(len(block))
        leaders[start : start + rows] = chosen[index, start + index] & (count == 1)
    return means, leaders


def predict_hardmax_path(
    tokens: ArrayLike,
    steps: ArrayLike,
    step_size: float = 1.0,
    tolerance: float = 1e-12,
) -> HardmaxPath:
    """Move tokens by hardmax attention and return them after the numbers of steps asked for.

    Args:
        tokens: z, shape `[token, d_model]`, finite.
        steps: shape `[time]`, whole numbers >= 0, increasing. Only these states are kept.
        step_size: alpha > 0.
        tolerance: scores this close to the best, relative to it, are tied with it, in [0, 1).

    Returns:
        The path. Followers approach their limit without reaching it, so a token that rounding
        brings within the tolerance of a leader does not take its lead: once a leader, always one.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if a shape or a range is wrong.

    Source: Alcalde et al., arXiv 2407.01602 [paper] for the step; leaders [second-hand]; norms and
    the permanence of leaders derived here (theory 11).
    """
    z = check_real("tokens", tokens).copy()
    if z.ndim != 2 or z.size == 0:
        raise ValueError(f"tokens must have shape [token, d_model], got {z.shape}.")
    grid = check_whole("steps", steps, 0)
    if grid.ndim != 1 or grid.size == 0 or not (np.diff(grid) > 0).all():
        raise ValueError(
            f"steps must be a non-empty list of increasing whole numbers, got {grid.tolist()}."
        )
    alpha = float(check_real("step_size", step_size, 0.0, open_low=True))
    slack = float(check_real("tolerance", tolerance, 0.0, 1.0, open_high=True))
    wanted = grid.astype(np.int64)
    states: list[NDArray[np.float64]] = []
    leading: list[NDArray[np.bool_]] = []
    leaders = np.zeros(len(z), dtype=bool)
    for made in range(int(wanted[-1]) + 1):
        means, alone = _followed(z, slack)
        leaders = leaders | alone
        if made == wanted[len(states)]:
            states.append(z)
            leading.append(leaders)
        if len(states) < len(wanted):
            z = np.where(leaders[:, None], z, (z + alpha * means) / (1.0 + alpha))
    kept = np.stack(states)
    return HardmaxPath(wanted, kept, np.linalg.norm(kept, axis=2), np.stack(leading))


def hardmax_norm_bounds(tokens: ArrayLike) -> Bounds:
    """Between what the norm of each token stays at all later steps: its own, and the largest.

    Args:
        tokens: z, shape `[token, d_model]`, finite.

    Returns:
        l2, lower and upper, each of shape `[token]`.

    Raises:
        TypeError: if the tokens are not made of real numbers.
        ValueError: if the shape is wrong.

    Source: derived here (theory 11).
    """
    z = check_real("tokens", tokens)
    if z.ndim != 2 or z.size == 0:
        raise ValueError(f"tokens must have shape [token, d_model], got {z.shape}.")
    norms = np.linalg.norm(z, axis=1)
    return Bounds(norms, np.full_like(norms, norms.max()))
