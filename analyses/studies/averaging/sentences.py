"""What the study says: where averaging helps, how that scales, what the noise is made of."""

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from ...findings import Finding
from ...rows import distinct, pick
from ...seeds import Interval
from ...wording import format_interval, format_number, plural
from .config import AveragingConfig
from .gains import QUANTITIES, Gain, Outcome, Scaling, contrast, decide
from .noise import LABELS, TaskFacts, progress_of

MAIN = "mean_total_variation"
"""The error that the sentences speak of; the other one is listed."""

TREND: Mapping[Outcome, str] = {"helps": "grows", "hurts": "falls", "undecided": "is undecided"}
"""What becomes of a gain as more tokens are legal, by the side of zero its slope lies on."""


def conclude(
    config: AveragingConfig,
    gains: Sequence[Gain],
    scalings: Sequence[Scaling],
    facts: Mapping[str, TaskFacts],
    noise: pd.DataFrame,
    findings: Sequence[Finding],
) -> list[str]:
    """The sentences that matter, most important first."""
    told = [
        item
        for item in gains
        if item.learned and item.quantity == MAIN and item.cell.learning_rate == 1
    ]
    average = main_average(config)
    said = [_help(config, told, schedule, average) for schedule in config.schedules]
    said += [_scaling(config, scalings, schedule, average) for schedule in config.schedules]
    said.append(_targets(told, average))
    said.append(_best(config, told))
    said += _noise(config, facts, noise, findings)
    if unlearned := [name for name in facts if not any(g.cell.setting == name for g in told)]:
        said.append(
            f"Not learned, and so left out of these counts: {', '.join(unlearned)} (no weights "
            "came below half the error of the best guess that does not look at the input)."
        )
    return [sentence for sentence in said if sentence]


def main_average(config: AveragingConfig) -> str:
    """The average that the sentences speak of first: EMA at 0.99, else the first there is."""
    return "ema-0.99" if "ema-0.99" in config.averages else config.averages[0]


def ratio_words(interval: Interval) -> str:
    """A gain in nats as the factor that the error is divided by: `2.1 [1.8, 2.4] times`."""
    ends = (math.exp(end) for end in (interval.mean, interval.low, interval.high))
    return f"{format_interval(*ends)} times"


