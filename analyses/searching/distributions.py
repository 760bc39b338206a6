"""What a field of a space can be: a fixed value, or a distribution, as a function of one uniform.

With `u` uniform in [0, 1), each distribution is its quantile function at `u`:

    choice           the level in whose stretch of the cumulative weights `u` lies
    uniform          low + u (high - low)
    log_uniform      low (high / low)^u
    int_uniform      floor(low + u (high + 1 - low)): every whole number alike
    int_log_uniform  floor(low ((high + 1) / low)^u): k with probability log(1 + 1/k), up to scale

One uniform a field is all that a draw takes, so that no field's value depends on the others.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DISTRIBUTIONS",
    "RANGES",
    "Choice",
    "Field",
    "Fixed",
    "Range",
    "SameAs",
    "parse_field",
]


@dataclass(frozen=True)
class Fixed:
    """The same value in every trial."""

    value: Any

    @property
    def examples(self) -> tuple[Any, ...]:
        """The value."""
        return (self.value,)

    def to_dict(self) -> Any:
        """As the file says it."""
        return self.value


@dataclass(frozen=True)
class Choice:
    """One of several levels.

    Attributes:
        levels: At least two, all different; effects are measured against the first.
        weights: How often each is drawn, up to scale.
    """

    levels: tuple[Any, ...]
    weights: tuple[float, ...]

    @property
    def examples(self) -> tuple[Any, ...]:
        """Every level."""
        return self.levels

    def at(self, u: float) -> Any:
        """The level at `0 <= u < 1`."""
        reached, wanted = 0.0, u * math.fsum(self.weights)
        for level, weight in zip(self.levels, self.weights, strict=True):
            reached += weight
            if wanted < reached:
                return level
        return self.levels[-1]

    def to_dict(self) -> dict[str, Any]:
        """As the file says it."""
        return {"choice": list(self.levels), "weights": list(self.weights)}


@dataclass(frozen=True)
class Range:
    """A number between two bounds.

    Attributes:
        kind: Name in :data:`RANGES`.
        low: Smallest value.
        high: Largest value, itself possible where values are whole.
    """

    kind: str
    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.kind.startswith("int")

    @property
    def logarithmic(self) -> bool:
        """Whether it is even on a logarithmic axis."""
        return "log" in self.kind

    @property
    def examples(self) -> tuple[Any, ...]:
        """Its two ends, in the type of its values."""
        if self.whole:
            return int(self.low), int(self.high)
        return float(self.low), float(self.high)

    def at(self, u: float) -> float | int:
        """The value at `0 <= u < 1`."""
        return RANGES[self.kind](u, self.low, self.high)

    def to_dict(self) -> dict[str, Any]:
        """As the file says it."""
        return {self.kind: list(self.examples)}


@dataclass(frozen=True)
class SameAs:
    """The value that another field of the trial has.

    Attributes:
        other: The other field, such as `model.d_model`.
    """

    other: str

    def to_dict(self) -> dict[str, Any]:
        """As the file says it."""
        return {"same_as": self.other}


Field = Fixed | Choice | Range | SameAs


def _whole(value: float, high: float) -> int:
    """The whole number below, and never past the end by rounding."""
    return min(math.floor(value), int(high))


RANGES: Mapping[str, Callable[[float, float, float], float | int]] = {
    "uniform": lambda u, low, high: low + u * (high - low),
    "log_uniform": lambda u, low, high: min(max(low * (high / low) ** u, low), high),
    "int_uniform": lambda u, low, high: _whole(low + u * (high + 1 - low), high),
    "int_log_uniform": lambda u, low, high: _whole(low * ((high + 1) / low) ** u, high),
}
"""The quantile function of each distribution of numbers, from `u`, low and high."""

DISTRIBUTIONS = ("choice", *RANGES, "same_as")
"""Everything that a field can be beside a fixed value."""


def parse_field(key: str, given: Any) -> Field:
    """Read what the file says about one field.

    Args:
        key: The field, such as `model.d_model`, for the message.
        given: A plain value, a list, or a table with one distribution.

    Raises:
        ValueError: An unknown or incomplete distribution, or bounds that are none.
    """
    if not isinstance(given, dict):
        return Fixed(_frozen(given))
    kinds = [name for name in given if name in DISTRIBUTIONS]
    others = [name for name in given if name not in (*DISTRIBUTIONS, "weights")]
    if len(kinds) != 1 or others or ("weights" in given and kinds != ["choice"]):
        raise ValueError(
            f"{key} must be a value or a table with one of {', '.join(DISTRIBUTIONS)} (a choice "
            f"may have weights); got {given!r}"
        )
    (kind,) = kinds
    if kind == "choice":
        return _choice(key, given[kind], given.get("weights"))
    if kind == "same_as":
        if not isinstance(given[kind], str):
            raise ValueError(
                f"{key}: same_as names another field, such as 'model.d_model'; got {given[kind]!r}"
            )
        return SameAs(given[kind])
    return _range(key, kind, given[kind])


def _choice(key: str, levels: Any, weights: Any) -> Choice:
    if not isinstance(levels, list) or len(levels) < 2:
        raise ValueError(f"{key}: choice takes a list of at least two levels; got {levels!r}")
    frozen = tuple(_frozen(level) for level in levels)
    if any(one == two and type(one) is type(two) for i, one in enumerate(frozen)
           for two in frozen[:i]):  # fmt: skip
        raise ValueError(f"{key}: the levels of a choice must all be different; got {levels!r}")
    given = [1.0] * len(frozen) if weights is None else weights
    if (
        not isinstance(given, list)
        or len(given) != len(frozen)
        or not all(_is_number(weight) and weight > 0 for weight in given)
    ):
        raise ValueError(
            f"{key}: weights must be one positive number a level ({len(frozen)}); got {weights!r}"
        )
    return Choice(frozen, tuple(float(weight) for weight in given))


def _range(key: str, kind: str, bounds: Any) -> Range:
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(map(_is_number, bounds)):
        raise ValueError(f"{key}: {kind} takes two numbers, [low, high]; got {bounds!r}")
    low, high = bounds
    if not low < high:
        raise ValueError(f"{key}: the low end of {kind} must lie below the high; got {bounds!r}")
    if kind.startswith("int") and not all(isinstance(end, int) for end in bounds):
        raise ValueError(f"{key}: the ends of {kind} must be whole numbers; got {bounds!r}")
    if "log" in kind and low <= 0:
        raise ValueError(f"{key}: the low end of {kind} must be positive; got {bounds!r}")
    if not kind.startswith("int"):
        low, high = float(low), float(high)
    return Range(kind, low, high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _frozen(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
