"""How concentrated each head's attention is, against the number of keys it sees."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...interp.theory.curve import Curve
from .series import find_series, label_series, select
from .theme import (
    MAX_LEGEND,
    axis_title,
    log_axis,
    log_ladder,
    new_figure,
    note_undrawn,
    style_axes,
)
from .traces import Panel, add_measured, add_theory

__all__ = ["plot_dispersion"]

# Theory says that these grow as log n: a straight line over a logarithmic x alone. The others
# follow power laws: both axes logarithmic.
_LINEAR_Y = frozenset({"entropy", "normalised_entropy", "score_spread", "score_deviation"})


def plot_dispersion(
    table: pd.DataFrame,
    curves: Iterable[Curve] = (),
    *,
    quantity: str = "entropy",
    checkpoints: Iterable[str] | None = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
) -> go.Figure:
    """A dispersion quantity of each head against `n_key`, with theory and bounds.

    Markers, solid line, band: measured, mean over seeds with its 95 % t-interval. Dashed: theory.
    The x axis is logarithmic; the y axis too, unless the quantity grows as log n (entropy).

    Args:
        table: the tidy table.
        curves: theory curves; those of other quantities or places are left out.
        quantity: any quantity measured per head: `entropy` (nats), `max_weight` (ratio),
            `effective_support` (1), ...
        checkpoints, layers, heads: which to draw, None = all. Past 12 series the rest is drawn
            thin and grey, named on hover.

    Raises:
        ValueError: nothing to draw; the message lists what the table has.
    """
    rows = select(table, quantity, checkpoints, layers, heads)
    series = find_series(rows, "n_key")
    labels = label_series(series)
    log_y = quantity not in _LINEAR_Y
    panel = Panel("n_key", log_x=True, log_y=log_y)
    more = len(series) - MAX_LEGEND
    caption = (
        f"Measured: {quantity.replace('_', ' ')} of each attention head at the last query, against "
        "the number of keys it sees (markers and solid line: mean; band: 95 % interval over "
        "seeds). Theory: dashed, with its hypotheses on hover."
    )
    if more > 0:
        caption += f" The first {MAX_LEGEND} series are in colour, {more} more in grey."
    figure = new_figure(f"Dispersion: {quantity.replace('_', ' ')}", caption, height=460)
    undrawn = add_measured(figure, series, labels, panel)
    add_theory(figure, curves, series, rows, panel)
    x = np.concatenate([item.x for item in series])
    y = np.concatenate([item.mean for item in series])
    figure.update_xaxes(title_text="visible keys (tokens)", **log_ladder(x))
    title = axis_title(quantity, series[0].unit)
    figure.update_yaxes(title_text=title, **(log_axis(y) if log_y else {}))
    style_axes(figure)
    note_undrawn(figure, undrawn)
    return figure
