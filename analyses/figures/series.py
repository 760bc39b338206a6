"""From the tidy table to what a figure draws: one series a place, its mean and its interval."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...interp.tables import TABLE_COLUMNS
from ..fits import student_t_quantile
from ..rows import distinct, plain, rows_where
from ..seeds import summarise_seeds
from ..wording import site_words

__all__ = ["PLACES", "Series", "check_drawn", "find_series", "label_series", "select"]

PLACES = ("checkpoint", "layer", "head", "site")
"""What tells one series from another, from the outside in."""

_KEY = (*PLACES, "study", "task", "length", "n_key")


@dataclass(frozen=True)
class Series:
    """One line of a figure.

    Args:
        place: checkpoint, layer, head, site; None = the row has none.
        quantity: the measured quantity.
        unit: its unit.
        x: 1-d, increasing, the length or n_key.
        mean: same shape, in `unit`.
        low: lower end of the 95 % interval; NaN where unknown.
        high: upper end.
        floor: smallest seed mean: where a band that reaches below 0 is cut on a log axis.
        n_seeds: seeds averaged at each x.
        index: its number in the figure, which gives the marker and the legend group.
        colour: the number that gives the colour, shared by what belongs together.
        interval: `seeds` (t-interval of seed means), `observations` (of the observations of the
            only run) or `none`.
    """

    place: dict[str, Any]
    quantity: str
    unit: str
    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    floor: NDArray[np.float64]
    n_seeds: NDArray[np.int64]
    index: int
    colour: int
    interval: str


def check_drawn(table: Any) -> None:
    """Refuse what is no tidy table, such as the result that holds one.

    Raises:
        TypeError: it is no table at all.
        ValueError: it lacks columns of the tidy table.
    """
    if not isinstance(table, pd.DataFrame):
        held = isinstance(getattr(table, "table", None), pd.DataFrame)
        advice = "pass its attribute .table" if held else "pass the table of a result"
        raise TypeError(
            f"a figure is drawn from a tidy table (pandas DataFrame); got {type(table).__name__}: "
            f"{advice}"
        )
    missing = [name for name in TABLE_COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(
            f"a figure is drawn from a tidy table, as a result holds it; this one lacks "
            f"{'every column' if len(missing) == len(TABLE_COLUMNS) else ', '.join(missing)}"
        )


def select(
    table: pd.DataFrame,
    quantity: str,
    checkpoints: Iterable[str] | None = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    sites: Iterable[str] | None = None,
) -> pd.DataFrame:
    """The rows of a quantity with status ok at the places wanted (None = all).

    Raises:
        TypeError: `table` is no table.
        ValueError: it is no tidy table, or there are no such rows; the message lists what it has.
    """
    check_drawn(table)
    rows = rows_where(table, (table["quantity"] == quantity) & (table["status"] == "ok"))
    if rows.empty:
        known = ", ".join(sorted(distinct(table, "quantity"))) or "nothing"
        raise ValueError(f"the table has no measured {quantity!r} to draw; it has {known}")
    for column, wanted in zip(PLACES, (checkpoints, layers, heads, sites), strict=True):
        if wanted is None:
            continue
        values = [wanted] if isinstance(wanted, str) else list(wanted)
        known = distinct(rows, column)
        rows = rows_where(rows, rows[column].isin(values))
        if rows.empty:
            listed = ", ".join(map(str, known))
            raise ValueError(f"no {quantity!r} at {column} {values!r}; the table has {listed}")
    return rows


def find_series(
    rows: pd.DataFrame,
    x_name: str,
    numbers: dict[tuple[Any, ...], int] | None = None,
    colour_by: Sequence[str] = PLACES,
) -> list[Series]:
    """Every series in the rows of one quantity, in the order of the table.

    Args:
        rows: rows of one quantity, status ok (see `select`).
        x_name: `length` or `n_key`; rows without it are left out.
        numbers: the colour numbers given so far, by place; new places are added. Panels that share
            it draw the same place in the same colour.
        colour_by: the parts of the place that share a colour.

    Raises:
        ValueError: one line would mix several studies or tasks.
    """
    numbers = {} if numbers is None else numbers
    rows = rows_where(rows, rows[x_name].notna())
    summary = summarise_seeds(rows)
    spread = _single_runs(rows)
    found = []
    for _, group in summary.groupby(list(PLACES), dropna=False, sort=False):
        _check_alone(group)
        group = group.sort_values(by=x_name, kind="stable")
        low, high = group["low"].to_numpy(np.float64), group["high"].to_numpy(np.float64)
        interval = "seeds" if np.isfinite(low).any() else "none"
        if interval == "none" and set(group["n_seeds"].tolist()) == {1}:
            mean = group["mean"].to_numpy(np.float64)
            half = np.array([spread.get(key, np.nan) for key in _keys(group)])
            low, high = mean - half, mean + half
            interval = "observations" if np.isfinite(half).any() else "none"
        first = group.iloc[0]
        place = {name: plain(first[name]) for name in PLACES}
        found.append(
            Series(
                place=place,
                index=len(found),
                colour=numbers.setdefault(tuple(place[name] for name in colour_by), len(numbers)),
                quantity=str(first["quantity"]),
                unit=str(first["unit"]),
                x=group[x_name].to_numpy(np.float64),
                mean=group["mean"].to_numpy(np.float64),
                low=low,
                high=high,
                floor=group["min"].to_numpy(np.float64),
                n_seeds=group["n_seeds"].to_numpy(np.int64),
                interval=interval,
            )
        )
    return found


def label_series(series: Sequence[Series]) -> list[str]:
    """A short name for each, made of the places in which they differ: `post`, `post L0 H1`.

    Layer and head are said where some series differ in them, or where nothing else tells them
    apart; the site of what is not a head likewise, by its short name, and the stack of a head.
    """
    differs = {name: len({s.place[name] for s in series}) > 1 for name in PLACES}
    stacks = {_stack(item.place["site"] or "") for item in series}
    labels = []
    for item in series:
        place = item.place
        parts = [place["checkpoint"]] if differs["checkpoint"] and place["checkpoint"] else []
        if differs["site"] and place["site"] is not None and place["head"] is None:
            parts.append(site_words(place["site"], with_layer=differs["layer"]))
        elif differs["layer"] or differs["head"]:
            if len(stacks) > 1 and place["site"] is not None:
                parts.append(_stack(place["site"]))
            layer = "" if place["layer"] is None else f"L{place['layer']}"
            head = "" if place["head"] is None else f"H{place['head']}"
            parts.append(f"{layer} {head}".strip())
        label = " ".join(part for part in parts if part)
        if not label:
            label = str(place["checkpoint"] or "measured")
        labels.append(label)
    return labels


def _stack(site: str) -> str:
    """A site without its layer: `decoder.3.attn` as `decoder attn`."""
    return " ".join(part for part in site.split(".") if not part.isdigit())


def _check_alone(group: pd.DataFrame) -> None:
    """Raise if the rows of one line come from several studies or tasks."""
    for column in ("study", "task"):
        names = distinct(group, column)
        if len(names) > 1:
            raise ValueError(
                f"one line would mix several studies or tasks ({', '.join(names)}): draw each alone"
            )


def _keys(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """What identifies each row of one quantity, but for its seed."""
    columns = ([plain(value) for value in frame[name].tolist()] for name in _KEY)
    return list(zip(*columns, strict=True))


def _single_runs(rows: pd.DataFrame) -> dict[tuple[Any, ...], float]:
    """Half widths of the 95 % intervals over the observations of each row, by its key."""
    counts, sems = rows["n_obs"].tolist(), rows["sem"].tolist()
    return {
        key: student_t_quantile(count - 1) * sem
        for key, count, sem in zip(_keys(rows), counts, sems, strict=True)
        if count > 1 and np.isfinite(sem)
    }
