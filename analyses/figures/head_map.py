"""Every head of a model at a glance, and one of them in full.

Left, layer by head, the dispersion slope; right, the curves of the head that is chosen. The numbers
of every head stand in the figure once, as the arguments of a menu: in a notebook the menu chooses,
in the report a pointer on the map does, with the same numbers (see `report.html.j2`).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..head_ladders import HeadLadders, read_heads
from ..head_records import CLASSES, HeadClass, stack_prefixes
from ..wording import format_number, quantity_words
from .head_curves import PANELS, UNITS, curves_of, draw_curves, short, what_differs
from .series import check_drawn
from .theme import CLEAR, GRID, INK, log_ladder, new_figure, style_axes
from .traces import safe

__all__ = ["NEUTRAL", "SCALE", "SYMBOLS", "plot_head_map"]

SYMBOLS = {
    "sink": "S",
    "local": "L",
    "dispersing": "D",
    "holding": "H",
    "sharpening": "▲",
    "unknown": "?",
}
"""What stands in the cell of a head, by its class."""

NEUTRAL = "#d3d7da"
"""A slope of 0. The report repaints it with the neutral colour of the reader's scheme."""

_SHARP, _HOLDING, _DISPERSED = "#1f6fb4", NEUTRAL, "#c8500a"
SCALE = [[0.0, _SHARP], [0.5, _HOLDING], [1.0, _DISPERSED]]
"""The colours of slopes from -1 to 1."""


_FIRST_CURVE = 2
_ROW = 20
_HOVER_ROWS = 5
_LEAST_MASS = 1e-8


def plot_head_map(
    table: pd.DataFrame,
    classes: Iterable[HeadClass],
    *,
    title: str = "Heads: who disperses",
) -> go.Figure:
    """Dispersion slope of every head, with its class, beside the curves of one head.

    Colour: dH/dlog n in nats, blue below 0 (sharpening), neutral at 0 (holding), orange to 1
    (dispersing fully); what lies outside -1 to 1 has the colour of the end. Letters: `SYMBOLS`.
    The axes of the curves are the same for every head, so that heads can be compared. Dashed: full
    dispersion (log n, 1/n, n), and what the head's own largest score spread allows at that n
    (lower bound of the entropy, upper bound of the largest weight, and its reciprocal, a lower
    bound of the effective support, since sum a^2 <= max a). Dotted: the threshold weight.

    Args:
        table: the tidy table that the classes were found in.
        classes: the classes of the heads of one checkpoint on one probe (see
            `head_classes.classify_heads`).
        title: says whose heads these are.

    Raises:
        ValueError: no classes, classes of several checkpoints or probes, or of heads that the table
            has no entropy of.
    """
    found = list(classes)
    heads = _find(table, found)
    rows = list(dict.fromkeys(item.place[:4] for item in found))
    prefix = stack_prefixes(item.place[:3] for item in found)
    labels = [f"{prefix[row[:3]]}L{row[3]}" for row in rows]
    columns = sorted({item.head for item in found})
    where = [(columns.index(item.head), rows.index(item.place[:4])) for item in found]
    names = [f"{labels[y]} H{item.head}" for item, (_, y) in zip(found, where, strict=True)]
    worst = _worst(found)

    width = min(0.5, max(0.32, 0.2 + 0.016 * len(columns)))
    figure = make_subplots(
        rows=3,
        cols=2,
        specs=[[{"rowspan": 3}, {}], [None, {}], [None, {}]],
        column_widths=[width, 1 - width],
        horizontal_spacing=0.11,
        vertical_spacing=0.06,
        shared_xaxes=True,
    )
    height = min(1200, max(600, _ROW * len(rows) + 190))
    new_figure(title, _caption(found), height, figure)
    figure.add_trace(_cells(found, heads, names, where, len(rows), columns), row=1, col=1)
    figure.add_trace(_without_slope(found, names, where), row=1, col=1)
    traces = [curves_of(head) for head in heads]
    for trace in draw_curves(traces[worst]):
        figure.add_trace(trace, row=1 + PANELS.index(trace.meta), col=2)
    _style(figure, heads, labels, columns, len(rows))
    figure.layout.annotations = [_headline(found[worst], names[worst])]
    figure.layout.shapes = [_outline(where[worst]), *_threshold_line(found[0].crossing.level)]
    differ, keys = what_differs(traces)
    buttons = [
        {
            "label": name,
            "method": "update",
            "args": [
                {key: [parts[number][key] for number in differ] for key in keys},
                {
                    "annotations[0].text": _headline(item, name)["text"],
                    **{f"shapes[0].{key}": value for key, value in _ends(spot).items()},
                },
                [number + _FIRST_CURVE for number in differ],
            ],
        }
        for item, name, spot, parts in zip(found, names, where, traces, strict=True)
    ]
    figure.update_layout(updatemenus=[_menu(buttons, worst, figure.layout.xaxis2.domain[1])])
    figure.layout.meta = {**figure.layout.meta, "chooses": "head"}
    return figure


