"""Attention patterns at several lengths, with a slider over length and a choice of head."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.colors import get_colorscale

from .theme import CLEAR, GRID, INK, new_figure, style_axes
from .traces import safe

__all__ = [
    "DECADES",
    "LEVELS",
    "MAX_KEYS",
    "block_means",
    "clear_below",
    "plot_patterns",
    "quantise",
    "tick_step",
]

MAX_KEYS = 256
"""Longer patterns are drawn as means over blocks: a screen has no more pixels than that."""

DECADES = 4
"""The colours run over this many powers of ten, from 1e-4 to 1; they are the same at every length,
so that a head that disperses visibly fades."""

_EXACT_KEYS = 48
LEVELS = 255
"""Levels in which weights are stored."""

_COLOURS = "Cividis"


def plot_patterns(
    patterns: Mapping[int, NDArray[np.floating]],
    *,
    title: str = "Attention patterns",
    head_names: list[str] | None = None,
) -> go.Figure:
    """Attention weights as images: a slider chooses the length, a menu the head.

    Colour is the logarithm of the weight, from 1e-4 (and below) to 1. What is exactly 0 (masked) is
    left clear. Past 256 keys or queries each pixel is the mean weight of a block of keys and
    queries. Weights are stored in 255 levels, so that the figure stays small; up to 48 keys the
    hover text has the weight itself.

    Args:
        patterns: length to weights `[head, query, key]`, each from 0 to 1; the same heads at every
            length.
        title: says whose patterns these are.
        head_names: one for each head; None = `head 0`, `head 1`, ...

    Raises:
        ValueError: no patterns, a shape that is not `[head, query, key]`, heads that differ from
            length to length, or weights outside 0 to 1.
    """
    heads = _check(patterns)
    names = [f"head {head}" for head in range(heads)] if head_names is None else head_names
    if len(names) != heads:
        raise ValueError(f"expected {heads} head names, got {len(names)}")
    lengths = sorted(patterns)
    blocks = any(max(patterns[length].shape[1:]) > MAX_KEYS for length in lengths)
    caption = (
        "Measured: attention weight of each query (row) on each key (column) of one sequence; "
        "the slider chooses the length. The colour scale is logarithmic and the same at every "
        "length; masked pairs are left clear."
    )
    if blocks:
        caption += f" Past {MAX_KEYS} keys each pixel is the mean over a block."
    figure = new_figure(title, caption, height=640)
    for length in lengths:
        for head in range(heads):
            trace = _heatmap(patterns[length][head], f"length {length}, {names[head]}")
            trace.visible = length == lengths[0]
            trace.opacity = 1.0 if head == 0 else 0.0
            trace.hoverinfo = "all" if head == 0 else "skip"
            trace.showscale = head == 0
            figure.add_trace(trace)
    figure.update_xaxes(title_text="key (position)", constrain="domain", rangemode="tozero")
    figure.update_yaxes(
        title_text="query (position)", autorange="reversed", scaleanchor="x", constrain="domain"
    )
    style_axes(figure)
    ticks = {"showgrid": False, "tick0": 0, "dtick": tick_step(lengths[0])}
    figure.update_xaxes(**ticks)
    figure.update_yaxes(**ticks)
    figure.update_layout(sliders=[_slider(lengths, heads)], margin={"b": 40, "t": 90})
    if heads > 1:
        figure.update_layout(updatemenus=[_menu(names, len(lengths))])
    return figure


def block_means(weights: NDArray[np.floating], limit: int = MAX_KEYS) -> NDArray[np.float64]:
    """Means over square blocks, so that neither side exceeds `limit`; unchanged if none does.

    Args:
        weights: `[query, key]`.
        limit: largest side of the result.

    Returns:
        `[ceil(query / block), ceil(key / block)]`, block = ceil(longest side / limit); the last
        blocks are means over what is there.
    """
    block = -(-max(weights.shape) // limit)
    if block <= 1:
        return np.asarray(weights, dtype=np.float64)
    starts = [np.arange(0, size, block) for size in weights.shape]
    sums = np.add.reduceat(
        np.add.reduceat(weights.astype(np.float64), starts[0], axis=0), starts[1], axis=1
    )
    sizes = [np.diff([*start, size]) for start, size in zip(starts, weights.shape, strict=True)]
    return sums / np.outer(*sizes)


def quantise(weights: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Weights from 0 to 1 in 255 logarithmic levels over `DECADES`; 0 is level 0, 1 is level 255.

    A weight that is not 0 has at least level 1. The relative error within the range is below 2 %.
    """
    with np.errstate(divide="ignore"):
        level = 1 + (LEVELS - 1) * (1 + np.log10(weights) / DECADES)
    return np.where(weights > 0, np.clip(np.rint(level), 1, LEVELS), 0).astype(np.uint8)


