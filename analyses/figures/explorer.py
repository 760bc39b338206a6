"""The explorer's figure: the map of the heads, and one head in full beside it.

Six panels: dispersion of every head; entropy and largest weight of the chosen head over the keys it
sees, with theory; its weights at one length; its scores; the scales of its norms. Blue is as
measured, orange with the change that is tried. The traces stand in the same order for every head,
so that a widget or a page changes their numbers alone (:func:`explorer_data`).
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from ...interp.theory import max_weight_bounds, tight_entropy_bound
from ..head_ladders import HeadLadders, Ladder
from ..wording import format_number, quantity_words
from .embed import pack_bytes
from .head_curves import short
from .head_map import SCALE
from .patterns import DECADES, LEVELS, clear_below, tick_step
from .theme import COLOURS, INK, fade, log_ladder, new_figure, style_axes
from .traces import safe

if TYPE_CHECKING:
    from ..exploring.views import HeadMap, HeadView, NormCurve
    from ..exploring.watching import HeadSeen

__all__ = ["MAP", "WEIGHTS", "explorer_data", "explorer_layout", "plot_explorer"]

MAP = 0
"""The number of the trace that is the map; `customdata` of its cells is `[row, head]`."""

HEIGHT = 710

_MEASURED, _CHANGED, _RELEVANT = COLOURS[0], COLOURS[1], COLOURS[2]
_NORMS = 4
"""Norms of a layer that are drawn: as many as a block has, and the final one."""

_BINS = 40
_CURVES = ("entropy", "max_weight")
_UNITS = {"entropy": " (nats)", "max_weight": " (ratio)"}
_LIMITS = {"entropy": "log n", "max_weight": "1/n"}
_BOUNDED = {"entropy": "lower bound", "max_weight": "upper bound"}
_OUTLINE = (("#111111", 5), ("#ffffff", 2))
"""Around the chosen head: seen on every colour."""

_DASH_WORDS = {"solid": "solid", "dot": "dotted", "dash": "dashed", "dashdot": "dash-dotted"}
_NORM_DASHES = ("solid", "dot", "dash", "dashdot")
_MARKS = ("circle", "square", "diamond", "triangle-up")


def plot_explorer(view: "HeadView", head_map: "HeadMap", title: str) -> go.Figure:
    """One head beside the map of all.

    Args:
        view: The head.
        head_map: The map.
        title: Says whose heads these are.
    """
    figure = make_subplots(
        rows=2,
        cols=3,
        column_widths=[0.3, 0.36, 0.34],
        horizontal_spacing=0.095,
        vertical_spacing=0.17,
        subplot_titles=[" "] * 6,
    )
    caption = (
        "Measured: each head's dispersion, and the chosen head's entropy and largest weight over "
        "the keys it sees, its weights and scores at one length, the scales of its norms. Theory: "
        "dashed, full dispersion and what the head's own score spread allows."
    )
    new_figure(title, caption, HEIGHT, figure)
    for trace, (row, column) in zip(_traces(), _PLACES, strict=True):
        figure.add_trace(trace, row=row, col=column)
    traces: Any = figure.data
    for trace, data in zip(traces, explorer_data(view, head_map), strict=True):
        trace.update(data)
    style_axes(figure)
    _style(figure, head_map)
    figure.update_layout(explorer_layout(view, head_map))
    return figure


def explorer_data(
    view: "HeadView", head_map: "HeadMap", words: bool = True
) -> list[dict[str, Any]]:
    """The numbers of every trace of :func:`plot_explorer`, in their order.

    Args:
        view: The head.
        head_map: The map.
        words: Whether the hover text of a short pattern has the weights themselves.
    """
    data: list[dict[str, Any]] = [_map_data(head_map)]
    for quantity in _CURVES:
        data += _curve_data(quantity, view.measured, view.changed)
    for head in (view.measured, view.changed):
        data.append(_line(head["relevant_mass"] if head is not None else None, True))
    data.append(_pattern_data(view, words))
    data += _score_data(view.seen, view.changed_seen)
    for norms in (view.norms, view.changed_norms):
        data += [_norm_data(norms, number) for number in range(_NORMS)]
    return data


def explorer_layout(view: "HeadView", head_map: "HeadMap") -> dict[str, Any]:
    """What else differs from head to head: titles of the panels, the outline, axes."""
    shown, keys = view.shown, view.measured["entropy"].n_key
    slope = head_map.by == "slope"
    titles = [
        "slope dH/dlog n (nats)" if slope else f"entropy / log n at {head_map.length}",
        f"{safe(view.name)}: entropy (nats)",
        f"{safe(view.name)}: scores at {view.length}",
        f"{safe(view.name)}: {'changed ' if view.words else ''}weights at {view.length}",
        f"{safe(view.name)}: largest weight (ratio)",
        f"{safe(view.name.rpartition(' ')[0])}: scale of its norms",
    ]
    x, y = view.head, view.row
    least = 1 / max(2.0, float(keys.max()))
    low = [float(h["max_weight"].mean.min()) for h in (view.measured, view.changed)
           if h is not None and h["max_weight"].mean.size]  # fmt: skip
    relevant = [
        float(h["relevant_mass"].mean.min()) for h in (view.measured, view.changed)
        if h is not None and h["relevant_mass"].mean.size
    ]  # fmt: skip
    floor = max(1e-8, min([least, *low, *relevant]))
    return {
        "annotations": [{"text": f"<b>{title}</b>"} for title in titles],
        "shapes": [
            {"type": "rect", "xref": "x", "yref": "y", "line": {"color": colour, "width": width},
             "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
            for colour, width in _OUTLINE
        ],
        "xaxis6": {"title": {"text": "<br>".join(["tokens", *_norm_words(view.norms)])}},
        "xaxis4": {
            "range": [-0.5, shown.n_key - 0.5], "tick0": 0, "dtick": tick_step(shown.n_key)
        },
        "yaxis4": {
            "range": [shown.n_query - 0.5, -0.5], "tick0": 0, "dtick": tick_step(shown.n_query)
        },
        "yaxis5": {"range": [math.log10(floor / 1.3), math.log10(1.3)]},
    }  # fmt: skip


_CURVE_TRACES = 6
_PLACES = (
    (1, 1),
    *((1, 2),) * _CURVE_TRACES,
    *((2, 2),) * (_CURVE_TRACES + 2),
    (2, 1),
    *((1, 3),) * 2,
    *((2, 3),) * (2 * _NORMS),
)
"""Row and column of each trace."""

WEIGHTS = _PLACES.index((2, 1))
"""The number of the trace that is the chosen head's weights."""


