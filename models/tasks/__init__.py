"""Tasks with exact next-token distributions, by name.

``TASKS`` is the registry; :func:`task_from_dict` rebuilds a task from what a checkpoint recorded.
"""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from ..facts import Registry, first_line
from .argmax_retrieval import ArgmaxRetrieval
from .associative_recall import AssociativeRecall
from .boards import Othello, SelfAvoidingWalk
from .copy import Copy
from .counting import Counting
from .dictionary_lookup import DictionaryLookup
from .first import First
from .flip_flop import FlipFlop
from .language import LanguageTask
from .majority import Majority
from .mean import Mean
from .set_complement import SetComplement
from .sort import Sort
from .task import Batch, Task, TaskKind, seeded_generator

_ENTRIES: dict[str, type[Task]] = {
    "set-complement": SetComplement,
    "majority": Majority,
    "counting": Counting,
    "mean": Mean,
    "first": First,
    "argmax-retrieval": ArgmaxRetrieval,
    "dictionary-lookup": DictionaryLookup,
    "flip-flop": FlipFlop,
    "associative-recall": AssociativeRecall,
    "copy": Copy,
    "sort": Sort,
    "language": LanguageTask,
    "othello": Othello,
    "self-avoiding-walk": SelfAvoidingWalk,
}

TASKS: Registry[type[Task]] = Registry(
    _ENTRIES, {name: first_line(task) for name, task in _ENTRIES.items()}
)
"""Task class by name: aggregation, needle, mixed."""


def task_from_dict(values: Mapping[str, Any]) -> Task:
    """Rebuild a task from :meth:`Task.to_dict`.

    Raises:
        ValueError: If the name is unknown or a parameter is not one of the task's.
    """
    parameters = dict(values)
    name = parameters.pop("name", None)
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; known tasks: {', '.join(TASKS)}")
    known = signature(TASKS[name]).parameters
    unknown = [given for given in parameters if given not in known]
    if unknown:
        raise ValueError(
            f"task {name!r} does not take these parameters: {', '.join(unknown)}; it takes "
            f"{', '.join(known)}"
        )
    try:
        return TASKS[name](**parameters)
    except TypeError as error:
        raise ValueError(f"task {name!r} does not take these parameters: {error}") from error


__all__ = [
    "TASKS",
    "ArgmaxRetrieval",
    "AssociativeRecall",
    "Batch",
    "Copy",
    "Counting",
    "DictionaryLookup",
    "First",
    "FlipFlop",
    "LanguageTask",
    "Majority",
    "Mean",
    "Othello",
    "SelfAvoidingWalk",
    "SetComplement",
    "Sort",
    "Task",
    "TaskKind",
    "seeded_generator",
    "task_from_dict",
]
