"""How far tokens have drawn together, layer by layer: read off the table, beside theory's factor.

Across block l a token turns by the angle omega_l. In theory 11, d theta / dt = P A / s, the place
of the norm is in the speed factor s; with shared weights all the rest is the same in every block,
so omega_l is proportional to 1 / s_l:

| placement | s of block l |
| --- | --- |
| post, deepnorm, ngpt | constant |
| pre | r |
| peri, sandwich | r (the length of the attention output is normalised away) |
| ln_scaling | r sqrt(l + 1), pre-norm whose step shrinks |
| mix | constant in its post-norm blocks, then r |

with r the length of the stream, of a block the logarithmic mean of before and after (1 / r is then
the mean of 1 / r over a block in which r grows steadily). The others feed attention a stream that
is not normalised, which no row of theory 11 does: no factor. Only the shape is compared: one
constant, the geometric mean of omega s, is taken from the measurement.

Source: Karagodin et al., arXiv 2510.22026 [second-hand] (theory 11); ln_scaling and the mean over a
block derived here.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..interp.theory import predict_speed_factor
from ..models.facts import Facts
from ..models.placements import MIX_FRACTION
from .findings import Exponent
from .fits import fit_exponent
from .rows import distinct, over, pick, rows_where

__all__ = ["GROWS", "LayerShapes", "Turning", "predict_turning", "read_layer_shapes"]

Array = NDArray[np.float64]

BOUNDARY_QUANTITIES = (
    "mean_cosine",
    "trimmed_cosine",
    "top_coordinate_share",
    "mean_square_cosine",
    "effective_rank",
    "stable_rank",
    "direction_rank",
    "cluster_count",
    "largest_cluster_share",
    "residual_norm",
)
BLOCK_QUANTITIES = ("angular_speed", "norm_growth", "score_cosine_correlation", "weight_cosine")

GROWS = ("pre", "peri", "sandwich", "ln_scaling")
"""Placements whose factor falls as the stream grows."""

_CONSTANT = ("post", "deepnorm", "ngpt")
_BOUNDARY = re.compile(r"blocks\.(\d+)\.(?:hook_)?resid_(pre|post)")
_BLOCK = re.compile(r"blocks\.(\d+)(?:\.hook_resid_post)?")


@dataclass(frozen=True, eq=False, repr=False)
class LayerShapes(Facts):
    """Streams of one checkpoint over layers and lengths; NaN where something was not measured.

    Attributes:
        checkpoint: Which.
        n_tokens: Numbers of tokens that were looked at, increasing.
        n_layers: Number of blocks.
        boundary: By quantity, `[n_tokens, n_layers + 1]`: before block 0, ..., after the last.
        block: By quantity, `[n_tokens, n_layers]`.
    """

    checkpoint: str
    n_tokens: tuple[int, ...]
    n_layers: int
    boundary: dict[str, Array]
    block: dict[str, Array]

    def at(self, quantity: str) -> Array:
        """A quantity at the longest input, by boundary or block."""
        return (self.boundary if quantity in self.boundary else self.block)[quantity][-1]


@dataclass(frozen=True, eq=False, repr=False)
class Turning(Facts):
    """How fast tokens turn at the longest input, beside theory's factor.

    Attributes:
        measured: Angle of each block, radians.
        predicted: The factor 1 / s of the placement, times the constant.
        ratio: Measured over predicted, the least and the most of the blocks.
        exponent: Of the angle against s: -1 by theory; undefined where s hardly varies.
        variation: Largest s over the smallest.
    """

    measured: Array
    predicted: Array
    ratio: tuple[float, float]
    exponent: Exponent
    variation: float


def read_layer_shapes(table: pd.DataFrame, checkpoint: str | None = None) -> LayerShapes | None:
    """Read the streams of a checkpoint, its first by default; `None` if no cosine was measured.

    One token alone has no cosine: lengths of 1 are left out.
    """
    name = checkpoint or next(iter(distinct(table, "checkpoint")), "")
    rows = pick(table, checkpoint=name)
    cosines = pick(rows, quantity="mean_cosine")
    n_tokens = tuple(sorted(int(n) for n in distinct(cosines, "n_key")))
    depths = [_depth(site) for site in distinct(rows, "site")]
    n_layers = max((depth for depth in depths if depth is not None), default=0)
    if any(site == "final" for site in distinct(rows, "site")):
        n_layers += 1
    if not n_tokens or not n_layers:
        return None
    boundary = {
        quantity: _read(rows, quantity, n_tokens, _boundary_of(n_layers), n_layers + 1)
        for quantity in BOUNDARY_QUANTITIES
    }
    block = {
        quantity: _read(rows, quantity, n_tokens, _block_of, n_layers)
        for quantity in BLOCK_QUANTITIES
    }
    return LayerShapes(name, n_tokens, n_layers, boundary, block)


def _depth(site: str) -> int | None:
    """How many blocks stand before a boundary; `None` for any other site, and for `final`."""
    if site == "hook_embed":
        return 0
    found = _BOUNDARY.fullmatch(site)
    return None if found is None else int(found[1]) + (found[2] == "post")


def _boundary_of(n_layers: int) -> Callable[[str], int | None]:
    return lambda site: n_layers if site == "final" else _depth(site)


def _block_of(site: str) -> int | None:
    found = _BLOCK.fullmatch(site)
    return None if found is None else int(found[1])


def _read(
    rows: pd.DataFrame,
    quantity: str,
    n_tokens: tuple[int, ...],
    place: Callable[[str], int | None],
    size: int,
) -> Array:
    """`[n_tokens, place]`: at each number of tokens the rung nearest to it, within a tenth."""
    found = np.full((len(n_tokens), size), np.nan)
    own = pick(rows, quantity=quantity)
    for site in distinct(own, "site"):
        column = place(site)
        if column is None or not column < size:
            continue
        means = over(rows_where(own, own["site"] == site), "n_key")
        rungs = means.index.to_numpy(dtype=np.float64)
        for row, n in enumerate(n_tokens):
            nearest = int(np.abs(np.log(rungs / n)).argmin())
            if abs(math.log(rungs[nearest] / n)) < 0.1:
                found[row, column] = means.iloc[nearest]
    return found


def predict_turning(shapes: LayerShapes, placement: str | None) -> Turning | None:
    """The angle of each block at the longest input beside the placement's factor.

    `None` for a placement without one, or where fewer than three blocks were measured.
    """
    factor = None if placement is None else _speed_factor(shapes, placement)
    measured = shapes.at("angular_speed")
    if factor is None:
        return None
    known = np.isfinite(measured) & np.isfinite(factor) & (measured > 0)
    if known.sum() < 3:
        return None
    constant = math.exp(float(np.mean(np.log(measured[known] * factor[known]))))
    predicted = np.where(known, constant / np.where(known, factor, 1.0), np.nan)
    ratio = measured[known] / predicted[known]
    variation = float(factor[known].max() / factor[known].min())
    exponent = fit_exponent(factor[known], measured[known])
    return Turning(
        np.where(known, measured, np.nan),
        predicted,
        (float(ratio.min()), float(ratio.max())),
        exponent,
        variation,
    )


def _speed_factor(shapes: LayerShapes, placement: str) -> Array | None:
    """s of every block; `None` for a placement that theory 11 does not have."""
    layer = np.arange(shapes.n_layers, dtype=np.float64)
    if placement in _CONSTANT:
        return np.ones(shapes.n_layers)
    if placement not in (*GROWS, "mix"):
        return None
    norm = shapes.at("residual_norm")
    before, after = norm[:-1], norm[1:]
    radius = np.full(shapes.n_layers, np.nan)
    known = np.isfinite(before) & np.isfinite(after) & (before > 0) & (after > 0)
    radius[known] = _logarithmic_mean(before[known], after[known])
    factor = np.full(shapes.n_layers, np.nan)
    scheme = "peri" if placement in ("peri", "sandwich") else "pre"
    factor[known] = predict_speed_factor(scheme, radius[known])
    if placement == "ln_scaling":
        factor *= np.sqrt(layer + 1.0)
    if placement == "mix":
        post = layer < math.ceil(MIX_FRACTION * shapes.n_layers)
        # Its post-norm blocks hold the stream at the length that the first pre-norm block is given.
        factor = np.where(post, factor[~post][0] if (~post).any() else 1.0, factor)
    return factor


def _logarithmic_mean(before: Array, after: Array) -> Array:
    """`(after - before) / log(after / before)`: 1 over the mean of 1 / r between the two."""
    ratio = after / before
    close = np.abs(ratio - 1.0) < 1e-6
    safe = np.where(close, 2.0, ratio)
    return np.where(close, np.sqrt(before * after), before * (safe - 1.0) / np.log(safe))
