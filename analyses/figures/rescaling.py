"""What the norms multiply a token's signal by, and what they normalise: the stream's norms."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ...interp.theory.curve import Curve
from ..wording import site_words
from .series import PLACES, Series, find_series, label_series, select
from .theme import (
    CLEAR,
    INK,
    MAX_LEGEND,
    axis_title,
    colour_of,
    log_axis,
    log_ladder,
    marker_of,
    new_figure,
    note_undrawn,
    style_axes,
)
from .traces import Panel, add_measured, add_theory, safe

__all__ = ["plot_rescaling"]


def plot_rescaling(
    table: pd.DataFrame,
    curves: Iterable[Curve] = (),
    *,
    checkpoints: Iterable[str] | None = None,
) -> go.Figure:
    """Rescale gain of each norm against length (above), residual norms along the stream (below).

    Above: how much each norm multiplies a token's signal at this length, against what it does to
    the token alone (1 at length 1). Markers, solid line and band: measured, mean over seeds with
    its 95 % t-interval. Dashed: theory. Both axes logarithmic.
    Below: the norm of the residual stream at each site in the order it is passed, for the shortest
    length measured (open markers, thin) and the longest (filled).

    Args:
        table: the tidy table.
        curves: theory curves of `rescale_gain`.
        checkpoints: which to draw, None = all.

    Raises:
        ValueError: neither `rescale_gain` nor `residual_norm` was measured. If one was not, its
            panel is blank (a model without norms has no rescale gain).
    """
    gains = _optional(table, "rescale_gain", checkpoints)
    norms = _optional(table, "residual_norm", checkpoints)
    if gains is None and norms is None:
        select(table, "rescale_gain", checkpoints)
    figure = make_subplots(
        rows=2,
        cols=1,
        row_heights=[0.5, 0.5],
        vertical_spacing=0.2,
        subplot_titles=["what each norm multiplies by", "what stands in the stream"],
    )
    caption = (
        "Measured, above: how much each norm multiplies a token's signal, relative to what it does "
        "to the token alone (markers and solid line: mean; band: 95 % interval over seeds). "
        "Below: l2 norm of the residual stream at each site, in the order of the stream, at the "
        "shortest length (open markers) and the longest (filled). Theory: dashed, hypotheses on "
        "hover."
    )
    new_figure("Rescale gain and residual norms", caption, 720, figure)
    undrawn = 0
    numbers: dict[tuple[Any, ...], int] = {}
    several = len({name for rows in (gains, norms) if rows is not None for name in _names(rows)})
    if norms is not None:
        # First, so that checkpoints without any norm count when colours are given.
        colour_by = ("checkpoint",)
        _add_stream(figure, find_series(norms, "length", numbers, colour_by))
        title = axis_title("residual_norm", str(norms["unit"].iloc[0]))
        y = norms["mean"].to_numpy(np.float64)
        figure.update_yaxes(title_text=title, row=2, col=1, **log_axis(y))
    if gains is not None:
        colour_by = ("checkpoint",) if several > 1 else PLACES
        series = find_series(gains, "length", numbers if several > 1 else None, colour_by)
        panel = Panel("length", 1, 1, log_x=True, log_y=True)
        undrawn += add_measured(figure, series, label_series(series), panel)
        add_theory(figure, curves, series, gains, panel)
        x = np.concatenate([item.x for item in series])
        y = np.concatenate([item.mean for item in series])
        figure.update_xaxes(title_text="length (tokens)", row=1, col=1, **log_ladder(x))
        title = axis_title("rescale_gain", series[0].unit)
        figure.update_yaxes(title_text=title, row=1, col=1, **log_axis(y))
    style_axes(figure)
    note_undrawn(figure, undrawn)
    return figure


def _optional(
    table: pd.DataFrame, quantity: str, checkpoints: Iterable[str] | None
) -> pd.DataFrame | None:
    try:
        return select(table, quantity, checkpoints)
    except ValueError:
        return None


def _names(rows: pd.DataFrame) -> list[Any]:
    return list(rows["checkpoint"].unique())


def _add_stream(figure: go.Figure, series: list[Series]) -> None:
    """One line along the sites for each checkpoint, at the shortest and at the longest length."""
    by_checkpoint: dict[Any, list[Series]] = {}
    for item in series:
        by_checkpoint.setdefault(item.place["checkpoint"], []).append(item)
    figure.update_layout(
        legend3={
            "x": 1.02,
            "y": 0.4,
            "xanchor": "left",
            "yanchor": "top",
            "bgcolor": CLEAR,
            "tracegroupgap": 2,
        }
    )
    lengths = sorted({float(x) for item in series for x in item.x[[0, -1]]})
    ends = {"shortest": lengths[0], "longest": lengths[-1]}
    for number, (checkpoint, items) in enumerate(by_checkpoint.items()):
        colour, shape = colour_of(items[0].colour), marker_of(number).removesuffix("-open")
        for end, length in ends.items():
            found = [(item, np.flatnonzero(item.x == length)) for item in items]
            points = [(item, int(at[0])) for item, at in found if at.size]
            if not points:
                continue
            longest = end == "longest"
            mean = np.array([item.mean[at] for item, at in points])
            figure.add_trace(
                go.Scatter(
                    x=[site_words(str(item.place["site"])) for item, _ in points],
                    y=mean,
                    error_y={
                        "type": "data",
                        "array": np.array([item.high[at] for item, at in points]) - mean,
                        "arrayminus": mean - np.array([item.low[at] for item, at in points]),
                        "thickness": 1.5,
                        "width": 4,
                    },
                    name=safe(str(checkpoint or "measured")),
                    legend="legend3",
                    legendgroup=f"stream {number}",
                    showlegend=longest and number < MAX_LEGEND,
                    mode="lines+markers",
                    line={"color": colour, "width": 2 if longest else 1, "dash": "solid"},
                    marker={"symbol": shape if longest else f"{shape}-open", "size": 8},
                    hovertemplate=(
                        f"<b>{safe(str(checkpoint))}</b> (measured), length {length:g}<br>"
                        "residual norm at %{x}: %{y:.4~g}<extra></extra>"
                    ),
                ),
                row=2,
                col=1,
            )
    for end, length in ends.items():
        figure.add_trace(
            go.Scatter(
                x=[None],
                y=[None],
                name=f"length {length:g}",
                legend="legend2",
                mode="lines+markers",
                line={"color": INK, "width": 2 if end == "longest" else 1, "dash": "solid"},
                marker={"symbol": "circle" if end == "longest" else "circle-open", "size": 8},
                hoverinfo="skip",
            ),
            row=2,
            col=1,
        )
    figure.update_xaxes(title_text="site, in the order of the stream", row=2, col=1)
