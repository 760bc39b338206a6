"""From the classes of heads to verdicts on heads, layers and models.

Judging computes nothing but counts: every verdict carries the number it was judged by, its
threshold and where that comes from.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from .findings import Verdict
from .head_records import CLASSES, HeadClass, stack_prefixes
from .thresholds import THRESHOLD_SOURCES, HeadThresholds
from .wording import format_number, plural

__all__ = ["judge_heads", "judge_nothing"]

NO_ROWS = "no head shows its rows of weights, so whether one disperses cannot be said"
"""Why nothing is said of the heads of a model, such as one with differential attention."""

Layer = tuple[str | None, str | None, str, int]


def judge_heads(
    classes: Iterable[HeadClass], thresholds: HeadThresholds | None = None
) -> list[Verdict]:
    """A verdict for every head, every layer and the model.

    A dispersing head is a WARN: what it was trained to find drowns as the input grows. A sink, a
    local, a holding and a sharpening head PASS. A layer, or the model, is a WARN if at least
    `share` of its heads disperse, and UNKNOWN if heads of unknown class could make the difference.
    Nothing is a FAIL: dispersion is a risk, failure shows in the error.

    Args:
        classes: what `classify_heads` found, of one checkpoint or several.
        thresholds: the same as there.

    Returns:
        Heads, then layers, then one verdict a checkpoint and probe.
    """
    lines = thresholds or HeadThresholds()
    found = list(classes)
    prefix = stack_prefixes(item.place[:3] for item in found)
    layers: dict[Layer, list[HeadClass]] = {}
    models: dict[tuple[str | None, str | None], list[HeadClass]] = {}
    for item in found:
        layers.setdefault(item.place[:4], []).append(item)
        models.setdefault(item.place[:2], []).append(item)
    several = len({task for _, task in models}) > 1
    verdicts = [
        _judge_head(item, f"{prefix[item.place[:3]]}L{item.layer} H{item.head}", lines)
        for item in found
    ]
    for heads in layers.values():
        subject = f"{prefix[heads[0].place[:3]]}layer {heads[0].layer}"
        verdicts.append(_judge_share(heads, subject, "layer", lines))
    for (checkpoint, task), heads in models.items():
        subject = (checkpoint or "model") + (f" on {task}" if several and task else "")
        verdicts.append(_judge_share(heads, subject, "model", lines))
    return verdicts


def judge_nothing(subject: str, thresholds: HeadThresholds | None = None) -> Verdict:
    """The verdict on a model of which no head shows its rows of weights: UNKNOWN.

    Args:
        subject: what the model is called.
        thresholds: as for `judge_heads`.
    """
    return Verdict(
        subject=subject,
        level="model",
        label="unknown",
        verdict="UNKNOWN",
        value=math.nan,
        threshold=(thresholds or HeadThresholds()).share,
        length_measured=math.nan,
        length_predicted=math.nan,
        reason=NO_ROWS,
        unit="ratio",
        threshold_source=THRESHOLD_SOURCES["share"],
    )


def _judge_head(item: HeadClass, subject: str, lines: HeadThresholds) -> Verdict:
    judged = {
        "sink": ("sink", item.sink_mass, "ratio"),
        "local": ("local", item.window_mass, "ratio"),
        "sharpening": ("sharpens", item.slope.value, "nats"),
    }
    line, value, unit = judged.get(item.label, ("disperses", item.slope.value, "nats"))
    return Verdict(
        subject=subject,
        level="head",
        label=item.label,
        verdict={"dispersing": "WARN", "unknown": "UNKNOWN"}.get(item.label, "PASS"),
        value=value,
        threshold=getattr(lines, line),
        length_measured=item.crossing.n_key if item.crossing.kind == "measured" else math.nan,
        length_predicted=item.n_key_bound + 1,
        reason=f"{item.reason}; {item.crossing.sentence}",
        unit=unit,
        threshold_source=THRESHOLD_SOURCES[line],
    )


def _judge_share(
    heads: Sequence[HeadClass], subject: str, level: str, lines: HeadThresholds
) -> Verdict:
    counts = Counter(item.label for item in heads)
    total, dispersing, unknown = len(heads), counts["dispersing"], counts["unknown"]
    least, most = dispersing / total, (dispersing + unknown) / total
    # Over all of them: a model's verdict is of several layers, each with its own summary.
    lost = [item.crossing.n_key for item in heads if item.crossing.kind == "measured"]
    first = min(lost, default=math.nan)
    if least >= lines.share:
        verdict, label = "WARN", "disperses"
    elif most >= lines.share:
        verdict, label = "UNKNOWN", "unknown"
    else:
        verdict, label = "PASS", "focused"
    told = ", ".join(f"{counts[name]} {name}" for name in CLASSES if counts[name])
    drowned = "" if not lost else (
        f"; {plural(len(lost), 'head')} below {format_number(lines.weight)} within what was "
        f"measured, the first from {first:.0f} keys on"
    )  # fmt: skip
    return Verdict(
        subject=subject,
        level=level,
        label=label,
        verdict=verdict,
        value=least,
        threshold=lines.share,
        length_measured=first,
        length_predicted=math.nan,
        reason=f"{plural(total, 'head')}: {told}{drowned}",
        unit="ratio",
        threshold_source=THRESHOLD_SOURCES["share"],
    )
