"""What normalisation lets one head select: distance, separability and slope over n (theory 6).

The limits of arXiv 2508.17821 measured on any head, beside what is known of them: the slope of a
row with its true bounds (1/4 of one weight, 1/2 of a row, the largest weight, and what the spread
of the scores allows, which falls as 1/n); the distance of the selection with its elementary bound.
What is only reported (a distance that goes to 0, about 80 % separable, 1/4 of a row) is drawn as
the conjecture that it is.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..interp.arguments import check_seed
from ..interp.limit_rows import profile_limits
from ..interp.progress import Progress, advancing
from ..interp.theory import (
    Curve,
    jacobian_bound_curves,
    relayed_jacobian_curve,
    relayed_selection_curves,
    selection_distance_bound_curve,
    weight_bound_curves,
)
from ..models.probes import Probe
from .bounds import compare_everywhere
from .fits import fit_exponent
from .one_head import open_head
from .provenance import provenance
from .result import StudyResult
from .rows import over, pick
from .wording import format_number, format_place

__all__ = ["SELECTED", "expect_limits", "measure_limits"]

SELECTED = 0.06
"""Share of the keys that is selected where nothing is said: the rule of thumb of arXiv 2508.17821
[second-hand] is to keep below it."""


def measure_limits(
    source: Any,
    layer: int,
    head: int,
    *,
    selected: int | float = SELECTED,
    lengths: Iterable[int] | None = None,
    probe: str | Probe | None = None,
    n_sequences: int | None = None,
    seed: int = 0,
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
) -> StudyResult:
    """Measure the limits of one head's selection over a ladder of lengths, with their bounds.

    Args:
        source: Whatever :func:`resharpen.models.adapters.adapt` takes.
        layer: Which layer, from 0.
        head: Which head, from 0.
        selected: N, how many of the keys of largest weight are the selection: a whole number, or a
            share of the visible keys.
        lengths: Lengths to run; by default as :func:`resharpen.analyses.diagnose`.
        probe: What to feed it; by default the task of a checkpoint that names its own,
            ``"repeated"`` for others.
        n_sequences: Sequences a length; by default 64 of a task, 16 of any other probe.
        seed: Seed of the sequences.
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

    Returns:
        Table (:data:`resharpen.interp.limit_rows.LIMITS`), curves, a finding a curve, sentences.

    Raises:
        CheckpointError: If the model cannot be read.
        ValueError: If there is no such layer or head, its scores cannot be seen, or a length or
            argument is not possible.
    """
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
    options: dict[str, Any] = {
        "selected": selected,
        "n_sequences": opened.n_sequences,
        "seed": seed,
        "past_positions": past_positions,
        "batch_tokens": batch_tokens,
        "stack": stack,
    }
    title = f"limits of {opened.label} L{layer} H{head}"
    labels = {"study": "limits", "checkpoint": opened.label}
    with advancing(progress, title, "sequence") as advance:
        table = profile_limits(
            opened.adapter, opened.probe, opened.lengths, layer, head,
            labels=labels, progress=advance, **options,
        )  # fmt: skip
    curves = expect_limits(table, opened.place, shared=isinstance(selected, float))
    facts = opened.adapter.description
    asked = {**opened.asked, **options}
    where = f"{format_place(opened.label, layer, head)} on {opened.probe.name}"
    return StudyResult(
        table=table,
        curves=tuple(curves),
        findings=tuple(compare_everywhere(table, curve) for curve in curves),
        verdicts=(),
        provenance=provenance(
            asked,
            {**asked, "architecture": facts.architecture},
            seeds=[seed],
            checkpoints={} if facts.digest is None else {opened.label: facts.digest},
            completed=advance.complete,
        ),
        sentences=(*_sentences(table, where), *facts.notes),
    )


def expect_limits(table: pd.DataFrame, place: Any, *, shared: bool) -> list[Curve]:
    """Every curve that theory has for the limits of a head.

    Args:
        table: What was measured.
        place: Checkpoint, layer and head.
        shared: Whether the selection is a share of the keys: only then do the reports of its
            distance and its separability speak about it.
    """
    weight, spread = (_largest(table, name) for name in ("max_weight", "score_spread"))
    curves: list[Curve] = []
    if not weight.empty:
        n_key = weight.index.to_numpy()
        spreads = spread.reindex(weight.index).to_numpy()
        largest = np.minimum(weight.to_numpy(), 1.0)
        curves += jacobian_bound_curves(n_key, largest, spreads, **place)
        curves += [relayed_jacobian_curve(n_key, **place)]
        curves += weight_bound_curves(n_key, spreads, **place)
    value = _largest(table, "largest_value_norm")
    if not value.empty:
        n_key = value.index.to_numpy()
        curves.append(selection_distance_bound_curve(n_key, value.to_numpy(), **place))
        if shared:
            curves += relayed_selection_curves(n_key, **place)
    return curves


def _largest(table: pd.DataFrame, quantity: str) -> pd.Series:
    """The largest of a quantity at each number of keys."""
    rows = pick(table, quantity=quantity)
    return over(rows, "n_key", "max", "max") if not rows.empty else pd.Series(dtype=np.float64)


def _sentences(table: pd.DataFrame, where: str) -> list[str]:
    """What was found, a sentence each of slope, distance and separability."""
    slope = _mean(table, "jacobian_norm")
    if slope.empty:
        return [f"{where}: no row could be read."]
    keys = slope.index.to_numpy()
    falls = fit_exponent(keys, slope.to_numpy())
    rate = f", as n^{falls}" if falls.status == "ok" else ""
    sentences = [
        f"{where}: the slope of a row (spectral norm of diag(a) - aa') is "
        f"{_from_to(slope)}{rate}; no softmax has more than 1/2."
    ]
    distance, share = _mean(table, "selection_distance"), _mean(table, "separable_share")
    if distance.empty:
        return [
            *sentences,
            "The values of this head are not shown, so distance and separability are not known.",
        ]
    value = float(_mean(table, "largest_value_norm").iloc[-1])
    return [
        *sentences,
        f"Selected are the keys of largest weight, {_from_to(_mean(table, 'selected_keys'))}: what "
        f"they contribute lies {_from_to(distance)} from what the others do (the longest value is "
        f"{format_number(value)} at the most keys).",
        f"Nearer to the output than every key that is not selected (separable, as this toolkit "
        f"defines it) is a share of them of {_from_to(share)}.",
    ]


def _mean(table: pd.DataFrame, quantity: str) -> pd.Series:
    rows = pick(table, quantity=quantity)
    return over(rows, "n_key") if not rows.empty else pd.Series(dtype=np.float64)


def _from_to(values: pd.Series) -> str:
    first, last = (format_number(float(values.iloc[at])) for at in (0, -1))
    low, high = (f"{values.index[at]:g}" for at in (0, -1))
    return f"{first} at {low} and {last} at {high} keys"
