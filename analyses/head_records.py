"""What is said of heads, as records: the class of a head, the summary of a layer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .crossings import Crossing
from .findings import Exponent
from .record import Record
from .wording import format_place

__all__ = [
    "CLASSES",
    "HeadClass",
    "LayerSummary",
    "Stack",
    "stack_prefixes",
]

Stack = tuple[str | None, str | None, str]
"""Checkpoint, task, and the stack of layers."""

CLASSES = ("sink", "local", "dispersing", "holding", "sharpening", "unknown")
"""The classes, in the order in which they are told."""


@dataclass(frozen=True)
class HeadClass(Record):
    """What one head does on one probe.

    Args:
        checkpoint, task: whose rows; None where the table does not say.
        site: the attention module, `decoder.3.attn`.
        layer, head: which head.
        label: one of `CLASSES`.
        slope: the dispersion slope dH/dlog n (nats) with its 95 % interval.
        n_key: the longest n_key measured; NaN if entropy was not measured.
        sink_mass: mean weight there on the first visible key or, if larger, on the learned sink
            logit (ratio); NaN where it is not measured or not asked.
        window_mass: mean weight there within `window` (ratio); NaN likewise.
        window: the window in keys; None where none is narrow enough.
        spread: the largest score spread seen (1); NaN where it was not measured.
        n_key_bound: the largest n_key at which one key can hold the threshold weight with that
            spread (see `interp.theory.n_key_bound`); NaN where the spread is not known.
        crossing: where its relevant mass, if that was measured, else its largest weight, falls
            below the threshold weight.
        reason: why it has this label, in one sentence.

    Raises:
        ValueError: an unknown label.
    """

    checkpoint: str | None
    task: str | None
    site: str
    layer: int
    head: int
    label: str
    slope: Exponent
    n_key: float
    sink_mass: float
    window_mass: float
    window: int | None
    spread: float
    n_key_bound: float
    crossing: Crossing
    reason: str

    def __post_init__(self) -> None:
        """Check the label."""
        if self.label not in CLASSES:
            raise ValueError(f"the class of a head is {', '.join(CLASSES)}, got {self.label!r}")

    def __repr__(self) -> str:
        """Which head, its class, its slope, up to how many keys."""
        where = format_place(self.checkpoint, self.layer, self.head)
        return (
            f"HeadClass({where}: {self.label}, slope {self.slope} nats, up to {self.n_key:g} keys)"
        )

    @property
    def stack(self) -> str:
        """The stack of layers it stands in: `decoder.attn` for `decoder.3.attn`."""
        return ".".join(part for part in self.site.split(".") if not part.isdigit())

    @property
    def place(self) -> tuple[str | None, str | None, str, int, int]:
        """What tells it from other heads: checkpoint, task, stack, layer, head."""
        return self.checkpoint, self.task, self.stack, self.layer, self.head


@dataclass(frozen=True)
class LayerSummary(Record):
    """The heads of one layer together.

    Args:
        checkpoint, task: whose rows.
        stack: the stack of layers, `decoder.attn`.
        layer: which layer.
        counts: how many heads have each label of `CLASSES`.
        slope: mean dispersion slope of the heads that have one (nats); NaN if none has.
        steepest: the head with the largest slope; None if none has one.
        lost: heads whose watched weight is below the threshold within what was measured.
        first_lost: the smallest n_key from which on one of them is; NaN if none.
    """

    checkpoint: str | None
    task: str | None
    stack: str
    layer: int
    counts: Mapping[str, int]
    slope: float
    steepest: int | None
    lost: int
    first_lost: float

    @property
    def heads(self) -> int:
        """How many heads the layer has."""
        return sum(self.counts.values())


def stack_prefixes(places: Iterable[Stack]) -> dict[Stack, str]:
    """What a place (checkpoint, task, stack) is called before its layer.

    Only what differs is said: empty for one decoder on one probe, `encoder ` and `decoder ` for
    two stacks, `needle ` for one probe of several.
    """
    groups = list(dict.fromkeys(places))
    stacks = {stack for *_, stack in groups}
    tails = {stack.rpartition(".")[2] for stack in stacks}
    prefixes = {}
    for checkpoint, task, stack in groups:
        short = stack.rpartition(".")[0] if len(tails) == 1 else stack
        parts = [
            checkpoint if len({group[0] for group in groups}) > 1 else None,
            task if len({group[1] for group in groups}) > 1 else None,
            short if len(stacks) > 1 else None,
        ]
        prefixes[checkpoint, task, stack] = "".join(f"{part} " for part in parts if part)
    return prefixes
