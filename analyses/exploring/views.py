"""What an explorer shows, as arrays: the map of the heads, and one head in full."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...models.facts import Facts, layers_by_heads
from ..figures.patterns import quantise
from ..head_ladders import HeadLadders
from ..head_records import HeadClass
from ..wording import format_number
from .watching import HeadSeen
from .what_if_setting import WhatIfSetting

__all__ = ["COLOURED_BY", "HeadMap", "HeadView", "NormCurve"]

COLOURED_BY = ("slope", "normalised_entropy")
"""What the map can show: dH/dlog n (nats), or the entropy over log n at the chosen length."""


@dataclass(frozen=True)
class HeadMap(Facts):
    """Dispersion of every head.

    Attributes:
        by: One of `COLOURED_BY`.
        rows: Name of each row, such as ``L0``.
        values: ``[row, head]``; NaN where there is no such head or no value.
        words: One sentence for each head, ``[row][head]``; empty where there is none.
        length: The chosen length.
        what_if: What was changed, in words; empty for nothing.
    """

    by: str
    rows: tuple[str, ...]
    values: NDArray[np.float64]
    words: tuple[tuple[str, ...], ...]
    length: int
    what_if: str = ""

    def __repr__(self) -> str:
        """Quantity, unit and shape."""
        unit = "nats" if self.by == "slope" else "ratio"
        layers, heads = self.values.shape
        return f"HeadMap({self.by} ({unit}), {layers_by_heads(layers, heads)})"


@dataclass(frozen=True, repr=False)
class NormCurve(Facts):
    """The scale of one norm over the number of tokens, mean over sequences.

    Attributes:
        name: The norm's module name.
        n_key: ``[n_key]``, tokens up to and with the row's own.
        scale: ``[n_key]``, what the norm divides by (1).
    """

    name: str
    n_key: NDArray[np.float64]
    scale: NDArray[np.float64]


@dataclass(frozen=True)
class HeadView(Facts):
    """One head at one length: everything beside the map.

    Attributes:
        name: Such as ``L0 H0``.
        row: Its row of the map.
        head: Its column.
        length: The chosen length.
        length_range: Shortest and longest number of keys that was measured.
        described: Its class.
        measured: Its ladders as the audit measured them.
        seen: Its weights and scores at the chosen length, as measured.
        norms: Norms of its layer, and those of no layer, as measured.
        output: Loss (nats) and accuracy (ratio) of the model at the most keys, as measured; empty
            where its output is not scored.
        what_if: What is changed.
        changed: Its ladders then, or `None` if nothing is changed.
        changed_seen: Its weights and scores then.
        changed_norms: The norms then.
        changed_output: Loss and accuracy then.
    """

    name: str
    row: int
    head: int
    length: int
    length_range: tuple[float, float]
    described: HeadClass
    measured: HeadLadders
    seen: HeadSeen
    norms: tuple[NormCurve, ...]
    output: Mapping[str, float]
    what_if: WhatIfSetting = field(default_factory=WhatIfSetting)
    changed: HeadLadders | None = None
    changed_seen: HeadSeen | None = None
    changed_norms: tuple[NormCurve, ...] = ()
    changed_output: Mapping[str, float] = field(default_factory=dict)

    @property
    def shown(self) -> HeadSeen:
        """The weights that are drawn: with the change, if there is one."""
        return self.seen if self.changed_seen is None else self.changed_seen

    @property
    def levels(self) -> NDArray[np.uint8]:
        """The shown weights in 255 logarithmic levels over four decades; 0 is hidden."""
        return quantise(self.shown.weights)

    @property
    def words(self) -> str:
        """What is changed, in words; empty for nothing."""
        return self.what_if.words(self.name)

    @property
    def summary(self) -> str:
        """Name, class and slope, what is changed, and what that does to the output, in a line."""
        said = f"{self.name}: {self.described.label}, slope {self.described.slope} nats."
        if not self.words:
            return said
        parts = [
            f"{name} {format_number(value)} to {format_number(self.changed_output[name])}"
            for name, value in self.output.items()
            if name in self.changed_output
        ]
        at = f" {', '.join(parts)} at {self.length_range[1]:g} keys." if parts else ""
        return f"{said} What if {self.words}:{at or ' the model has no scored output.'}"

    def __repr__(self) -> str:
        """Which head, which lengths, what is changed."""
        rows, columns = self.shown.weights.shape
        low, high = self.length_range
        each = "" if self.shown.block == 1 else f", means over blocks of {self.shown.block}"
        return (
            f"HeadView({self.name} at length {self.length}: curves from {low:g} to {high:g} keys, "
            f"weights {rows} x {columns}{each}; {self.words or 'nothing changed'})"
        )
