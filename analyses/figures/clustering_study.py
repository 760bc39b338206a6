"""Clustering in models: small panels of measured lines with what theory says dashed over them.

For what runs over blocks, lengths or temperatures rather than over the columns of the table alone:
the lines come ready, each with its interval, and are drawn as everywhere (see `theme`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray
from plotly.subplots import make_subplots

from .theme import (
    INK,
    colour_of,
    fade,
    log_axis,
    log_ladder,
    marker_of,
    new_figure,
    note_undrawn,
    style_axes,
)
from .traces import DASHES, key_entry, safe

__all__ = ["Line", "LinePanel", "plot_line_panels"]

_MEASURED, _FEW = 6, 24
_MOST_BANDS = 6
"""Lines of a panel up to which their intervals are drawn; of more, they are on hover."""

_NOTE_LINE = 12
"""Pixels of one line of a note."""


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a panel.

    Args:
        label: its name; lines of one label share a legend entry over all panels.
        x: 1-d, increasing.
        y: the same shape; NaN where there is nothing.
        number: its number, which gives colour and marker; the same for what is compared.
        low, high: the 95 % interval, None = not known.
        kind: `measured`, or the kind of a theory curve (`exact`, `limit`, `fit`, ...).
        said: on hover: what it is.
    """

    label: str
    x: ArrayLike
    y: ArrayLike
    number: int = 0
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    kind: str = "measured"
    said: str = ""

    def __post_init__(self) -> None:
        """Check that the arrays go together.

        Raises:
            ValueError: they do not, or the kind is unknown.
        """
        if self.kind != "measured" and self.kind not in DASHES:
            raise ValueError(f"a line is measured or one of {', '.join(DASHES)}; got {self.kind!r}")
        shapes = {np.shape(end) for end in (self.x, self.y, self.low, self.high) if end is not None}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise ValueError(f"the arrays of a line have one 1-d shape; got {sorted(shapes)}")


@dataclass(frozen=True)
class LinePanel:
    """One panel.

    Args:
        title: stands above it.
        lines: drawn in this order.
        note: small lines under the title, such as how far it is from the theory's assumptions.
        marks: labels by x of vertical lines.
    """

    title: str
    lines: Sequence[Line]
    note: str = ""
    marks: dict[str, float] = field(default_factory=dict)