def _check(patterns: Mapping[int, NDArray[np.floating]]) -> int:
    """The number of heads, the same at every length."""
    if not patterns:
        raise ValueError("no patterns to draw: give a mapping of length to [head, query, key]")
    heads = set()
    for length, weights in patterns.items():
        if not isinstance(weights, np.ndarray) or weights.ndim != 3 or 0 in weights.shape:
            shape = getattr(weights, "shape", type(weights).__name__)
            raise ValueError(f"a pattern is an array [head, query, key], got {shape} at {length}")
        if not (np.all(weights >= 0) and np.all(weights <= 1 + 1e-6)):
            raise ValueError(f"attention weights lie between 0 and 1, not so at length {length}")
        heads.add(weights.shape[0])
    if len(heads) > 1:
        raise ValueError(f"the number of heads differs between lengths: {sorted(heads)}")
    return heads.pop()


def _heatmap(weights: NDArray[np.floating], name: str) -> go.Heatmap:
    block = -(-max(weights.shape) // MAX_KEYS)
    exact = max(weights.shape) <= _EXACT_KEYS
    hover = f"<b>{safe(name)}</b> (measured)<br>query %{{y}}, key %{{x}}"
    decades = range(-DECADES, 1)
    ticks = [1 + (LEVELS - 1) * (1 + decade / DECADES) for decade in decades]
    return go.Heatmap(
        z=quantise(block_means(weights)),
        zmin=0,
        zmax=LEVELS,
        dx=block,
        dy=block,
        x0=(block - 1) / 2,
        y0=(block - 1) / 2,
        name=name,
        customdata=weights.astype(np.float32) if exact else None,
        hovertemplate=f"{hover}{'<br>weight %{customdata:.3~g}' if exact else ''}<extra></extra>",
        colorscale=clear_below(),
        colorbar={
            "title": {"text": "weight (ratio)", "side": "right", "font": {"size": 13}},
            "tickvals": ticks,
            "ticktext": [f"{10.0**decade:g}" for decade in decades],
            "thickness": 14,
            "outlinewidth": 0,
        },
    )


def clear_below() -> list[tuple[float, str]]:
    """Cividis (readable by the colour-blind) from level 1 on, level 0 clear."""
    edge = 0.5 / LEVELS
    scale = get_colorscale(_COLOURS)
    return [
        (0.0, CLEAR),
        (edge, CLEAR),
        *((max(edge, position), colour) for position, colour in scale),
    ]


def tick_step(length: int) -> int:
    """1, 2, 5, 10, ...: at most nine ticks, all at whole positions."""
    steps = (step * 10**power for power in range(20) for step in (1, 2, 5))
    return next(step for step in steps if 9 * step >= length)


def _slider(lengths: list[int], heads: int) -> dict[str, object]:
    steps = [
        {
            "label": str(length),
            "method": "update",
            "args": [
                {"visible": [other == length for other in lengths for _ in range(heads)]},
                {"xaxis.dtick": tick_step(length), "yaxis.dtick": tick_step(length)},
            ],
        }
        for length in lengths
    ]
    return {
        "active": 0,
        "steps": steps,
        "currentvalue": {"prefix": "length: ", "font": {"size": 13, "color": INK}},
        "font": {"color": INK},
        "pad": {"t": 50, "b": 5},
        "bgcolor": GRID,
        "bordercolor": INK,
        "activebgcolor": INK,
        "tickcolor": INK,
    }


def _menu(names: list[str], n_lengths: int) -> dict[str, object]:
    """The choice of head: works on opacity, as the slider does on visibility, so that both hold."""
    heads = range(len(names))
    buttons = [
        {
            "label": names[chosen],
            "method": "restyle",
            "args": [
                {
                    "opacity": [float(head == chosen) for head in heads] * n_lengths,
                    "hoverinfo": [
                        "all" if head == chosen else "skip"
                        for _ in range(n_lengths)
                        for head in heads
                    ],
                }
            ],
        }
        for chosen in heads
    ]
    return {
        "buttons": buttons,
        "active": 0,
        "x": 0,
        "xanchor": "left",
        "y": 1.01,
        "yanchor": "bottom",
        "bgcolor": CLEAR,
        "bordercolor": INK,
        "font": {"color": INK},
    }
