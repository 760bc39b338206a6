"""What a theorem says about one measured quantity, as numbers with their hypotheses."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from html import escape
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_choice, check_numbers
from .shown import Shown

KINDS = ("exact", "lower_bound", "upper_bound", "limit", "conjecture", "fit")
"""What the values claim: equality, a side of the measurement, an asymptote, a guess, or a fit."""

X_NAMES = ("length", "n_key")
"""The table columns that a curve may run over."""

PLACE_FIELDS = ("checkpoint", "seed", "layer", "head", "site")
"""The fields of `Curve` (and columns of the table) that say which rows it belongs to."""


class Place(TypedDict, total=False):
    """The rows of the table that a curve belongs to; what is left out means any."""

    checkpoint: str | None
    seed: int | None
    layer: int | None
    head: int | None
    site: str | None


@dataclass(frozen=True, eq=False)
class Curve(Shown):
    """A law evaluated on a grid, with what it assumes and where it comes from.

    Frozen and checked on construction; the arrays are copied and read-only. Two curves are equal
    when every field is (NaN equals NaN).

    Raises (on construction):
        TypeError: if `x` or `values` are not real numbers, or `hypotheses` is one string.
        ValueError: if a field is empty, unknown or of the wrong shape, `x` does not increase, a
            value is not finite inside `domain` or not NaN outside it.
    """

    name: str
    """Shown in legends: "1/n limit of the weights"."""
    quantity: str
    """The `quantity` of the table rows it speaks about."""
    unit: str
    """The unit of those rows: "nats", "ratio", "l2", "1" or "logit"."""
    x: NDArray[np.float64]
    """Shape `[point]`: where the law was evaluated, strictly increasing."""
    values: NDArray[np.float64]
    """Shape `[point]`, in `unit`; NaN outside `domain`."""
    kind: str
    """One of `KINDS`."""
    hypotheses: tuple[str, ...]
    """What must hold for the law to hold, one sentence each; at least one."""
    source: str
    """Citation and theory section, or "derived here (...)"."""
    domain: tuple[float, float]
    """Closed interval of `x` on which the law speaks; either end may be infinite."""
    x_name: str = "length"
    """The table column that `x` stands for: "length" or "n_key"."""
    checkpoint: str | None = None
    """The checkpoint it belongs to; None = any."""
    seed: int | None = None
    """The seed it belongs to; None = any."""
    layer: int | None = None
    """The layer it belongs to, from 0; None = any."""
    head: int | None = None
    """The head it belongs to, from 0; None = any."""
    site: str | None = None
    """The hook name it belongs to; None = any."""

    def __post_init__(self) -> None:
        """Check every field and freeze the arrays."""
        for field in ("name", "quantity", "unit", "source"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"Curve.{field} must be a non-empty string, got {value!r}.")
        check_choice("Curve.kind", self.kind, KINDS)
        check_choice("Curve.x_name", self.x_name, X_NAMES)
        if isinstance(self.hypotheses, str):
            raise TypeError("Curve.hypotheses must be a tuple of sentences, got one string.")
        hypotheses = tuple(self.hypotheses)
        if not hypotheses or not all(isinstance(h, str) and h.strip() for h in hypotheses):
            raise ValueError(
                f"Curve.hypotheses must hold at least one non-empty sentence, got {hypotheses!r}."
            )
        for field in ("seed", "layer", "head"):
            value = getattr(self, field)
            if value is not None and (value != int(value) or value < 0):
                raise ValueError(f"Curve.{field} must be None or a count from 0, got {value!r}.")
            object.__setattr__(self, field, None if value is None else int(value))
        object.__setattr__(self, "hypotheses", hypotheses)
        self._freeze_arrays()

    def __repr__(self) -> str:
        """Its claim, the quantity with its unit, where it was evaluated, whose it is."""
        place = [
            f"{name} {getattr(self, name)}"
            for name in PLACE_FIELDS
            if getattr(self, name) is not None
        ]
        kind = self.kind.replace("_", " ")
        return (
            f"Curve({self.name}: {kind} of {self.quantity} ({self.unit}) at {self.x.size} points, "
            f"{self.x_name} {self.x[0]:g} to {self.x[-1]:g}; {', '.join(place) or 'any place'})"
        )

    def _repr_html_(self) -> str:
        """The same for a notebook, with hypotheses and source."""
        items = "".join(f"<li>{escape(text)}</li>" for text in self.hypotheses)
        return (
            f"<p>{escape(repr(self))}</p><p>assumes</p><ul>{items}</ul>"
            f"<p>source: {escape(self.source)}</p>"
        )

    def _freeze_arrays(self) -> None:
        """Check `x`, `values` and `domain` together and store read-only float64 copies."""
        x = check_numbers("Curve.x", self.x).copy()
        values = check_numbers("Curve.values", self.values).copy()
        if x.ndim != 1 or x.size == 0 or values.shape != x.shape:
            raise ValueError(
                "Curve.x and Curve.values must have the same one-dimensional, non-empty shape, "
                f"got {x.shape} and {values.shape}."
            )
        if not np.isfinite(x).all() or not (np.diff(x) > 0).all():
            raise ValueError("Curve.x must be finite and strictly increasing; sort it first.")
        low, high = (float(end) for end in self.domain)
        if not low <= high:
            raise ValueError(f"Curve.domain must be (low, high) with low <= high, got {low, high}.")
        inside = (x >= low) & (x <= high)
        if not np.isfinite(values[inside]).all():
            at = x[inside][~np.isfinite(values[inside])][0]
            raise ValueError(
                f"Curve.values must be finite inside the domain, got a value that is not at "
                f"{self.x_name} {at:g}; shrink the domain or mend the value."
            )
        if not np.isnan(values[~inside]).all():
            at = x[~inside][~np.isnan(values[~inside])][0]
            raise ValueError(
                f"Curve.values must be NaN outside the domain, got a number at {self.x_name} "
                f"{at:g}; widen the domain or drop the value."
            )
        x.setflags(write=False)
        values.setflags(write=False)
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "domain", (low, high))

    def __eq__(self, other: object) -> bool:
        """Field by field, NaN equal to NaN."""
        if not isinstance(other, Curve):
            return NotImplemented
        return all(
            np.array_equal(mine, theirs, equal_nan=True)
            if isinstance(mine, np.ndarray)
            else mine == theirs
            for mine, theirs in (
                (getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
            )
        )

    def __hash__(self) -> int:
        """Of what names the curve; equal curves have equal hashes."""
        return hash((self.name, self.quantity, self.kind, tuple(self.x.tolist()), self.source))

    def at(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the values at `x` (any shape), on the grid: nothing is interpolated.

        Raises:
            TypeError: if `x` is not made of real numbers.
            ValueError: if a point is not on the grid.
        """
        wanted = check_numbers("x", x)
        position = np.minimum(np.searchsorted(self.x, wanted), self.x.size - 1)
        off = self.x[position] != wanted
        if off.any():
            raise ValueError(
                f"{self.x_name} {wanted[off].flat[0]:g} is not on the grid of curve "
                f"{self.name!r} ({self.x.size} points from {self.x[0]:g} to {self.x[-1]:g}); "
                "evaluate the law on the lengths that were measured."
            )
        return np.asarray(self.values[position])

    def matches(self, frame: Any) -> NDArray[np.bool_]:
        """Return the mask `[row]` of the rows of a tidy table (a DataFrame) that this is about.

        A row matches when its quantity is the curve's and so is every place that the curve names
        (checkpoint, seed, layer, head, site); `x` is not looked at.

        Raises:
            ValueError: if the table lacks one of the columns needed.
        """
        wanted: dict[str, object] = {"quantity": self.quantity}
        wanted |= {name: getattr(self, name) for name in PLACE_FIELDS}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise ValueError(
                f"The table lacks the column {missing[0]!r} that curve {self.name!r} is matched by;"
                " pass a tidy table."
            )
        mask = np.ones(len(frame), dtype=bool)
        for name, value in wanted.items():
            mask &= (frame[name] == value).to_numpy(dtype=bool, na_value=False)
        return mask

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values: NaN and infinite ends of the domain become None."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        record["x"] = self.x.tolist()
        record["values"] = [None if math.isnan(value) else value for value in self.values.tolist()]
        record["hypotheses"] = list(self.hypotheses)
        record["domain"] = [end if math.isfinite(end) else None for end in self.domain]
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Rebuild a curve from `to_dict`.

        Raises:
            ValueError: if a key is missing or unknown, or the fields do not make a curve.
        """
        names = {field.name for field in fields(cls)}
        wrong = sorted(names ^ set(record))
        if wrong:
            state = "unknown" if wrong[0] in record else "missing"
            raise ValueError(f"A curve's record has {state} key {wrong[0]!r}; write it by to_dict.")
        low, high = record["domain"]
        return cls(
            **{
                **record,
                "values": [math.nan if value is None else value for value in record["values"]],
                "hypotheses": tuple(record["hypotheses"]),
                "domain": (-math.inf if low is None else low, math.inf if high is None else high),
            }
        )
