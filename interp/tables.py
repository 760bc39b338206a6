"""The tidy table: one row a quantity and place, the same columns everywhere.

================  =======  =======================================================================
column            type     meaning
================  =======  =======================================================================
``study``         string   which question was asked
``checkpoint``    string   which model was measured
``task``          string   what it was fed
``seed``          Int64    training seed of the checkpoint; missing when it has none
``length``        Int64    length that was asked of the task
``n_key``         Int64    keys that the measured query sees; missing when sequences differ
``layer``         Int64    block, from 0; missing outside the blocks
``head``          Int64    head, from 0; missing for quantities of a whole layer
``site``          string   hook name that was read, or ``logits``
``quantity``      string   name of the measure
``unit``          string   nats, ratio, l2, 1 or logit
``mean``          float64  mean over observations; NaN unless ``status`` is ok
``sem``           float64  standard error of the mean; NaN for a single observation
``n_obs``         Int64    number of observations that were defined
``min``, ``max``  float64  smallest and largest observation
``status``        string   ok, undefined (the quantity has no value here), or unavailable (it could
                           not be read)
================  =======  =======================================================================
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

_TYPES: dict[str, str] = {
    "study": "string",
    "checkpoint": "string",
    "task": "string",
    "seed": "Int64",
    "length": "Int64",
    "n_key": "Int64",
    "layer": "Int64",
    "head": "Int64",
    "site": "string",
    "quantity": "string",
    "unit": "string",
    "mean": "float64",
    "sem": "float64",
    "n_obs": "Int64",
    "min": "float64",
    "max": "float64",
    "status": "string",
}

TABLE_COLUMNS: tuple[str, ...] = tuple(_TYPES)
"""The columns of the table, in order."""

STATUSES: tuple[str, ...] = ("ok", "undefined", "unavailable")
"""What ``status`` may say."""

_ROUNDING = 1e-9


def table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Build the table from rows: columns in order, types set, what is not given filled in.

    A row must give ``quantity``, ``unit`` and ``length``. A string or integer that is not given is
    missing (``pd.NA``), a number NaN, ``n_obs`` 0, and ``status`` ``"ok"``.

    Raises:
        ValueError: If a row has a key that is no column, lacks one it must give, has a value of
            the wrong type, or breaks what :func:`check_table` checks.
    """
    filled = [_fill(row) for row in rows]
    frame = pd.DataFrame(filled, columns=list(TABLE_COLUMNS))
    frame = _typed(frame)
    check_table(frame)
    return frame


def _fill(row: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [key for key in row if key not in _TYPES]
    if unknown:
        raise ValueError(
            f"a table row has no column {', '.join(map(repr, unknown))}; the columns are "
            f"{', '.join(TABLE_COLUMNS)}"
        )
    missing = [key for key in ("quantity", "unit", "length") if key not in row]
    if missing:
        raise ValueError(f"a table row must give {', '.join(missing)}; got {dict(row)}")
    return {"n_obs": 0, "status": "ok", **row}


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    columns = {}
    for name, kind in _TYPES.items():
        try:
            columns[name] = frame[name].astype(kind)  # type: ignore[call-overload]
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {name!r} must hold {kind} values: {error}") from None
    return pd.DataFrame(columns)


def concatenate(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Put tables under each other, in order, with a new index; no table gives an empty one.

    Also restores the types of a table that came back from a file.

    Raises:
        ValueError: If a frame lacks a column or has one too many.
    """
    given = list(frames)
    for frame in given:
        _check_columns(frame)
    columns = {
        name: pd.concat(
            [pd.Series([], dtype=kind)]  # type: ignore[call-overload]
            + [frame[name].astype(kind) for frame in given],  # type: ignore[call-overload]
            ignore_index=True,
        )
        for name, kind in _TYPES.items()
    }
    return pd.DataFrame(columns)


def check_table(frame: pd.DataFrame) -> None:
    """Check that a frame is a tidy table.

    Raises:
        ValueError: For the first of these that fails: exactly :data:`TABLE_COLUMNS` in order; types
            as documented; every row names its quantity, unit, length and a known status; an ``ok``
            row has a mean and at least one observation, any other row has no mean; ``sem`` is not
            negative; ``min <= mean <= max``.
    """
    _check_columns(frame)
    for name, kind in _TYPES.items():
        if not _is_kind(frame[name], kind):
            raise ValueError(
                f"column {name!r} must be of type {kind}; got {frame[name].dtype}: build tables "
                "with table(rows)"
            )
    for name in ("quantity", "unit", "length", "n_obs", "status"):
        _refuse(frame, frame[name].isna(), f"{name} is missing")
    _refuse(frame, ~frame["status"].isin(STATUSES), f"status is not one of {', '.join(STATUSES)}")
    ok = frame["status"] == "ok"
    _refuse(frame, ok & frame["mean"].isna(), "status is ok but mean is NaN")
    _refuse(frame, ok & (frame["n_obs"] <= 0), "status is ok but n_obs is not positive")
    _refuse(frame, ~ok & frame["mean"].notna(), "mean is given but status is not ok")
    _refuse(frame, frame["sem"] < 0, "sem is negative")
    slack = _ROUNDING * frame[["min", "max"]].abs().max(axis=1).fillna(0.0)
    outside = (frame["mean"] < frame["min"] - slack) | (frame["mean"] > frame["max"] + slack)
    _refuse(frame, outside, "mean lies outside min and max")


def _check_columns(frame: pd.DataFrame) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"a table is a pandas DataFrame; got {type(frame).__name__}")
    names = list(frame.columns)
    missing = [name for name in TABLE_COLUMNS if name not in names]
    extra = [str(name) for name in names if name not in _TYPES]
    if missing or extra or len(names) != len(TABLE_COLUMNS):
        raise ValueError(
            f"a table has the columns {', '.join(TABLE_COLUMNS)}; missing: "
            f"{', '.join(missing) or 'none'}; not known: {', '.join(extra) or 'none'}"
        )
    if names != list(TABLE_COLUMNS):
        raise ValueError(
            f"the columns of a table stand in the order {', '.join(TABLE_COLUMNS)}; got "
            f"{', '.join(names)}"
        )


def _is_kind(column: Any, kind: str) -> bool:
    if kind == "string":
        return pd.api.types.is_string_dtype(column.dtype)
    return str(column.dtype) == kind


def _refuse(frame: pd.DataFrame, wrong: Any, what: str) -> None:
    """Raise for the first row where ``wrong`` holds (a missing comparison is not wrong)."""
    flags = wrong.fillna(False).to_numpy(dtype=bool)
    if flags.any():
        row = frame.iloc[int(flags.argmax())]
        place = ", ".join(
            f"{name}={row[name]}"
            for name in ("quantity", "length", "site", "layer", "head")
            if not pd.isna(row[name])
        )
        raise ValueError(f"{int(flags.sum())} row(s) of the table: {what}; the first has {place}")
