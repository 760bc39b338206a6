"""Which lengths are run where none are given: a task's own, or a ladder for a probe."""

from typing import Any

from ..models.probes.task_probe import TaskProbe
from ..models.tasks import Task, seeded_generator

__all__ = ["LADDER", "MAX_DENSE", "default_lengths", "fitting_lengths"]

LADDER = (32, 64, 128, 256, 512, 1024)
"""Lengths of a probe, as far as it and the model allow."""

MAX_DENSE = 64
"""Every length of a task up to here; beyond, a geometric ladder."""


def default_lengths(task: Task) -> tuple[int, ...]:
    """Every length of a task from its shortest up to 64, then doubling to 1024 at most.

    Lengths at which the task is not defined (a language without a string of that length) are left
    out.
    """
    longest = task.max_length if task.max_length is not None else 1024
    dense = range(task.min_length, min(longest, MAX_DENSE) + 1)
    sparse = [length for length in (128, 256, 512, 1024) if length <= longest]
    return tuple(length for length in (*dense, *sparse) if _is_defined(task, length))


def _is_defined(task: Task, length: int) -> bool:
    try:
        task.check_length(length)
    except ValueError:
        return False
    return True


def fitting_lengths(probe: Any, limit: int | None) -> tuple[int, ...]:
    """The usual lengths of a probe, or of the task that it draws from, that fit into a model.

    Args:
        probe: What is fed; see :class:`resharpen.models.probes.Probe`.
        limit: Positions that the model takes, or ``None`` where there is no end.

    Raises:
        ValueError: If not one of them fits.
    """
    usual = default_lengths(probe.task) if isinstance(probe, TaskProbe) else LADDER
    fitting = []
    for length in usual:
        try:
            probe.check_length(length)
        except ValueError:
            break
        if limit is not None and _positions(probe, length) > limit:
            break
        fitting.append(length)
    if not fitting:
        raise ValueError(
            f"none of the usual lengths ({', '.join(map(str, usual))}) fits this model and probe: "
            "give lengths="
        )
    return tuple(fitting)


def _positions(probe: Any, length: int) -> int:
    """Positions of an input: the length, but of a task, which does not count an opening token."""
    if not isinstance(probe, TaskProbe):
        return length
    return probe.sample(seeded_generator(0), 1, length).tokens.shape[1]