def _traces() -> list[Any]:
    traces: list[Any] = [
        go.Heatmap(
            zmin=-1,
            zmax=1,
            colorscale=SCALE,
            hovertemplate="%{text}<extra></extra>",
            xgap=1.5,
            ygap=1.5,
            colorbar=_bar([-1, -0.5, 0, 0.5, 1], ["-1", "-0.5", "0", "0.5", "1"]),
            name="map",
        )
    ]
    for quantity in _CURVES:
        first, words = quantity == "entropy", quantity_words(quantity)
        traces += [
            _theory(f"full dispersion: {_LIMITS[quantity]}", "full dispersion", INK, "dash", first),
            _theory(f"{_BOUNDED[quantity]} by the head's own score spread",
                    "bound of its score spread", _MEASURED, "dashdot", first),
            go.Scatter(mode="lines", line={"width": 0, "color": fade(_MEASURED, 0)}, fill="toself",
                       fillcolor=fade(_MEASURED, 0.25), hoverinfo="skip", showlegend=False,
                       name=f"{words}, 95 % interval"),
            _measured(f"{words}{_UNITS[quantity]}", "measured", _MEASURED, first),
            _theory(f"{_BOUNDED[quantity]} by the changed head's score spread",
                    "bound with the change", _CHANGED, "dashdot", False),
            _measured(f"{words}{_UNITS[quantity]}", "with the change", _CHANGED, first),
        ]  # fmt: skip
    traces += [
        _measured("relevant mass (ratio)", "relevant mass", _RELEVANT, False),
        _measured("relevant mass (ratio)", "relevant mass, changed", COLOURS[3], False),
        go.Heatmap(
            zmin=0,
            zmax=LEVELS,
            colorscale=clear_below(),
            name="weights",
            hovertemplate="query %{y}, key %{x}<br>weight %{text}<extra></extra>",
            colorbar=_bar(
                [1 + (LEVELS - 1) * (1 + d / DECADES) for d in range(-DECADES, 1)],
                [f"{10.0**d:g}" for d in range(-DECADES, 1)],
            ),
        ),
        _bars("measured", _MEASURED),
        _bars("with the change", _CHANGED),
    ]
    for colour in (_MEASURED, _CHANGED):
        for dash, mark in zip(_NORM_DASHES, _MARKS, strict=True):
            trace = _measured("scale", "norm", colour, False)
            trace.update(line={"dash": dash}, marker={"symbol": mark})
            traces.append(trace)
    return traces


