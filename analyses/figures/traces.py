"""The two kinds of line: measured (markers, solid, its interval as a band) and theory (dashed).

A measured series and the theory about it share a colour and a legend group, so that one click in
the legend shows or hides both. What a dashed line means stands in the key below the plot; its
hypotheses and source come on hover.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from ...interp.theory.curve import Curve
from ..wording import plural, quantity_words, unit_words
from .series import PLACES, Series
from .theme import INK, MAX_LEGEND, colour_of, fade, marker_of

__all__ = ["DASHES", "Panel", "add_band", "add_measured", "add_theory", "safe"]

DASHES = {
    "exact": "dash",
    "limit": "dash",
    "conjecture": "longdash",
    "fit": "longdash",
    "lower_bound": "longdashdot",
    "upper_bound": "dashdot",
}
"""The dash of each kind of theory curve; a measured line is solid."""

_HOVER_WIDTH = 64
_MARKERS_ACROSS = 32
_FULL_MARKER, _SMALL_MARKER = 7, 4


@dataclass(frozen=True)
class Panel:
    """Where in a figure a line goes and along which column it runs.

    Args:
        x_name: `length` or `n_key`.
        row, col: the subplot, None = the figure has one.
        log_x, log_y: logarithmic axes, on which what is not positive cannot be drawn.
        legend: whether series get legend entries here (one panel of several does).
    """

    x_name: str
    row: int | None = None
    col: int | None = None
    log_x: bool = False
    log_y: bool = False
    legend: bool = True

    def add(self, figure: go.Figure, trace: go.Scatter) -> None:
        """Put the trace into this panel."""
        figure.add_trace(trace, row=self.row, col=self.col)


def safe(text: str) -> str:
    """Text as plotly shows it literally: no markup, no template of its own."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("%{", "%\u200b{")


def add_measured(
    figure: go.Figure, series: Sequence[Series], labels: Sequence[str], panel: Panel
) -> int:
    """Draw each series with its 95 % interval; the first `MAX_LEGEND` in colour.

    Returns:
        How many points could not be drawn, being not positive on a logarithmic axis.
    """
    undrawn = 0
    for item, label in zip(series, labels, strict=True):
        add_band(figure, item, label, panel)
        drawn = item.mean > 0 if panel.log_y else np.isfinite(item.mean)
        undrawn += int(np.sum(~drawn))
        muted = item.index >= MAX_LEGEND
        colour = INK if muted else colour_of(item.colour)
        panel.add(
            figure,
            go.Scatter(
                x=item.x,
                y=np.where(drawn, item.mean, np.nan),
                name=safe(label),
                legendgroup=f"series {item.index}",
                showlegend=panel.legend and not muted,
                mode="lines" if muted else "lines+markers",
                opacity=0.45 if muted else 1.0,
                # Faded, so that a dashed curve of the same colour shows on top of it.
                line={"color": fade(colour, 0.5), "width": 1 if muted else 2, "dash": "solid"},
                marker={
                    "symbol": marker_of(item.index),
                    "size": _marker_sizes(item.x, panel.log_x),
                    "color": colour,
                    "opacity": 1,
                },
                customdata=np.column_stack([item.low, item.high, item.n_seeds]),
                hovertemplate=_measured_hover(item, label, panel),
            ),
        )
    return undrawn


def add_band(figure: go.Figure, item: Series, label: str, panel: Panel) -> None:
    """The 95 % interval as a band, if it is known anywhere.

    On a logarithmic axis a lower end that is not positive is drawn at the smallest seed mean; the
    hover text of the line has the true interval.
    """
    low = item.low
    if panel.log_y:
        low = np.where(low > 0, low, np.where(item.floor > 0, item.floor, np.nan))
    known = np.isfinite(low) & np.isfinite(item.high)
    if panel.log_y:
        known &= item.high > 0
    if item.index >= MAX_LEGEND or known.sum() < 2:
        return
    x = item.x[known]
    panel.add(
        figure,
        go.Scatter(
            x=np.concatenate([x, x[::-1]]),
            y=np.concatenate([item.high[known], low[known][::-1]]),
            name=f"{safe(label)}, 95 % interval",
            legendgroup=f"series {item.index}",
            showlegend=False,
            mode="lines",
            line={"width": 0, "color": fade(colour_of(item.colour), 0)},
            fill="toself",
            fillcolor=fade(colour_of(item.colour), 0.2),
            hoverinfo="skip",
        ),
    )


def add_theory(
    figure: go.Figure,
    curves: Iterable[Curve],
    series: Sequence[Series],
    table: pd.DataFrame,
    panel: Panel,
) -> None:
    """Draw the curves that speak about these series, dashed, in the colour of their series.

    A curve belongs to a series if each place it names (checkpoint, layer, head, site) is the
    series' own. One that belongs to several, or comes with the same values for several places, is
    drawn once, grey; one that belongs to none, not. Curves that differ in their seed alone are
    drawn as their mean. Each name comes once in the key below the plot, a conjecture's with the
    word behind it.
    """
    drawn = cast("tuple[go.Scatter, ...]", figure.data)
    named = {str(trace.name) for trace in drawn if trace.legend == "legend2"}
    quantities = {item.quantity for item in series}
    wanted = [curve for curve in curves if curve.quantity in quantities]
    for lines, n_seeds in _merge_places(_merge_seeds(wanted)):
        curve = lines[0]
        owners = [item for item in series if any(_belongs(line, item) for line in lines)]
        points = _points(curve, table, panel)
        if not owners or points is None or all(item.index >= MAX_LEGEND for item in owners):
            continue
        own = len(owners) == 1
        colour = colour_of(owners[0].colour) if own else INK
        dash, bound = DASHES[curve.kind], curve.kind.endswith("_bound")
        name = safe(_named(curve))
        panel.add(
            figure,
            go.Scatter(
                x=points[0],
                y=points[1],
                name=name,
                legendgroup=f"series {owners[0].index}" if own else f"theory {name}",
                showlegend=False,
                mode="lines",
                line={"color": colour, "width": 1.5 if bound else 2.5, "dash": dash},
                hovertemplate=_theory_hover(curve, panel, n_seeds),
            ),
        )
        if name not in named:
            named.add(name)
            panel.add(
                figure,
                key_entry(name, dash),
            )


def key_entry(name: str, dash: str) -> go.Scatter:
    """An entry of the key that is not drawn: what a line of theory with this dash is."""
    return go.Scatter(
        x=[None],
        y=[None],
        name=name,
        legend="legend2",
        mode="lines",
        line={"color": INK, "width": 2, "dash": dash},
        hoverinfo="skip",
    )


def _named(curve: Curve) -> str:
    """The name of a curve; of a conjecture, what is not proven says so in the key too."""
    told = curve.kind != "conjecture" or "conjecture" in curve.name.lower()
    return curve.name if told else f"{curve.name} (conjecture)"


def _marker_sizes(x: NDArray[np.float64], log: bool) -> list[int]:
    """Full size for points well apart on the axis, a dot for those that would run together."""
    position = np.log(np.maximum(x, 1e-300)) if log else x
    step = np.ptp(position) / _MARKERS_ACROSS
    sizes, last = [], -np.inf
    for value in position.tolist():
        full = value - last >= step
        sizes.append(_FULL_MARKER if full else _SMALL_MARKER)
        last = value if full else last
    return sizes


def _belongs(curve: Curve, item: Series) -> bool:
    return all(getattr(curve, name) in (None, item.place[name]) for name in PLACES)


def _merge_seeds(curves: Iterable[Curve]) -> list[tuple[Curve, int]]:
    """Curves that differ in nothing but seed and values as one mean curve, with their number."""
    groups: dict[tuple[object, ...], list[Curve]] = {}
    for curve in curves:
        places = tuple(getattr(curve, name) for name in PLACES)
        alike = (curve.name, curve.kind, curve.quantity, curve.x_name, *places)
        groups.setdefault((*alike, tuple(curve.x.tolist())), []).append(curve)
    merged = []
    for group in groups.values():
        first = group[0]
        if len(group) > 1:
            low = max(curve.domain[0] for curve in group)
            high = min(curve.domain[1] for curve in group)
            if low > high:
                continue
            values = np.mean([curve.values for curve in group], axis=0)
            first = replace(first, values=values, domain=(low, high), seed=None)
        merged.append((first, len(group)))
    return merged


def _merge_places(curves: list[tuple[Curve, int]]) -> list[tuple[list[Curve], int]]:
    """Curves of one name with the same values at several places, together: drawn once."""
    groups: dict[tuple[object, ...], tuple[list[Curve], int]] = {}
    for curve, n_seeds in curves:
        values = tuple(np.where(np.isfinite(curve.values), curve.values, np.inf).tolist())
        same = (curve.name, curve.kind, curve.quantity, curve.x_name, *curve.x.tolist(), *values)
        groups.setdefault(same, ([], n_seeds))[0].append(curve)
    return list(groups.values())


def _points(
    curve: Curve, table: pd.DataFrame, panel: Panel
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The curve on the panel's x; the rows it speaks about say which length has how many keys."""
    x, y = curve.x, curve.values
    if curve.x_name != panel.x_name:
        rows = table.loc[np.asarray(curve.matches(table)), [curve.x_name, panel.x_name]]
        pairs = rows.dropna().drop_duplicates()
        if pairs.empty or pairs[curve.x_name].duplicated().any():
            return None
        own, other = (pairs[name].astype(float) for name in (curve.x_name, panel.x_name))
        to_panel = dict(zip(own, other, strict=True))
        kept = np.array([value in to_panel for value in x.tolist()])
        x = np.array([to_panel[value] for value in x[kept].tolist()])
        y = y[kept]
    known = np.isfinite(y)
    if panel.log_x:
        known &= x > 0
    if panel.log_y:
        known &= y > 0
    if not known.any():
        return None
    return x, np.where(known, y, np.nan)


def _x_hover(panel: Panel) -> str:
    return "length %{x}" if panel.x_name == "length" else "%{x} visible keys"


def _measured_hover(item: Series, label: str, panel: Panel) -> str:
    unit = unit_words(item.unit)
    lines = [
        f"<b>{safe(label)}</b> (measured), {_x_hover(panel)}",
        f"{quantity_words(item.quantity)} %{{y:.4~g}}{unit}",
    ]
    if item.interval != "none":
        lines.append("95 % interval %{customdata[0]:.3~g} to %{customdata[1]:.3~g}")
    if item.interval == "seeds":
        lines.append("mean of %{customdata[2]} seeds, interval over seeds")
    elif item.interval == "observations":
        lines.append("one run, interval over its observations")
    return "<br>".join(lines) + "<extra></extra>"


def _theory_hover(curve: Curve, panel: Panel, n_seeds: int) -> str:
    kind = curve.kind.replace("_", " ")
    claim = "conjecture, not proven here" if kind == "conjecture" else f"theory: {kind}"
    mean = f", mean over {plural(n_seeds, 'seed')}" if n_seeds > 1 else ""
    lines = [
        f"<b>{safe(curve.name)}</b> ({claim}{mean}), {_x_hover(panel)}",
        f"{quantity_words(curve.quantity)} %{{y:.4~g}}{unit_words(curve.unit)}",
        "assumes:",
        *(f"· {line}" for hypothesis in curve.hypotheses for line in [_wrapped(hypothesis)]),
        f"source: {_wrapped(curve.source)}",
    ]
    return "<br>".join(lines) + "<extra></extra>"


def _wrapped(text: str) -> str:
    return "<br>   ".join(safe(line) for line in textwrap.wrap(text, _HOVER_WIDTH))
