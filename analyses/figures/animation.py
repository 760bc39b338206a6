"""Tokens on the sphere, seen in a plane, frame by frame: over the layers of a model or in time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from .theme import CLEAR, INK, new_figure, style_axes
from .traces import safe

__all__ = ["MAX_FRAMES", "MAX_TOKENS", "plot_token_paths"]

MAX_TOKENS = 256
"""Tokens that are drawn, evenly spaced over those given."""

MAX_FRAMES = 64
"""Frames that are drawn, evenly spaced over those given."""

_SCALE = [[0.0, "#0072B2"], [0.5, "#9a9a9a"], [1.0, "#D55E00"]]
_DIGITS = 3
_REACH = 1.08


def plot_token_paths(
    coordinates: ArrayLike,
    labels: Sequence[str] | None = None,
    *,
    shares: tuple[float, float] | None = None,
    position: ArrayLike | None = None,
    n_tokens: int | None = None,
    what: str = "layer",
    title: str = "Tokens on the sphere",
) -> go.Figure:
    """Where tokens stand in the unit disc, with a slider and a button that plays the frames.

    At most `MAX_TOKENS` tokens and `MAX_FRAMES` frames are drawn, evenly spaced over those given;
    coordinates are rounded to 0.001, which no screen shows. So 256 tokens and 32 frames take about
    200 kB.

    Args:
        coordinates: `[frame, token, 2]`, in the unit disc (see `interp.token_paths`).
        labels: what each frame is; numbers from 0 by default.
        shares: of each axis, how much of the tokens' squared length it shows.
        position: place of each token in its sequence, for its colour; 0, 1, ... by default.
        n_tokens: how many tokens there were to choose from, for the caption.
        what: what the labels count: "layer", "time".
        title: says whose tokens these are.

    Raises:
        ValueError: another shape, coordinates that are not finite, or labels or positions of
            another number.
    """
    given = np.asarray(coordinates, dtype=np.float64)
    if given.ndim != 3 or given.shape[2] != 2 or given.size == 0:
        raise ValueError(f"coordinates must be [frame, token, 2], got shape {given.shape}")
    if not np.isfinite(given).all():
        raise ValueError("coordinates must all be finite; leave out tokens that have none")
    named = [str(label) for label in (range(len(given)) if labels is None else labels)]
    place = np.arange(given.shape[1]) if position is None else np.asarray(position)
    if len(named) != len(given) or place.shape != (given.shape[1],):
        raise ValueError(
            f"{len(given)} frames of {given.shape[1]} tokens need as many labels and positions, "
            f"got {len(named)} and {place.shape}"
        )
    frames, tokens = _spread(len(given), MAX_FRAMES), _spread(given.shape[1], MAX_TOKENS)
    drawn = np.round(given[np.ix_(frames, tokens)], _DIGITS) + 0.0
    place, named = place[tokens], [named[frame] for frame in frames]
    of = n_tokens or given.shape[1]
    caption = (
        f"Each dot is the direction of one token's stream ({len(tokens)} of {of} tokens), coloured "
        "by its place in the sequence; the circle is the rim of the unit sphere in this plane. The "
        "plane is the same in every frame, that of the two leading principal directions"
    )
    if shares is not None:
        caption += (
            f", and shows {100 * sum(shares):.0f} % of the squared length: tokens that stand "
            "together here may differ in what is not shown"
        )
    figure = new_figure(title, f"{caption}.", 640)
    angle = np.linspace(0.0, 2.0 * np.pi, 73)
    figure.add_trace(
        go.Scatter(
            x=np.round(np.cos(angle), _DIGITS).tolist(),
            y=np.round(np.sin(angle), _DIGITS).tolist(),
            mode="lines",
            line={"color": INK, "width": 1},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    figure.add_trace(
        go.Scatter(
            **_points(drawn[0]),
            mode="markers",
            showlegend=False,
            customdata=place.tolist(),
            marker={
                "size": 8,
                "opacity": 0.8,
                "color": place.tolist(),
                "colorscale": _SCALE,
                "line": {"width": 0},
                "colorbar": {
                    "title": {"text": "position", "side": "right"},
                    "thickness": 12,
                    "len": 0.6,
                    "outlinewidth": 0,
                },
                "showscale": True,
            },
            hovertemplate="token %{customdata}<extra></extra>",
        )
    )
    figure.frames = [
        go.Frame(name=f"{index}", data=[_points(points)], traces=[1])
        for index, points in enumerate(drawn)
    ]
    _controls(figure, named, what)
    names = [f"principal direction {axis}" for axis in (1, 2)]
    if shares is not None:
        names = [f"{name} ({100 * share:.0f} %)" for name, share in zip(names, shares, strict=True)]
    reach = [-_REACH, _REACH]
    figure.update_xaxes(title_text=names[0], range=reach, constrain="domain")
    figure.update_yaxes(title_text=names[1], range=reach, scaleanchor="x", constrain="domain")
    style_axes(figure)
    return figure


def _spread(count: int, most: int) -> list[int]:
    """At most so many of the indices, evenly spaced, the first and the last among them."""
    return sorted(set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()))


def _points(points: Any) -> dict[str, list[float]]:
    return {"x": points[:, 0].tolist(), "y": points[:, 1].tolist()}


def _controls(figure: go.Figure, labels: Sequence[str], what: str) -> None:
    """The button that plays and pauses, and the slider, below the plot."""
    step = {"frame": {"duration": 0, "redraw": False}, "mode": "immediate",
            "transition": {"duration": 0}}  # fmt: skip
    play = {"frame": {"duration": 500, "redraw": False}, "fromcurrent": True,
            "transition": {"duration": 350, "easing": "linear"}}  # fmt: skip
    figure.update_layout(
        margin={"b": 140},
        updatemenus=[
            {
                "type": "buttons",
                "direction": "left",
                "showactive": False,
                "bgcolor": CLEAR,
                "bordercolor": INK,
                "font": {"color": INK},
                "x": 0,
                "y": 0,
                "xanchor": "left",
                "yanchor": "top",
                "pad": {"t": 66, "r": 10},
                "buttons": [
                    {"label": "▶ play", "method": "animate", "args": [None, play]},
                    {"label": "❚❚", "method": "animate", "args": [[None], step]},
                ],
            }
        ],
        sliders=[
            {
                "active": 0,
                "x": 0.2,
                "len": 0.8,
                "y": 0,
                "pad": {"t": 50},
                "bgcolor": CLEAR,
                "activebgcolor": INK,
                "bordercolor": INK,
                "tickcolor": INK,
                "minorticklen": 0,
                "font": {"color": INK},
                "currentvalue": {"prefix": f"{safe(what)} ", "font": {"color": INK}},
                "steps": [
                    {"label": safe(label), "method": "animate", "args": [[f"{index}"], step]}
                    for index, label in enumerate(labels)
                ],
            }
        ],
    )