def _bar(values: list[float], texts: list[str]) -> dict[str, Any]:
    return {
        "tickvals": values,
        "ticktext": texts,
        "thickness": 8,
        "outlinewidth": 0,
        "lenmode": "fraction",
        "xanchor": "left",
        "yanchor": "bottom",
        "xpad": 3,
        "ypad": 0,
        "tickfont": {"size": 11},
    }


def _theory(name: str, key: str, colour: str, dash: str, legend: bool) -> go.Scatter:
    return go.Scatter(
        name=key,
        showlegend=legend,
        legendgroup=key,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        hovertemplate=f"<b>{name}</b> (theory)<br>%{{y:.3~g}} at %{{x}} keys<extra></extra>",
    )


def _measured(words: str, key: str, colour: str, legend: bool) -> go.Scatter:
    return go.Scatter(
        name=key,
        showlegend=legend,
        legendgroup=key,
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"size": 6, "color": colour},
        hovertemplate=f"<b>{words}</b> ({key})<br>%{{y:.3~g}} at %{{x}} keys<extra></extra>",
    )


def _bars(key: str, colour: str) -> go.Scatter:
    return go.Scatter(
        name=key,
        showlegend=False,
        mode="lines",
        line={"color": colour, "width": 1.5, "shape": "hvh"},
        fill="tozeroy",
        fillcolor=fade(colour, 0.25),
        hovertemplate=f"<b>scores</b> ({key})<br>%{{y:.1%}} of the keys near %{{x:.3~g}}"
        "<extra></extra>",
    )


def _map_data(head_map: "HeadMap") -> dict[str, Any]:
    n_rows, columns = head_map.values.shape
    # 1 disperses fully in both; an entropy that holds its support tends to 0.
    low = -1 if head_map.by == "slope" else 0
    return {
        "z": [[short(value) for value in row] for row in head_map.values],
        "zmin": low,
        "text": [list(row) for row in head_map.words],
        "customdata": [[[row, head] for head in range(columns)] for row in range(n_rows)],
        "colorscale": SCALE if low else [[0.0, SCALE[1][1]], [1.0, SCALE[2][1]]],
    }


def _curve_data(
    quantity: str, head: HeadLadders, changed: HeadLadders | None
) -> list[dict[str, Any]]:
    keys, log = head[quantity].n_key, quantity != "entropy"
    limit = np.log(keys) if quantity == "entropy" else 1 / keys
    return [
        _points(keys, limit),
        _bound(quantity, head),
        _band(head[quantity], log),
        _line(head[quantity], log),
        _points(np.empty(0), np.empty(0)) if changed is None else _bound(quantity, changed),
        _line(None if changed is None else changed[quantity], log),
    ]


def _bound(quantity: str, head: HeadLadders) -> dict[str, Any]:
    spread = head["score_spread"]
    if not spread.n_key.size:
        return _points(np.empty(0), np.empty(0))
    if quantity == "entropy":
        return _points(spread.n_key, tight_entropy_bound(spread.n_key, spread.max))
    return _points(spread.n_key, max_weight_bounds(spread.n_key, spread.max).upper)


def _band(ladder: Ladder, log: bool) -> dict[str, Any]:
    low, high = ladder.mean - ladder.half, ladder.mean + ladder.half
    known = np.isfinite(low) & ((low > 0) if log else True)
    x, low, high = ladder.n_key[known], low[known], high[known]
    return _points(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))


def _line(ladder: Ladder | None, log: bool) -> dict[str, Any]:
    if ladder is None:
        return _points(np.empty(0), np.empty(0))
    return _points(
        ladder.n_key, np.where(ladder.mean > 0, ladder.mean, np.nan) if log else ladder.mean
    )


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> dict[str, Any]:
    return {"x": [short(value) for value in x], "y": [short(value) for value in y]}


def _pattern_data(view: "HeadView", exact: bool) -> dict[str, Any]:
    shown, words = view.shown, None
    if exact and max(shown.weights.shape) <= _EXACT:
        words = [[format_number(float(value)) for value in row] for row in shown.weights]
    start = (shown.block - 1) / 2
    hover = "query %{y}, key %{x}" + ("" if words is None else "<br>weight %{text}")
    return {
        "z": pack_bytes(view.levels),
        "x0": start,
        "y0": start,
        "dx": shown.block,
        "dy": shown.block,
        "text": words,
        "hovertemplate": f"{hover}<extra></extra>",
    }


