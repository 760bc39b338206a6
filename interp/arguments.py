"""Checks of what callers give, each with one sentence that says what was expected."""

from collections.abc import Mapping
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
