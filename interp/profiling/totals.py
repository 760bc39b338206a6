"""What the batches of one length gave, accumulated, and its rows of the tidy table."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..reduce import Moments
from .observing import ProfileObserver, Reading

Key = tuple[str, int | None, str]
"""Site, layer and quantity."""


@dataclass
class Place:
    """Accumulators of one quantity at one site."""

    first: Reading
    moments: Moments = field(default_factory=Moments)
    n_rows: Tensor | int = 0
    log_n_key: Tensor | int = 0
    n_undefined: Tensor | int = 0

    def plus(self, reading: Reading) -> "Place":
        """These accumulators with what one batch gave; they themselves stay as they are."""
        binned = reading.binned
        if binned is None:
            return self
        return Place(
            self.first,
            copy(self.moments).update(binned.mean),
            self.n_rows + binned.n_rows.sum(0),
            self.log_n_key + binned.log_n_key.sum(0),
            self.n_undefined + binned.n_undefined.sum(0),
        )


@dataclass
class Totals:
    """What the batches of one length gave.

    Attributes:
        places: Accumulators by site, layer and quantity.
        statuses: Rows of attention by status, for each site.
        batch: Sequences in one forward pass.
        n_sequences: Sequences that were taken in.
    """

    places: dict[Key, Place] = field(default_factory=dict)
    statuses: dict[str, Counter[str]] = field(default_factory=dict)
    batch: int = 0
    n_sequences: int = 0

    def take(self, observer: ProfileObserver) -> None:
        """Take in everything that the observer of one finished batch found.

        All of it or, interrupted, nothing: a place that has seen a batch which others have not
        would be no mean over the same sequences.
        """
        places, statuses = add_readings(self.places, observer.readings), dict(self.statuses)
        for site, counts in observer.statuses.items():
            statuses[site] = statuses.get(site, Counter()) + Counter(counts)
        n_sequences = self.n_sequences + len(observer.positions.shown)
        self.places, self.statuses, self.n_sequences = places, statuses, n_sequences


def add_readings(places: Mapping[Key, Place], readings: Iterable[Reading]) -> dict[Key, Place]:
    """The accumulators with what one batch gave; those that were given stay as they are."""
    found = dict(places)
    for reading in readings:
        key = (reading.site, reading.layer, reading.quantity)
        found[key] = found.get(key, Place(reading)).plus(reading)
    return found


def table_rows(totals: Totals, length: int, labels: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of the tidy table for one length; rungs that no row belongs to are left out."""
    for place in totals.places.values():
        reading = place.first
        row = {
            **labels,
            "length": length,
            "layer": reading.layer,
            "site": reading.site,
            "quantity": reading.quantity,
            "unit": reading.unit,
        }
        if reading.binned is None:
            yield {**row, "status": "unavailable"}
        else:
            yield from _rows_of_place(row, place)


def _rows_of_place(row: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    summary = place.moments.result()
    columns = (
        summary.mean,
        summary.sem,
        summary.n_obs,
        summary.min,
        summary.max,
        torch.as_tensor(place.n_rows),
        torch.as_tensor(place.log_n_key),
        torch.as_tensor(place.n_undefined),
    )
    n_rungs = summary.mean.shape[1]
    flat = zip(*(column.reshape(-1).tolist() for column in columns), strict=True)
    for number, (mean, sem, n_obs, low, high, n_rows, log_n, n_undefined) in enumerate(flat):
        if not n_rows and (place.first.optional or not n_undefined):
            continue
        yield {
            **row,
            "n_key": round(math.exp(log_n / n_rows)) if n_rows else None,
            "head": number // n_rungs if place.first.per_head else None,
            "mean": mean,
            "sem": sem,
            "n_obs": n_obs,
            "min": low,
            "max": high,
            "status": "ok" if n_rows else "undefined",
        }
