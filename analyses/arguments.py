"""Checks of what every measurement of a model takes, each with one sentence.

``audit``, ``explore``, ``diagnose``, ``limits`` and the monitor share them, so that the same slip
gets the same sentence everywhere.
"""

from collections.abc import Iterable
from typing import Any

from ..interp.arguments import check_counts, check_lengths, check_seed
from ..models.probes import PROBES, Probe
from ..models.tasks import TASKS, Task

__all__ = ["check_kind", "check_probe", "check_run", "check_task"]


def check_run(
    *,
    lengths: Iterable[int] | None,
    n_sequences: int | None,
    seed: int = 0,
    probe: Any = None,
    thresholds: Any = None,
    kind: type = object,
) -> tuple[int, ...] | None:
    """Refuse what no measurement can be asked for, before a model is opened.

    Args:
        lengths: Lengths to run, or ``None``.
        n_sequences: Sequences a length, or ``None``.
        seed: Of the sequences.
        probe: Name of a probe, a probe, or ``None``.
        thresholds: Thresholds, or ``None``.
        kind: Class that the thresholds must have.

    Returns:
        The lengths in increasing order, each once; ``None`` where none were given.

    Raises:
        TypeError: If lengths, probe or thresholds are of another kind.
        ValueError: If a number is out of range, or the probe's name is not known.
    """
    check_seed(seed)
    if n_sequences is not None:
        check_counts(n_sequences=n_sequences)
    check_probe(probe)
    if thresholds is not None:
        check_kind("thresholds", thresholds, kind)
    if lengths is None:
        return None
    return tuple(sorted(set(check_lengths(lengths, distinct=False))))


def check_probe(probe: Any) -> None:
    """Refuse what is no probe: neither a name, nor an object that can be drawn from, nor ``None``.

    Raises:
        TypeError: If it is none.
        ValueError: If it is a name that no probe has.
    """
    names = ", ".join(PROBES)
    if isinstance(probe, str) and probe not in PROBES:
        raise ValueError(f"unknown probe {probe!r}: expected one of {names}")
    if not isinstance(probe, str | None) and (
        isinstance(probe, type) or not isinstance(probe, Probe)
    ):
        raise TypeError(
            f"probe must be one of {names}, or an object with name, nested, check_length, sample "
            f"and to_dict (see resharpen.models.probes.Probe); got {_told(probe)}"
        )


def check_task(task: Any) -> None:
    """Refuse what cannot be drawn from as a task can.

    Raises:
        TypeError: If it is no task, with how one is made.
    """
    if isinstance(task, type) or not isinstance(task, Task):
        named: Any = TASKS.get(task) if isinstance(task, str) else task
        advice = f"{named.__name__}(...)" if named in TASKS.values() else "SetComplement(32)"
        raise TypeError(
            f"task must be a task object, such as {advice} of resharpen.models.tasks makes; got "
            f"{_told(task)}"
        )


def check_kind(name: str, value: Any, kind: type) -> None:
    """Refuse a value that is no instance of a class of settings.

    Args:
        name: Name of the argument.
        value: What came.
        kind: The class.

    Raises:
        TypeError: If it is none.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be made with {kind.__name__}(...); got {_told(value)}")


def _told(value: Any) -> str:
    """A value as it was written, if that is short; else its type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    words = repr(value)
    return words if len(words) <= 40 and "object at" not in words else type(value).__name__
