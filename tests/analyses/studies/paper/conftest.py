"""Rows that nobody measured."""

from collections.abc import Callable, Mapping

import pandas as pd
import pytest

from resharpen.interp.tables import table

Ladder = Mapping[int, float]


def rows_of(checkpoint: str, quantity: str, ladders: list[Ladder], unit: str = "ratio") -> list:
    """One ladder of values by length for each seed."""
    return [
        {
            "study": "paper",
            "checkpoint": checkpoint,
            "task": "set-complement",
            "seed": seed,
            "length": length,
            "n_key": length,
            "site": "logits",
            "quantity": quantity,
            "unit": unit,
            "mean": value,
            "sem": 0.0,
            "n_obs": 8,
            "min": value,
            "max": value,
            "status": "ok" if value == value else "undefined",
        }
        for seed, ladder in enumerate(ladders)
        for length, value in ladder.items()
    ]


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., list]:
    """See `rows_of`."""
    return rows_of


@pytest.fixture(scope="session")
def make_frame() -> Callable[..., pd.DataFrame]:
    """The tidy table of rows."""
    return table
