"""Diagnose one head: which law its scores follow as n grows, and what would bring it back.

:func:`diagnose` measures the rows of scores of one head over a ladder of lengths
(:mod:`resharpen.interp.score_rows`), lets :mod:`~resharpen.analyses.score_laws` and
:mod:`~resharpen.analyses.growth_laws` decide, lays theory beside the measurement, and recommends
the remedy that theory has for what was found (theory sections 0 and 5):

* the law of the scores asks for a temperature that grows as sqrt(log n) (Gaussian of fixed
  deviation), at least as log n (bounded), or not at all (growing);
* the inverse temperature that would sharpen the measured rows, exact row by row, grows as it does;
* where keys tie at the maximum, or the task averages over every key, no temperature helps: what
  repairs aggregation is a norm after attention.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..interp.arguments import check_seed
from ..interp.progress import Progress, advancing
from ..interp.score_rows import profile_score_rows
from ..interp.theory import (
    Curve,
    accumulation_bound_curve,
    dispersion_limit_curves,
    entropy_bound_curve,
    gaussian_accumulation_curve,
    gaussian_entropy_curve,
    gaussian_reach_curve,
    gaussian_sharpening_curve,
    gaussian_spread_curve,
    n_key_bound,
    predict_gaussian_sharpening,
    sharpening_bound_curve,
    weight_bound_curves,
)
from ..models.adapters import Adapter
from ..models.probes import Probe
from .arguments import check_kind
from .bounds import compare_everywhere
from .comparing import Tolerance
from .crossings import find_crossing
from .diagnosis import Diagnosis, describe
from .findings import Verdict
from .growth_laws import fit_growth
from .head_ladders import HeadLadders, read_heads
from .one_head import open_head
from .provenance import provenance
from .recommendations import WEIGHT, Recommendation, recommend
from .result import StudyResult
from .rows import over, pick
from .score_laws import LawThresholds, ScoreLaw, find_score_law
from .thresholds import HeadThresholds
from .wording import format_number, format_place

__all__ = ["diagnose"]

SINK = 0.5
"""Share of rows whose strongest key is the first one, from which that is said."""

_BOUND = Tolerance(
    0.01,
    1e-4,
    0.0,
    "rows within 5 % of a number of keys are averaged under their rounded geometric mean",
)


def diagnose(
    source: Any,
    layer: int,
    head: int,
    *,
    lengths: Iterable[int] | None = None,
    probe: str | Probe | None = None,
    n_sequences: int | None = None,
    rows_per_rung: int = 8,
    seed: int = 0,
    thresholds: LawThresholds | None = None,
    name: str | None = None,
    encode: Callable[[str], Sequence[int]] | None = None,
    text: str | Path | None = None,
    past_positions: bool = False,
    batch_tokens: int = 16384,
    stack: str | None = None,
    weights: str = "raw",
    dtype: str = "auto",
    device_map: Any = None,
    progress: bool | Progress | None = None,
) -> Diagnosis:
    """Say which law the scores of a head follow as n grows, with the evidence.

    Args:
        source: Whatever :func:`resharpen.models.adapters.adapt` takes.
        layer: Which layer, from 0.
        head: Which head, from 0.
        lengths: Lengths to run, up to 1024 or as far as model and probe allow by default: two an
            octave where one pass gives them all, and of a task; one an octave otherwise.
        probe: Name of a probe (:data:`resharpen.models.probes.PROBES`) or one of your own; by
            default the task of a checkpoint that names its own, ``"repeated"`` for others.
        n_sequences: Sequences a length; by default 64 of a task, 16 of any other probe.
        rows_per_rung: Most queries of a sequence that are read at each number of keys.
        seed: Seed of the sequences.
        thresholds: Where the lines between the laws are drawn.
        name: What to call the model.
        encode: Tokenizer for the text probe.
        text: File for the text probe; the passage that ships by default.
        past_positions: Run lengths that the model was not made for.
        batch_tokens: Most positions in one forward pass.
        stack: ``"decoder"``, ``"encoder"`` or ``"cross"``; by default the first that has the layer.
        weights: For our checkpoints: which weights, ``"raw"`` or an average.
        dtype: For Hugging Face: dtype to load in.
        device_map: For Hugging Face: as ``from_pretrained`` takes it.
        progress: ``True`` for a bar, or called as ``progress(done, total, length)``.

    An interrupt (ctrl-C) leaves the model as it was and gives what the finished sequences say, with
    a warning; with none finished it goes through.

    Raises:
        CheckpointError: If the model cannot be read.
        ValueError: If there is no such layer or head, its scores cannot be seen, or a length or
            argument is not possible.
        TypeError: If lengths, probe or thresholds are of another kind.
    """
    if thresholds is not None:
        check_kind("thresholds", thresholds, LawThresholds)
    check_seed(seed)
    opened = open_head(
        source,
        layer,
        head,
        lengths=lengths,
        probe=probe,
        n_sequences=n_sequences,
        name=name,
        encode=encode,
        text=text,
        weights=weights,
        dtype=dtype,
        device_map=device_map,
    )
    label, adapter, feed = opened.label, opened.adapter, opened.probe
    options: dict[str, Any] = {
        "n_sequences": opened.n_sequences,
        "rows_per_rung": rows_per_rung,
        "seed": seed,
        "past_positions": past_positions,
        "batch_tokens": batch_tokens,
        "stack": stack,
    }
    title = f"diagnosing {label} L{layer} H{head}"
    labels = {"study": "diagnose", "checkpoint": label}
    with advancing(progress, title, "sequence") as advance:
        table = profile_score_rows(
            adapter, feed, opened.lengths, [(layer, head)],
            labels=labels, progress=advance, **options,
        )  # fmt: skip
    lines = thresholds or LawThresholds()
    ladders = _ladders(table)
    law = find_score_law(ladders, lines)
    sharpening = ladders["log_sharpening_inverse_temperature"]
    growth = fit_growth(sharpening.n_key, sharpening.mean, sharpening.half)
    aggregates = getattr(getattr(feed, "task", None), "kind", None) == "aggregation"
    recommendation = recommend(law, growth, ladders, aggregates=aggregates)
    curves = expect_scores(table, law, opened.place)
    level = HeadThresholds()
    weight = ladders["max_weight"]
    crossing = find_crossing("max_weight", weight.n_key, weight.mean, level.weight, level.reach)
    predicted = _predicted_n_key(law)
    where = f"{format_place(label, layer, head)} on {feed.name}"
    notes = _notes(ladders, law, recommendation, adapter)
    sentence = describe(where, law, growth, crossing, predicted, recommendation)
    asked = {**opened.asked, **options}
    facts = adapter.description
    result = StudyResult(
        table=table,
        curves=tuple(curves),
        findings=tuple(
            compare_everywhere(table, curve, _BOUND if curve.kind.endswith("_bound") else None)
            for curve in curves
        ),
        verdicts=(_verdict(layer, head, law, recommendation, crossing, predicted),),
        provenance=provenance(
            asked,
            {
                **asked,
                "thresholds": lines.to_dict(),
                "architecture": facts.architecture,
                "law": law.to_dict(),
                "growth": growth.to_dict(),
                "recommendation": recommendation.to_dict(),
            },
            seeds=[seed],
            checkpoints={} if facts.digest is None else {label: facts.digest},
            completed=advance.complete,
        ),
        sentences=(sentence, _evidence(law), *notes),
    )
    return Diagnosis(
        label, feed.name, layer, head, law, growth, crossing, predicted, recommendation, notes,
        result,
    )  # fmt: skip


def expect_scores(table: pd.DataFrame, law: ScoreLaw, place: Any) -> list[Curve]:
    """Every curve that theory has for the scores of a head.

    Args:
        table: what was measured.
        law: the law of its scores, for their deviation.
        place: checkpoint, layer and head.
    """
    largest = over(pick(table, quantity="largest_score_spread"), "n_key", "max", "max")
    if largest.empty:
        return []
    n_key, spread = largest.index.to_numpy(), largest.to_numpy()
    entropy, _, _ = dispersion_limit_curves(n_key, **place)
    lower, upper = weight_bound_curves(n_key, spread, **place)
    curves = [entropy, entropy_bound_curve(n_key, spread, **place), lower, upper]
    wide = spread > 0
    if wide.any():
        curves += [
            accumulation_bound_curve(n_key[wide], spread[wide], **place),
            sharpening_bound_curve(n_key[wide], spread[wide], WEIGHT, **place),
        ]
    sigma = law.deviation
    if law.law != "bounded" and math.isfinite(sigma) and sigma > 0:
        curves += [
            gaussian_entropy_curve(n_key, sigma, **place),
            gaussian_spread_curve(n_key, sigma, **place),
            gaussian_reach_curve(n_key, sigma, **place),
            gaussian_accumulation_curve(n_key, sigma, **place),
            gaussian_sharpening_curve(n_key, sigma, **place),
        ]
    return curves


def _evidence(law: ScoreLaw) -> str:
    """The evidence in one sentence."""
    told = "; ".join(f"{item.name} {item}" for item in law.evidence)
    return f"Evidence: {told or 'none'}."


def _ladders(table: pd.DataFrame) -> HeadLadders:
    heads = read_heads(table)
    if not heads:
        raise ValueError(
            "no row of this head could be read: every one is padding, has no visible key, or holds "
            "numbers that are not finite"
        )
    return heads[0]


def _predicted_n_key(law: ScoreLaw) -> float:
    """The most keys at which theory lets one key hold half, from spread or deviation."""
    if law.law == "bounded":
        return float(n_key_bound(law.spread, WEIGHT))
    if law.law == "gaussian":
        sizes = np.unique(np.round(np.geomspace(3, 2**20, 400)))
        sharp = predict_gaussian_sharpening(sizes, law.deviation) <= 1.0
        return float(sizes[sharp].max(initial=2.0)) if not sharp.all() else math.inf
    return math.nan


def _notes(
    ladders: HeadLadders, law: ScoreLaw, recommendation: Recommendation, adapter: Adapter
) -> tuple[str, ...]:
    notes = []
    if recommendation.agrees is False and recommendation.kind not in ("norm", "none"):
        notes.append(
            f"Law and growth disagree: the law of the scores asks for {recommendation.by_law}, the "
            f"inverse temperature that sharpens the measured rows grows as "
            f"{recommendation.by_growth} asks."
        )
    first = ladders["top_is_first"].mean
    if first.size and first[-1] >= SINK:
        notes.append(
            f"In {format_number(float(first[-1]))} of the rows at the most keys the strongest key "
            "is the first one: sharpening would send more weight to that sink."
        )
    relevant = ladders["top_is_relevant"].mean
    if relevant.size:
        notes.append(
            "The strongest key is the one that the probe asks for in "
            f"{format_number(float(relevant[-1]))} of the rows at the most keys: only there does "
            "sharpening help."
        )
    reachable = ladders["reachable"].mean
    if reachable.size and WEIGHT <= reachable[-1] < 1:
        notes.append(
            f"In {format_number(1 - float(reachable[-1]))} of the rows at the most keys so many "
            "tie at the maximum that no temperature gives one of them half."
        )
    if reachable.size and reachable[-1] < WEIGHT:
        notes.append(
            "Copies of one token tie where their keys do not tell positions apart: together they "
            "can take all the weight, each of them its share at most."
        )
    if law.law in ("gaussian", "growing"):
        notes.append(
            "This is about the numbers of keys that were measured: over a finite vocabulary scores "
            "are bounded in the end (arXiv 2410.01104, Theorem 2.2, second-hand)."
        )
    return (*notes, *adapter.description.notes)


def _verdict(
    layer: int,
    head: int,
    law: ScoreLaw,
    recommendation: Recommendation,
    crossing: Any,
    predicted: float,
) -> Verdict:
    needed = recommendation.inverse_temperature
    verdict = "PASS" if recommendation.kind == "none" else "WARN"
    return Verdict(
        subject=f"L{layer} H{head}",
        level="head",
        label=law.law,
        verdict="UNKNOWN" if math.isnan(needed) else verdict,
        value=needed,
        threshold=1.0,
        length_measured=crossing.n_key if crossing.kind == "measured" else math.nan,
        length_predicted=predicted + 1.0,
        reason=f"{recommendation.kind}: {recommendation.reason}",
        threshold_source="1 is the inverse temperature that the head has",
    )
