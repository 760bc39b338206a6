"""How dispersion, the classes of the heads and the error change over a training run."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..rows import distinct, plain, rows_where
from ..wording import quantity_words
from .theme import INK, MAX_LEGEND, axis_title, colour_of, fade, marker_of, new_figure, style_axes
from .traces import safe

__all__ = ["plot_trend"]

_NOT_ERRORS = ("dispersion_slope", "heads", "verdict")

_LABELS = {
    "dispersing": "#D55E00",
    "disperses": "#D55E00",
    "holding": "#009E73",
    "holds": "#009E73",
    "sharpening": "#0072B2",
    "sharpens": "#0072B2",
    "sink": "#CC79A7",
    "local": "#E69F00",
    "unknown": INK,
}
_PANEL = 260


def plot_trend(
    trend: pd.DataFrame, *, error: str | None = None, title: str = "Trend over the run"
) -> go.Figure:
    """Dispersion slope by layer, heads by class, and the error, over the checkpoints of a run.

    The x axis is the step where every checkpoint's name says one of its own, else their order.
    Panels of what was not measured are left out.

    Args:
        trend: the tidy trend (see `resharpen.analyses.trend`).
        error: the quantity to draw as the error; None = the first that was measured.
        title: stands above the figure.

    Raises:
        ValueError: nothing to draw, or that error was not measured.
    """
    measured: list[str] = distinct(trend, "quantity")
    known = ", ".join(measured) or "nothing"
    if error is not None and error not in measured:
        raise ValueError(f"the trend has no {error!r} to draw; it has {known}")
    if error is None:
        error = next((name for name in measured if name not in _NOT_ERRORS), None)
    wanted = ["dispersion_slope", "heads", *([] if error is None else [error])]
    panels = [name for name in wanted if name in measured]
    if not panels:
        raise ValueError(f"the trend has no slopes, heads or error to draw; it has {known}")
    x_of, x_title = _x_axis(trend)
    figure = make_subplots(
        rows=len(panels),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.3 / len(panels) / 2,
    )
    new_figure(title, _caption(panels, x_title), _PANEL * len(panels) + 110, figure)
    for number, quantity in enumerate(panels, start=1):
        rows = rows_where(trend, trend["quantity"] == quantity)
        if quantity == "heads":
            traces = _head_traces(rows, x_of, x_title)
            y_title = "heads"
            most = max(rows["count"].tolist())
            figure.update_yaxes(dtick=max(1, math.ceil(most / 5)), row=number, col=1)
        else:
            traces = _lines(rows, x_of, x_title)
            unit = str(rows["unit"].iloc[0])
            y_title = axis_title(quantity, unit)
        for trace in traces:
            figure.add_trace(trace, row=number, col=1)
        figure.update_yaxes(title_text=y_title, row=number, col=1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(legend_traceorder="grouped")  # stacked areas would turn it round
    _label_x(figure, trend, x_of, x_title, len(panels))
    style_axes(figure)
    return figure


def _x_axis(trend: pd.DataFrame) -> tuple[dict[str, float], str]:
    """Where each checkpoint stands, and what the axis is called."""
    names = distinct(trend, "checkpoint")
    own = [rows_where(trend, trend["checkpoint"] == name).iloc[0] for name in names]
    steps, orders = ([plain(row[column]) for row in own] for column in ("step", "order"))
    if None not in steps and len(set(steps)) == len(steps):
        return dict(zip(names, map(float, steps), strict=True)), "step"
    return dict(zip(names, map(float, orders), strict=True)), "checkpoint"


def _label_x(
    figure: go.Figure, trend: pd.DataFrame, x_of: dict[str, float], x_title: str, last: int
) -> None:
    """Names at the ticks where there is no step; a thinned-out choice where they are many."""
    figure.update_xaxes(title_text=x_title, row=last, col=1)
    if x_title != "step":
        names = distinct(trend, "checkpoint")
        shown = names[:: max(1, -(-len(names) // 12))]
        ticks = [x_of[name] for name in shown]
        figure.update_xaxes(tickvals=ticks, ticktext=[safe(name) for name in shown])


def _lines(rows: pd.DataFrame, x_of: dict[str, float], x_title: str) -> list[go.Scatter]:
    """One line a layer, and the model's, thick, in front."""
    places: list[str] = distinct(rows, "place")
    layers = [place for place in places if place != "model"]
    traces: list[go.Scatter] = []
    # The model's line is the mean over its layers: said only where there are several, or none.
    drawn = layers if len(layers) == 1 else [*layers, *(["model"] if "model" in places else [])]
    for index, place in enumerate(drawn):
        own = rows_where(rows, rows["place"] == place)
        whole = place == "model"
        muted = not whole and index >= MAX_LEGEND
        colour = INK if whole or muted else colour_of(index)
        quantity = quantity_words(str(own["quantity"].iloc[0]))
        ends = "<br>heads from %{customdata[1]:.3~g} to %{customdata[2]:.3~g}"
        several = np.isfinite(own["low"].to_numpy(np.float64)).any()
        traces.append(
            go.Scatter(
                x=[x_of[name] for name in own["checkpoint"].tolist()],
                y=own["value"].to_numpy(np.float64),
                name="all layers" if whole and layers else safe(str(place)),
                legendgroup=quantity,
                legendgrouptitle={"text": quantity},
                showlegend=not muted,
                mode="lines" if muted else "lines+markers",
                opacity=0.45 if muted else 1.0,
                line={
                    "color": colour if whole else fade(colour, 0.5) if colour != INK else INK,
                    "width": 3 if whole else 1 if muted else 2,
                },
                marker={"symbol": "circle" if whole else marker_of(index), "color": colour},
                customdata=own[["checkpoint", "low", "high", "length"]].to_numpy(object),
                hovertemplate=f"<b>{safe(str(place))}</b>, {x_title} %{{x}}<br>"
                f"%{{customdata[0]}}<br>{quantity} %{{y:.4~g}}, lengths up to %{{customdata[3]}}"
                f"{ends if several else ''}<extra></extra>",
            )
        )
    return traces


