"""How far present tokens are pushed below absent ones, and why: dispersion times rescale."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ...interp.theory.curve import Curve
from .series import find_series, label_series, select
from .theme import axis_title, log_axis, log_ladder, new_figure, note_undrawn, style_axes
from .traces import Panel, add_measured, add_theory

__all__ = ["plot_displacement"]

_PANELS = (
    ("displacement", 1, 1, "displacement"),
    ("frozen_displacement", 2, 1, "norms frozen: dispersion alone"),
    ("displacement_rescale", 2, 2, "what the norms multiply it by"),
)


def plot_displacement(
    table: pd.DataFrame,
    curves: Iterable[Curve] = (),
    *,
    checkpoints: Iterable[str] | None = None,
) -> go.Figure:
    r"""Displacement and its two factors against length, all on logarithmic axes.

    `displacement = frozen_displacement x displacement_rescale`: above, the product; below left, the
    displacement with every norm's scale frozen at what the same token gets alone, which shows
    dispersion; below right, the factor that the norms give back. A power law is a straight line,
    and the slopes of the two factors add up to the slope of the product.

    Markers, solid line, band: measured, mean over seeds with its 95 % t-interval. Dashed: theory.
    Points that are not positive cannot be drawn on these axes; the figure says how many.

    Args:
        table: the tidy table.
        curves: theory curves of any of the three quantities.
        checkpoints: which to draw, None = all.

    Raises:
        ValueError: `displacement` was not measured. A factor that was not is left blank.
    """
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[0.56, 0.44],
        vertical_spacing=0.17,
        horizontal_spacing=0.14,
        subplot_titles=[title for *_, title in _PANELS],
    )
    caption = (
        "Measured: how far the logit of a present token lies below that of the absent ones "
        "(above), the same with every norm's scale frozen at what the token gets alone (below "
        "left: dispersion), and the factor between the two (below right: rescale). Markers and "
        "solid line: mean; band: 95 % interval over seeds. Theory: dashed, hypotheses on hover."
    )
    new_figure("Displacement and its two factors", caption, 680, figure)
    curves = list(curves)
    undrawn = 0
    numbers: dict[tuple[Any, ...], int] = {}
    for quantity, row, col, _ in _PANELS:
        try:
            rows = select(table, quantity, checkpoints)
        except ValueError:
            if quantity == "displacement":
                raise
            continue
        series = find_series(rows, "length", numbers, ("checkpoint",))
        panel = Panel("length", row, col, log_x=True, log_y=True, legend=row == 1)
        undrawn += add_measured(figure, series, label_series(series), panel)
        add_theory(figure, curves, series, rows, panel)
        x = np.concatenate([item.x for item in series])
        y = np.concatenate([item.mean for item in series])
        figure.update_xaxes(title_text="length (tokens)", row=row, col=col, **log_ladder(x))
        title = axis_title(quantity, series[0].unit)
        figure.update_yaxes(title_text=title, row=row, col=col, **log_axis(y))
    style_axes(figure)
    note_undrawn(figure, undrawn)
    return figure
