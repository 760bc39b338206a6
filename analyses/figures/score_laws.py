"""The scores of a head against the number of keys it sees: how wide, and how far from sharp."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ...interp.theory.curve import Curve
from ..wording import format_place, quantity_words
from .series import PLACES, Series, check_drawn, find_series, select
from .theme import (
    axis_title,
    log_axis,
    log_ladder,
    new_figure,
    note_undrawn,
    retitle,
    style_axes,
)
from .traces import Panel, add_measured, add_theory

__all__ = ["plot_score_laws"]

_PANELS = (
    ("the scores", ("score_spread", "score_reach", "score_deviation")),
    ("how far from sharp", ("log_accumulation_scale", "log_sharpening_inverse_temperature")),
    ("the entropy", ("entropy",)),
)
_LOG = "log_"


def plot_score_laws(table: pd.DataFrame, curves: Iterable[Curve] = ()) -> go.Figure:
    """What a diagnosis measured of one head against `n_key`, with theory.

    From top to bottom: spread, reach (max - mean) and deviation of the scores (theory: Gaussian
    scores of the deviation found); accumulation scale and the inverse temperature that would
    sharpen it (geometric means over rows; the axis is logarithmic); entropy (nats). Markers, solid
    line, band: measured, with the 95 % interval over sequences. Dashed: theory. Panels of what was
    not measured are left out.

    Args:
        table: the tidy table of a diagnosis: one head.
        curves: its theory curves.

    Raises:
        ValueError: nothing to draw, or rows of several heads.
    """
    check_drawn(table)
    measured = set(table.loc[table["status"] == "ok", "quantity"])
    panels = [
        (title, [name for name in names if name in measured])
        for title, names in _PANELS
        if measured & set(names)
    ]
    if not panels:
        select(table, "score_spread")
    figure = make_subplots(
        rows=len(panels),
        cols=1,
        vertical_spacing=0.3 / len(panels),
        subplot_titles=[title for title, _ in panels],
    )
    caption = (
        "Measured (markers, solid line, band: 95 % interval over sequences), against the number of "
        "keys: spread (max - min), reach (max - mean) and deviation of the scores; accumulation "
        "scale and the inverse temperature at which the strongest key would hold half (geometric "
        "means over rows); entropy. Theory: dashed, with its hypotheses on hover."
    )
    new_figure("Scores of a head", caption, 300 * len(panels) + 120, figure)
    laws = [_plain_curve(curve) for curve in curves]
    undrawn = count = 0
    place: dict[str, Any] = dict.fromkeys(PLACES)
    for row, (_, names) in enumerate(panels, start=1):
        log_y = names[0].startswith(_LOG)
        panel = Panel("n_key", row, 1, log_x=True, log_y=log_y)
        drawn: list[Series] = []
        for name in names:
            found = find_series(select(table, name), "n_key")
            if len(found) > 1:
                places = "; ".join(format_place(**item.place) for item in found)
                raise ValueError(f"scores are drawn of one head; the table has {places}")
            place = found[0].place
            drawn.append(_plain(replace(found[0], index=count, colour=count)))
            count += 1
        labels = [quantity_words(item.quantity) for item in drawn]
        undrawn += add_measured(figure, drawn, labels, panel)
        for item in drawn:
            add_theory(figure, laws, [item], table, panel)
        x = np.concatenate([item.x for item in drawn])
        figure.update_xaxes(title_text="visible keys (tokens)", row=row, col=1, **log_ladder(x))
        y = np.concatenate([item.mean for item in drawn])
        title = axis_title(names[0], drawn[0].unit) if len(names) == 1 else "dimensionless"
        figure.update_yaxes(title_text=title, row=row, col=1, **(log_axis(y) if log_y else {}))
    named = format_place(place["checkpoint"], place["layer"], place["head"])
    retitle(figure, f"Scores of {named}" if named else "Scores of a head")
    style_axes(figure)
    note_undrawn(figure, undrawn)
    return figure


def _plain(item: Series) -> Series:
    """A mean of logarithms as the geometric mean that it is of."""
    if not item.quantity.startswith(_LOG):
        return item
    ends = {name: np.exp(getattr(item, name)) for name in ("mean", "low", "high", "floor")}
    return replace(item, quantity=item.quantity.removeprefix(_LOG), **ends)


def _plain_curve(curve: Curve) -> Curve:
    if not curve.quantity.startswith(_LOG):
        return curve
    values = np.exp(curve.values)
    return replace(curve, quantity=curve.quantity.removeprefix(_LOG), values=values)
