"""The tidy table: filling, types, what it refuses, and the way through a file."""

import math

import pandas as pd
import pytest

from resharpen.interp.tables import TABLE_COLUMNS, check_table, concatenate, table

ROW = {
    "study": "s",
    "checkpoint": "c",
    "task": "t",
    "seed": 1,
    "length": 8,
    "n_key": 9,
    "layer": 0,
    "head": 2,
    "site": "blocks.0.attn.hook_pattern",
    "quantity": "entropy",
    "unit": "nats",
    "mean": 1.5,
    "sem": 0.1,
    "n_obs": 4,
    "min": 1.0,
    "max": 2.0,
    "status": "ok",
}
LEAST = {"quantity": "entropy", "unit": "nats", "length": 8, "status": "unavailable"}


def test_columns_are_those_of_the_contract():
    assert " ".join(TABLE_COLUMNS) == (
        "study checkpoint task seed length n_key layer head site "
        "quantity unit mean sem n_obs min max status"
    )


def test_a_row_comes_back_as_it_was_given():
    frame = table([dict(reversed(ROW.items()))])
    assert tuple(frame.columns) == TABLE_COLUMNS
    assert frame.iloc[0].to_dict() == ROW
    for name in ("seed", "length", "n_key", "layer", "head", "n_obs"):
        assert str(frame[name].dtype) == "Int64"
    for name in ("mean", "sem", "min", "max"):
        assert frame[name].dtype == "float64"
    assert frame["site"].dtype == "string"


def test_what_is_not_given_is_missing():
    row = table([LEAST]).iloc[0]
    assert all(row[name] is pd.NA for name in ("study", "seed", "n_key", "layer", "head", "site"))
    assert all(math.isnan(row[name]) for name in ("mean", "sem", "min", "max"))
    assert row["n_obs"] == 0


def test_an_empty_table_has_its_columns_and_types():
    pd.testing.assert_frame_equal(table([]), concatenate([]))
    pd.testing.assert_frame_equal(table([ROW]).iloc[:0], table([]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ROW, "heads": 1}, "a table row has no column 'heads'"),
        ({"mean": 1.0}, "a table row must give quantity, unit, length"),
        ({**ROW, "layer": 0.5}, "column 'layer' must hold Int64 values"),
        ({**ROW, "mean": "much"}, "column 'mean' must hold float64 values"),
        ({**ROW, "mean": math.nan}, "status is ok but mean is NaN; the first has quantity=entropy"),
        ({**ROW, "n_obs": 0}, "status is ok but n_obs is not positive"),
        ({**ROW, "status": "undefined"}, "mean is given but status is not ok"),
        ({**ROW, "status": "fine"}, "status is not one of ok, undefined, unavailable"),
        ({**ROW, "sem": -1.0}, "sem is negative"),
        ({**ROW, "mean": 3.0}, "mean lies outside min and max"),
        ({**ROW, "mean": 0.5}, "mean lies outside min and max"),
        ({**ROW, "length": None}, "length is missing"),
        ({**ROW, "unit": None}, "unit is missing"),
    ],
)
def test_a_wrong_row_is_refused(row, message):
    with pytest.raises(ValueError, match=message):
        table([ROW, row])


def test_an_infinite_mean_is_a_number():
    frame = table([{**ROW, "mean": math.inf, "max": math.inf, "sem": math.nan}])
    assert frame["mean"][0] == math.inf


def test_wrong_columns_are_refused():
    frame = table([ROW])
    with pytest.raises(ValueError, match="missing: n_key; not known: none"):
        check_table(frame.drop(columns="n_key"))
    with pytest.raises(ValueError, match="missing: none; not known: colour"):
        check_table(frame.assign(colour="red"))
    with pytest.raises(ValueError, match="stand in the order study"):
        check_table(frame[list(reversed(TABLE_COLUMNS))])
    with pytest.raises(ValueError, match="column 'layer' must be of type Int64; got float64"):
        check_table(frame.astype({"layer": "float64"}))
    with pytest.raises(ValueError, match="a table is a pandas DataFrame; got list"):
        check_table([ROW])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="missing: n_key"):
        concatenate([frame, frame.drop(columns="n_key")])


def test_concatenation_keeps_order_and_types():
    first, second = table([ROW, LEAST]), table([{**ROW, "length": 16}])
    both = concatenate([first, second])
    check_table(both)
    assert both["length"].tolist() == [8, 8, 16]
    assert both.index.tolist() == [0, 1, 2]
    pd.testing.assert_frame_equal(both, table([ROW, LEAST, {**ROW, "length": 16}]))


def test_a_table_survives_parquet(tmp_path):
    frame = table([ROW, LEAST])
    frame.to_parquet(tmp_path / "table.parquet")
    back = pd.read_parquet(tmp_path / "table.parquet")
    check_table(back)
    pd.testing.assert_frame_equal(concatenate([back]), frame)
