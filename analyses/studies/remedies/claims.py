"""The claims under test, each with what was compared and what came of it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...seeds import Interval
from ...wording import format_interval
from .config import RemediesConfig
from .mapping import MapCell

Standing = Literal["holds", "does not hold", "undecided"]

TEMPERATURES = (
    "temperature",
    "sqrt_log_n",
    "log_n",
    "ssmax",
    "ssmax_bias",
    "adaptive",
    "selective",
    "hardmax",
)
"""Remedies that change nothing but the temperature of the softmax."""

LENGTH_SCALED = ("log_n", "ssmax", "ssmax_bias")
"""Temperatures that follow ``log n``."""

MIN_SEEDS = 5
"""Fewer seeds leave a claim undecided."""


@dataclass(frozen=True)
class Claim:
    """One claim and what became of it.

    Attributes:
        statement: What was claimed.
        standing: Whether it holds.
        evidence: What was compared, one sentence with numbers a comparison.
        n_seeds: Fewest seeds in a comparison.
    """

    statement: str
    standing: Standing
    evidence: tuple[str, ...]
    n_seeds: int

    def __str__(self) -> str:
        """The claim, whether it holds, and on how many seeds."""
        return f"{self.statement}: {self.standing} ({self.n_seeds} seeds)"


def test_claims(config: RemediesConfig, found: Sequence[MapCell]) -> list[Claim]:
    """Put every claim to the test that the map has the cells for."""
    claims = [
        _none_cures(
            config,
            "No temperature cures aggregation dispersion",
            [
                cell
                for cell in found
                if cell.cell.task == "set-complement"
                and cell.cell.placement == "none"
                and cell.cell.remedy in TEMPERATURES
                and _plain(cell)
            ],
        ),
        _none_cures(
            config,
            "No norm placement alone cures needle dispersion",
            [
                cell
                for cell in found
                if cell.kind == "needle" and cell.cell.remedy == "softmax" and _plain(cell)
            ],
        ),
        _complementary(found),
        *_fair_test(config, found),
    ]
    return [claim for claim in claims if claim.evidence]


test_claims.__test__ = False  # type: ignore[attr-defined]


def _plain(found: MapCell) -> bool:
    """Whether a cell is one of the map, not of the fair test."""
    cell = found.cell
    return cell.n_layers is None and not cell.final_norm and cell.normalization_type == "RMS"


def _none_cures(config: RemediesConfig, statement: str, tried: Iterable[MapCell]) -> Claim:
    """Holds if the error at the longest input is surely above the threshold for each one tried."""
    evidence, surely, refuted, seeds = [], True, False, math.inf
    for cell in tried:
        if cell.outcome in ("not needed", "not learned"):
            continue  # Nothing disperses there within the ladder, or nothing was learned.
        error = cell.errors[cell.last]
        seeds = min(seeds, error.n_seeds)
        surely &= error.low > config.threshold
        refuted |= error.high <= config.threshold
        evidence.append(f"{cell.cell.task}, {cell.cell.label}: {_error(cell)}")
    return Claim(statement, _standing(surely, refuted, seeds), tuple(evidence), _count(seeds))


def _complementary(found: Sequence[MapCell]) -> Claim:
    """Holds if norm and log-n temperature together beat each alone on every needle task."""
    cells = {
        (cell.cell.task, cell.cell.remedy, cell.cell.placement): cell
        for cell in found
        if _plain(cell) and cell.kind == "needle"
    }
    evidence, surely, refuted, seeds = [], True, False, math.inf
    for (task, remedy, placement), both in cells.items():
        if remedy not in LENGTH_SCALED or placement != "res_post":
            continue
        norm, scaled = cells.get((task, "softmax", placement)), cells.get((task, remedy, "none"))
        if norm is None or scaled is None or "not learned" in (both.outcome, scaled.outcome):
            continue
        if norm.outcome in ("not needed", "not learned"):
            continue
        differences = [_difference(both, norm), _difference(both, scaled)]
        seeds = min(seeds, *(difference.n_seeds for difference in differences))
        surely &= all(difference.high < 0 for difference in differences)
        refuted |= any(difference.low > 0 for difference in differences)
        evidence.append(
            f"{task}, {remedy} with the norm: error {_error(both)}, "
            f"{_signed(differences[0])} against the norm alone, "
            f"{_signed(differences[1])} against {remedy} alone"
        )
    return Claim(
        "On needles, a norm after attention and a log-n temperature together beat each alone",
        _standing(surely, refuted, seeds),
        tuple(evidence),
        _count(seeds),
    )


def _fair_test(config: RemediesConfig, found: Sequence[MapCell]) -> list[Claim]:
    """Post-norm against pre-norm and res-post-norm, everything else equal."""
    variants = {
        (cell.cell.task, cell.cell.placement, _rest(cell)): cell
        for cell in found
        if cell.cell.n_layers is not None and cell.outcome != "not learned"
    }
    claims = []
    for task in config.fair_tasks:
        for better, worse in (("post", "pre"), ("res_post", "post")):
            evidence, surely, refuted, seeds = [], True, False, math.inf
            for (name, placement, rest), cell in variants.items():
                other = variants.get((task, worse, rest))
                if name != task or placement != better or other is None:
                    continue
                difference = _difference(cell, other)
                seeds = min(seeds, difference.n_seeds)
                surely &= difference.high < 0
                refuted |= difference.low > 0
                evidence.append(
                    f"{rest}: error {_error(cell)} against {_error(other)}, {_signed(difference)}"
                )
            statement = f"On {task}, {better} generalises further than {worse}, all else equal"
            standing = _standing(surely, refuted, seeds)
            claims.append(Claim(statement, standing, tuple(evidence), _count(seeds)))
    return claims


def _rest(found: MapCell) -> str:
    """What a variant of the fair test is besides its placement."""
    cell = found.cell
    return ", ".join(
        [
            "LayerNorm" if cell.normalization_type == "LN" else "RMSNorm",
            "final norm" if cell.final_norm else "no final norm",
            f"{cell.n_layers} layer{'s' if cell.n_layers != 1 else ''}",
            "MLP" if cell.mlp else "attention only",
        ]
    )


def _difference(one: MapCell, other: MapCell) -> Interval:
    """Difference of the errors at the longest input, seed by seed."""
    last = min(one.last, other.last)
    pairs = zip(one.seed_errors[last], other.seed_errors[last], strict=False)
    return Interval.of([first - second for first, second in pairs])


def _error(cell: MapCell) -> str:
    error = cell.errors[cell.last]
    return f"{format_interval(error.mean, error.low, error.high)} at {cell.last}x"


def _signed(difference: Interval) -> str:
    return format_interval(difference.mean, difference.low, difference.high)


def _standing(surely: bool, refuted: bool, seeds: float) -> Standing:
    if not MIN_SEEDS <= seeds < math.inf:
        return "undecided"
    if refuted:
        return "does not hold"
    return "holds" if surely else "undecided"


def _count(seeds: float) -> int:
    return 0 if seeds == math.inf else int(seeds)
