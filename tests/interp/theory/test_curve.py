"""A curve checks itself, survives JSON, and knows its rows."""

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resharpen.interp.theory import Curve


def curve(**changes: Any) -> Curve:
    fields: dict[str, Any] = {
        "name": "2/s law",
        "quantity": "displacement",
        "unit": "logit",
        "x": [1, 2, 4, 8],
        "values": [np.nan, 3.0, 1.5, np.nan],
        "kind": "exact",
        "hypotheses": ("uniform attention",),
        "source": "derived here (theory 1.1)",
        "domain": (2.0, 4.0),
    }
    return Curve(**{**fields, **changes})


def test_arrays_become_read_only_float64_copies() -> None:
    x = np.array([1, 2, 4, 8])
    made = curve(x=x)
    x[0] = 100
    assert made.x.dtype == made.values.dtype == np.float64
    assert made.x[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        made.x[0] = 5.0
    with pytest.raises(FrozenInstanceError):
        made.name = "other"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "Curve.name must be a non-empty string"),
        ({"unit": None}, "Curve.unit must be a non-empty string"),
        ({"source": ""}, "Curve.source"),
        ({"kind": "guess"}, "Curve.kind must be one of 'exact', 'lower_bound'"),
        ({"x_name": "position"}, "Curve.x_name must be one of"),
        ({"hypotheses": ()}, "at least one non-empty sentence"),
        ({"hypotheses": ("a", "")}, "at least one non-empty sentence"),
        ({"x": [1, 2, 2, 8]}, "strictly increasing"),
        ({"x": [1, 2, np.nan, 8]}, "finite and strictly increasing"),
        ({"x": [1, 2, 4]}, "same one-dimensional"),
        ({"x": [], "values": []}, "non-empty shape"),
        ({"x": 2.0, "values": 3.0}, "same one-dimensional"),
        ({"domain": (4.0, 2.0)}, "low <= high"),
        ({"domain": (np.nan, 2.0)}, "low <= high"),
        ({"domain": (1.0, 4.0)}, "finite inside the domain, got a value that is not at length 1"),
        ({"domain": (2.0, 3.0)}, "NaN outside the domain, got a number at length 4"),
        ({"values": [np.nan, 3.0, np.inf, np.nan]}, "finite inside the domain"),
        ({"layer": -1}, "Curve.layer must be None or a count"),
        ({"seed": 0.5}, "Curve.seed must be None or a count"),
    ],
)
def test_a_wrong_field_is_refused_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        curve(**changes)
    assert message in str(error.value)


def test_one_string_is_not_a_tuple_of_hypotheses() -> None:
    with pytest.raises(TypeError, match="tuple of sentences"):
        curve(hypotheses="uniform attention")


def test_record_is_strict_json_and_comes_back_equal() -> None:
    made = curve(checkpoint="post-0", seed=np.int64(3), layer=0, head=1, site="ln_final.hook_scale")
    text = json.dumps(made.to_dict(), allow_nan=False)
    assert Curve.from_dict(json.loads(text)) == made
    assert hash(Curve.from_dict(json.loads(text))) == hash(made)


def test_infinite_domain_survives_the_record() -> None:
    made = curve(values=[6.0, 3.0, 1.5, 0.75], domain=(-np.inf, np.inf))
    assert Curve.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False))) == made


def test_equality_sees_every_field() -> None:
    assert curve() == curve()
    assert curve() != curve(values=[np.nan, 3.0, 1.25, np.nan])
    assert curve() != replace(curve(), head=0)
    assert curve() != "2/s law"


@pytest.mark.parametrize(
    ("change", "message"), [("drop", "missing key 'x'"), ("add", "unknown key 'y'")]
)
def test_record_with_other_keys_is_refused(change: str, message: str) -> None:
    record = curve().to_dict()
    if change == "drop":
        del record["x"]
    else:
        record["y"] = 1
    with pytest.raises(ValueError, match=message):
        Curve.from_dict(record)


def test_at_looks_up_grid_points_of_any_shape() -> None:
    made = curve()
    assert float(made.at(4)) == 1.5
    np.testing.assert_array_equal(made.at([[8, 2], [2, 1]]), [[np.nan, 3.0], [3.0, np.nan]])


@pytest.mark.parametrize("x", [3, 0, 9, [2, 5], np.nan])
def test_at_interpolates_nothing(x: Any) -> None:
    with pytest.raises(ValueError, match="is not on the grid of curve '2/s law'"):
        curve().at(x)


def table() -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "quantity": ["displacement", "displacement", "entropy", "displacement"],
            "checkpoint": ["a", "b", "a", "a"],
            "seed": [0, 0, 0, None],
            "layer": [None, 0, 0, 1],
            "head": [None, None, 1, None],
            "site": ["ln_final.hook_scale", None, None, "ln_final.hook_scale"],
        }
    )
    return frame.astype({"seed": "Int64", "layer": "Int64", "head": "Int64", "site": "string"})


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ({}, [True, True, False, True]),
        ({"checkpoint": "a"}, [True, False, False, True]),
        ({"seed": 0}, [True, True, False, False]),
        ({"layer": 0}, [False, True, False, False]),
        ({"site": "ln_final.hook_scale", "seed": 0}, [True, False, False, False]),
        ({"quantity": "entropy", "head": 1}, [False, False, True, False]),
        ({"head": 1}, [False, False, False, False]),
    ],
)
def test_matches_the_rows_of_its_quantity_and_place(
    place: dict[str, Any], expected: list[bool]
) -> None:
    mask = curve(**place).matches(table())
    assert mask.dtype == bool
    assert mask.tolist() == expected


def test_matches_needs_the_columns_it_compares() -> None:
    with pytest.raises(ValueError, match="lacks the column 'seed'"):
        curve(seed=0).matches(table().drop(columns="seed"))
    assert curve().matches(table().drop(columns="seed")).sum() == 3
