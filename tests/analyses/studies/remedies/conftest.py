"""Cells that nobody trained: rows of the tidy table from errors, entropies and relevant masses."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd
import pytest

from resharpen.analyses.studies.remedies.config import TASK_SETTINGS, Cell, RemediesConfig
from resharpen.analyses.studies.remedies.mapping import MapCell, build_map
from resharpen.interp.tables import table

SEEDS = 5
PATTERN = "blocks.{}.attn.hook_pattern"

Errors = Sequence[float | Sequence[float]]
Rows = Iterator[dict[str, object]]


def row(cell: Cell, seed: int, length: int, quantity: str, value: float, **more: object) -> dict:
    """One row of the table."""
    known = value == value
    return {
        "study": "remedies",
        "checkpoint": cell.label,
        "task": cell.task,
        "seed": seed,
        "length": length,
        "n_key": length,
        "site": "logits",
        "quantity": quantity,
        "unit": "nats" if quantity == "entropy" else "ratio",
        "mean": value,
        "sem": 0.0 if known else math.nan,
        "n_obs": 64,
        "min": value,
        "max": value,
        "status": "ok" if known else "undefined",
        **more,
    }


def rows_of(cell: Cell, errors: Errors, slope: float, n_seeds: int) -> Rows:
    """Errors over the ladder; entropies of two heads, of which the second sees what matters."""
    lengths = TASK_SETTINGS[cell.task].lengths
    for length, given in zip(lengths, errors, strict=True):
        values = given if isinstance(given, Sequence) else [given] * n_seeds
        for seed, value in enumerate(values):
            yield row(cell, seed, length, "total_variation", value)
            for head, (mass, steepness) in enumerate([(0.1, 1.0), (4 / length, slope)]):
                place = {"layer": 1, "head": head, "site": PATTERN.format(1)}
                yield row(cell, seed, length, "relevant_mass", mass, **place)
                yield row(cell, seed, length, "entropy", steepness * math.log(length), **place)


def map_of(
    errors: Mapping[Cell, Errors],
    *,
    slope: float = 0.5,
    n_seeds: int = SEEDS,
    extra: Sequence[dict] = (),
) -> list[MapCell]:
    """The map of made-up cells."""
    rows = [row for cell, own in errors.items() for row in rows_of(cell, own, slope, n_seeds)]
    return build_map(RemediesConfig(), table([*rows, *extra]), list(errors))


@pytest.fixture(scope="session")
def make_map() -> Callable[..., list[MapCell]]:
    """See `map_of`."""
    return map_of


@pytest.fixture(scope="session")
def make_row() -> Callable[..., dict]:
    """See `row`."""
    return row


@pytest.fixture(scope="session")
def make_table() -> Callable[[Sequence[dict]], pd.DataFrame]:
    """The tidy table of rows."""
    return table
