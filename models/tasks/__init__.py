"""Tasks with exact next-token distributions, by name.

``TASKS`` is the registry; :func:`task_from_dict` rebuilds a task from what a checkpoint recorded.
"""

from collections.abc import Mapping
from typing import Any

from .set_complement import SetComplement
from .task import Batch, Task, seeded_generator

TASKS: dict[str, type[SetComplement]] = {
    "set-complement": SetComplement,
}
"""Task class by name."""


def task_from_dict(values: Mapping[str, Any]) -> Task:
    """Rebuild a task from :meth:`Task.to_dict`.

    Raises:
        ValueError: If the name is unknown or a parameter is not one of the task's.
    """
    parameters = dict(values)
    name = parameters.pop("name", None)
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; known tasks: {', '.join(TASKS)}")
    try:
        return TASKS[name](**parameters)
    except TypeError as error:
        raise ValueError(f"task {name!r} does not take these parameters: {error}") from error


__all__ = ["TASKS", "Batch", "SetComplement", "Task", "seeded_generator", "task_from_dict"]