def _head_traces(rows: pd.DataFrame, x_of: dict[str, float], x_title: str) -> list[go.Scatter]:
    """How many heads of the model have each label, stacked; a label nobody has counts 0."""
    model = rows_where(rows, rows["place"] == "model")
    names = distinct(model, "checkpoint")
    found = distinct(model, "label")
    order = [*[name for name in _LABELS if name in found], *sorted(set(found) - set(_LABELS))]
    traces = []
    for label in order:
        own = rows_where(model, model["label"] == label)
        counts = dict(zip(own["checkpoint"].tolist(), own["value"].tolist(), strict=True))
        colour = _LABELS.get(label, INK)
        traces.append(
            go.Scatter(
                x=[x_of[name] for name in names],
                y=[counts.get(name, 0.0) for name in names],
                name=safe(label),
                legendgroup="heads",
                legendgrouptitle={"text": "heads"},
                stackgroup="heads",
                mode="lines+markers",
                line={"color": colour, "width": 1.5},
                fillcolor=fade(colour, 0.35),
                marker={"color": colour, "size": 5},
                customdata=[[name] for name in names],
                hovertemplate=f"%{{y:g}} heads: <b>{safe(label)}</b>, {x_title} %{{x}}<br>"
                "%{customdata[0]}<extra></extra>",
            )
        )
    return traces


def _caption(panels: list[str], x_title: str) -> str:
    said = {
        "dispersion_slope": "dispersion slope dH/dlog n, mean over the heads of each layer "
        "(1: disperses fully; 0: holds)",
        "heads": "how many heads of the model do what, stacked",
    }
    parts = [said.get(name, f"{quantity_words(name)} at the longest length") for name in panels]
    by = "step" if x_title == "step" else "order of the checkpoints"
    return f"From top to bottom, against the {by}: {'; '.join(parts)}."