_EXACT = 48
"""Rows up to which the hover text has the weight."""


def _score_data(seen: "HeadSeen", changed: "HeadSeen | None") -> list[dict[str, Any]]:
    """The share of the keys in each of 40 bins, the same bins for both."""
    both = [seen.scores] if changed is None else [seen.scores, changed.scores]
    flat = np.concatenate(both)
    empty = _points(np.empty(0), np.empty(0))
    if not flat.size:
        return [empty, empty]
    low, high = float(flat.min()), float(flat.max())
    room = max(0.05 * (high - low), 1e-3)
    edges = np.linspace(low - room, high + room, _BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    data = [
        _points(middle, np.histogram(scores, edges)[0] / max(1, scores.size)) for scores in both
    ]
    return [*data, empty][:2]


def _norm_words(norms: "Sequence[NormCurve]") -> list[str]:
    """Which dash is which norm."""
    short = [norm.name.rpartition(".")[2] for norm in norms[:_NORMS]]
    words = [
        f"{_DASH_WORDS[dash]} {safe(name)}" for dash, name in zip(_NORM_DASHES, short, strict=False)
    ]
    return [", ".join(words[:2]), ", ".join(words[2:])] if len(words) > 2 else [", ".join(words)]


def _norm_data(norms: "Sequence[NormCurve]", number: int) -> dict[str, Any]:
    if number >= len(norms):
        return {**_points(np.empty(0), np.empty(0)), "name": "norm"}
    norm = norms[number]
    template = f"<b>{safe(norm.name)}</b><br>scale %{{y:.3~g}} at %{{x}} tokens<extra></extra>"
    return {**_points(norm.n_key, norm.scale), "name": norm.name, "hovertemplate": template}


def _style(figure: go.Figure, head_map: "HeadMap") -> None:
    """Axes, and where the legend stands."""
    n_rows, columns = head_map.values.shape
    side: dict[str, Any] = {"showgrid": False, "showline": False, "ticks": "", "fixedrange": True}
    every, step = math.ceil(n_rows / 20), math.ceil(columns / 12)
    figure.update_yaxes(
        row=1, col=1, tickvals=list(range(0, n_rows, every)),
        ticktext=[safe(name) for name in head_map.rows][::every],
        range=[n_rows - 0.5, -0.5], **side,
    )  # fmt: skip
    figure.update_xaxes(
        row=1, col=1, tickvals=list(range(0, columns, step)),
        ticktext=[f"H{column}" for column in range(0, columns, step)],
        range=[-0.5, columns - 0.5], **side,
    )  # fmt: skip
    traces: Any = figure.data
    keys = np.array([x for trace in traces[1:5] for x in (trace.x or ()) if x], float)
    for row in (1, 2):
        figure.update_xaxes(row=row, col=2, title_text="visible keys (tokens)", **log_ladder(keys))
    figure.update_yaxes(row=1, col=2, range=[-0.05, math.log(max(2.0, keys.max())) * 1.05])
    figure.update_yaxes(row=2, col=2, type="log", dtick=1, tickformat="~g")
    figure.update_xaxes(row=1, col=3, title_text="score less its row's mean (share of keys)")
    figure.update_yaxes(row=1, col=3, rangemode="tozero", tickformat=".0%")
    figure.update_xaxes(row=2, col=3, **log_ladder(keys))
    figure.update_yaxes(row=2, col=3, rangemode="tozero")
    figure.update_xaxes(row=2, col=1, title_text="key (position)", showgrid=False)
    figure.update_yaxes(row=2, col=1, title_text="query (position)", showgrid=False)
    left, right = figure.layout.xaxis4.domain
    for number, axis in ((MAP, figure.layout.yaxis), (WEIGHTS, figure.layout.yaxis4)):
        low, high = axis.domain
        # A little lower than its panel: the label at the top keeps clear of the panel's title.
        traces[number].colorbar.update(x=right, y=low, len=0.95 * (high - low))
    figure.update_layout(
        margin={"l": 10, "r": 10, "t": 76, "b": 92},
        legend={"orientation": "h", "x": left, "xanchor": "left", "y": 0, "yref": "container",
                "yanchor": "bottom"},
    )  # fmt: skip
