"""The map of remedies: rows remedies and placements, columns tasks by kind, cells the error."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ..rows import rows_where
from ..wording import format_interval
from .theme import CLEAR, INK, new_figure, style_axes

__all__ = ["plot_remedy_map"]

_SCALE = [[0.0, "#0072B2"], [0.1, "#7fb8d8"], [0.25, "#e8e2d0"], [1.0, "#D55E00"]]
_ROW = 19
_MULTIPLES = (2, 8, 32)
_KINDS = ("aggregation", "needle", "mixed")


def plot_remedy_map(
    frame: pd.DataFrame,
    *,
    threshold: float = 0.1,
    title: str = "Which remedy cures which dispersion",
) -> go.Figure:
    """Error of every remedy on every task at 2, 8 and 32 times the training length.

    Colour and number: total variation between the model's and the exact next-token distribution,
    mean over seeds; blue is solved, orange is lost. A cross: the task was not learned at the
    training length. ≠: theory had said something else. Everything else stands on hover.

    Args:
        frame: the map (see `mapping.map_frame`): columns `kind`, `task`, `remedy`, `placement`,
            `error_2x` and its like with `_low` and `_high`, `slope`, `predicted`, `measured`,
            `agrees`, `reason`.
        threshold: total variation up to which a length counts as solved.
        title: title of the figure.

    Raises:
        ValueError: the frame has no rows.
    """
    if frame.empty:
        raise ValueError("a map needs at least one cell: the frame has no rows")
    rows = list(dict.fromkeys(zip(frame["remedy"], frame["placement"], strict=True)))
    columns = _columns(frame)
    cells = {
        (row["remedy"], row["placement"], row["task"]): row for row in frame.to_dict("records")
    }
    z = np.full((len(rows), len(columns)), np.nan)
    text = np.full(z.shape, "", dtype=object)
    hover = np.full(z.shape, "", dtype=object)
    for y, (remedy, placement) in enumerate(rows):
        for x, (task, multiple) in enumerate(columns):
            cell = cells.get((remedy, placement, task))
            if cell is None:
                continue
            hover[y, x] = _hover(cell, multiple)
            if cell["measured"] == "not learned":
                text[y, x] = "×"
                continue
            error = cell[f"error_{multiple}x"]
            z[y, x] = error
            mark = "≠" if cell["agrees"] == "no" and multiple == _last(cell, columns) else ""
            text[y, x] = f"{error:.2f}{mark}"
    figure = new_figure(title, _caption(threshold), 170 + _ROW * len(rows))
    figure.add_trace(
        go.Heatmap(
            z=z,
            text=np.where(np.isnan(z), "", text),
            texttemplate="%{text}",
            textfont={"size": 10},
            customdata=hover,
            hovertemplate="%{customdata}<extra></extra>",
            hoverongaps=False,
            x=list(range(len(columns))),
            y=list(range(len(rows))),
            zmin=0,
            zmax=1,
            colorscale=_SCALE,
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": "total variation"}, "outlinewidth": 0, "thickness": 12},
        )
    )
    y, x = np.nonzero(np.isnan(z) & (text != ""))
    # In the common ink: a heat map writes on empty cells in a colour for its own cells.
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="text",
            text=text[y, x],
            textfont={"color": INK, "size": 10},
            customdata=hover[y, x],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    )
    style_axes(figure)
    figure.update_xaxes(
        tickvals=list(range(len(columns))),
        ticktext=[f"{multiple}x" for _, multiple in columns],
        range=[-0.5, len(columns) - 0.5],
        showgrid=False,
        side="bottom",
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[f"{remedy} / {placement}" for remedy, placement in rows],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
    )
    _headings(figure, frame, columns)
    figure.update_layout(plot_bgcolor=CLEAR, margin={"t": 120, "l": 200})
    return figure


def _columns(frame: pd.DataFrame) -> list[tuple[str, int]]:
    tasks = dict(zip(frame["task"], frame["kind"], strict=True))
    ordered = sorted(tasks, key=lambda task: _KINDS.index(tasks[task]))
    columns = []
    for task in ordered:
        own = rows_where(frame, frame["task"] == task)
        for multiple in _MULTIPLES:
            name = f"error_{multiple}x"
            if name in own and np.isfinite(own[name].to_numpy(dtype=np.float64)).any():
                columns.append((task, multiple))
    return columns


def _last(cell: dict[Any, Any], columns: Sequence[tuple[str, int]]) -> int:
    return max(multiple for task, multiple in columns if task == cell["task"])


def _hover(cell: dict[Any, Any], multiple: int) -> str:
    error = format_interval(*(cell[f"error_{multiple}x{end}"] for end in ("", "_low", "_high")))
    slope = format_interval(cell["slope"], cell["slope_low"], cell["slope_high"])
    return (
        f"<b>{cell['task']}</b>, {cell['remedy']} / {cell['placement']}<br>"
        f"error at {multiple}x: {error} ({cell['n_seeds']} seeds)<br>"
        f"dispersion slope: {slope}<br>"
        f"theory: {cell['predicted']} ({cell['source']})<br>"
        f"measured: {cell['measured']}"
    )


def _headings(figure: go.Figure, frame: pd.DataFrame, columns: list[tuple[str, int]]) -> None:
    kinds = dict(zip(frame["task"], frame["kind"], strict=True))
    tasks = list(dict.fromkeys(task for task, _ in columns))
    for task in tasks:
        places = [x for x, (name, _) in enumerate(columns) if name == task]
        figure.add_annotation(
            x=float(np.mean(places)),
            y=1,
            yref="paper",
            yanchor="bottom",
            text=task.replace("-", "<br>"),
            showarrow=False,
            font={"size": 11},
        )
        if places[0]:
            figure.add_vline(x=places[0] - 0.5, line={"color": INK, "width": 1})
    for kind in _KINDS:
        places = [x for x, (task, _) in enumerate(columns) if kinds[task] == kind]
        if places:
            figure.add_annotation(
                x=float(np.mean(places)),
                y=1,
                yref="paper",
                yanchor="bottom",
                yshift=34,
                text=f"<b>{kind}</b>",
                showarrow=False,
                font={"size": 13},
            )


def _caption(threshold: float) -> str:
    return (
        "Total variation to the exact next-token distribution at 2, 8 and 32 times the training "
        f"length, mean over seeds; up to {threshold:g} counts as solved. ×: not learned at the "
        "training length. ≠: theory had predicted another outcome (hover for both). An empty cell "
        "was not asked for, or there is no such model."
    )
