"""The four sentences that matter, from the table and the findings."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...comparing import fit_exponent, fit_slope, summarise_seeds
from ...findings import Exponent, Finding
from ...rows import over, pick, rows_where
from ...wording import format_interval, format_number
from .config import SetComplementConfig


def conclude(
    config: SetComplementConfig, measured: pd.DataFrame, findings: Sequence[Finding]
) -> list[str]:
    """Say whether attention dispersed, what that did, what brought it back, and if theory held.

    Args:
        config: The study.
        measured: Its table.
        findings: Its findings.
    """
    seeds = f"{len(config.seeds)} seeds a placement"
    trained = rows_where(measured, measured["checkpoint"].isin(list(config.placements)))
    return [
        _dispersion(config, trained, seeds),
        *_consequences(config, trained),
        _agreement(config, findings),
    ]


def _dispersion(config: SetComplementConfig, trained: pd.DataFrame, seeds: str) -> str:
    slopes = []
    for placement in config.placements:
        means = over(pick(trained, checkpoint=placement, quantity="entropy"), "n_key")
        past_one = means.index.to_numpy() > 1
        slopes.append(fit_slope(means.index.to_numpy()[past_one], means.to_numpy()[past_one]))
    known = [slope for slope in slopes if slope.status == "ok"]
    if not known:
        return f"Too few lengths were measured to say whether attention disperses ({seeds})."
    low, high = min(s.low for s in known), max(s.high for s in known)
    return (
        f"Attention disperses whatever the norm placement ({seeds}): entropy grows by "
        f"{low:.2f} to {high:.2f} nats per unit of log n, where 1 is full dispersion; no placement "
        "sharpens the weights themselves."
        if low > 0.5
        else f"Entropy grows by {low:.2f} to {high:.2f} nats per unit of log n over the "
        f"placements ({seeds}), where 1 is full dispersion."
    )


def _consequences(config: SetComplementConfig, trained: pd.DataFrame) -> list[str]:
    summary = summarise_seeds(trained)
    longest = max(config.lengths)
    said = []
    for placement in config.placements:
        error = _at(summary, placement, "total_variation", longest)
        slope = _exponent(trained, placement, "displacement")
        gain = _exponent(trained, placement, "displacement_rescale")
        said.append((placement, error, slope, gain))
    plain = [item for item in said if item[0] in ("none", "pre")]
    normed = [item for item in said if item[0] not in ("none", "pre")]
    sentences = []
    for group, opening in (
        (plain, "Where no norm follows attention, the displacement of the seen tokens decays"),
        (normed, "A norm after attention gives back what dispersion took"),
    ):
        if group:
            parts = [
                f"{name}: displacement falls as s^{_short(slope)}"
                + (f" (norms give back s^{_short(gain)})" if name not in ("none", "pre") else "")
                + f", total variation at length {longest} is {error}"
                for name, error, slope, gain in group
            ]
            sentences.append(f"{opening}. {'; '.join(parts)}.")
    return sentences


def _agreement(config: SetComplementConfig, findings: Sequence[Finding]) -> str:
    trained = set(config.placements)
    identity = [f for f in findings if f.quantity.startswith("two_body") and f.status == "ok"]
    worst = max((f.max_error for f in identity if f.checkpoint in trained), default=np.nan)
    exact = [f for f in findings if f.kind == "exact" and f.status == "ok"]
    constructed = max(
        (min(f.max_error, f.max_ratio_error) for f in exact if np.isfinite(f.max_ratio_error)),
        default=np.nan,
    )
    violated = sum(finding.violated for finding in findings)
    held = "none is violated" if not violated else f"{violated} are VIOLATED (listed below)"
    return (
        "Theory: the logits of the trained models at every length, predicted from inputs of one "
        f"and two tokens, are right to {format_number(worst)}; the constructed models' curves "
        f"equal the closed forms to {format_number(constructed)}; of {len(findings)} curves "
        f"compared, {held}."
    )


def _at(summary: pd.DataFrame, placement: str, quantity: str, length: int) -> str:
    wanted = (
        (summary["checkpoint"] == placement)
        & (summary["quantity"] == quantity)
        & (summary["length"] == length)
    )
    rows = rows_where(summary, wanted)
    if rows.empty:
        return "unknown"
    mean, low, high = (float(rows[name].tolist()[0]) for name in ("mean", "low", "high"))
    return "below 0.001" if high < 0.001 else format_interval(mean, low, high)


def _exponent(trained: pd.DataFrame, placement: str, quantity: str) -> Exponent:
    means = over(pick(trained, checkpoint=placement, quantity=quantity), "length")
    past_one = means.index.to_numpy() > 1
    return fit_exponent(means.index.to_numpy()[past_one], means.to_numpy()[past_one])


def _short(exponent: Exponent) -> str:
    return "?" if exponent.status != "ok" else f"{exponent.value:.2f}"