def plot_line_panels(
    panels: Sequence[LinePanel],
    *,
    title: str,
    caption: str,
    x_title: str,
    y_title: str,
    columns: int = 3,
    log_x: bool = False,
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
    height: int = 230,
) -> go.Figure:
    """Draw the panels in a grid with common axes.

    Measured lines are solid with markers and, up to six a panel, their interval as a band; theory
    is dashed, its name in the key below the plot.

    Args:
        panels: at least one, with at least one line in all.
        title: of the figure.
        caption: what a reader needs to know.
        x_title, y_title: of the axes, with the unit.
        columns: panels side by side.
        log_x: the x axis is a ladder of lengths.
        log_y: logarithmic y axis; what is not positive is left out, and said.
        y_range: of every panel; None = of the data.
        height: of one row of panels, pixels.

    Raises:
        ValueError: there is nothing to draw.
    """
    lines = [line for panel in panels for line in panel.lines]
    if not lines:
        raise ValueError("there is no line to draw")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    note_lines = max(panel.note.count("\n") + 1 if panel.note else 0 for panel in panels)
    height += _NOTE_LINE * note_lines
    gap = (46 + _NOTE_LINE * note_lines) / (height * rows)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=gap if rows > 1 else 0.0,
        subplot_titles=[safe(panel.title) for panel in panels],
    )
    new_figure(title, caption, height * rows + 150, figure)
    undrawn = 0
    named: set[str] = set()
    for index, panel in enumerate(panels):
        place = (index // columns + 1, index % columns + 1)
        bands = sum(line.kind == "measured" for line in panel.lines) <= _MOST_BANDS
        for line in panel.lines:
            undrawn += _draw(figure, line, place, named, log_y, bands)
    x = np.concatenate([np.asarray(line.x, dtype=np.float64) for line in lines])
    figure.update_xaxes(**(log_ladder(x) if log_x else {}))
    for column in range(1, columns + 1):
        last = max(i // columns for i in range(len(panels)) if i % columns == column - 1) + 1
        figure.update_xaxes(title_text=x_title, showticklabels=True, row=last, col=column)
    y = np.concatenate([np.asarray(line.y, dtype=np.float64) for line in lines])
    figure.update_yaxes(**(log_axis(y) if log_y else {}))
    if y_range is not None:
        figure.update_yaxes(range=[np.log10(end) for end in y_range] if log_y else list(y_range))
    for row in range(1, rows + 1):
        figure.update_yaxes(title_text=y_title, row=row, col=1)
    style_axes(figure)
    figure.update_annotations(yshift=_NOTE_LINE * note_lines + (4 if note_lines else 0))
    figure.update_layout(margin_t=60 + _NOTE_LINE * note_lines)
    for index, panel in enumerate(panels):  # later than the titles, which are annotations, too
        if panel.note:
            _note(figure, panel.note, index)
        for text, at in panel.marks.items():
            _mark(figure, text, at, (index // columns + 1, index % columns + 1))
    note_undrawn(figure, undrawn)
    return figure


def _draw(
    figure: go.Figure, line: Line, place: tuple[int, int], named: set[str], log_y: bool, bands: bool
) -> int:
    """Draw one line; returns how many measured points a logarithmic axis leaves out."""
    x, y = np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)
    drawn = (y > 0) if log_y else np.isfinite(y)
    measured = line.kind == "measured"
    colour = colour_of(line.number)
    name = safe(line.label)
    if bands and measured and line.low is not None and line.high is not None:
        _band(figure, line, x, place, log_y)
    first = line.label not in named
    named.add(line.label)
    ends: Any = np.full((len(x), 2), np.nan)
    if line.low is not None and line.high is not None:
        ends = np.column_stack([line.low, line.high])
    interval = "<br>95 % interval %{customdata[0]:.3~g} to %{customdata[1]:.3~g}"
    known = np.isfinite(ends).any()
    figure.add_trace(
        go.Scatter(
            x=x,
            y=np.where(drawn, y, np.nan),
            name=name,
            legendgroup=name,
            showlegend=measured and first,
            mode="lines+markers" if measured else "lines",
            line={
                "color": fade(colour, 0.5) if measured else colour,
                "width": 2 if measured else 2.2,
                "dash": "solid" if measured else DASHES[line.kind],
            },
            marker={
                "symbol": marker_of(line.number),
                "size": _MEASURED if len(x) <= _FEW else 3,
                "color": colour,
            },
            customdata=ends,
            hovertemplate=f"<b>{name}</b>, %{{x:.4~g}}: %{{y:.4~g}}"
            f"{interval if known else ''}{'<br>' + safe(line.said) if line.said else ''}"
            "<extra></extra>",
        ),
        row=place[0],
        col=place[1],
    )
    if not measured and first:
        figure.add_trace(
            key_entry(name, DASHES[line.kind]),
            row=place[0],
            col=place[1],
        )
    return int(np.sum(np.isfinite(y) & ~drawn)) if measured else 0


def _band(
    figure: go.Figure, line: Line, x: NDArray[np.float64], place: tuple[int, int], log_y: bool
) -> None:
    low, high = (np.asarray(end, dtype=np.float64) for end in (line.low, line.high))
    if log_y:
        low = np.where(low > 0, low, np.where(high > 0, np.nanmin(np.asarray(line.y)), np.nan))
    known = np.isfinite(low) & np.isfinite(high)
    if known.sum() < 2:
        return
    figure.add_trace(
        go.Scatter(
            x=np.concatenate([x[known], x[known][::-1]]),
            y=np.concatenate([high[known], low[known][::-1]]),
            legendgroup=safe(line.label),
            showlegend=False,
            mode="lines",
            line={"width": 0, "color": fade(colour_of(line.number), 0)},
            fill="toself",
            fillcolor=fade(colour_of(line.number), 0.2),
            hoverinfo="skip",
        ),
        row=place[0],
        col=place[1],
    )


def _note(figure: go.Figure, text: str, index: int) -> None:
    axis = "" if index == 0 else str(index + 1)
    figure.add_annotation(
        text=safe(text).replace("\n", "<br>"),
        xref=f"x{axis} domain",
        yref=f"y{axis} domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        align="left",
        showarrow=False,
        font={"size": 10},
    )


def _mark(figure: go.Figure, text: str, x: float, place: tuple[int, int]) -> None:
    figure.add_vline(
        x=x,
        line={"color": INK, "width": 1, "dash": "dot"},
        annotation={"text": safe(text), "font": {"size": 11}, "showarrow": False},
        row=place[0],  # type: ignore[arg-type]
        col=place[1],  # type: ignore[arg-type]
    )