def _help(config: AveragingConfig, told: Sequence[Gain], schedule: str, average: str) -> str:
    chosen = [
        item
        for item in told
        if (item.cell.schedule, item.cell.targets, item.average, item.longer)
        == (schedule, "sampled", average, False)
    ]
    if not chosen:
        return ""
    counts = {outcome: sum(item.outcome == outcome for item in chosen) for outcome in TREND}
    ordered = sorted(chosen, key=lambda item: item.legal)
    ends = [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered
    parts = [
        f"{ratio_words(item.gain)} smaller at {format_number(item.legal)} legal tokens "
        f"({item.cell.setting})"
        for item in ends
    ]
    return (
        f"{schedule.capitalize()} rate, sampled targets: {average} helps on {counts['helps']} of "
        f"{plural(len(chosen), 'task')}, hurts on {counts['hurts']}, {counts['undecided']} "
        f"undecided ({plural(len(config.seeds), 'seed')}); its total variation is "
        f"{' and '.join(parts)}."
    )


def _scaling(
    config: AveragingConfig, scalings: Iterable[Scaling], schedule: str, average: str
) -> str:
    parts = []
    for item in scalings:
        if (item.recipe, item.average, item.quantity) == (f"{schedule}, sampled", average, MAIN):
            where = "at longer inputs" if item.longer else "at the training length"
            slope = item.slope
            parts.append(
                f"{where} it {TREND[item.outcome]} "
                f"({format_interval(slope.mean, slope.low, slope.high)} nats for each factor e in "
                f"their number, {plural(item.n_tasks, 'task')})"
            )
    if not parts:
        return ""
    return (
        f"How the gain of {average} changes with the number of legal tokens, {schedule} rate, "
        f"sampled targets: {'; '.join(parts)}."
    )


def _targets(told: Sequence[Gain], average: str) -> str:
    """Sampled against exact targets: is it the labels' noise that averaging removes?"""
    chosen = {
        (item.cell.setting, item.cell.targets): item
        for item in told
        if (item.cell.schedule, item.average, item.longer) == ("constant", average, False)
    }
    pairs = {
        name: contrast(item, chosen[name, "exact"])
        for (name, targets), item in chosen.items()
        if targets == "sampled" and (name, "exact") in chosen
    }
    if not pairs:
        return ""
    sides = [decide(interval) for interval in pairs.values()]
    more, less = sides.count("helps"), sides.count("hurts")
    return (
        f"Against exact targets at a constant rate, the gain of {average} with sampled targets is "
        f"larger on {more} of {plural(len(pairs), 'task')}, smaller on {less}, "
        f"{sides.count('undecided')} undecided: "
        + (
            "averaging gains as much or more without any noise of the labels."
            if less and not more
            else "the noise of the labels is part of what averaging removes."
            if more and not less
            else "what averaging gains is not the labels' noise alone."
        )
    )


def _best(config: AveragingConfig, told: Sequence[Gain]) -> str:
    """Which average was best most often, and which did harm, with sampled targets."""
    lines: dict[tuple[str, str], list[Gain]] = {}
    for item in told:
        if item.cell.targets == "sampled" and not item.longer:
            lines.setdefault((item.cell.schedule, item.cell.setting), []).append(item)
    parts = []
    for schedule in config.schedules:
        groups = [group for (name, _), group in lines.items() if name == schedule]
        if not groups:
            continue
        best = [max(group, key=lambda item: _known(item.gain.mean)).average for group in groups]
        most = max(dict.fromkeys(best), key=best.count)
        harm = [
            name
            for name in config.averages
            if all(i.outcome == "hurts" for group in groups for i in group if i.average == name)
        ]
        words = f"{schedule}: {most} (on {best.count(most)} of {plural(len(groups), 'task')})"
        parts.append(words + (f", while {', '.join(harm)} always hurts" if harm else ""))
    return f"The best average with sampled targets: {'; '.join(parts)}." if parts else ""


def _noise(
    config: AveragingConfig,
    facts: Mapping[str, TaskFacts],
    noise: pd.DataFrame,
    findings: Sequence[Finding],
) -> list[str]:
    known = [finding for finding in findings if finding.status == "ok"]
    said = []
    if known:
        worst = max(finding.max_error for finding in known)
        held = sum(not finding.violated for finding in known)
        said.append(
            "Noise of the labels at the logits: the closed form 1 - 1/L holds on "
            f"{held} of {plural(len(known), 'task')} with equally likely legal tokens (largest "
            f"deviation {format_number(worst)}; it holds label by label)."
        )
    steps = sorted(distinct(noise, "checkpoint"), key=progress_of)
    tasks = sorted(distinct(noise, "task"), key=lambda name: facts[name].legal)
    parts = []
    for task in (tasks[0], tasks[-1]) if len(tasks) > 1 else tasks:
        own = [step for step in steps if len(pick(noise, task=task, checkpoint=step))]
        if not own or own[-1] == LABELS:
            continue
        share = label_share(noise, task, own[-1])
        parts.append(
            f"{100 * share.mean:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}] at "
            f"{format_number(facts[task].legal)} legal tokens ({task}, at {own[-1]})"
        )
    if parts:
        said.append(
            "At the weights, the labels' share of the variance of a sequence's gradient with "
            f"sampled targets is {' and '.join(parts)}."
        )
    return said


def label_share(noise: pd.DataFrame, task: str, step: str) -> Interval:
    """``label / (label + input)`` over seeds, in ``[0, 1]``."""
    rows = pick(noise, task=task, checkpoint=step)
    parts = {
        name: dict(zip(own["seed"].tolist(), own["mean"].tolist(), strict=True))
        for name in ("label_noise", "input_noise")
        for own in [pick(rows, quantity=name)]
    }
    label, given = parts["label_noise"], parts["input_noise"]
    return Interval.of([label[seed] / (label[seed] + given[seed]) for seed in label])


def listed(
    gains: Sequence[Gain], scalings: Sequence[Scaling], left_out: Mapping[str, str]
) -> dict[str, list[str]]:
    """What the report lists after its figures: every scaling, every gain, what failed."""
    lists = {
        "How each gain changes with the number of legal tokens": [
            f"{item.family}, {item.recipe}, {item.average}, "
            f"{'longer' if item.longer else 'training length'}, {QUANTITIES[item.quantity]}: "
            f"{TREND[item.outcome]}, {_signed(item.slope)} nats for each factor e, "
            f"{plural(item.n_tasks, 'task')}"
            for item in scalings
        ]
    }
    for outcome, heading in (("helps", "helps"), ("hurts", "hurts"), ("undecided", "undecided")):
        lists[f"Total variation at the training length, averaging {heading}"] = [
            f"{item.cell.label}, {item.average}: {_signed(item.gain)} nats, "
            f"{format_number(Interval.of(list(item.raw.values())).mean)} to "
            f"{format_number(Interval.of(list(item.averaged.values())).mean)}"
            for item in gains
            if item.outcome == outcome and item.quantity == MAIN and not item.longer
        ]
    lists["What could not be run"] = [f"{name}: {why}" for name, why in left_out.items()]
    return lists


def _signed(interval: Interval) -> str:
    return format_interval(interval.mean, interval.low, interval.high)


def _known(value: float) -> float:
    return -math.inf if math.isnan(value) else value
