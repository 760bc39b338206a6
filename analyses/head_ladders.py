"""Each head's rows of the tidy table as ladders: a quantity against the number of visible keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .fits import student_t_quantile
from .rows import plain, rows_where

__all__ = ["HeadLadders", "Ladder", "read_heads"]

_PLACE = ["checkpoint", "task", "site", "layer", "head"]


@dataclass(frozen=True)
class Ladder:
    """One quantity of one head at every number of keys that was measured, from 2 on.

    Args:
        n_key: `[n_key]`, increasing, each at least 2: one key has no choice.
        mean: `[n_key]`, in the unit of the quantity, over all observations: every length that shows
            so many keys, every seed.
        half: `[n_key]`, half the 95 % t-interval over the observations; NaN where it is not known
            and for several seeds, whose spread it would not tell.
        max: `[n_key]`, the largest observation.
    """

    n_key: NDArray[np.float64]
    mean: NDArray[np.float64]
    half: NDArray[np.float64]
    max: NDArray[np.float64]


@dataclass(frozen=True)
class HeadLadders:
    """Everything that was measured of one head on one probe.

    Args:
        checkpoint, task: whose rows; None where the table does not say.
        site: the attention module, `decoder.3.attn`; empty where the table does not say.
        layer, head: which head.
        ladders: quantity to ladder.
    """

    checkpoint: str | None
    task: str | None
    site: str
    layer: int
    head: int
    ladders: Mapping[str, Ladder]

    def __getitem__(self, quantity: str) -> Ladder:
        """The ladder of a quantity; an empty one if it was not measured."""
        none = np.empty(0)
        return self.ladders.get(quantity, Ladder(none, none, none, none))


def read_heads(table: pd.DataFrame) -> tuple[HeadLadders, ...]:
    """Every head of the table, by checkpoint and task as they come, then site, layer and head.

    Rows with status ok and at least 2 visible keys count. Hook points of one attention module
    (`blocks.0.attn.hook_scores`, `blocks.0.attn.hook_pattern`) are the same place.

    Args:
        table: the tidy table.
    """
    known = table["layer"].notna() & table["head"].notna() & (table["n_key"] >= 2)
    frame = rows_where(table, known & (table["status"] == "ok"))
    if frame.empty:
        return ()
    module = frame["site"].fillna("").str.replace(r"\.hook_\w+$", "", regex=True)
    frame = frame.assign(site=module)
    order = {place: rank for rank, place in enumerate(dict.fromkeys(_sites(frame)))}
    rows = _pool(frame)
    found: dict[tuple[Any, ...], dict[str, Ladder]] = {}
    for key, group in rows.groupby([*_PLACE, "quantity"], dropna=False, sort=False):
        *place, quantity = (plain(part) for part in cast("tuple", key))
        group = group.sort_values("n_key")
        columns = [group[name].to_numpy(np.float64) for name in ("n_key", "mean", "half", "max")]
        found.setdefault(tuple(place), {})[quantity] = Ladder(*columns)
    heads = [HeadLadders(*place, ladders=ladders) for place, ladders in found.items()]
    return tuple(
        sorted(
            heads,
            key=lambda item: (order[item.checkpoint, item.task, _stack(item.site)], item.layer,
                              item.head),
        )
    )  # fmt: skip


def _pool(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a place, quantity and number of keys: lengths and seeds together, by observations."""
    count = frame["n_obs"].astype(float)
    frame = frame.assign(
        count=count, weighted=count * frame["mean"], square=(count * frame["sem"]) ** 2
    )
    groups = frame.groupby([*_PLACE, "quantity", "n_key"], dropna=False, sort=False)
    rows = groups.agg(
        count=("count", "sum"),
        weighted=("weighted", "sum"),
        square=("square", "sum"),
        known=("sem", "count"),
        size=("mean", "size"),
        seeds=("seed", "nunique"),
        max=("max", "max"),
    ).reset_index()
    counts = rows["count"].to_numpy()
    alone = (rows["known"] == rows["size"]) & (rows["seeds"] <= 1) & (counts > 1)
    quantiles = {n: student_t_quantile(int(n) - 1) for n in set(counts.tolist()) if n > 1}
    quantile = np.array([quantiles.get(n, np.nan) for n in counts.tolist()])
    half = quantile * np.sqrt(rows["square"].to_numpy()) / counts
    return rows.assign(
        mean=rows["weighted"].to_numpy() / counts, half=np.where(alone, half, np.nan)
    )


def _sites(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    columns = ([plain(value) for value in frame[name].tolist()] for name in _PLACE[:3])
    return [(who, what, _stack(site)) for who, what, site in zip(*columns, strict=True)]


def _stack(site: str) -> str:
    """Which stack of layers a site belongs to: its name without the number of the layer."""
    return ".".join(part for part in site.split(".") if not part.isdigit())
