"""Names of the tasks, for flags and types. Imports nothing, so that help texts are quick."""

from typing import Literal

TaskName = Literal[
    "set-complement",
    "majority",
    "counting",
    "mean",
    "first",
    "argmax-retrieval",
    "dictionary-lookup",
    "flip-flop",
    "associative-recall",
    "copy",
    "sort",
    "language",
    "othello",
    "self-avoiding-walk",
]
"""The keys of :data:`resharpen.models.tasks.TASKS`."""