def _find(table: pd.DataFrame, classes: Sequence[HeadClass]) -> list[HeadLadders]:
    """The ladders of every class, in their order."""
    check_drawn(table)
    if not classes:
        raise ValueError("a head map needs at least one head: classify_heads found none to draw")
    for index, what in enumerate(("checkpoint", "task")):
        several = {str(item.place[index]) for item in classes}
        if len(several) > 1:
            raise ValueError(
                f"a head map shows one {what}, got {', '.join(sorted(several))}: choose the "
                "classes of one"
            )
    key = ("checkpoint", "task", "site", "layer", "head")
    measured = {tuple(getattr(item, name) for name in key): item for item in read_heads(table)}
    heads = []
    for item in classes:
        head = measured.get(tuple(getattr(item, name) for name in key))
        if head is None or "entropy" not in head.ladders:
            raise ValueError(
                f"the table has no entropy of layer {item.layer}, head {item.head} at {item.site!r}"
                ": give the table that the classes were found in"
            )
        heads.append(head)
    return heads


def _worst(classes: Sequence[HeadClass]) -> int:
    """The dispersing head with the largest slope; without one, any head with the largest."""
    slopes = [-math.inf if math.isnan(item.slope.value) else item.slope.value for item in classes]
    return max(range(len(slopes)), key=lambda i: (classes[i].label == "dispersing", slopes[i]))


def _caption(classes: Sequence[HeadClass]) -> str:
    letters = ", ".join(
        f"{SYMBOLS[label]} {label}"
        for label in CLASSES
        if any(item.label == label for item in classes)
    )
    return (
        "Measured: the dispersion slope dH/dlog n of every head (0: holds its support, 1: fully "
        f"disperses), the class in its cell: {letters}. Beside it one head against the number of "
        "keys it sees: mean, 95 % interval over observations. Theory: dashed, full dispersion and "
        "what the head's own score spread allows. Dotted: the threshold weight."
    )


def _cells(
    classes: Sequence[HeadClass],
    heads: Sequence[HeadLadders],
    names: Sequence[str],
    where: Sequence[tuple[int, int]],
    n_rows: int,
    columns: Sequence[int],
) -> go.Heatmap:
    """The map; `customdata` is the number of the head in the menu."""
    empty: list[list[Any]] = [[None] * len(columns) for _ in range(n_rows)]
    z, text, hover, number = ([list(row) for row in empty] for _ in range(4))
    for index, (item, (x, y)) in enumerate(zip(classes, where, strict=True)):
        number[y][x] = index
        if not math.isnan(item.slope.value):
            z[y][x] = short(item.slope.value)
            text[y][x] = SYMBOLS[item.label]
            hover[y][x] = _hover(item, heads[index], names[index])
    return go.Heatmap(
        z=z,
        zmin=-1,
        zmax=1,
        colorscale=SCALE,
        text=text,
        texttemplate="%{text}",
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
        customdata=number,
        xgap=1.5,
        ygap=1.5,
        name="dispersion slope",
        colorbar={
            "orientation": "h",
            "title": {
                "text": "dispersion slope dH/dlog n (nats)",
                "side": "bottom",
                "font": {"size": 13},
            },
            "tickvals": [-1, 0, 1],
            "ticktext": ["−1<br>sharpens", "0<br>holds", "1<br>disperses"],
            "thickness": 12,
            "outlinewidth": 0,
        },
    )


def _without_slope(
    classes: Sequence[HeadClass], names: Sequence[str], where: Sequence[tuple[int, int]]
) -> go.Scatter:
    """Symbols of heads without a slope, whose cells are clear."""
    bare = [index for index, item in enumerate(classes) if math.isnan(item.slope.value)]
    return go.Scatter(
        x=[where[index][0] for index in bare],
        y=[where[index][1] for index in bare],
        text=[SYMBOLS[classes[index].label] for index in bare],
        customdata=bare,
        hovertext=[
            f"<b>{safe(names[index])}</b>: {classes[index].label}<br>{safe(classes[index].reason)}"
            for index in bare
        ],
        hovertemplate="%{hovertext}<extra></extra>",
        mode="text",
        textfont={"color": INK},
        name="no slope",
        showlegend=False,
    )


def _hover(item: HeadClass, head: HeadLadders, name: str) -> str:
    """Name, class, slope, crossing and a few values of the ladder."""
    entropy, weights = head["entropy"], head["max_weight"]
    last = entropy.n_key.size - 1
    picked = sorted({round(step * last / (_HOVER_ROWS - 1)) for step in range(_HOVER_ROWS)})
    lines = [f"<b>{safe(name)}</b>: {item.label}", f"slope {item.slope} nats"]
    if item.crossing.quantity:
        level = format_number(item.crossing.level)
        what = quantity_words(item.crossing.quantity)
        lines.append(f"{what} below {level}: {item.crossing}")
    for index in picked:
        keys = entropy.n_key[index]
        weight = weights.mean[weights.n_key == keys]
        largest = f", max weight {format_number(float(weight[0]))}" if weight.size else ""
        mean = format_number(float(entropy.mean[index]), "nats")
        lines.append(f"{keys:.0f} keys: entropy {mean}{largest}")
    return "<br>".join(lines)


