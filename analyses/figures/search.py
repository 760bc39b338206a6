"""A random search: what each field does, and what is left of the best trials with fresh seeds."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..rows import rows_where
from ..searching.marginals import Marginal
from ..wording import format_interval, plural
from .theme import INK, colour_of, fade, log_axis, new_figure, style_axes
from .traces import safe

__all__ = ["plot_effects", "plot_marginals", "plot_winners"]

_ROW = 26
_PANEL = 240
_COLUMNS = 2
_DECIDED, _OPEN = colour_of(1), INK


def plot_effects(
    effects: pd.DataFrame, *, objective: str, title: str = "Marginal effects"
) -> go.Figure:
    """Every comparison with its 95 % interval, beside the line of no effect.

    One panel for differences of the objective (levels, and averaged weights), one for rank
    correlations; filled and coloured where the interval does not hold zero.

    Args:
        effects: one row a comparison (see `searching.effects.effects_frame`).
        objective: what the trials were compared by, in words.
        title: stands above the figure.

    Raises:
        ValueError: there is no effect.
    """
    ranks = effects["kind"] == "rank"
    panels = [
        (rows_where(effects, ~ranks), f"difference of {objective}"),
        (rows_where(effects, ranks), f"rank correlation with {objective}"),
    ]
    panels = [(rows, words) for rows, words in panels if len(rows)]
    if not panels:
        raise ValueError("there is no effect to draw: the frame has no rows")
    heights = [len(rows) + 2.5 for rows, _ in panels]
    figure = make_subplots(
        rows=len(panels), cols=1, row_heights=heights, vertical_spacing=2.5 / sum(heights) / 1.2
    )
    new_figure(title, _EFFECTS_CAPTION, 130 + round(_ROW * sum(heights)), figure)
    for number, (rows, words) in enumerate(panels, start=1):
        _forest(figure, rows, number)
        figure.update_xaxes(title_text=words, row=number, col=1)
        figure.add_vline(x=0, line={"color": INK, "width": 1, "dash": "dot"}, row=number, col=1)  # type: ignore[arg-type]
    style_axes(figure)
    figure.update_yaxes(showgrid=False, ticks="")
    return figure


def plot_marginals(
    marginals: Sequence[Marginal], *, objective: str, title: str = "The objective over each field"
) -> go.Figure:
    """Each drawn field: the trials as dots, means with 95 % intervals over them.

    Args:
        marginals: one record a field (see `searching.marginals`).
        objective: what the trials were compared by, in words.
        title: stands above the figure.

    Raises:
        ValueError: there is no field.
    """
    if not marginals:
        raise ValueError("there is no field to draw")
    columns = min(_COLUMNS, len(marginals))
    n_rows = math.ceil(len(marginals) / columns)
    figure = make_subplots(
        rows=n_rows,
        cols=columns,
        subplot_titles=[safe(one.field) for one in marginals],
        shared_yaxes=True,
        horizontal_spacing=0.06,
        vertical_spacing=0.36 / n_rows,
    )
    new_figure(title, _MARGINALS_CAPTION, 120 + _PANEL * n_rows, figure)
    for number, one in enumerate(marginals):
        row, column = number // columns + 1, number % columns + 1
        for trace in _marginal_traces(one):
            figure.add_trace(trace, row=row, col=column)
        figure.update_xaxes(**_value_axis(one), row=row, col=column)
        if column == 1:
            figure.update_yaxes(title_text=safe(objective), row=row, col=column)
    figure.update_layout(showlegend=False)
    style_axes(figure)
    return figure


def plot_winners(
    winners: pd.DataFrame,
    *,
    objective: str,
    title: str = "The best trials, and the same with fresh seeds",
) -> go.Figure:
    """Value in the search (open) beside the mean over fresh seeds (filled), with 95 % intervals.

    Args:
        winners: one row a trial, the best first (see `searching.winners.winners_frame`).
        objective: what the trials were compared by, in words.
        title: stands above the figure.

    Raises:
        ValueError: there is no winner.
    """
    if winners.empty:
        raise ValueError("there is no trial to draw: the frame has no rows")
    places = np.arange(len(winners), dtype=np.float64)
    figure = new_figure(title, _WINNERS_CAPTION, 190 + 2 * _ROW * len(winners))
    kinds = (
        ("in the search", "searched", "searched_low", "searched_high", -0.14, "circle-open", 0),
        ("mean over fresh seeds", "mean", "low", "high", 0.14, "circle", 1),
    )
    for name, value, low, high, shift, symbol, colour in kinds:
        figure.add_trace(
            go.Scatter(
                x=winners[value],
                y=places + shift,
                name=name,
                mode="markers",
                marker={"symbol": symbol, "size": 10, "color": colour_of(colour)},
                error_x=_whiskers(winners, value, low, high, colour_of(colour)),
                customdata=_intervals(winners, value, low, high),
                hovertemplate=f"{name}: %{{customdata}}<extra></extra>",
            )
        )
    style_axes(figure)
    figure.update_xaxes(title_text=safe(objective))
    figure.update_yaxes(
        tickvals=places,
        ticktext=[f"trial {trial}" for trial in winners["trial"]],
        range=[len(winners) - 0.5, -0.5],
        showgrid=False,
        ticks="",
    )
    return figure


def _forest(figure: go.Figure, rows: pd.DataFrame, panel: int) -> None:
    places = np.arange(len(rows), dtype=np.float64)
    decided = ((rows["low"] > 0) | (rows["high"] < 0)).to_numpy(dtype=bool)
    for chosen, colour, symbol in ((decided, _DECIDED, "circle"), (~decided, _OPEN, "circle-open")):
        own = rows_where(rows, chosen)
        figure.add_trace(
            go.Scatter(
                x=own["value"],
                y=places[chosen],
                mode="markers",
                showlegend=False,
                marker={"symbol": symbol, "size": 9, "color": colour},
                error_x=_whiskers(own, "value", "low", "high", colour),
                customdata=[_effect_hover(row) for row in own.to_dict("records")],
                hovertemplate="%{customdata}<extra></extra>",
            ),
            row=panel,
            col=1,
        )
    figure.update_yaxes(
        tickvals=places,
        ticktext=[safe(_effect_name(row)) for row in rows.to_dict("records")],
        range=[len(rows) - 0.5, -0.5],
        row=panel,
        col=1,
    )


def _effect_name(row: dict[Any, Any]) -> str:
    if row["kind"] == "rank":
        return row["field"]
    return f"{row['field']}: {row['level']} against {row['reference']}"


def _effect_hover(row: dict[Any, Any]) -> str:
    counts = plural(row["n"], "pair" if row["kind"] == "weights" else "trial")
    if row["kind"] == "level":
        counts += f" against {row['n_reference']}"
    lost = row["lost"] + (row["lost_reference"] if row["kind"] == "level" else 0)
    without = f", {lost} more without a value" if lost else ""
    interval = format_interval(row["value"], row["low"], row["high"])
    return f"<b>{safe(_effect_name(row))}</b><br>{interval}<br>{counts}{without}"


def _marginal_traces(one: Marginal) -> list[go.Scatter]:
    # Trials at one level stand beside each other, evenly (by the golden ratio), not at random.
    spread = 0.5 * (np.arange(one.x.size) * 0.6180339887 % 1 - 0.5)
    jitter = spread if one.levels else 0.0
    trials = go.Scatter(
        x=one.x + jitter,
        y=one.y,
        mode="markers",
        marker={"size": 5, "color": fade(colour_of(5), 0.75)},
        customdata=[one.levels[int(x)] if one.levels else f"{x:.4g}" for x in one.x],
        hovertemplate="one trial<br>%{customdata}: %{y:.4~g}<extra></extra>",
    )
    x = np.array([item.centre for item in one.bins])
    frame = pd.DataFrame(
        [(item.mean, item.low, item.high) for item in one.bins], columns=["mean", "low", "high"]
    )
    means = go.Scatter(
        x=x,
        y=frame["mean"],
        mode="markers" if one.levels else "lines+markers",
        line={"color": fade(_DECIDED, 0.5), "width": 2},
        marker={"symbol": "diamond", "size": 10, "color": _DECIDED},
        error_y=_whiskers(frame, "mean", "low", "high", _DECIDED),
        customdata=[
            f"mean of {plural(item.n, 'trial')}<br>"
            f"{format_interval(item.mean, item.low, item.high)}"
            for item in one.bins
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
    return [trials, means]


def _value_axis(one: Marginal) -> dict[str, Any]:
    if one.levels:
        return {
            "tickvals": list(range(len(one.levels))),
            "ticktext": [safe(level) for level in one.levels],
            "range": [-0.6, len(one.levels) - 0.4],
        }
    return log_axis(one.x) if one.logarithmic else {}


def _whiskers(frame: pd.DataFrame, value: str, low: str, high: str, colour: str) -> dict[str, Any]:
    """The interval as a whisker, none where it is unknown."""
    ends = {
        "array": (frame[high] - frame[value]).fillna(0.0).to_numpy(dtype=np.float64),
        "arrayminus": (frame[value] - frame[low]).fillna(0.0).to_numpy(dtype=np.float64),
    }
    return {"type": "data", "color": colour, "thickness": 1.5, "width": 4, **ends}


def _intervals(frame: pd.DataFrame, value: str, low: str, high: str) -> list[str]:
    return [
        format_interval(float(mean), float(start), float(end))
        for mean, start, end in zip(frame[value], frame[low], frame[high], strict=True)
    ]


_EFFECTS_CAPTION = (
    "Averaged over the distributions of all other fields, with 95 % intervals over trials: Welch's "
    "t between levels, paired within a run between weights, Fisher's z for rank correlations. "
    "Filled where the interval does not hold zero. Each interval stands for itself: nothing is "
    "corrected for their number. A mark without whiskers has too few trials for an interval."
)
_MARGINALS_CAPTION = (
    "Dots are trials. Diamonds are the means at each level, or of about equally many trials with "
    "neighbouring values, with 95 % t-intervals over trials. Refused and diverged trials have no "
    "objective and are not drawn."
)
_WINNERS_CAPTION = (
    "The best of many trials is good and lucky. Open: its value in the search, with the 95 % "
    "interval over sequences. Filled: the same configuration with seeds that the search never saw, "
    "mean and 95 % t-interval over seeds."
)
