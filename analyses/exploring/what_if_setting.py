"""What the sliders stand at: an inverse temperature and a norm's gain, for one head or for all."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...interp.remedies import NormGain, Remedy
from ...models.facts import Facts

__all__ = ["WhatIfSetting"]


@dataclass(frozen=True)
class WhatIfSetting(Facts):
    """A what-if, as a profile takes it (see :mod:`resharpen.interp.remedies`).

    Attributes:
        temperature: Inverse temperature: what the scores are multiplied by (1).
        norm_gain: What the norms that attention's output meets are multiplied by (1).
        everywhere: Whether it is applied to every head and layer, or to the chosen one alone. A
            norm belongs to a layer: the gain of the chosen head's own layer is changed.

    Raises:
        ValueError: A factor that is not a positive number.
    """

    temperature: float = 1.0
    norm_gain: float = 1.0
    everywhere: bool = False

    def __post_init__(self) -> None:
        """Check the factors."""
        for name in ("temperature", "norm_gain"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not (0 < value < math.inf)
            ):
                raise ValueError(f"{name} must be a positive number, 1 for none; got {value!r}")

    @property
    def plain(self) -> bool:
        """Whether nothing is changed."""
        return self.temperature == self.norm_gain == 1.0

    def remedy(self, layer: int, head: int) -> Remedy | None:
        """What each attention layer is given; ``None`` for what it has."""
        if self.temperature == 1.0:
            return None
        heads = None if self.everywhere else frozenset({(layer, head)})
        return Remedy("temperature", strength=self.temperature, heads=heads)

    @contextmanager
    def applied(self, adapter: Any, layer: int) -> Iterator[None]:
        """Hold the gains multiplied while the block runs, and restore them.

        Raises:
            ValueError: The model has no norm that attention's output meets.
        """
        if self.norm_gain == 1.0:
            yield
            return
        gain = NormGain(self.norm_gain, None if self.everywhere else frozenset({layer}))
        with gain.applied(adapter):
            yield

    def words(self, name: str) -> str:
        """Such as ``temperature 1.5, norm gain 2 on L0 H0``; empty if nothing is changed."""
        parts = [
            f"{words} {value:.3g}"
            for words, value in (
                ("inverse temperature", self.temperature), ("norm gain", self.norm_gain)
            )
            if value != 1.0
        ]  # fmt: skip
        return f"{', '.join(parts)} on {'all heads' if self.everywhere else name}" if parts else ""
