"""How every figure looks: one palette, one layout, readable on white and on black.

Light and dark: backgrounds are transparent and every letter and line has the mid-tone `INK`, whose
contrast is about 4.3 to 1 both on white and on #111, the most that one colour can have on both. So
a figure in a notebook needs no theme. The report repaints `INK` and `GRID` with stronger colours
for the scheme of the reader, and again when the scheme changes.

Colour-blind safe: the Okabe-Ito palette without its black and yellow, strongest contrast first, and
a marker of its own for every series, so that nothing depends on colour alone.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from ..wording import plural, quantity_words

__all__ = [
    "CLEAR",
    "COLOURS",
    "GRID",
    "INK",
    "MARKERS",
    "MAX_LEGEND",
    "axis_title",
    "colour_of",
    "fade",
    "in_section",
    "log_axis",
    "log_ladder",
    "marker_of",
    "new_figure",
    "note_undrawn",
    "style_axes",
]

INK = "#7a7a7a"
GRID = "rgba(128,128,128,0.22)"
CLEAR = "rgba(0,0,0,0)"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star")
MAX_LEGEND = 12
"""Series past this many are drawn grey and thin, named on hover, without a legend entry."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def colour_of(index: int) -> str:
    """The colour number `index`; after six they begin again, with open markers."""
    return COLOURS[index % len(COLOURS)]


def marker_of(index: int) -> str:
    """The marker of the series number `index`; open ones for every second round."""
    shape = MARKERS[index % len(MARKERS)]
    return f"{shape}-open" if (index // len(MARKERS)) % 2 else shape


def fade(colour: str, opacity: float) -> str:
    """A `#rrggbb` colour with an opacity from 0 to 1."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def axis_title(quantity: str, unit: str) -> str:
    """`entropy (nats)`; `max weight (ratio)`; `residual norm (l2)`; unit 1 as `(dimensionless)`."""
    return f"{quantity_words(quantity)} ({'dimensionless' if unit == '1' else unit})"


def retitle(figure: go.Figure, title: str) -> go.Figure:
    """Give a figure another title, in the figure and in the report; returns the figure."""
    figure.layout.title.text = title
    figure.layout.meta = {**(figure.layout.meta or {}), "title": title}
    return figure


def in_section(figure: go.Figure, heading: str, notes: Sequence[str] = ()) -> go.Figure:
    """Let a figure stand under a heading of its own in the report, with sentences before it."""
    meta = {**(figure.layout.meta or {}), "section": heading}
    figure.layout.meta = {**meta, "notes": list(notes)} if notes else meta
    return figure


def new_figure(title: str, caption: str, height: int, figure: go.Figure | None = None) -> go.Figure:
    """An empty figure (or the given one, with its subplots) in the common layout.

    The legend of the series stands at the right of the plot; the key of the theory curves below it,
    inert. `layout.meta` keeps title and caption for the report.
    """
    figure = go.Figure() if figure is None else figure
    figure.update_layout(
        template=go.layout.Template(),
        title={
            "text": title,
            "font": {"size": 16},
            "x": 0,
            "xref": "paper",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 12},
        },
        meta={"title": title, "caption": caption},
        height=height,
        margin={"l": 70, "r": 20, "t": 50, "b": 60},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        modebar={"bgcolor": CLEAR, "color": INK, "activecolor": INK},
        font={"family": FONT, "size": 13, "color": INK},
        hoverlabel={"align": "left", "font": {"family": FONT, "size": 12}},
        legend={
            "x": 1.02,
            "y": 1,
            "xanchor": "left",
            "yanchor": "top",
            "bgcolor": CLEAR,
            "tracegroupgap": 2,
        },
        legend2={
            "orientation": "h",
            "yref": "container",
            "x": 0,
            "y": 0,
            "xanchor": "left",
            "yanchor": "bottom",
            "bgcolor": CLEAR,
            "itemclick": False,
            "itemdoubleclick": False,
            "itemwidth": 50,
        },
    )
    return figure


def style_axes(figure: go.Figure) -> None:
    """The lines and titles of every axis; called last, once all axes exist.

    Titles of subplots, which plotly centres, are set at the left of their panel.
    """
    line = {
        "title_font_size": 13,
        "title_standoff": 8,
        "showgrid": True,
        "gridcolor": GRID,
        "zeroline": False,
        "showline": True,
        "linecolor": INK,
        "ticks": "outside",
        "tickcolor": INK,
        "ticklen": 4,
        "automargin": True,
    }
    figure.update_xaxes(**line)
    figure.update_yaxes(**line)
    domains = [axis.domain for axis in figure.select_xaxes()]
    for note, domain in zip(figure.layout.annotations, domains, strict=False):
        note.update(x=domain[0], xanchor="left", font={"size": 14}, text=f"<b>{note.text}</b>")
        figure.layout.margin.t = 80


def log_ladder(x: NDArray[np.float64]) -> dict[str, Any]:
    """Settings of a logarithmic axis for a ladder of lengths: ticks at powers of two (or four)."""
    x = x[x > 0]
    low = 2.0 ** math.floor(math.log2(x.min())) if x.size else 1.0
    high = 2.0 ** math.ceil(math.log2(x.max())) if x.size else 1.0
    steps = round(math.log2(high / low))
    stride = max(1, math.ceil(steps / 9))
    ticks = [low * 2.0**step for step in range(0, steps + 1, stride)]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def log_axis(values: NDArray[np.float64]) -> dict[str, Any]:
    """Settings of a logarithmic axis for these values: labels at 1, 2, 5 or at powers of ten.

    Every label is a whole number; by itself plotly labels 20 as `2`. Values that are all the same
    are shown in the middle of two decades.
    """
    values = values[np.isfinite(values) & (values > 0)]
    decades = math.log10(values.max() / values.min()) if values.size else 0.0
    return {
        "type": "log",
        "dtick": "D1" if 0.01 < decades < 0.5 else "D2" if decades < 2.5 else 1,
        "minorloglabels": "complete",
        "tickformat": "~g",
    }


def note_undrawn(figure: go.Figure, count: int) -> None:
    """Say above the plot how many points a logarithmic axis left out; nothing if none."""
    if count:
        figure.add_annotation(
            text=f"{plural(count, 'point')} at or below 0: not drawn on the logarithmic axis",
            xref="paper",
            yref="paper",
            x=1,
            y=1,
            xanchor="right",
            yanchor="bottom",
            showarrow=False,
            font={"size": 11},
        )
