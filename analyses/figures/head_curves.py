"""The curves of one head: what a head map draws beside the map, and what each head puts there."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from ...interp.theory import max_weight_bounds, tight_entropy_bound
from ..head_ladders import HeadLadders, Ladder
from ..wording import quantity_words
from .theme import COLOURS, INK, fade

__all__ = ["PANELS", "UNITS", "curves_of", "draw_curves", "short", "what_differs"]

PANELS = ("entropy", "max_weight", "effective_support")
"""The quantities that have a panel each, from above."""

UNITS = {"entropy": " (nats)", "max_weight": " (ratio)", "effective_support": ""}
"""The unit behind the name of each."""

_MEASURED, _RELEVANT = COLOURS[0], COLOURS[2]


def curves_of(head: HeadLadders) -> list[dict[str, Any]]:
    """The numbers of the traces of `draw_curves`, in its order, rounded to what can be seen."""
    spread = head["score_spread"]
    keys = head["entropy"].n_key
    limits = {"entropy": np.log(keys), "max_weight": 1 / keys, "effective_support": keys}
    bounds = {name: np.empty(0) for name in PANELS}
    if spread.n_key.size:
        largest = max_weight_bounds(spread.n_key, spread.max).upper
        bounds = {
            "entropy": tight_entropy_bound(spread.n_key, spread.max),
            "max_weight": largest,
            "effective_support": 1 / largest,
        }
    parts = []
    for quantity in PANELS:
        ladder = head[quantity]
        parts.append(_part(keys, limits[quantity]))
        parts.append(_part(spread.n_key, bounds[quantity]))
        parts += _measured(ladder, log=quantity != "entropy")
    return [*parts, *_measured(head["relevant_mass"], log=True)]


def what_differs(traces: Sequence[Sequence[dict[str, Any]]]) -> tuple[list[int], list[str]]:
    """The numbers of the curves that are not the same for every head, and what differs in them.

    What all heads share, such as full dispersion over one ladder, is drawn once and not repeated.
    """
    first = traces[0]
    numbers = range(len(first))
    differ = [n for n in numbers if any(parts[n] != first[n] for parts in traces)]
    keys = [
        key
        for key in ("x", "y", "customdata")
        if any(parts[n][key] != first[n][key] for parts in traces for n in differ)
    ]
    return differ, keys


def _measured(ladder: Ladder, log: bool) -> list[dict[str, Any]]:
    """Interval, as a polygon, and line of one quantity; on a log axis only what is positive."""
    drawn = np.where(ladder.mean > 0, ladder.mean, np.nan) if log else ladder.mean
    low, high = ladder.mean - ladder.half, ladder.mean + ladder.half
    known = np.isfinite(low) & ((low > 0) if log else True)
    x, low, high = ladder.n_key[known], low[known], high[known]
    band = _part(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))
    return [band, _part(ladder.n_key, drawn, ladder.half)]


def _part(
    x: NDArray[np.float64], y: NDArray[np.float64], half: NDArray[np.float64] | None = None
) -> dict[str, Any]:
    return {
        "x": [short(value) for value in x],
        "y": [short(value) for value in y],
        "customdata": [] if half is None else [short(value) for value in half],
    }


def short(value: float) -> float | int | None:
    """Four digits; a whole number as such; None for what is not known."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 1e9 else float(f"{value:.4g}")


def draw_curves(parts: Sequence[dict[str, Any]]) -> list[go.Scatter]:
    """The traces of the curves, each with its panel in `meta`."""
    traces = []
    limits = {"entropy": "log n", "max_weight": "1/n", "effective_support": "n"}
    for quantity in PANELS:
        first = quantity == "entropy"
        words, unit = quantity_words(quantity), UNITS[quantity]
        traces += [
            _theory(quantity, f"full dispersion: {limits[quantity]}", "full dispersion", "dash",
                    INK, first),
            _theory(quantity, f"bound of its own spread on {words}", "bound of its score spread",
                    "dashdot", _MEASURED, first),
            *_measured_traces(quantity, words, unit, _MEASURED, "measured" if first else ""),
        ]  # fmt: skip
    measured = bool(parts[-1]["x"])
    traces += _measured_traces(
        "max_weight", "relevant mass", " (ratio)", _RELEVANT, "relevant mass" if measured else ""
    )
    for trace, part in zip(traces, parts, strict=True):
        trace.update(part)
    return traces


def _theory(quantity: str, name: str, key: str, dash: str, colour: str, legend: bool) -> go.Scatter:
    return go.Scatter(
        name=key,
        meta=quantity,
        showlegend=legend,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        hovertemplate=f"<b>{name}</b> (theory)<br>%{{y:.3~g}} at %{{x}} keys<extra></extra>",
    )


def _measured_traces(
    quantity: str, words: str, unit: str, colour: str, legend: str
) -> list[go.Scatter]:
    band = go.Scatter(
        name=f"{words}, 95 % interval",
        meta=quantity,
        showlegend=False,
        mode="lines",
        line={"width": 0, "color": fade(colour, 0)},
        fill="toself",
        fillcolor=fade(colour, 0.25),
        hoverinfo="skip",
    )
    line = go.Scatter(
        name=legend or words,
        meta=quantity,
        showlegend=bool(legend),
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": "solid"},
        marker={"size": 6, "color": colour, "symbol": "circle"},
        hovertemplate=(
            f"<b>{words}{unit}</b> (measured)<br>%{{y:.3~g}} ± %{{customdata:.2~g}} "
            "at %{x} keys<extra></extra>"
        ),
    )
    return [band, line]
