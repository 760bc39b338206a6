"""One row of the table of claims: what the paper says, what was run, and whether it holds.

The rule is data: the range of effects in which the claim holds. With the effect's 95 % interval

    holds            the whole interval lies within the range
    does not hold    the whole interval lies outside of it
    undecided        it does neither, rests on too few runs, or something is in the way

Something is in the way where a model that the claim is judged on did not learn the task at the
lengths that it was trained on: what such a model does on longer inputs says nothing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from ...record import Record
from ...seeds import Interval
from ...wording import format_number, plural, unit_words

__all__ = [
    "INTERVAL",
    "MIN_RUNS",
    "OWN",
    "RANGE",
    "ClaimRow",
    "Judgement",
    "Rule",
    "Verdict",
    "claim_frame",
    "claim_row",
    "format_effect",
    "full_range",
    "judge_claim",
    "render_claims",
]

Verdict = Literal["holds", "does not hold", "undecided"]

OWN = "derived here"
"""Version of a claim that is not the paper's."""

INTERVAL = "95 % interval"
"""What an effect's ends are unless the claim is about every run."""

RANGE = "range"
"""What they are where it is: a bound is refuted by one model."""

MIN_RUNS = 3
"""Fewer independent runs (seeds, or languages) leave a claim undecided."""


@dataclass(frozen=True)
class Rule(Record):
    """Which effects a claim asks for: those strictly between two values.

    Attributes:
        low: The claim asks for more than this; minus infinity for no such end.
        high: The claim asks for less than this; infinity for no such end.
        source: Where the ends come from, in a few words.
        min_runs: Fewest independent runs that decide.

    Raises:
        ValueError: If no effect could satisfy it, or every effect does.
    """

    low: float = -math.inf
    high: float = math.inf
    source: str = ""
    min_runs: int = MIN_RUNS

    def __post_init__(self) -> None:
        """Check that it asks for something."""
        if not self.low < self.high or (self.low, self.high) == (-math.inf, math.inf):
            raise ValueError(
                f"a rule asks for effects between two ends, one of them finite; got {self.low} and "
                f"{self.high}"
            )
        if self.min_runs < 2:
            raise ValueError(f"an interval needs at least 2 runs; got min_runs={self.min_runs}")

    def __str__(self) -> str:
        """`above 0`, `below 0.05`, `between -1.1 and -0.9`."""
        if math.isinf(self.high):
            return f"above {format_number(self.low)}"
        if math.isinf(self.low):
            return f"below {format_number(self.high)}"
        return f"between {format_number(self.low)} and {format_number(self.high)}"


def full_range(values: Sequence[float]) -> Interval:
    """Mean, smallest and largest of one value a run: for a claim about every run."""
    known = [value for value in values if value == value]
    if not known:
        return Interval.of(known)
    return Interval(sum(known) / len(known), min(known), max(known), len(known))


def format_effect(value: float, low: float, high: float) -> str:
    """`-0.023 [-0.044, -0.001]`: two digits of the interval's width, four decimals at most."""
    width = high - low
    if not 1e-9 * max(abs(low), abs(high)) < width < math.inf:
        return format_number(value)
    if max(abs(low), abs(high)) < 1e-2:
        return "{} [{}, {}]".format(*map(format_number, (value, low, high)))
    digits = min(4, max(2, 1 - math.floor(math.log10(width))))
    ends = [round(number, digits) + 0.0 for number in (value, low, high)]
    return "{0:.{3}f} [{1:.{3}f}, {2:.{3}f}]".format(*ends, digits)


@dataclass(frozen=True)
class Judgement:
    """A verdict and the sentence that says why.

    Attributes:
        verdict: One of the three.
        reason: What decided it.
    """

    verdict: Verdict
    reason: str


def judge_claim(effect: Interval, rule: Rule, in_the_way: str = "") -> Judgement:
    """Hold an effect against what the claim asks for.

    Args:
        effect: Mean and 95 % interval over independent runs.
        rule: What the claim asks for.
        in_the_way: Why the effect says nothing, such as a model that did not learn.
    """
    if in_the_way:
        return Judgement("undecided", in_the_way)
    if effect.n_seeds < rule.min_runs:
        return Judgement(
            "undecided", f"{plural(effect.n_seeds, 'run')}, at least {rule.min_runs} are needed"
        )
    shown = format_effect(effect.mean, effect.low, effect.high)
    if rule.low < effect.low and effect.high < rule.high:
        return Judgement("holds", f"{shown} lies {rule}")
    if effect.high <= rule.low or effect.low >= rule.high:
        return Judgement("does not hold", f"{shown} does not lie {rule}")
    return Judgement("undecided", f"{shown} lies partly {rule}")


