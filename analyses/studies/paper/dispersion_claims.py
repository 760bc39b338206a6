"""Claim 2: dispersion is why precision falls.

Two tests on the minimal model of claim 1. *Factorised*: the displacement of a token is its
attention weight times a strength (:mod:`.factors`), so the fall of ``log Delta`` from length 2 to
the longest must be the fall of ``log a``, and nothing else. *Intervened* (:mod:`.interventions`):
attention's output times ``s/2`` must bring the precision of length 2 back, and another temperature
must not.
"""

from typing import Any

import pandas as pd

from ...seeds import Interval
from ...wording import format_number
from .claim import ClaimRow, Rule, claim_row
from .config import PaperConfig
from .length_claims import minimal_label
from .measured.interventions import RESCALED, TEMPERATURES
from .seed_values import ladders, seed_values, share, why_not_learned

__all__ = ["dispersion_claims"]

_EXPLAINS = Rule(0.95, 1.05, "all of the fall, to a twentieth")
_RECOVERS = Rule(0.9, source="at least nine tenths of what was lost")
_DOES_NOT = Rule(high=0.1, source="no more than a tenth of what was lost")


def dispersion_claims(config: PaperConfig, frame: pd.DataFrame) -> list[ClaimRow]:
    """How much of the fall the weights explain, and what brings precision back."""
    length, longest = config.training.length, config.longest
    label = minimal_label(length)
    shared: dict[str, Any] = {
        "task": f"set complement, {config.vocabulary} tokens",
        "seeds": len(config.seeds),
        "in_the_way": why_not_learned(frame, [label], length, config.learned),
    }
    errors = [
        max(values.values()) for values in ladders(frame, label, "factor_error", "max").values()
    ]
    best = _best_temperature(frame, label, longest)
    return [
        claim_row(
            key="2a",
            statement="Dispersion of the attention weights is why displacements fall",
            version="v1, v2",
            ran=f"the model of claim 1 trained at {length}: each displacement against attention "
            f"weight times the token's strength, lengths 2 to {longest}",
            effect_name="share of the fall of log displacement that is a fall of log weight",
            unit="ratio",
            effect=Interval.of(_explained(frame, label, longest)),
            rule=_EXPLAINS,
            note="The strengths are read off inputs of two tokens. Largest deviation of one "
            "token's displacement from weight times strength: "
            f"{format_number(100 * max(errors, default=float('nan')))} %.",
            **shared,
        ),
        claim_row(
            key="2b",
            statement="Undoing dispersion by hand brings the precision back",
            version="derived here",
            second_hand=False,
            ran=f"the same model, attention's output multiplied by s/2 at length s = {longest}",
            effect_name="share of the lost total variation that comes back",
            unit="ratio",
            effect=Interval.of(list(_recovered(frame, label, RESCALED, longest).values())),
            rule=_RECOVERS,
            note="Lost: total variation at the longest input less that at length 2.",
            **shared,
        ),
        claim_row(
            key="2c",
            statement="No other temperature brings the precision back",
            version="derived here",
            second_hand=False,
            ran=f"the same model, {', '.join(TEMPERATURES)}; the best of them for each seed",
            effect_name="share of the lost total variation that comes back",
            unit="ratio",
            effect=Interval.of(best),
            rule=_DOES_NOT,
            note="Theory 1.1: whatever the temperature, the s weights share one unit.",
            **shared,
        ),
    ]


def _explained(frame: pd.DataFrame, label: str, longest: int) -> list[float]:
    weights = ladders(frame, label, "log_weight")
    displaced = ladders(frame, label, "log_displacement")
    return [
        share(
            weights[seed][longest] - weights[seed][2],
            displaced[seed][longest] - displaced[seed][2],
        )
        for seed in weights
        if {2, longest} <= set(displaced.get(seed, ()))
    ]


def _recovered(
    frame: pd.DataFrame, label: str, intervention: str, longest: int
) -> dict[int, float]:
    """By seed, ``(live - edited) / (live - error at length 2)`` at the longest input."""
    live = seed_values(frame, label, "total_variation", longest)
    short = seed_values(frame, label, "total_variation", 2)
    edited = seed_values(frame, f"{label}, {intervention}", "total_variation", longest)
    return {
        seed: share(live[seed] - edited[seed], live[seed] - short[seed])
        for seed in live
        if seed in edited and seed in short
    }


def _best_temperature(frame: pd.DataFrame, label: str, longest: int) -> list[float]:
    tried = [_recovered(frame, label, name, longest) for name in TEMPERATURES]
    return [max(one[seed] for one in tried) for seed in tried[0]]
