"""The paper's claims in two figures: every effect with its interval, and the 2/s law."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ...interp.theory.curve import Curve
from ..wording import format_interval, unit_words
from .series import find_series, label_series, select
from .theme import COLOURS, INK, axis_title, fade, log_axis, log_ladder, new_figure, style_axes
from .traces import Panel, add_measured, add_theory, safe

__all__ = ["plot_claims", "plot_length_law"]

_LOOKS: Mapping[str, tuple[str, str]] = {
    "holds": (COLOURS[2], "circle"),
    "does not hold": (COLOURS[1], "x"),
    "undecided": (INK, "diamond-open"),
}
"""Colour and marker of each verdict."""

_ROW, _HEAD = 24, 66
_PAD = 0.08


def plot_claims(
    frame: pd.DataFrame, *, title: str = "The paper's claims: effects and what was asked of them"
) -> go.Figure:
    """Every claim's effect with its 95 % interval, over the range in which the claim holds.

    One panel for the effects of one claim that share a unit. Markers: the mean; lines: the
    interval; the shaded range is what the claim asks for.

    Args:
        frame: one row a claim: columns `claim`, `key`, `statement`, `effect` (its name), `unit`,
            `value`, `low`, `high`, `asked above`, `asked below`, `verdict`.
        title: title of the figure.

    Raises:
        ValueError: the frame has no rows.
    """
    if frame.empty:
        raise ValueError("a figure of claims needs at least one: the frame has no rows")
    panels = []
    for place, group in frame.groupby(["claim", "unit"], sort=False):
        claim, unit = map(str, cast(tuple, place))
        panels.append((f"claim {claim}{_in_unit(unit)}", group.to_dict("records")))
    heights = [_ROW * len(rows) + _HEAD for _, rows in panels]
    figure = make_subplots(
        rows=len(panels),
        cols=1,
        row_heights=heights,
        vertical_spacing=_HEAD / sum(heights),
        subplot_titles=[name for name, _ in panels],
    )
    caption = (
        "Marker: the effect; line: its 95 % interval over seeds (over languages where the claim is "
        "about all of them); shaded: the effects that the claim asks for. Circle: it holds; cross: "
        "it does not; open diamond: undecided. What each effect is stands on hover and in the "
        "table of claims."
    )
    new_figure(title, caption, sum(heights) + 90, figure)
    seen: set[str] = set()
    for number, (_, rows) in enumerate(panels, start=1):
        _add_panel(figure, number, rows, seen)
    style_axes(figure)
    figure.update_yaxes(showgrid=False, ticks="")
    figure.update_layout(margin={"l": 60}, legend={"traceorder": "normal"})
    return figure


def plot_length_law(
    table: pd.DataFrame, curves: Iterable[Curve], *, checkpoints: Iterable[str] | None = None
) -> go.Figure:
    """Displacement against length with the 2/s law through its value at length 2.

    Args:
        table: the tidy table, with `displacement` measured.
        curves: the law of each checkpoint.
        checkpoints: which to draw, None = all.

    Raises:
        ValueError: nothing to draw; the message lists what the table has.
    """
    rows = select(table, "displacement", checkpoints)
    series = find_series(rows, "length")
    panel = Panel("length", log_x=True, log_y=True)
    caption = (
        "Measured: how far the logit of a present token lies below that of the absent ones "
        "(markers and solid line: mean; band: 95 % interval over seeds). Theory: dashed, 2/s times "
        "the displacement at length 2. On these axes a power law is a straight line."
    )
    figure = new_figure("Displacement against 2/s", caption, 460)
    add_measured(figure, series, label_series(series), panel)
    add_theory(figure, curves, series, rows, panel)
    x = np.concatenate([item.x for item in series])
    y = np.concatenate([item.mean for item in series])
    figure.update_xaxes(title_text="length (tokens)", **log_ladder(x))
    figure.update_yaxes(title_text=axis_title("displacement", series[0].unit), **log_axis(y))
    style_axes(figure)
    return figure


def _in_unit(unit: str) -> str:
    """`, in nats`, `, in logits`; nothing for dimensionless units."""
    words = unit_words(unit).strip()
    return f", in {words.removesuffix('s')}s" if words else ""


def _add_panel(figure: go.Figure, number: int, rows: list[dict[Any, Any]], seen: set[str]) -> None:
    left, right = _range(rows)
    place: Any = {"row": number, "col": 1}
    for y, row in enumerate(rows):
        figure.add_shape(
            type="rect",
            x0=max(left, row["asked above"]),
            x1=min(right, row["asked below"]),
            y0=y - 0.36,
            y1=y + 0.36,
            line={"width": 0},
            fillcolor=fade(COLOURS[2], 0.16),
            layer="below",
            **place,
        )
    for verdict, (colour, symbol) in _LOOKS.items():
        chosen = [(y, row) for y, row in enumerate(rows) if row["verdict"] == verdict]
        if not chosen:
            continue
        mean, low, high = (
            np.array([row[name] for _, row in chosen], dtype=np.float64)
            for name in ("value", "low", "high")
        )
        figure.add_trace(
            go.Scatter(
                x=mean,
                y=[y for y, _ in chosen],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": np.nan_to_num(high - mean),
                    "arrayminus": np.nan_to_num(mean - low),
                    "color": colour,
                    "thickness": 2,
                    "width": 3,
                },
                mode="markers",
                marker={"symbol": symbol, "size": 9, "color": colour},
                name=verdict,
                legendgroup=verdict,
                showlegend=verdict not in seen,
                customdata=[_hover(row) for _, row in chosen],
                hovertemplate="%{customdata}<extra></extra>",
            ),
            **place,
        )
        seen.add(verdict)
    figure.update_xaxes(range=[left, right], **place)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[row["key"] for row in rows],
        range=[len(rows) - 0.5, -0.5],
        **place,
    )


def _range(rows: list[dict[Any, Any]]) -> tuple[float, float]:
    """From the smallest to the largest of all ends and finite thresholds, with a margin."""
    ends = np.array(
        [
            row[name]
            for row in rows
            for name in ("value", "low", "high", "asked above", "asked below")
        ],
        dtype=np.float64,
    )
    ends = ends[np.isfinite(ends)]
    low, high = (float(ends.min()), float(ends.max())) if ends.size else (0.0, 1.0)
    pad = _PAD * ((high - low) or abs(high) or 1.0)
    return low - pad, high + pad


def _hover(row: Mapping[Any, Any]) -> str:
    shown = format_interval(row["value"], row["low"], row["high"])
    return (
        f"<b>{row['key']}</b> {safe(row['statement'])}<br>"
        f"{safe(row['effect'])}: {shown}{unit_words(row['unit'])}<br>"
        f"asked for: {row['asked for']}; {row['verdict']}"
    )
