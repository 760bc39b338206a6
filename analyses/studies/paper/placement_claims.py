"""Claim 3: post-norm resharpens.

A norm on the stream behind attention divides by what dispersion has shrunk, and so gives back part
of it; a norm in front of attention does not. The comparison has a trap (theory section 1.1,
Confound): a pre-norm model with its usual final norm ends, at depth one, in the same norm as a
post-norm model without. So placements are compared with the final norm off in both, and then as
they are published.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ....models.config import NormPlacement
from ...seeds import Interval
from ...wording import format_number, plural
from .claim import ClaimRow, Rule, claim_row, format_effect
from .config import NORM_PLACEMENTS, PaperConfig
from .measured.interventions import OUTWEIGHING
from .measured.set_complement_runs import SetComplementRun
from .seed_values import (
    ladders,
    mean_of,
    paired_difference,
    seed_values,
    share,
    why_not_learned,
)

__all__ = ["placement_claims", "placement_label", "placement_runs"]

_BETTER = Rule(high=0.0, source="a smaller error than the other")
_GIVES_BACK = Rule(0.0, source="the norms give something back")
_OUTWEIGHS = Rule(0.0, source="attention outweighs it by more than in the other")
_CLOSES = Rule(0.9, source="at least nine tenths of the gap")
_CONFOUND = (
    " Both end in one norm of the stream and attention's output (theory 1.1, Confound): what "
    "differs is the norm in front of attention, see the two rows on what outweighs what."
)
_NAMES = {"none": "no norm", "pre": "pre-norm", "post": "post-norm", "res_post": "res-post-norm"}
_NAMES |= {"peri": "peri-norm"}


def placement_label(placement: str, depth: int, final_norm: bool = False) -> str:
    """Label of the model with a norm placement and a number of blocks."""
    final = " + final norm" if final_norm else ""
    return f"{_NAMES[placement]}{final}, {plural(depth, 'block')}"


def placement_runs(config: PaperConfig) -> dict[str, SetComplementRun]:
    """Every placement at every depth without a final norm, and pre-norm with it."""
    variants: list[tuple[NormPlacement, bool]] = [(name, False) for name in NORM_PLACEMENTS]
    variants.append(("pre", True))
    return {
        placement_label(placement, depth, final): SetComplementRun(
            config.set_complement_model(placement, depth, final),
            config.training,
            config.seeds,
            config.lengths,
            config.n_sequences,
            interventions=(OUTWEIGHING,) if (placement, depth) == ("post", 1) else (),
        )
        for depth in config.depths
        for placement, final in variants
    }


def placement_claims(config: PaperConfig, frame: pd.DataFrame) -> list[ClaimRow]:
    """Post-norm and its relatives against none and pre-norm, at each depth."""
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    rows = []
    for depth in config.depths:
        rows += _comparisons(config, frame, depth, letters)
        rows.append(_given_back(config, frame, depth, letters))
        if depth == 1:
            rows += _what_outweighs(config, frame, letters)
    return rows


def _comparisons(
    config: PaperConfig, frame: pd.DataFrame, depth: int, letters: Iterator[str]
) -> Iterator[ClaimRow]:
    fair = "the final norm off in both"
    asked: list[tuple[NormPlacement, NormPlacement, bool, str]] = [
        ("post", "pre", False, fair),
        ("post", "none", False, fair),
        ("post", "pre", True, "as published: pre-norm with its final norm"),
        ("res_post", "pre", False, fair),
        ("peri", "pre", False, fair),
    ]
    for better, worse, final, how in asked:
        one, other = placement_label(better, depth), placement_label(worse, depth, final)
        difference, errors = _difference(config, frame, one, other)
        ours = better != "post"
        yield claim_row(
            key=f"3{next(letters)}",
            statement=f"{_NAMES[better].capitalize()} generalises further than {_NAMES[worse]}, "
            f"{how}, {plural(depth, 'block')}",
            version="derived here" if ours else "v2",
            second_hand=not ours,
            effect_name=f"total variation at {config.longest}, difference",
            unit="ratio",
            effect=difference,
            rule=_BETTER,
            note=f"{errors}." + (_CONFOUND if final and depth == 1 else ""),
            **_shared(config, frame, depth, one, other),
        )


def _given_back(
    config: PaperConfig, frame: pd.DataFrame, depth: int, letters: Iterator[str]
) -> ClaimRow:
    """What share of the fall of the displacement the norms of post-norm give back."""
    label, longest = placement_label("post", depth), config.longest
    live, frozen = (
        ladders(frame, label, "displacement"),
        ladders(frame, label, "frozen_displacement"),
    )
    shares = [
        1 - share(_fall(live[seed], longest), _fall(frozen[seed], longest))
        for seed in live
        if seed in frozen
    ]
    held = mean_of(seed_values(frame, label, "frozen_total_variation", longest))
    return claim_row(
        key=f"3{next(letters)}",
        statement="The norms of a post-norm model give back what dispersion takes, "
        f"{plural(depth, 'block')}",
        version="v2",
        effect_name=f"share of the fall of log displacement, lengths 2 to {longest}, given back",
        unit="ratio",
        effect=Interval.of(shares),
        rule=_GIVES_BACK,
        note="Measured by holding every norm's scale at that of the token alone; with the scales "
        f"held total variation at {longest} is "
        f"{_shown(held)}. Closed forms (theory 1.1): a half "
        "while the displaced part dominates the stream, nothing once it does not.",
        **_shared(config, frame, depth, label),
    )


def _what_outweighs(
    config: PaperConfig, frame: pd.DataFrame, letters: Iterator[str]
) -> Iterator[ClaimRow]:
    """Why the placement in front of attention matters to the norm behind it."""
    post, published = placement_label("post", 1), placement_label("pre", 1, final_norm=True)
    shared = _shared(config, frame, 1, post, published)
    ours, theirs = (seed_values(frame, label, "outweighing", 2) for label in (post, published))
    both = [format_number(mean_of(values).mean) for values in (theirs, ours)]
    yield claim_row(
        key=f"3{next(letters)}",
        statement="A norm in front of attention lets its output outweigh the residual content by "
        "more than post-norm alone does",
        version="derived here",
        second_hand=False,
        effect_name="log ratio of (attention's output over the stream) at length 2, pre-norm + "
        "final norm over post-norm",
        unit="nats",
        effect=Interval.of([math.log(theirs[s] / ours[s]) for s in ours if s in theirs]),
        rule=_OUTWEIGHS,
        note=f"{both[0]} against {both[1]}. The final norm gives back a half of the fall of log "
        "displacement while attention outweighs the rest, and less after (theory 1.1, closed "
        "forms): the more it outweighs, the longer that lasts.",
        **shared,
    )
    errors = [
        seed_values(frame, label, "total_variation", config.longest)
        for label in (post, published, f"{post}, {OUTWEIGHING}")
    ]
    live, other, edited = errors
    yield claim_row(
        key=f"3{next(letters)}",
        statement="Multiplying attention's output by 5 before the norm closes the gap of post-norm "
        "to pre-norm with its final norm",
        version="derived here",
        second_hand=False,
        effect_name=f"share of the gap in total variation at {config.longest} that is closed",
        unit="ratio",
        effect=Interval.of(
            [
                share(live[seed] - edited[seed], live[seed] - other[seed])
                for seed in live
                if seed in other and seed in edited
            ]
        ),
        rule=_CLOSES,
        note="The norm is blind to scale: this is the same as dividing the residual content by 5. "
        f"Total variation with it: {_shown(mean_of(edited))}.",
        **shared,
    )


def _shown(interval: Interval) -> str:
    return format_effect(interval.mean, interval.low, interval.high)


def _fall(displacement: Mapping[int, float], longest: int) -> float:
    """``log Delta_2 - log Delta_longest``; NaN where one of them is not positive."""
    ends = displacement[2], displacement[longest]
    return math.log(ends[0] / ends[1]) if min(ends) > 0 else math.nan


def _difference(
    config: PaperConfig, frame: pd.DataFrame, one: str, other: str
) -> tuple[Interval, str]:
    """The difference at the longest input; both errors there and at twice the training length."""
    twice = min(config.lengths, key=lambda length: abs(length - 2 * config.training.length))

    def errors(label: str, length: int) -> dict[int, float]:
        return seed_values(frame, label, "total_variation", length)

    words = "; ".join(
        f"{label}: {_shown(mean_of(errors(label, config.longest)))} "
        f"(at {twice}: {_shown(mean_of(errors(label, twice)))})"
        for label in (one, other)
    )
    return paired_difference(errors(one, config.longest), errors(other, config.longest)), words


def _shared(config: PaperConfig, frame: pd.DataFrame, depth: int, *labels: str) -> dict[str, Any]:
    length = config.training.length
    return {
        "ran": f"{plural(depth, 'attention-only block')}, one head, {config.normalization_type} "
        f"norms; exact targets, trained at lengths up to {length}, measured at {config.longest}",
        "task": f"set complement, {config.vocabulary} tokens",
        "seeds": len(config.seeds),
        "in_the_way": why_not_learned(frame, labels, length, config.learned),
    }
