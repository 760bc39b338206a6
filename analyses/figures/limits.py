"""What one head can select, and how fast its output settles, against the number of keys."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ...interp.theory.curve import Curve
from ..wording import format_place, quantity_words
from .series import PLACES, Series, check_drawn, find_series, select
from .theme import axis_title, log_axis, log_ladder, new_figure, note_undrawn, retitle, style_axes
from .traces import Panel, add_measured, add_theory

__all__ = ["plot_limits", "plot_sampling_error"]

_PANELS = (
    ("the distance of the selection", ("selection_distance",), False),
    ("the separable share of it", ("separable_share",), False),
    ("the slope of a row", ("jacobian_norm", "jacobian_entry"), True),
)


def plot_limits(table: pd.DataFrame, curves: Iterable[Curve] = ()) -> go.Figure:
    """Distance, separability and slope of one head against `n_key`, with bounds and conjectures.

    Markers, solid line, band: measured, with the 95 % interval over sequences. Dashed: theory, and
    what is only reported, with "(conjecture)" in its name. Panels of what was not measured are left
    out.

    Args:
        table: the tidy table of `measure_limits`: one head.
        curves: its theory curves.

    Raises:
        ValueError: nothing to draw, or rows of several heads.
    """
    caption = (
        "Measured (markers, solid line, band: 95 % interval over sequences), against the number of "
        "keys: how far what the selected keys contribute lies from what the others do; which share "
        "of the selected is nearer to the output than every other key (this toolkit's definition); "
        "the slope of the weights in the scores, of a whole row (spectral norm) and of one weight. "
        "Theory: dashed, with its hypotheses on hover; what is only reported is named a conjecture."
    )
    return _plot(table, curves, _PANELS, "Limits of selection", caption, "visible keys (tokens)")


def plot_sampling_error(table: pd.DataFrame, curves: Iterable[Curve] = ()) -> go.Figure:
    """Distance of an output over n sampled keys to that over all, against n, with C / sqrt(n).

    Markers, solid line, band: measured, with the 95 % interval over queries. Dashed: the derived
    limit where it is claimed, and for the largest error the rate with a fitted constant, a
    conjecture. Both axes are logarithmic.

    Args:
        table: the tidy table of `measure_sampling_rate`: one head.
        curves: its theory curves.

    Raises:
        ValueError: nothing to draw, or rows of several heads.
    """
    caption = (
        "Measured (markers, solid line, band: 95 % interval over queries): root mean square "
        "distance of the attention output over n keys, drawn with replacement, to that over all "
        "keys; mean and largest over the queries. Theory: dashed, with its hypotheses on hover: "
        "the derived C / sqrt(n) from where n is large on; over every query of a ball, with a "
        "fitted constant, it is named a conjecture."
    )
    panels = (("", ("sampling_error", "largest_sampling_error"), True),)
    return _plot(table, curves, panels, "Sampling error", caption, "sampled keys")


def _plot(
    table: pd.DataFrame,
    curves: Iterable[Curve],
    wanted: Sequence[tuple[str, tuple[str, ...], bool]],
    title: str,
    caption: str,
    x_title: str,
) -> go.Figure:
    check_drawn(table)
    measured = set(table.loc[table["status"] == "ok", "quantity"])
    panels = [
        (name, [quantity for quantity in names if quantity in measured], log_y)
        for name, names, log_y in wanted
        if measured & set(names)
    ]
    if not panels:
        select(table, wanted[0][1][0])
    figure = make_subplots(
        rows=len(panels),
        cols=1,
        vertical_spacing=0.3 / len(panels),
        subplot_titles=[name for name, _, _ in panels] if len(panels) > 1 else None,
    )
    height = 300 * len(panels) + 120 if len(panels) > 1 else 460
    new_figure(title, caption, height, figure)
    laws = list(curves)
    undrawn = count = 0
    place: dict[str, Any] = dict.fromkeys(PLACES)
    for row, (_, names, log_y) in enumerate(panels, start=1):
        panel = Panel("n_key", row, 1, log_x=True, log_y=log_y)
        drawn: list[Series] = []
        for name in names:
            found = find_series(select(table, name), "n_key")
            if len(found) > 1:
                places = "; ".join(format_place(**item.place) for item in found)
                raise ValueError(f"this figure is of one head; the table has {places}")
            place = found[0].place
            drawn.append(replace(found[0], index=count, colour=count))
            count += 1
        undrawn += add_measured(figure, drawn, [quantity_words(s.quantity) for s in drawn], panel)
        for item in drawn:
            add_theory(figure, laws, [item], table, panel)
        x, y = (np.concatenate([getattr(s, axis) for s in drawn]) for axis in ("x", "mean"))
        figure.update_xaxes(title_text=x_title, row=row, col=1, **log_ladder(x))
        title_y = axis_title(names[0], drawn[0].unit) if len(names) == 1 else "dimensionless"
        scale: dict[str, Any] = log_axis(y) if log_y else {"rangemode": "tozero"}
        figure.update_yaxes(title_text=title_y, row=row, col=1, **scale)
    named = format_place(place["checkpoint"], place["layer"], place["head"])
    retitle(figure, f"{title} of {named}" if named else title)
    style_axes(figure)
    note_undrawn(figure, undrawn)
    return figure