def _style(
    figure: go.Figure,
    heads: Sequence[HeadLadders],
    labels: Sequence[str],
    columns: Sequence[int],
    n_rows: int,
) -> None:
    """Axes, the same for every head, and where the keys stand."""
    style_axes(figure)
    figure.update_layout(margin={"l": 10, "r": 16, "t": 104, "b": 112})
    keys = np.concatenate([head["entropy"].n_key for head in heads])
    longest = float(keys.max())
    relevant = np.concatenate([head["relevant_mass"].mean for head in heads])
    least = float(min(relevant[relevant > _LEAST_MASS], default=1.0))
    every = math.ceil(n_rows / 40)
    side = {"showgrid": False, "showline": False, "ticks": "", "fixedrange": True}
    figure.update_yaxes(
        row=1, col=1, tickvals=list(range(0, n_rows, every)), ticktext=list(labels)[::every],
        range=[n_rows - 0.5, -0.5], **side,
    )  # fmt: skip
    step = math.ceil(len(columns) / 20)
    figure.update_xaxes(
        row=1, col=1, tickvals=list(range(0, len(columns), step)),
        ticktext=[f"H{column}" for column in columns][::step],
        range=[-0.5, len(columns) - 0.5], side="top", **side,
    )  # fmt: skip
    ends = [math.log10(max(1.0, keys.min() * 0.85)), math.log10(longest * 1.18)]
    for row, quantity in enumerate(PANELS, start=1):
        figure.update_xaxes(
            row=row, col=2, **log_ladder(keys), range=ends, showticklabels=row == len(PANELS)
        )
        title = quantity_words(quantity) + UNITS[quantity]
        if quantity == "entropy":
            settings: dict[str, Any] = {"range": [-0.05, math.log(longest) * 1.05]}
        else:
            top = longest if quantity == "effective_support" else 1.0
            low = min(top / longest, least) if quantity == "max_weight" else top / longest
            settings = {
                "type": "log", "dtick": 1, "tickformat": "~g",
                "range": [math.log10(low / 1.3), math.log10(top * 1.3)],
            }  # fmt: skip
        figure.update_yaxes(row=row, col=2, title_text=title, title_standoff=6, **settings)
    figure.update_xaxes(row=len(PANELS), col=2, title_text="visible keys (tokens)")
    left, right = figure.layout.xaxis.domain, figure.layout.xaxis2.domain
    bar = cast("Any", figure.data[0]).colorbar
    bar.update(xref="paper", yref="paper", x=sum(left) / 2, xanchor="center", len=left[1] - left[0])
    bar.update(y=-0.02, yanchor="top", lenmode="fraction")
    figure.update_layout(
        legend={
            "orientation": "h", "x": right[0], "xanchor": "left", "y": 0, "yref": "container",
            "yanchor": "bottom",
        },
    )  # fmt: skip


def _threshold_line(weight: float) -> list[dict[str, Any]]:
    return [
        {
            "type": "line", "xref": "x3 domain", "yref": "y3", "x0": 0, "x1": 1, "y0": weight,
            "y1": weight, "line": {"color": INK, "width": 1.2, "dash": "dot"},
            "label": {
                "text": f"{format_number(weight)}: lost below", "textposition": "end",
                "yanchor": "bottom", "font": {"size": 11, "color": INK},
            },
        },
    ]  # fmt: skip


def _headline(item: HeadClass, name: str) -> dict[str, Any]:
    """The title of the curves: name, class, slope; below it where the weight is lost."""
    at = item.crossing
    lines = [f"<b>{safe(name)}: {item.label}</b>, slope {item.slope} nats"]
    if at.quantity:
        what = f"{quantity_words(at.quantity)} below {format_number(at.level)}"
        lines.append(f"{what}: {at}")
    return {
        "text": "<br>".join(lines),
        "xref": "x2 domain",
        "yref": "y2 domain",
        "x": 0,
        "y": 1,
        "yshift": 8,
        "xanchor": "left",
        "yanchor": "bottom",
        "align": "left",
        "showarrow": False,
    }


def _ends(spot: tuple[int, int]) -> dict[str, float]:
    x, y = spot
    return {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}


def _outline(spot: tuple[int, int]) -> dict[str, Any]:
    return {"type": "rect", "xref": "x", "yref": "y", "line": {"color": INK, "width": 3},
            **_ends(spot)}  # fmt: skip


def _menu(buttons: list[dict[str, Any]], active: int, right: float) -> dict[str, Any]:
    return {
        "buttons": buttons,
        "active": active,
        "x": right,
        "xanchor": "right",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 48},
        "bgcolor": CLEAR,
        "bordercolor": GRID,
        "font": {"color": INK},
        "showactive": True,
    }
