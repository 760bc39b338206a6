"""The registry of probes: names and one line each, without importing torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..facts import Facts, Registry

if TYPE_CHECKING:
    from .batch import Probe


@dataclass(frozen=True)
class ProbeEntry(Facts):
    """One probe as help texts show it.

    Attributes:
        module: Module of this package that holds the class.
        class_name: Its name there.
        summary: What is fed, one line.
        relevant: Which key counts as relevant, one line.
    """

    module: str
    class_name: str
    summary: str
    relevant: str


_ENTRIES: dict[str, ProbeEntry] = {
    "repeated": ProbeEntry(
        "repeated",
        "Repeated",
        "random tokens, then the same again: induction",
        "the token after the previous occurrence of the query's token",
    ),
    "needle": ProbeEntry(
        "needle",
        "Needle",
        "key-value pairs, then one of the keys: retrieval among growing distractors",
        "the value of the key that is asked for",
    ),
    "random": ProbeEntry(
        "random_tokens", "RandomTokens", "independent uniform tokens: nothing to find", "none"
    ),
    "text": ProbeEntry("text", "Text", "windows of a text", "none"),
    "task": ProbeEntry("task_probe", "TaskProbe", "sequences of the model's own task", "none"),
}

PROBES: Registry[ProbeEntry] = Registry(
    _ENTRIES, {name: entry.summary for name, entry in _ENTRIES.items()}
)
"""Every probe by name."""


def get_probe(name: str) -> type[Probe]:
    """The class of a probe.

    Raises:
        ValueError: If the name is unknown; the message lists the known ones.
    """
    if name not in PROBES:
        raise ValueError(f"unknown probe {name!r}: expected one of {', '.join(PROBES)}")
    entry = PROBES[name]
    found: Any = importlib.import_module(f".{entry.module}", __package__)
    return getattr(found, entry.class_name)
