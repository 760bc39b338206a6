"""From the rows of trained models to one number a seed: ladders, paired differences, failures."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ...rows import pick
from ...seeds import Interval
from ...wording import format_number

__all__ = ["ladders", "mean_of", "paired_difference", "seed_values", "share", "why_not_learned"]


def ladders(
    frame: pd.DataFrame, checkpoint: str, quantity: str, column: str = "mean"
) -> dict[int, dict[int, float]]:
    """By seed, a column of one quantity by length, increasing; rows not ok are left out."""
    rows = pick(frame, checkpoint=checkpoint, quantity=quantity)
    found: dict[int, dict[int, float]] = {}
    columns = (rows["seed"].tolist(), rows["length"].tolist(), rows[column].tolist())
    for seed, length, value in sorted(zip(*columns, strict=True)):
        found.setdefault(int(seed), {})[int(length)] = float(value)
    return found


def seed_values(
    frame: pd.DataFrame, checkpoint: str, quantity: str, length: int
) -> dict[int, float]:
    """The mean of one quantity at one length, by seed; seeds without one are left out."""
    found = ladders(frame, checkpoint, quantity)
    return {seed: values[length] for seed, values in found.items() if length in values}


def mean_of(values: Mapping[int, float]) -> Interval:
    """Mean and interval of one value a seed."""
    return Interval.of(list(values.values()))


def paired_difference(one: Mapping[int, float], other: Mapping[int, float]) -> Interval:
    """``one - other`` seed by seed, over the seeds that both have."""
    return Interval.of([one[seed] - other[seed] for seed in one if seed in other])


def share(part: float, whole: float) -> float:
    """``part / whole``; NaN where there is no whole to have a part of."""
    return part / whole if whole else math.nan


def why_not_learned(
    frame: pd.DataFrame,
    checkpoints: Sequence[str],
    length: int,
    threshold: float,
    quantity: str = "total_variation",
) -> str:
    """Say which of the models did not learn their training length; empty if all did.

    Args:
        frame: Rows of the models.
        checkpoints: Labels of the models.
        length: The training length.
        threshold: Largest error, mean over seeds, that counts as learned.
        quantity: The error.
    """
    failed = []
    for checkpoint in checkpoints:
        error = mean_of(seed_values(frame, checkpoint, quantity, length)).mean
        if not error <= threshold:
            failed.append(f"{checkpoint} (error {format_number(error)} at length {length})")
    if not failed:
        return ""
    return f"not learned: {', '.join(failed)}; learned is at most {format_number(threshold)}"
