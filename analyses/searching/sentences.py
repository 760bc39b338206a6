"""What a search says: its sentences, its lists for the report, its table for the terminal."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..wording import format_interval, format_number, plural, quantity_words
from .effects import Effect
from .space import Space
from .winners import Winner

__all__ = [
    "conclude",
    "effect_sentence",
    "field_words",
    "interval_words",
    "listed",
    "objective_words",
]

_HEADLINES = 4


def conclude(
    space: Space,
    trials: pd.DataFrame,
    effects: Sequence[Effect],
    winners: Sequence[Winner],
) -> list[str]:
    """The sentences that matter, most important first."""
    sentences = _winner_sentences(space, winners)
    known = [one for one in effects if not math.isnan(one.low)]
    decided = [one for one in known if one.decided]
    differences = [one for one in decided if one.kind != "rank"]
    shown = sorted(differences, key=lambda one: -abs(one.value))[:_HEADLINES]
    shown += [one for one in decided if one.kind == "rank"][:_HEADLINES]
    sentences += [effect_sentence(space, one) for one in shown]
    if known:
        sentences.append(
            f"{len(decided)} of {plural(len(known), 'marginal effect')} "
            f"{'has' if len(decided) == 1 else 'have'} a 95 % interval without zero; each interval "
            "stands for itself, nothing is corrected for their number, and where nothing has an "
            f"effect about {format_number(0.05 * len(known))} of them would exclude zero by chance."
        )
    sentences.append(_counts(trials))
    return sentences


def effect_sentence(space: Space, one: Effect) -> str:
    """One comparison with its interval and its numbers of trials."""
    what, interval = objective_words(space), interval_words(one.value, one.low, one.high)
    if one.kind == "rank":
        return (
            f"{field_words(one.field)}: rank correlation {interval} with {what} "
            f"({_of(one.n, one.lost, 'trial')})."
        )
    if one.kind == "weights":
        return (
            f"Weights {one.level} against {one.reference}, in the same runs: {interval} in {what} "
            f"({_of(one.n, one.lost, 'pair')})."
        )
    return (
        f"{field_words(one.field)} {one.level} against {one.reference}: {interval} in {what} "
        f"({_of(one.n, one.lost, 'trial')} against "
        f"{_of(one.n_reference, one.lost_reference, 'trial')})."
    )


def objective_words(space: Space) -> str:
    """`total variation at length 31`, with the weights where they are not the raw ones."""
    own = space.objective
    weights = "" if own.weights == "raw" else f" of weights {own.weights}"
    return f"{quantity_words(own.quantity)} at length {own.length}{weights}"


def interval_words(value: float, low: float, high: float) -> str:
    """The interval in the common form; with more digits where an end would be rounded to zero."""
    text = format_interval(value, low, high)
    if math.isnan(low) or not any(end and abs(end) < 0.005 for end in (low, high)):
        return text
    return f"{format_number(value)} [{format_number(low)}, {format_number(high)}]"


def field_words(field: str) -> str:
    """`model.norm_placement` as `norm_placement`."""
    return field.partition(".")[2]


def listed(
    space: Space,
    trials: pd.DataFrame,
    effects: Sequence[Effect],
    winners: Sequence[Winner],
    lost_again: Mapping[tuple[int, int], str],
) -> dict[str, list[str]]:
    """What the report lists after its figures: the best, every effect, and what has no rows."""
    lost = trials[trials["status"].isin(["refused", "diverged", "failed"])]
    return {
        "The best trials, and the same with fresh seeds": [
            _winner_item(space, one) for one in winners
        ],
        "Marginal effects": [effect_sentence(space, one) for one in effects],
        "Trials without a result": [
            f"Trial {trial}, {status}: {reason}"
            for trial, status, reason in zip(
                lost["trial"], lost["status"], lost["reason"], strict=True
            )
        ]
        + [f"Trial {index} with seed {seed}: {why}" for (index, seed), why in lost_again.items()],
    }


def _winner_sentences(space: Space, winners: Sequence[Winner]) -> list[str]:
    if not winners:
        return []
    sign, what = space.objective.sign, objective_words(space)
    first = winners[0]
    again = [one for one in winners if not math.isnan(one.mean)]
    if not again:
        return [
            f"Trial {first.trial} is the best, with {what} {_searched(first)}: "
            f"{_values(first.values)}; it was not run again, so part of that may be luck."
        ]
    best = min(again, key=lambda one: sign * one.mean)
    sentences = [
        f"Of the {len(winners)} best trials, trial {best.trial} is the best with fresh seeds: "
        f"{what} {format_interval(best.mean, best.low, best.high)} over "
        f"{plural(best.seeds, 'seed')} ({_values(best.values)})."
    ]
    if not math.isnan(first.mean):
        sentences.append(
            f"The winner of the search, trial {first.trial}, had {_searched(first)} there and has "
            f"{format_interval(first.mean, first.low, first.high)} over "
            f"{plural(first.seeds, 'fresh seed')}: {_regression(first, sign)}."
        )
    if len(again) > 1:
        worse = [sign * (one.mean - one.searched) for one in again]
        mean = math.fsum(worse) / len(worse)
        sentences.append(
            f"On average the {len(again)} best are {format_number(abs(mean))} "
            f"{'worse' if mean >= 0 else 'better'} with fresh seeds than they were in the search."
        )
    return sentences


def _regression(one: Winner, sign: int) -> str:
    """Whether the value in the search was luck."""
    if math.isnan(one.low):
        return "one seed does not say how much of it was luck"
    if sign * one.searched < sign * (one.low if sign > 0 else one.high):
        return "its value in the search was partly luck"
    if sign * one.searched > sign * (one.high if sign > 0 else one.low):
        return "its value in the search was rather bad luck"
    return "its value in the search lies within the interval"


def _winner_item(space: Space, one: Winner) -> str:
    again = format_interval(one.mean, one.low, one.high)
    lost = f", {one.lost} more without a value" if one.lost else ""
    return (
        f"Trial {one.trial}: {_searched(one)} in the search, {again} over "
        f"{plural(one.seeds, 'fresh seed')}{lost}. {_values(one.values)}."
    )


def _searched(one: Winner) -> str:
    return format_interval(one.searched, one.searched_low, one.searched_high)


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{field_words(key)} = {format_number(value) if isinstance(value, float) else value}"
        for key, value in values.items()
    )


def _of(n: int, lost: int, noun: str) -> str:
    return plural(n, noun) if not lost else f"{plural(n, noun)}, {lost} without a value"


def _counts(trials: pd.DataFrame) -> str:
    statuses = Counter(trials["status"].tolist())
    order = ("done", "repeated", "refused", "diverged", "failed")
    counts = ", ".join(f"{statuses[name]} {name}" for name in order if statuses[name])
    return f"{plural(len(trials), 'trial')}: {counts}."
