"""Records as JSON and back, strictly: NaN becomes null, an infinity becomes a word, nothing is
guessed.

JSON knows neither NaN nor infinity. Here NaN is written as `null` and the infinities as
`"Infinity"` and `"-Infinity"`; a field declared `float` reads them back.
"""

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from ..models.facts import Facts

__all__ = ["Record", "decode_float", "encode"]

R = TypeVar("R", bound="Record")

_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}


def encode(value: object) -> Any:
    """The value in JSON's own types: dict, list, str, int, float, bool, None.

    Takes mappings with string keys, sequences, sets (sorted), NumPy arrays and scalars, dataclasses
    and the plain types. NaN is written as None and an infinity as a word.

    Raises:
        TypeError: a value of any other type, or a mapping with a key that is not a string.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return encode(value.tolist())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(
                    f"a record needs string keys, got {key!r} ({type(key).__name__}): "
                    "write it as text first"
                )
        return {key: encode(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (set, frozenset)):
        return [encode(item) for item in sorted(value)]
    if isinstance(value, Sequence):
        return [encode(item) for item in value]
    raise TypeError(
        f"a record cannot hold {type(value).__name__} ({value!r:.80}): "
        "give text, a number, a list or a mapping"
    )


def decode_float(value: object) -> float:
    """The float that `encode` wrote: None is NaN, the words are the infinities.

    Raises:
        ValueError: anything else that is not a number.
    """
    if value is None:
        return math.nan
    if isinstance(value, str) and value in _INFINITIES:
        return _INFINITIES[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"expected a number or null, got {value!r:.80}")


class Record(Facts):
    """A frozen dataclass that goes to JSON and comes back equal.

    Fields may be float, int, bool, str, `X | None`, `tuple[X, ...]`, `Mapping[str, Any]` or another
    `Record`. An unknown float is NaN, not None.
    """

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON's own types (see `encode`)."""
        return encode(self)

    @classmethod
    def from_dict(cls: type[R], data: object) -> R:
        """The record that `to_dict` wrote.

        Raises:
            ValueError: not a mapping, a field missing or unknown, or a value of the wrong type.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"a {cls.__name__} is a mapping, got {type(data).__name__}")
        hints = get_type_hints(cls)
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        missing = [name for name in names if name not in data]
        unknown = [name for name in data if name not in names]
        if missing or unknown:
            raise ValueError(
                f"a {cls.__name__} has the fields {', '.join(names)}; "
                f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
            )
        values = {}
        for name in names:
            try:
                values[name] = _decode(hints[name], data[name])
            except ValueError as error:
                raise ValueError(f"{cls.__name__}.{name}: {error}") from None
        return cls(**values)


def _decode(hint: Any, value: object) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _decode(inner, value)
    if hint is float:
        return decode_float(value)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, got {value!r:.80}")
        return tuple(_decode(arguments[0], item) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a mapping, got {value!r:.80}")
        return {key: _decode(arguments[1], item) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_dict(value)
    if hint is int and isinstance(value, bool):
        raise ValueError(f"expected int, got {value!r}")
    if not isinstance(value, hint):
        raise ValueError(f"expected {hint.__name__}, got {value!r:.80}")
    return value
