"""How wrong the model is, against length, for each placement of the norms."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from ...interp.theory.curve import Curve
from ..rows import ERRORS
from .series import find_series, label_series, select
from .theme import INK, axis_title, log_axis, log_ladder, new_figure, note_undrawn, style_axes
from .traces import Panel, add_measured, add_theory

__all__ = ["plot_error"]

_WIDE_LADDER = 100


_AGAINST: dict[str, str] = dict.fromkeys(
    ERRORS, " between the model's next-token distribution and the exact one"
)

FLOOR = 1e-6
"""The error axis starts no lower: smaller errors are below what float32 logits can tell."""


def plot_error(
    table: pd.DataFrame,
    curves: Iterable[Curve] = (),
    *,
    quantity: str = "total_variation",
    train_length: int | None = None,
    checkpoints: Iterable[str] | None = None,
    log_y: bool = True,
    axis: str = "length",
) -> go.Figure:
    """An error against length for each checkpoint, with theory and the training length.

    Markers, solid line, band: measured, mean over seeds with its 95 % t-interval. Dashed: theory.
    Left of the vertical line lie the lengths that were trained on. The error axis is logarithmic,
    since remedies differ by orders of magnitude; the length axis where the ladder reaches past 100
    times its start.

    Args:
        table: the tidy table.
        curves: theory curves of this quantity.
        quantity: `total_variation` (ratio), `kl_divergence` (nats), `illegal_mass` (ratio), or what
            a probe scores: `loss` (nats), `accuracy` (ratio).
        train_length: the longest length trained on (tokens), None = no line.
        checkpoints: which to draw, None = all.
        log_y: logarithmic error axis.
        axis: `length`, or `n_key` where one pass over long inputs gives every shorter one.

    Raises:
        ValueError: nothing to draw; the message lists what the table has.
    """
    rows = select(table, quantity, checkpoints)
    series = find_series(rows, axis)
    x = np.concatenate([item.x for item in series])
    wide = bool(x.min() > 0 and x.max() >= _WIDE_LADDER * x.min())
    panel = Panel(axis, log_x=wide, log_y=log_y)
    words = quantity.replace("_", " ")
    caption = (
        f"Measured: {words}{_AGAINST.get(quantity, '')}, for each checkpoint (markers and solid "
        "line: mean; band: 95 % interval over seeds). Theory: dashed, with its hypotheses on hover."
    )
    if train_length is not None:
        caption += f" The vertical line marks the longest length trained on, {train_length}."
    figure = new_figure(f"Error against length: {words}", caption, height=480)
    undrawn = add_measured(figure, series, label_series(series), panel)
    add_theory(figure, curves, series, rows, panel)
    if train_length is not None:
        figure.add_shape(
            type="line",
            x0=train_length,
            x1=train_length,
            y0=0,
            y1=1,
            yref="paper",
            line={"color": INK, "width": 1.5},
            label={
                "text": "train length ",
                "textposition": "end",
                "textangle": 0,
                "xanchor": "right",
                "yanchor": "top",
                "font": {"color": INK, "size": 12},
            },
        )
    x_title = "length (tokens)" if axis == "length" else "visible keys (tokens)"
    figure.update_xaxes(title_text=x_title, **(log_ladder(x) if wide else {}))
    figure.update_yaxes(title_text=axis_title(quantity, series[0].unit))
    if log_y:
        y = np.concatenate([np.append(item.mean, item.floor) for item in series])
        figure.update_yaxes(**log_axis(y), range=_log_range(y))
    style_axes(figure)
    note_undrawn(figure, undrawn)
    return figure


def _log_range(values: NDArray[np.float64]) -> list[float] | None:
    """Powers of ten around what was measured, from `FLOOR` on.

    Theory, and a model whose logits are far apart, may fall to 1e-20, which would flatten the rest.
    The curves themselves are whole: zooming out shows them.
    """
    values = np.maximum(values[values > 0], FLOOR)
    if not values.size:
        return None
    return [math.log10(values.min()) - 0.3, math.log10(values.max()) + 0.15]
