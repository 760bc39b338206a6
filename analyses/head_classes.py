"""What every head does as its input grows: sink, local, dispersing, holding or sharpening.

Rules, in this order (the numbers are those of `HeadThresholds`):

1. **sink**: at the longest n_key at least `sink` of the weight lies on the first visible key, or on
   a learned sink logit. Not asked where one key is more than `narrow` of the visible ones.
2. **local**: there at least `local` of the weight lies within a window of the latest keys: the
   widest window measured that holds at most `narrow` of the visible ones.
3. By the dispersion slope dH/dlog n, fitted from 2 keys on, if its 95 % interval decides (see
   `judgement.classify_slope`): **dispersing** above `disperses`, **sharpening** below `sharpens`,
   **holding** between.
4. **unknown** otherwise.

Classifying reads the tidy table and computes no measurement; verdicts are `head_verdicts`'.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from ..interp.theory import n_key_bound
from .crossings import find_crossing
from .fits import fit_slope
from .head_ladders import HeadLadders, read_heads
from .head_records import CLASSES, HeadClass, LayerSummary
from .judgement import classify_slope
from .thresholds import HeadThresholds
from .wording import format_number

__all__ = [
    "HeadClass",
    "LayerSummary",
    "classify_heads",
    "summarise_layers",
]

Layer = tuple[str | None, str | None, str, int]

_OF_SLOPE = {"disperses": "dispersing", "holds": "holding", "sharpens": "sharpening"}
_WINDOW = re.compile(r"window_(\d+)_mass")


def classify_heads(
    table: pd.DataFrame, thresholds: HeadThresholds | None = None
) -> tuple[HeadClass, ...]:
    """Classify every head whose entropy was measured, by the rules at the top of this module.

    Several seeds are averaged. Heads of several checkpoints, probes or stacks stay apart.

    Args:
        table: the tidy table.
        thresholds: where the lines are drawn; None = the defaults.

    Returns:
        By checkpoint and task as they come in the table, then stack, layer and head.
    """
    lines = thresholds or HeadThresholds()
    return tuple(_classify(head, lines) for head in read_heads(table) if "entropy" in head.ladders)


def summarise_layers(classes: Iterable[HeadClass]) -> tuple[LayerSummary, ...]:
    """The heads of each layer together, in the order in which the layers first come."""
    layers: dict[Layer, list[HeadClass]] = {}
    for item in classes:
        layers.setdefault(item.place[:4], []).append(item)
    return tuple(_summarise(heads) for heads in layers.values())


def _classify(head: HeadLadders, lines: HeadThresholds) -> HeadClass:
    entropy = head["entropy"]
    slope = fit_slope(entropy.n_key, entropy.mean)
    longest = float(entropy.n_key[-1])
    asked = 1 / longest <= lines.narrow
    sink_mass = _sink_mass(head, longest) if asked else math.nan
    window, window_mass = _window_mass(head, longest, lines.narrow)
    at = f"at {longest:.0f} keys"
    if sink_mass >= lines.sink:
        label = "sink"
        reason = f"{format_number(sink_mass)} of its weight lies on the sink {at}"
    elif window_mass >= lines.local:
        label = "local"
        reason = f"{format_number(window_mass)} of its weight lies on the latest {window} keys {at}"
    else:
        label = _OF_SLOPE.get(classify_slope(slope, lines), "unknown")
        reason = (
            f"entropy changes by {slope} nats per unit of log n"
            if label != "unknown"
            else f"its dispersion slope is not determined ({slope}): measure more lengths"
        )
    spreads = head["score_spread"].max
    spread = float(spreads.max()) if spreads.size else math.nan
    watched = "relevant_mass" if "relevant_mass" in head.ladders else "max_weight"
    ladder = head[watched]
    return HeadClass(
        checkpoint=head.checkpoint,
        task=head.task,
        site=head.site,
        layer=head.layer,
        head=head.head,
        label=label,
        slope=slope,
        n_key=longest,
        sink_mass=sink_mass,
        window_mass=window_mass,
        window=window,
        spread=spread,
        n_key_bound=float(n_key_bound(spread, lines.weight)) if spreads.size else math.nan,
        crossing=find_crossing(
            watched if ladder.n_key.size else "",
            ladder.n_key,
            ladder.mean,
            lines.weight,
            lines.reach,
        ),
        reason=reason,
    )


def _sink_mass(head: HeadLadders, n_key: float) -> float:
    """The larger of the two masses; the share of both together is at least that, row by row."""
    masses = [_at(head, name, n_key) for name in ("sink_mass", "learned_sink_mass")]
    known = [mass for mass in masses if not math.isnan(mass)]
    return max(known, default=math.nan)


def _window_mass(head: HeadLadders, n_key: float, narrow: float) -> tuple[int | None, float]:
    """The widest narrow window that was measured at this n_key, and its mass."""
    windows = {}
    for name in head.ladders:
        if (match := _WINDOW.fullmatch(name)) and int(match[1]) <= narrow * n_key:
            windows[int(match[1])] = _at(head, name, n_key)
    known = [window for window, mass in windows.items() if not math.isnan(mass)]
    return (max(known), windows[max(known)]) if known else (None, math.nan)


def _at(head: HeadLadders, quantity: str, n_key: float) -> float:
    ladder = head[quantity]
    found = ladder.mean[ladder.n_key == n_key]
    return float(found[0]) if found.size else math.nan


def _summarise(heads: Sequence[HeadClass]) -> LayerSummary:
    counts = Counter(item.label for item in heads)
    sloped = [item for item in heads if item.slope.status == "ok"]
    lost = [item.crossing.n_key for item in heads if item.crossing.kind == "measured"]
    checkpoint, task, stack, layer, _ = heads[0].place
    return LayerSummary(
        checkpoint=checkpoint,
        task=task,
        stack=stack,
        layer=layer,
        counts={label: counts[label] for label in CLASSES},
        slope=float(np.mean([item.slope.value for item in sloped])) if sloped else math.nan,
        steepest=max(sloped, key=lambda item: item.slope.value).head if sloped else None,
        lost=len(lost),
        first_lost=min(lost, default=math.nan),
    )
