"""What an average gains over the raw weights of the same run, and how that scales.

    gain = log(error of the raw weights / error of the average)

seed by seed (both come from one run), then mean and 95 % t-interval over seeds: positive where
averaging helps, ``log 2`` where it halves the error. The errors are means over all positions of the
sequences of one length. The scaling is the slope of the gain over ``log L``, fitted for every seed
within a family of tasks that differ in the number ``L`` of legal tokens alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from ...fits import MIN_POINTS, fit_slope
from ...rows import distinct, pick
from ...seeds import Interval
from .config import RAW, AveragingConfig, Cell
from .noise import TaskFacts

Outcome = Literal["helps", "hurts", "undecided"]

QUANTITIES: Mapping[str, str] = {
    "mean_total_variation": "total variation",
    "mean_kl_divergence": "KL divergence",
}
"""The errors that gains are taken of, and what they are called."""

LEARNED = 0.5
"""Share of the blind error (see :func:`learned_settings`) up to which a task counts as learned."""

MIN_SEEDS = 3
"""Fewer seeds leave a gain undecided."""


@dataclass(frozen=True)
class Gain:
    """One average against the raw weights of its run.

    Attributes:
        cell: The training run.
        family: Family of its task.
        legal: Legal tokens ``L`` of its task at the training length.
        learned: Whether its task was learned by any run of the study.
        average: Name of the average.
        length: Evaluation length.
        longer: Whether that is longer than the training length.
        quantity: The error.
        raw: Error of the raw weights, by seed.
        averaged: Error of the average, by seed.
    """

    cell: Cell
    family: str
    legal: float
    learned: bool
    average: str
    length: int
    longer: bool
    quantity: str
    raw: Mapping[int, float]
    averaged: Mapping[int, float]

    @property
    def by_seed(self) -> dict[int, float]:
        """The gain of each seed (nats); NaN where an error is zero or unknown."""
        return log_ratios(self.raw, self.averaged)

    @property
    def gain(self) -> Interval:
        """Over seeds."""
        return Interval.of(list(self.by_seed.values()))

    @property
    def difference(self) -> Interval:
        """Error of the average less that of the raw weights: negative where averaging helps."""
        return Interval.of([self.averaged[seed] - self.raw[seed] for seed in self.raw])

    @property
    def outcome(self) -> Outcome:
        """Whether the interval of the gain leaves out zero, and on which side."""
        return decide(self.gain)


@dataclass(frozen=True)
class Scaling:
    """How a gain changes with the number of legal tokens, within a family.

    Attributes:
        family: The tasks.
        recipe: All but the task of the runs.
        average: Name of the average.
        longer: Whether errors at the longer length are compared.
        quantity: The error.
        slope: Change of the gain for each factor ``e`` in ``L``, over seeds.
        n_tasks: Tasks on the line.
    """

    family: str
    recipe: str
    average: str
    longer: bool
    quantity: str
    slope: Interval
    n_tasks: int

    @property
    def outcome(self) -> Outcome:
        """``helps`` where the gain surely grows with ``L``, ``hurts`` where it surely falls."""
        return decide(self.slope)


def decide(interval: Interval) -> Outcome:
    """On which side of zero an interval lies; undecided if on both, or on few seeds."""
    if interval.n_seeds < MIN_SEEDS or not math.isfinite(interval.low):
        return "undecided"
    if interval.low > 0:
        return "helps"
    return "hurts" if interval.high < 0 else "undecided"


def find_gains(
    config: AveragingConfig, frames: Mapping[Cell, pd.DataFrame], facts: Mapping[str, TaskFacts]
) -> list[Gain]:
    """Every average of every run against its raw weights.

    Args:
        config: The study.
        frames: Rows of :func:`~resharpen.analyses.trials.run_trial` of each finished cell.
        facts: What the targets of each task say.
    """
    known = learned_settings(config, frames, facts)
    found = []
    for cell, frame in frames.items():
        setting = config.setting(cell.setting)
        for quantity in QUANTITIES:
            for length in setting.lengths:
                rows = pick(frame, quantity=quantity, length=length)
                raw = _by_seed(pick(rows, checkpoint=RAW))
                for average in config.averages:
                    averaged = _by_seed(pick(rows, checkpoint=average))
                    both = [seed for seed in raw if seed in averaged]
                    found.append(
                        Gain(
                            cell=cell,
                            family=setting.family,
                            legal=facts[cell.setting].legal,
                            learned=cell.setting in known,
                            average=average,
                            length=length,
                            longer=length > setting.length,
                            quantity=quantity,
                            raw={seed: raw[seed] for seed in both},
                            averaged={seed: averaged[seed] for seed in both},
                        )
                    )
    return found


def learned_settings(
    config: AveragingConfig, frames: Mapping[Cell, pd.DataFrame], facts: Mapping[str, TaskFacts]
) -> set[str]:
    """Tasks that some weights of some run learned.

    Learned: mean over seeds of the total variation at the training length is at most ``LEARNED``
    times that of the best guess that does not look at the input. What averaging does to a model
    that has learned nothing says nothing.
    """
    found = set()
    for cell, frame in frames.items():
        length = config.setting(cell.setting).length
        rows = pick(frame, quantity="mean_total_variation", length=length)
        errors = [
            Interval.of(list(_by_seed(pick(rows, checkpoint=weights)).values())).mean
            for weights in distinct(rows, "checkpoint")
        ]
        if min(errors, default=math.nan) <= LEARNED * facts[cell.setting].blind:
            found.add(cell.setting)
    return found


def find_scalings(gains: Iterable[Gain]) -> list[Scaling]:
    """The slope of the gain over ``log L`` wherever a family has three learned tasks or more."""
    lines: dict[tuple[Any, ...], list[Gain]] = {}
    for item in gains:
        place = (item.family, item.cell.recipe, item.average, item.longer, item.quantity)
        lines.setdefault(place, []).append(item)
    found = []
    for place, line in lines.items():
        line = [item for item in line if item.learned]
        if len(line) >= MIN_POINTS:
            found.append(Scaling(*place, slope=slope_over_seeds(line), n_tasks=len(line)))
    return found


def slope_over_seeds(line: Sequence[Gain]) -> Interval:
    """One slope over ``log L`` a seed, then mean and interval over the seeds all tasks have."""
    seeds = set.intersection(*(set(item.by_seed) for item in line))
    x = [item.legal for item in line]
    return Interval.of(
        [fit_slope(x, [item.by_seed[seed] for item in line]).value for seed in sorted(seeds)]
    )


def log_ratios(raw: Mapping[int, float], averaged: Mapping[int, float]) -> dict[int, float]:
    """``log(raw / averaged)`` of each seed that both have; NaN where an error is not positive."""
    return {
        seed: math.log(raw[seed] / averaged[seed])
        if raw[seed] > 0 and averaged[seed] > 0
        else math.nan
        for seed in raw
        if seed in averaged
    }


def contrast(one: Gain, other: Gain) -> Interval:
    """Gain of one less that of the other, seed by seed: such as sampled less exact targets."""
    return Interval.of(
        [one.by_seed[seed] - other.by_seed[seed] for seed in one.by_seed if seed in other.by_seed]
    )


def gain_frame(gains: Iterable[Gain]) -> pd.DataFrame:
    """One row a gain: what ``gains.csv`` holds and the figures draw."""
    return pd.DataFrame(
        [
            {
                "task": item.cell.setting,
                "family": item.family,
                "legal": item.legal,
                "learned": item.learned,
                "schedule": item.cell.schedule,
                "rate_factor": item.cell.learning_rate,
                "targets": item.cell.targets,
                "average": item.average,
                "length": item.length,
                "longer": item.longer,
                "quantity": item.quantity,
                **_ends("raw", Interval.of(list(item.raw.values()))),
                **_ends("error", Interval.of(list(item.averaged.values()))),
                **_ends("gain", item.gain),
                **_ends("difference", item.difference),
                "n_seeds": item.gain.n_seeds,
                "outcome": item.outcome,
            }
            for item in gains
        ]
    )


def _ends(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _by_seed(rows: pd.DataFrame) -> dict[int, float]:
    return dict(zip(rows["seed"].astype(int).tolist(), rows["mean"].tolist(), strict=True))
