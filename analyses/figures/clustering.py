"""How far tokens have drawn together, layer by layer, and how fast they turn beside theory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from ..clustering_layers import LayerShapes, Turning
from .theme import (
    COLOURS,
    INK,
    MARKERS,
    colour_of,
    fade,
    in_section,
    log_axis,
    new_figure,
    style_axes,
)
from .traces import safe

__all__ = ["SECTION", "plot_clustering"]

SECTION = "Clustering"
"""Section of the report that these figures stand in."""

MAX_LINES = 6
"""Lengths that are drawn, spread over those measured; the longest is always one."""

_RANKS = ("direction_rank", "effective_rank")


def plot_clustering(
    shapes: LayerShapes, turning: Turning | None = None, *, placement: str | None = None
) -> go.Figure:
    """Mean cosine and rank by layer, one line a length; the angle a block, beside theory's factor.

    From top to bottom: mean cosine of two tokens (dotted: without the one coordinate that adds most
    to it); effective rank of the tokens' directions, or of the stream where only that was measured;
    angle by which a block turns a token, in radians, with theory's factor (dashed, one constant
    fitted) at the longest input.

    Args:
        shapes: what was measured (see `clustering_layers.read_layer_shapes`).
        turning: the angles beside the factor; None = theory has none for the placement.
        placement: where the norms stand, for the legend.
    """
    rows = _lines(shapes.n_tokens)
    rank = next((name for name in _RANKS if np.isfinite(shapes.at(name)).any()), None)
    panels = ["mean cosine of two tokens"]
    panels += [
        "effective rank of the directions" if rank == _RANKS[0] else "effective rank"
    ] * bool(rank)
    panels.append("angle by which a block turns a token")
    figure = make_subplots(
        rows=len(panels),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.09,
        subplot_titles=panels,
    )
    caption = (
        "Against the layer (0 is before the first block), one line a number of tokens. Mean cosine "
        "of two different tokens, exact; dotted, at the longest input, without the one coordinate "
        "that adds most to it. "
    )
    if rank:
        counted = " with every token counted once" if rank == _RANKS[0] else ""
        caption += f"Effective rank{counted}. "
    caption += "Angle between a token before and after each block"
    caption += (
        f"; dashed: what theory 11 predicts for norms placed {placement}, with shared weights and "
        "one constant fitted, at the longest input. That is of first order: above about 1 "
        "radian it only says that a block turns tokens further than its picture holds."
        if turning is not None
        else "."
    )
    new_figure("How far tokens draw together", caption, 250 * len(panels) + 110, figure)
    depth = np.arange(shapes.n_layers + 1)
    for index, row in enumerate(rows):
        label = f"{shapes.n_tokens[row]} tokens"
        _line(figure, 1, depth, shapes.boundary["mean_cosine"][row], label, index, legend=True)
        if rank:
            _line(figure, 2, depth, shapes.boundary[rank][row], label, index)
        middle = depth[:-1] + 0.5
        _line(figure, len(panels), middle, shapes.block["angular_speed"][row], label, index)
    last = len(rows) - 1
    trimmed = shapes.at("trimmed_cosine")
    if np.isfinite(trimmed).any():
        _key(figure, "without the largest coordinate", "dot")
        figure.add_trace(_dashed(depth, trimmed, "dot", last, "without it"), row=1, col=1)
    if turning is not None:
        name = f"theory 11, {placement}"
        _key(figure, name, "dash")
        figure.add_trace(
            _dashed(depth[:-1] + 0.5, turning.predicted, "dash", last, name), row=len(panels), col=1
        )
    figure.update_yaxes(row=1, col=1, title_text="cosine (dimensionless)")
    if rank:
        figure.update_yaxes(row=2, col=1, title_text="rank (dimensionless)", rangemode="tozero")
    angles = shapes.block["angular_speed"]
    figure.update_yaxes(row=len(panels), col=1, title_text="radians", **log_axis(angles.ravel()))
    figure.update_xaxes(title_text="layer", row=len(panels), col=1)
    style_axes(figure)
    reach = [-0.3, shapes.n_layers + 0.3]
    figure.update_xaxes(dtick=max(1, shapes.n_layers // 12), range=reach)
    return in_section(figure, SECTION)


def _lines(n_tokens: Sequence[int]) -> list[int]:
    """Rows of the lengths that are drawn."""
    count = len(n_tokens)
    picked = np.linspace(0, count - 1, min(count, MAX_LINES)).round().astype(int)
    return sorted(set(picked.tolist()))


def _line(
    figure: go.Figure,
    row: int,
    x: NDArray[Any],
    y: NDArray[Any],
    label: str,
    index: int,
    *,
    legend: bool = False,
) -> None:
    if not np.isfinite(y).any():
        return
    colour = colour_of(index)
    figure.add_trace(
        go.Scatter(
            x=x,
            y=np.round(y, 5),
            name=label,
            legendgroup=label,
            showlegend=legend,
            mode="lines+markers",
            line={"color": fade(colour, 0.55), "width": 2},
            marker={"symbol": MARKERS[index % len(MARKERS)], "size": 6, "color": colour},
            hovertemplate=f"<b>{safe(label)}</b>, layer %{{x}}: %{{y:.4~g}}<extra></extra>",
        ),
        row=row,
        col=1,
    )


def _dashed(x: NDArray[Any], y: NDArray[Any], dash: str, index: int, name: str) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=np.round(y, 5),
        name=safe(name),
        showlegend=False,
        mode="lines",
        line={"color": COLOURS[index % len(COLOURS)], "width": 2, "dash": dash},
        hovertemplate=f"<b>{safe(name)}</b>, layer %{{x}}: %{{y:.4~g}}<extra></extra>",
    )


def _key(figure: go.Figure, name: str, dash: str) -> None:
    """What a kind of line means, below the plot."""
    figure.add_trace(
        go.Scatter(
            x=[None],
            y=[None],
            name=safe(name),
            legend="legend2",
            mode="lines",
            line={"color": INK, "width": 2, "dash": dash},
            hoverinfo="skip",
        ),
        row=1,
        col=1,
    )