@dataclass(frozen=True, kw_only=True)
class ClaimRow(Record):
    """One claim and what became of it.

    Attributes:
        key: Number of the claim and a letter, `3a`.
        statement: What is claimed, one sentence.
        version: Whose claim: `v1` or `v2` of the paper, or `derived here`.
        second_hand: Whether the paper's words were read in a summary, not in the paper.
        ran: What was run, one sentence.
        task: Task or tasks.
        seeds: Trained models of each kind.
        effect_name: What the effect is.
        unit: Its unit.
        effect: Its mean.
        low: Lower end of its interval.
        high: Upper end.
        runs: Independent values that the interval is over.
        runs_of: What they are: `seeds`, or `languages`.
        ends: What low and high are: ends of the 95 % interval, or the `range` of the runs where the
            claim is about every one of them.
        rule: What the claim asks for.
        verdict: Whether it holds.
        reason: What decided that.
        note: What else to know, such as how it differs from what the paper did.
    """

    key: str
    statement: str
    version: str
    second_hand: bool
    ran: str
    task: str
    seeds: int
    effect_name: str
    unit: str
    effect: float
    low: float
    high: float
    runs: int
    runs_of: str
    ends: str
    rule: Rule
    verdict: str
    reason: str
    note: str = ""

    @property
    def claim(self) -> int:
        """Number of the claim."""
        return int(self.key.rstrip("abcdefghijklmnopqrstuvwxyz"))

    @property
    def source(self) -> str:
        """`v1 [second-hand]`, `derived here`."""
        return f"{self.version} [second-hand]" if self.second_hand else self.version

    @property
    def shown_effect(self) -> str:
        """`-0.12 [-0.2, -0.04] nats`."""
        return f"{format_effect(self.effect, self.low, self.high)}{unit_words(self.unit)}"

    @property
    def sentence(self) -> str:
        """The claim, whether it holds, and the numbers."""
        return (
            f"({self.key}) {self.statement}: {self.verdict} ({self.effect_name} "
            f"{self.shown_effect}, {plural(self.runs, self.runs_of.removesuffix('s'))}; asked for: "
            f"{self.rule})."
        )


def claim_row(
    *,
    key: str,
    statement: str,
    version: str,
    ran: str,
    task: str,
    seeds: int,
    effect_name: str,
    effect: Interval,
    rule: Rule,
    unit: str = "1",
    second_hand: bool = True,
    runs_of: str = "seeds",
    ends: str = INTERVAL,
    in_the_way: str = "",
    note: str = "",
) -> ClaimRow:
    """Judge an effect and write its row; the arguments are the fields of :class:`ClaimRow`.

    Args:
        key, statement, version, ran, task, seeds, effect_name, unit, second_hand, runs_of, ends,
            note:
            As there.
        effect: Mean, interval and number of runs.
        rule: What the claim asks for.
        in_the_way: Why the effect says nothing; empty if it does say something.
    """
    judged = judge_claim(effect, rule, in_the_way)
    return ClaimRow(
        key=key,
        statement=statement,
        version=version,
        second_hand=second_hand,
        ran=ran,
        task=task,
        seeds=seeds,
        effect_name=effect_name,
        unit=unit,
        effect=effect.mean,
        low=effect.low,
        high=effect.high,
        runs=effect.n_seeds,
        runs_of=runs_of,
        ends=ends,
        rule=rule,
        verdict=judged.verdict,
        reason=judged.reason,
        note=note,
    )


def claim_frame(rows: Iterable[ClaimRow]) -> pd.DataFrame:
    """The table of claims, one row a claim, numbers unrounded: what ``claims.csv`` holds."""
    return pd.DataFrame(
        [
            {
                "claim": row.claim,
                "key": row.key,
                "statement": row.statement,
                "source": row.source,
                "what was run": row.ran,
                "task": row.task,
                "seeds": row.seeds,
                "effect": row.effect_name,
                "unit": row.unit,
                "value": row.effect,
                "low": row.low,
                "high": row.high,
                "runs": row.runs,
                "runs of": row.runs_of,
                "ends": row.ends,
                "asked for": str(row.rule),
                "asked above": row.rule.low,
                "asked below": row.rule.high,
                "threshold from": row.rule.source,
                "verdict": row.verdict,
                "reason": row.reason,
                "note": row.note,
            }
            for row in rows
        ]
    )


def render_claims(rows: Sequence[ClaimRow]) -> str:
    """The table of claims as Markdown, then what decided each and what else to know of it."""
    head = ("", "claim", "what was run", "seeds", "effect [95 % interval]", "asked for", "verdict")
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [
        _line(
            (
                row.key,
                f"{row.statement} ({row.source})",
                f"{row.ran} ({row.task})",
                str(row.seeds),
                f"{row.effect_name}: {row.shown_effect}",
                str(row.rule),
                f"**{row.verdict}**",
            )
        )
        for row in rows
    ]
    lines.append("")
    for row in rows:
        source = f"; threshold: {row.rule.source}" if row.rule.source else ""
        over = f"{row.ends} over {plural(row.runs, row.runs_of.removesuffix('s'))}"
        lines.append(f"- **{row.key}** {row.reason} ({over}{source}). {row.note}".rstrip())
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
