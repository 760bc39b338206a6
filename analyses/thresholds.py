"""Where the lines between verdicts are drawn: data, stored with what was judged by it.

The command line takes its flags from here, so nothing that takes time is imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

from ..interp.arguments import check_thresholds
from ..models.facts import Facts

__all__ = ["SOURCE", "THRESHOLD_SOURCES", "HeadThresholds", "Thresholds"]

SOURCE = "convention of this toolkit (see Thresholds); change it with flags or arguments"
"""Where a threshold comes from that nobody else has set."""


@dataclass(frozen=True)
class Thresholds(Facts):
    """Where the lines are drawn. Stored with every verdict.

    Attributes:
        disperses: A head disperses if its dispersion slope dH/dlog n is certainly above this
            (nats). 0.25: the effective support more than doubles while the keys grow sixteenfold.
        sharpens: A head sharpens if its slope is certainly below this (nats).
        weight: A head has lost its strongest key where the mean of the largest weight falls below
            this (ratio).
        resharpens: A norm resharpens if the exponent of its rescale gain over length is certainly
            above this (1). 0.25: half of the square root that a norm on the attention output gives.
        error_warn: Total variation to the exact distribution that calls for a warning (ratio).
        error_fail: Total variation at which the model has failed (ratio).

    Raises:
        TypeError: If one is no number.
        ValueError: If one is out of range.
    """

    disperses: float = 0.25
    sharpens: float = 0.0
    weight: float = 0.1
    resharpens: float = 0.25
    error_warn: float = 0.1
    error_fail: float = 0.5

    def __post_init__(self) -> None:
        """Check that they are finite numbers, and the ranges."""
        check_thresholds(self)
        if not self.sharpens <= self.disperses:
            raise ValueError(
                "the sharpens threshold must not exceed the disperses threshold; got "
                f"{self.sharpens} and {self.disperses}"
            )
        if not 0 < self.weight < 1:
            raise ValueError(f"the weight threshold must lie in (0, 1); got {self.weight}")
        if not 0 < self.error_warn <= self.error_fail < 1:
            raise ValueError(
                "error thresholds must satisfy 0 < error_warn <= error_fail < 1; got "
                f"{self.error_warn} and {self.error_fail}"
            )

    @classmethod
    def of(cls, lines: "Thresholds") -> Self:
        """The same thresholds as this class, which may know fewer of them, or more."""
        known = {item.name for item in fields(cls)}
        given = {item.name: getattr(lines, item.name) for item in fields(lines)}
        return cls(**{name: value for name, value in given.items() if name in known})


@dataclass(frozen=True)
class HeadThresholds(Thresholds):
    """Where the lines between the classes of heads are drawn; see `THRESHOLD_SOURCES`.

    Attributes:
        sink: A head is a sink if its mean weight on the first visible key (or on its learned sink
            logit) is at least this at the longest n_key (ratio).
        local: A head is local if its mean weight within a narrow window is at least this (ratio).
        narrow: A key or a window is narrow if it holds at most this share of the visible keys
            (ratio): wider, uniform attention alone would come near the two thresholds above.
        reach: A power law is fitted from the longest n_key divided by this on, and followed as far
            ahead as it was seen: to the longest n_key times this at most (1).
        share: A layer, or a model, disperses if at least this share of its heads does (ratio).
    """

    sink: float = 0.5
    local: float = 0.5
    narrow: float = 0.25
    reach: float = 16.0
    share: float = 0.5

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        for name in ("sink", "local", "share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"the {name} threshold must lie in (0, 1]; got {getattr(self, name)}"
                )
        if not 0 < self.narrow < min(self.sink, self.local):
            raise ValueError(
                "narrow must lie above 0 and below the sink and local thresholds, or uniform "
                f"attention would pass for either; got {self.narrow}"
            )
        if not self.reach > 1:
            raise ValueError(f"reach must be above 1; got {self.reach}")


THRESHOLD_SOURCES: Mapping[str, str] = {
    "disperses": SOURCE,
    "sharpens": SOURCE,
    "weight": SOURCE,
    "sink": "a sink takes most of the weight, after Xiao et al., arXiv 2309.17453",
    "local": SOURCE,
    "narrow": SOURCE,
    "reach": SOURCE,
    "share": SOURCE,
}
"""Where each threshold comes from."""
