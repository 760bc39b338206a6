"""Which remedy theory recommends for a head, from the law of its scores and what sharpens them."""

import math
from dataclasses import dataclass

import numpy as np

from .growth_laws import Growth
from .head_ladders import HeadLadders
from .record import Record
from .score_laws import ScoreLaw
from .wording import format_number

__all__ = ["REMEDIES", "Recommendation", "recommend"]

REMEDIES = ("none", "temperature", "sqrt_log_n", "log_n", "power", "norm", "undecided")
"""What theory may recommend: nothing, a fixed inverse temperature, one that grows with n, or a norm
after attention where no temperature helps."""

WEIGHT = 0.5
"""Weight of the strongest key from which a row counts as sharp (that of the measurement)."""


@dataclass(frozen=True)
class Recommendation(Record):
    """Which remedy theory recommends for a head.

    Args:
        kind: one of `REMEDIES`.
        by_law: what the law of the scores alone asks for; `undecided` where there is none.
        by_growth: what the growth of the measured inverse temperature asks for; `undecided` where
            the candidates cannot be separated.
        inverse_temperature: what would sharpen it at the most keys measured, in units of the one it
            has (1); infinite where none can.
        reason: why, in half a sentence.

    Raises:
        ValueError: an unknown remedy.
    """

    kind: str
    by_law: str
    by_growth: str
    inverse_temperature: float
    reason: str

    def __post_init__(self) -> None:
        """Check the remedies."""
        for kind in (self.kind, self.by_law, self.by_growth):
            if kind not in REMEDIES:
                raise ValueError(f"a remedy is one of {', '.join(REMEDIES)}, got {kind!r}")

    @property
    def agrees(self) -> bool | None:
        """Whether law and growth ask for the same; None where either is undecided."""
        if "undecided" in (self.by_law, self.by_growth):
            return None
        return self.by_law == self.by_growth


def recommend(
    law: ScoreLaw, growth: Growth, ladders: HeadLadders, *, aggregates: bool = False
) -> Recommendation:
    """Which remedy theory recommends for what was found.

    Args:
        law: the law of the scores.
        growth: how the inverse temperature that sharpens them grows.
        ladders: what was measured; `reachable` and the inverse temperature are read.
        aggregates: whether the task averages over every key.
    """
    rises = growth.law == "power" and not growth.falls
    by_law = {
        "bounded": "power" if rises else "log_n",
        "gaussian": "sqrt_log_n",
        "growing": "temperature",
    }.get(law.law, "undecided")
    by_growth = {"constant": "temperature", "power": "power" if rises else "temperature"}.get(
        growth.law, growth.law
    )
    reachable = ladders["reachable"].mean
    if aggregates:
        reason = (
            "aggregation: the task averages over every key, so that no temperature helps: try a "
            "norm after attention"
        )
        return Recommendation("norm", by_law, by_growth, math.inf, reason)
    if reachable.size and reachable[-1] < WEIGHT:
        reason = (
            f"aggregation: in {format_number(1 - float(reachable[-1]))} of the rows so many keys "
            "tie at the maximum that no temperature gives one of them half: try a norm after "
            "attention"
        )
        return Recommendation("norm", "norm", "norm", math.inf, reason)
    sharpening = ladders["log_sharpening_inverse_temperature"]
    half = np.nan_to_num(sharpening.half)
    if sharpening.mean.size and bool((sharpening.mean + half <= 0).all()):
        reason = "its strongest key holds half of the weight at every number of keys measured"
        return Recommendation("none", by_law, by_growth, growth.last, reason)
    kind = by_growth if by_law == "undecided" else by_law
    reasons = {
        "temperature": "scores that grow with n need no factor that does: one inverse temperature",
        "sqrt_log_n": "Gaussian scores of fixed deviation need an inverse temperature that grows "
        "as sqrt(log n)",
        "log_n": "bounded scores need an inverse temperature that grows at least as log n",
        "power": "its rivals close in on the strongest key faster than log n",
    }
    if by_law == "undecided":
        reasons = {
            "temperature": "the inverse temperature that sharpens it does not grow",
            "sqrt_log_n": "the inverse temperature that sharpens it grows as sqrt(log n)",
            "log_n": "the inverse temperature that sharpens it grows as log n",
            "power": "the inverse temperature that sharpens it grows faster than log n",
        }
    reason = reasons.get(kind, f"neither law nor growth is certain: {growth.reason}")
    return Recommendation(kind, by_law, by_growth, growth.last, reason)
