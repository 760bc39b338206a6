"""Checks of what callers give, each with one sentence that says what was expected."""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from numbers import Real
from typing import Any

LABELS = ("study", "checkpoint", "task", "seed")
"""Columns of the tidy table that whoever measures a model may fill in."""


def check_counts(**numbers: Any) -> None:
    """Refuse what is not a whole number from 1 on; the argument's name is in the sentence.

    Raises:
        ValueError: If one is none.
    """
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"{name} must be a whole number, 1 or more; got {number!r}")


def check_seed(seed: Any) -> int:
    """The seed as a whole number of Python's.

    Raises:
        ValueError: If it is no whole number from 0 to 2**64 - 1.
    """
    if not _is_whole(seed) or not 0 <= seed < 2**64:
        raise ValueError(f"seed must be a whole number, 0 or more, below 2**64; got {seed!r}")
    return int(seed)


def check_step(step: Any) -> int:
    """The number of a training step as a whole number of Python's.

    Raises:
        ValueError: If it is no whole number, 0 or more.
    """
    if not _is_whole(step) or step < 0:
        raise ValueError(f"step must be a whole number of steps done, 0 or more; got {step!r}")
    return int(step)


def check_lengths(lengths: Any, *, distinct: bool = True) -> tuple[int, ...]:
    """The lengths in the order given, as whole numbers of Python's.

    Args:
        lengths: What was given.
        distinct: Whether a length that is given twice is refused.

    Raises:
        TypeError: If they are no collection of numbers.
        ValueError: If there is none, one is less than 1 or no whole number, or two are the same.
    """
    if isinstance(lengths, str | bytes) or not isinstance(lengths, Iterable):
        one = isinstance(lengths, int) and not isinstance(lengths, bool)
        example = f"({lengths},) for one length" if one else "(16, 32, 64)"
        raise TypeError(
            f"lengths must be a sequence of whole numbers, written as {example}; got {lengths!r}"
        )
    asked = tuple(lengths)
    if not asked:
        raise ValueError("lengths must hold at least one length")
    for length in asked:
        if not _is_whole(length) or length < 1:
            raise ValueError(f"a length must be a whole number, 1 or more; got {length!r}")
    if distinct and len(set(asked)) < len(asked):
        raise ValueError(f"lengths must all be different; got {list(asked)}")
    return tuple(int(length) for length in asked)


def check_thresholds(lines: Any) -> None:
    """Refuse thresholds, the fields of a dataclass, that are no finite numbers.

    Raises:
        TypeError: If one is no number.
        ValueError: If one is NaN or infinite.
    """
    for field in fields(lines):
        value = getattr(lines, field.name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"the {field.name} threshold must be a number; got {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"the {field.name} threshold must be a finite number; got {value}")


def check_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse keyword arguments that a function does not have, with the nearest that it has.

    Args:
        function: Its name, as the caller wrote it.
        given: Names of the arguments that came.
        known: Names of those that it takes.

    Raises:
        TypeError: If one is not among them, as Python itself does.
    """
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(names)}"
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}: {advice}")


def _is_whole(number: Any) -> bool:
    """Whether a number is whole, whatever its type; no text is, and no truth value."""
    try:
        return not isinstance(number, bool | str | bytes) and int(number) == number
    except (TypeError, ValueError, OverflowError):  # NaN and infinity are no whole numbers.
        return False


def check_labels(labels: Mapping[str, Any] | None) -> dict[str, Any]:
    """The labels given, empty for ``None``.

    Raises:
        ValueError: If one is no column of :data:`LABELS`.
    """
    given = dict(labels or {})
    strange = [key for key in given if key not in LABELS]
    if strange:
        raise ValueError(f"labels may be {', '.join(LABELS)}; got {', '.join(map(repr, strange))}")
    return given
