"""What a row of scores looks like: how far, how wide, how normal, how tied, how far from sharp.

A row is one query with its n visible keys and their scores s (after scale, soft-cap and bias,
before the softmax; minus infinity where a key is hidden). A number that a row does not have is NaN.
The gap counting is that of :mod:`resharpen.interp.theory.gap_counting` (theory section 5): exact
for the scores that were measured.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from .measures.dispersion import score_deviation, score_spread
from .theory.gap_counting import accumulation_scale, predict_sharpening_temperature

WEIGHT = 0.5
"""Weight of the strongest key from which a row counts as sharp: more than all others together."""

TIE = 1e-5
"""Gap to the maximum, in units of the row's largest score, up to which a key ties with it. Equal
tokens get equal keys up to the rounding of float32 (1e-7 a product); of rows of 16384 Gaussian
scores, 2 in 10,000 have so close a rival by chance."""


@dataclass(frozen=True)
class ScoreStatistic:
    """Unit and formula of one number of a row."""

    unit: str
    formula: str


SCORE_STATISTICS: dict[str, ScoreStatistic] = {
    "entropy": ScoreStatistic("nats", "-sum a log a, a = softmax(s) over the visible keys"),
    "max_weight": ScoreStatistic("ratio", "max a"),
    "score_max": ScoreStatistic("1", "max s"),
    "score_spread": ScoreStatistic("1", "max s - min s"),
    "largest_score_spread": ScoreStatistic("1", "the largest spread of a sequence's rows"),
    "score_reach": ScoreStatistic("1", "max s - mean s"),
    "score_deviation": ScoreStatistic("1", "sqrt(mean (s - mean s)^2)"),
    "excess_kurtosis": ScoreStatistic(
        "1", "fourth cumulant over squared variance, unbiased for normal scores; n >= 4"
    ),
    "normality_distance": ScoreStatistic(
        "ratio", "Kolmogorov's: largest |F_n - Phi| of the standardised scores; n >= 2"
    ),
    "top_gap": ScoreStatistic("1", "largest score less the second largest; n >= 2"),
    "top_multiplicity": ScoreStatistic("1", "keys that tie with the maximum, itself included"),
    "top_is_first": ScoreStatistic(
        "ratio", "1 if the first visible key is the maximum (1/m if m keys tie with it), else 0"
    ),
    "top_is_relevant": ScoreStatistic("ratio", "the same of the key that the probe asks for"),
    "reachable": ScoreStatistic(
        "ratio", f"1 if some inverse temperature gives one key the weight {WEIGHT:g}, else 0"
    ),
    "log_accumulation_scale": ScoreStatistic(
        "1", "log sup_g log N(g) / g; none where keys tie at the maximum"
    ),
    "log_sharpening_inverse_temperature": ScoreStatistic(
        "1", f"log of the least beta with max softmax(beta s) >= {WEIGHT:g}; none where ties"
    ),
}
"""Every number of a row, in the order of the table. The last two stand as logarithms since their
own mean over rows is infinite (two close rivals need any inverse temperature)."""


def score_statistics(
    scores: Float[Tensor, "*row key"], relevant_key: Int[Tensor, "*row"] | None = None
) -> dict[str, Float64[Tensor, "*row"]]:
    """Every statistic of :data:`SCORE_STATISTICS` of each row, in float64.

    Args:
        scores: The scores; minus infinity where a key is hidden.
        relevant_key: Index of the key that each query needs, negative for none; ``None`` leaves
            ``top_is_relevant`` out.

    Returns:
        Name to ``[*row]`` (``largest_score_spread``, which is of several rows, is left to whoever
        puts them together); NaN in every statistic of a row without a visible key or with a score
        that is NaN or plus infinity.
    """
    wide = scores.double()
    visible = wide != -math.inf
    usable = visible.any(-1) & torch.where(visible, wide, 0.0).isfinite().all(-1)
    # Rows that are not usable are computed as a single key of score 0, and blanked at the end.
    only = torch.zeros_like(visible)
    only[..., 0] = True
    visible = torch.where(usable[..., None], visible, only)
    wide = torch.where(usable[..., None], wide, torch.where(only, 0.0, -math.inf))
    count = visible.sum(-1)
    filled = torch.where(visible, wide, 0.0)
    top = wide.amax(-1)
    tolerance = TIE * filled.abs().amax(-1)
    gaps = top[..., None] - wide
    tied = gaps <= tolerance[..., None]
    multiplicity = tied.sum(-1).double()
    mean = filled.sum(-1) / count
    log_weights = wide.log_softmax(-1)
    found = {
        "entropy": -torch.where(visible, log_weights.exp() * log_weights, 0.0).sum(-1),
        "max_weight": log_weights.amax(-1).exp(),
        "score_max": top,
        "score_spread": score_spread(filled, visible),
        "score_reach": top - mean,
        "score_deviation": score_deviation(filled, visible),
        "top_gap": _top_gap(wide, count),
        "top_multiplicity": multiplicity,
    }
    centred = torch.where(visible, wide - mean[..., None], 0.0)
    varies = found["score_deviation"] > tolerance
    found["excess_kurtosis"] = _excess_kurtosis(centred, count, varies)
    found["normality_distance"] = _normality_distance(wide, mean, count, varies)
    first = visible.int().argmax(-1, keepdim=True)
    found["top_is_first"] = tied.gather(-1, first).squeeze(-1) / multiplicity
    if relevant_key is not None:
        asked = relevant_key.to(wide.device)
        share = tied.gather(-1, asked.clamp(min=0)[..., None]).squeeze(-1) / multiplicity
        found["top_is_relevant"] = torch.where(asked >= 0, share, math.nan)
    found |= _gap_counts(wide, tolerance, count)
    return {
        name: torch.where(usable, found[name].double(), math.nan)
        for name in SCORE_STATISTICS
        if name in found
    }


def _top_gap(wide: Tensor, count: Tensor) -> Tensor:
    """The largest score less the second largest; NaN where there is one key."""
    if wide.shape[-1] < 2:
        return torch.full_like(count, math.nan, dtype=wide.dtype)
    largest = wide.topk(2, dim=-1).values
    return torch.where(count > 1, largest[..., 0] - largest[..., 1], math.nan)


def _excess_kurtosis(centred: Tensor, count: Tensor, varies: Tensor) -> Tensor:
    """The unbiased estimator G2 of the excess kurtosis of normal rows."""
    n = count.double()
    square = centred.square().sum(-1) / n
    plain = centred.pow(4).sum(-1) / n / square.square() - 3.0
    corrected = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * plain + 6.0)
    return torch.where((count >= 4) & varies, corrected, math.nan)


def _normality_distance(wide: Tensor, mean: Tensor, count: Tensor, varies: Tensor) -> Tensor:
    """Kolmogorov's distance between the standardised scores and the standard normal."""
    ordered = wide.sort(-1, descending=True).values
    rank = torch.arange(1, wide.shape[-1] + 1, device=wide.device, dtype=wide.dtype)
    inside = rank <= count[..., None]
    centred = torch.where(inside, ordered - mean[..., None], 0.0)
    deviation = (centred.square().sum(-1) / count).sqrt()
    # Share of a normal above each score, between the shares of the row above and up to it.
    above = torch.special.ndtr(-centred / deviation[..., None])
    n = count.double()[..., None]
    up_to, below = (rank / n - above).abs(), ((rank - 1.0) / n - above).abs()
    distance = torch.maximum(up_to, below)
    largest = torch.where(inside, distance, 0.0).amax(-1)
    return torch.where((count > 1) & varies, largest, math.nan)


def _gap_counts(wide: Tensor, tolerance: Tensor, count: Tensor) -> dict[str, Tensor]:
    """Accumulation scale and sharpening inverse temperature, as logarithms, and reachability."""
    rows, ties = wide.cpu().numpy(), tolerance.cpu().numpy()
    scale = torch.as_tensor(accumulation_scale(rows, ties), device=wide.device)
    beta = torch.as_tensor(predict_sharpening_temperature(rows, WEIGHT, ties), device=wide.device)
    logs = {"log_accumulation_scale": scale, "log_sharpening_inverse_temperature": beta}
    found = {
        name: torch.where((value > 0) & value.isfinite(), value.log(), math.nan)
        for name, value in logs.items()
    }
    found["reachable"] = torch.where(count > 1, beta.isfinite().double(), math.nan)
    return found
