"""The average over seeds: means, t-intervals, and what is missing."""

import math

import numpy as np
import pytest

from resharpen.analyses.seeds import SEED_COLUMNS, summarise_seeds
from resharpen.interp.tables import table


def row(seed, mean, length=4, **more):
    """One row of one run."""
    return {
        "study": "s",
        "checkpoint": "c",
        "task": "t",
        "seed": seed,
        "length": length,
        "n_key": length,
        "quantity": "entropy",
        "unit": "nats",
        "mean": mean,
        "sem": 0.1,
        "n_obs": 10,
        **more,
    }


def test_mean_and_interval_of_seed_means():
    """Against the t table: 2.776 at 4 degrees of freedom."""
    values = np.array([1.0, 1.2, 0.9, 1.4, 1.1])
    summary = summarise_seeds(table(row(seed, v) for seed, v in enumerate(values)))
    assert tuple(summary.columns) == SEED_COLUMNS
    (only,) = summary.to_dict("records")
    half = 2.7764451 * values.std(ddof=1) / math.sqrt(5)
    assert only["mean"] == pytest.approx(values.mean())
    assert only["low"] == pytest.approx(values.mean() - half, rel=1e-6)
    assert only["high"] == pytest.approx(values.mean() + half, rel=1e-6)
    assert (only["min"], only["max"]) == (0.9, 1.4)
    assert (only["n_seeds"], only["n_missing"], only["status"]) == (5, 0, "ok")


def test_one_seed_has_no_interval():
    """One run says nothing about other runs; a missing seed is a run."""
    for seed in (3, None):
        (only,) = summarise_seeds(table([row(seed, 1.5)])).to_dict("records")
        assert (only["mean"], only["n_seeds"], only["status"]) == (1.5, 1, "ok")
        assert all(math.isnan(only[name]) for name in ("low", "high", "sem"))


def test_seeds_that_are_undefined_are_counted_not_averaged():
    """The mean is over what is there, and the summary says how many are not."""
    rows = [row(0, 1.0), row(1, 3.0), row(2, math.nan, status="undefined", sem=math.nan)]
    (only,) = summarise_seeds(table(rows)).to_dict("records")
    assert (only["mean"], only["n_seeds"], only["n_missing"]) == (2.0, 2, 1)
    gone = [row(seed, math.nan, status="undefined", sem=math.nan) for seed in range(3)]
    (only,) = summarise_seeds(table(gone)).to_dict("records")
    assert (only["status"], only["n_seeds"], only["n_missing"]) == ("undefined", 0, 3)
    assert math.isnan(only["mean"])


def test_places_are_kept_apart_and_types_kept():
    """Rows with and without head, in the order of the table; nullable integers stay."""
    rows = [row(s, s + h, head=h, layer=0) for h in (1, 0) for s in (0, 1)]
    rows += [row(s, 9.0, length=8) for s in (0, 1)]
    summary = summarise_seeds(table(rows))
    assert summary["mean"].tolist() == [1.5, 0.5, 9.0]
    assert summary["head"].dtype == "Int64"
    assert summary["head"].isna().tolist() == [False, False, True]


def test_two_rows_for_one_seed_are_refused():
    """Else one run would count twice."""
    with pytest.raises(ValueError, match="two rows for one seed: entropy of c at length 4"):
        summarise_seeds(table([row(0, 1.0), row(0, 2.0)]))
