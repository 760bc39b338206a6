"""Averaging the weights: what it gains against the number of legal tokens, and the noise beside."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..rows import rows_where
from ..wording import format_interval, format_number
from .theme import INK, colour_of, log_axis, log_ladder, marker_of, new_figure, style_axes
from .traces import safe

__all__ = ["plot_averaging_errors", "plot_averaging_gains", "plot_label_noise"]

_PANEL = 270
_NOISE_PANELS = {
    "At the logits": ("logit_label_noise",),
    "At the weights": ("label_noise", "input_noise"),
    "Noise scale": ("sampled_noise_scale", "exact_noise_scale"),
}
_NOISE_WORDS = {
    "logit_label_noise": "labels, at the logits",
    "label_noise": "labels",
    "input_noise": "inputs",
    "sampled_noise_scale": "scale, sampled targets",
    "exact_noise_scale": "scale, exact targets",
}


def plot_averaging_gains(frame: pd.DataFrame, *, error: str = "total variation") -> go.Figure:
    """By how much each average lowers the error, against the number of legal tokens.

    One panel a schedule and kind of targets. Above 1 the average has the smaller error. Bars: 95 %
    t-interval over seeds. Tasks that differ in the number of legal tokens alone are joined.

    Args:
        frame: rows of one error and length (see `gain_frame` of the study of averaging): columns
            `task`, `family`, `legal`, `schedule`, `targets`, `average`, `gain`, `gain_low`,
            `gain_high` (nats) and `n_seeds`.
        error: what the error is called.

    Raises:
        ValueError: the frame has no rows.
    """
    if frame.empty:
        raise ValueError("a figure of gains needs at least one row: the frame has none")
    panels = list(
        dict.fromkeys(zip(frame["schedule"].tolist(), frame["targets"].tolist(), strict=True))
    )
    figure, places = _grid([f"{schedule}, {targets}" for schedule, targets in panels])
    averages = list(dict.fromkeys(frame["average"].tolist()))
    for (schedule, targets), (row, col) in zip(panels, places, strict=True):
        shown = (frame["schedule"] == schedule) & (frame["targets"] == targets)
        for number, average in enumerate(averages):
            own = rows_where(frame, shown & (frame["average"] == average))
            for family in dict.fromkeys(own["family"].tolist()):
                line = rows_where(own, own["family"] == family).sort_values("legal")
                ends = [np.exp(line[f"gain{end}"].to_numpy(float)) for end in ("", "_low", "_high")]
                figure.add_trace(
                    _points(line["legal"].to_numpy(float), ends, average, number, line["task"]),
                    row=row,
                    col=col,
                )
        figure.add_hline(y=1, line={"color": INK, "width": 1}, row=row, col=col)  # type: ignore[arg-type]
    caption = (
        f"How many times smaller the {error} of each average is than that of the raw weights of "
        "the same run, against the number of legal next tokens (harmonic mean over positions): "
        "above 1 averaging helps. Bars: 95 % interval over seeds, paired. Joined: set complement "
        "over more and more tokens; alone: other tasks."
    )
    new_figure(f"What averaging gains: {error}", caption, _height(places), figure)
    figure.update_xaxes(title_text="legal tokens", **log_ladder(frame["legal"].to_numpy(float)))
    figure.update_yaxes(**log_axis(np.exp(frame["gain"].to_numpy(float))))
    figure.update_yaxes(title_text="raw error / averaged", col=1)
    return _finished(figure)


def plot_averaging_errors(frame: pd.DataFrame, *, error: str = "total variation") -> go.Figure:
    """The error of the raw weights and of each average, by schedule and kind of targets.

    One panel a task; bars: 95 % t-interval over seeds, cut where it reaches below zero.

    Args:
        frame: as for :func:`plot_averaging_gains`, with `raw` and `error` and their ends.
        error: what the error is called.

    Raises:
        ValueError: the frame has no rows.
    """
    if frame.empty:
        raise ValueError("a figure of errors needs at least one row: the frame has none")
    tasks = list(dict.fromkeys(frame["task"].tolist()))
    figure, places = _grid(tasks)
    recipes = list(
        dict.fromkeys(zip(frame["schedule"].tolist(), frame["targets"].tolist(), strict=True))
    )
    for task, (row, col) in zip(tasks, places, strict=True):
        for number, (schedule, targets) in enumerate(recipes):
            own = rows_where(
                frame,
                (frame["task"] == task)
                & (frame["schedule"] == schedule)
                & (frame["targets"] == targets),
            )
            if own.empty:
                continue
            names = ["raw", *own["average"].tolist()]
            ends = [
                np.array([own[f"raw{end}"].iloc[0], *own[f"error{end}"]], dtype=np.float64)
                for end in ("", "_low", "_high")
            ]
            label = f"{schedule}, {targets}"
            figure.add_trace(_points(names, ends, label, number, names), row=row, col=col)
    caption = (
        f"The {error} (mean over positions, at the training length) of the raw weights and of "
        "every average of the same run. Bars: 95 % interval over seeds."
    )
    new_figure(f"Error of every average: {error}", caption, _height(places), figure)
    values = np.concatenate([frame["raw"].to_numpy(float), frame["error"].to_numpy(float)])
    figure.update_yaxes(**log_axis(values))
    figure.update_yaxes(title_text=error, col=1)
    return _finished(figure)


def plot_label_noise(frame: pd.DataFrame, *, step: str) -> go.Figure:
    """The noise of the gradient against the number of legal tokens, with theory at the logits.

    Args:
        frame: columns `task`, `legal`, `step`, `quantity`, `mean`, `low`, `high`, `n_seeds`;
            quantities `logit_label_noise` (any step), `label_noise`, `input_noise`,
            `sampled_noise_scale`, `exact_noise_scale`.
        step: which step of the run the noise at the weights is drawn at.

    Raises:
        ValueError: the frame has no rows for that step.
    """
    at_logits = frame["quantity"] == "logit_label_noise"
    shown = rows_where(frame, at_logits | (frame["step"] == step))
    if bool((shown["quantity"] == "logit_label_noise").all()):
        known = ", ".join(sorted(set(frame["step"].tolist()))) or "nothing"
        raise ValueError(f"no noise was measured at {step!r}; the frame has {known}")
    figure, places = _grid(list(_NOISE_PANELS), columns=3)
    number = 0
    for quantities, (row, col) in zip(_NOISE_PANELS.values(), places, strict=True):
        for quantity in quantities:
            line = rows_where(shown, shown["quantity"] == quantity).sort_values("legal")
            ends = [line[name].to_numpy(float) for name in ("mean", "low", "high")]
            trace = _points(
                line["legal"].to_numpy(float), ends, _NOISE_WORDS[quantity], number, line["task"]
            )
            trace.mode = "markers"
            figure.add_trace(trace, row=row, col=col)
            number += 1
    legal = shown["legal"].to_numpy(float)
    grid = np.geomspace(max(1.0, legal.min()), legal.max(), 64)
    figure.add_trace(
        go.Scatter(
            x=grid,
            y=1 - 1 / grid,
            name="1 - 1/L (exact)",
            legend="legend2",
            mode="lines",
            line={"color": colour_of(0), "width": 2.5, "dash": "dash"},
            hovertemplate="1 - 1/L at %{x:.3g} legal tokens: %{y:.3f}<extra></extra>",
        ),
        row=1,
        col=1,
    )
    caption = (
        "Variance of one sequence's gradient against the number of legal next tokens. Left: what "
        "sampling the label adds at the logits of one position, with its closed form (dashed). "
        f"Middle: at the weights ({step}, constant rate), from the labels and from the inputs. "
        "Right: the noise scale tr(covariance) / |gradient|², in sequences; where the estimate of "
        "the squared gradient is not positive there is none. Bars: 95 % interval over seeds."
    )
    new_figure("Noise of the gradient and legal tokens", caption, 430, figure)
    figure.update_xaxes(title_text="legal tokens", **log_ladder(legal))
    for (row, col), quantities in list(zip(places, _NOISE_PANELS.values(), strict=True))[1:]:
        values = rows_where(shown, shown["quantity"].isin(quantities))["mean"].to_numpy(float)
        figure.update_yaxes(**log_axis(values), row=row, col=col)
    return _finished(figure)


def _grid(titles: Sequence[str], columns: int = 2) -> tuple[go.Figure, list[tuple[int, int]]]:
    """Panels in rows of so many, and the place of each."""
    columns = min(columns, len(titles))
    rows = math.ceil(len(titles) / columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[safe(title) for title in titles],
        vertical_spacing=0.32 / rows,
        horizontal_spacing=0.09,
    )
    return figure, [(index // columns + 1, index % columns + 1) for index in range(len(titles))]


def _height(places: Sequence[tuple[int, int]]) -> int:
    return 150 + _PANEL * places[-1][0]


def _points(
    x: object, ends: Sequence[np.ndarray], name: str, number: int, places: object
) -> go.Scatter:
    """Means with their intervals; on a logarithmic axis a bar ends where it is not positive."""
    mean, low, high = ends
    colour = colour_of(number)
    shown = [
        f"{safe(str(place))}<br>{safe(name)}: {format_interval(*values)}"
        if np.isfinite(values[1])
        else f"{safe(str(place))}<br>{safe(name)}: {format_number(values[0])}"
        for place, values in zip(list(places), zip(mean, low, high, strict=True), strict=True)  # type: ignore[call-overload]
    ]
    return go.Scatter(
        x=x,
        y=np.where(mean > 0, mean, np.nan),
        name=safe(name),
        legendgroup=name,
        mode="lines+markers",
        line={"color": colour, "width": 1.5},
        marker={"symbol": marker_of(number), "size": 8, "color": colour},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": np.nan_to_num(high - mean),
            "arrayminus": np.nan_to_num(mean - np.maximum(low, mean / 50)),
            "thickness": 1.2,
            "width": 3,
            "color": colour,
        },
        customdata=shown,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _finished(figure: go.Figure) -> go.Figure:
    """Style the axes and keep one legend entry of each name."""
    style_axes(figure)
    seen: set[str] = set()
    for trace in figure.data:
        name = str(trace.name)  # type: ignore[attr-defined]
        trace.showlegend = name not in seen  # type: ignore[attr-defined]
        seen.add(name)
    return figure
