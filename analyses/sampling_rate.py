"""How fast one head's output settles as it sees more of the tokens: the rate measured (theory 8).

One query, all its keys; n of them are drawn with replacement, again and again, and the root mean
square distance of the output over the draw to that over all keys is taken over a ladder of n
(:mod:`resharpen.interp.sampling_error`). Theory has C / sqrt(n) with a constant that follows from
the scores and values of that query (theory 10), once n is well above the keys that stand for one
that counts. That the rate holds uniformly over queries is Bohbot, Letrouit, Peyré and Vialard,
arXiv 2512.10656; their constant is not known, so that curve is a conjecture.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..interp.drawing import length_generator
from ..interp.head_rows import HeadRows, read_head_rows
from ..interp.progress import Progress, advancing
from ..interp.sampling_error import sampling_errors, sampling_scale
from ..interp.tables import table
from ..interp.theory import Curve, sampling_error_curve, sampling_error_rate
from ..models.probes import Probe
from .comparing import compare
from .findings import Exponent, Finding
from .fits import fit_exponent
from .markup import html_table
from .one_head import open_head
from .provenance import provenance
from .result import StudyResult
from .rows import over, pick
from .wording import format_number, format_place

__all__ = ["SamplingRate", "measure_sampling_rate"]

RATE = -0.5
"""The exponent of theory."""

SETTLED = 32
"""From how many times :func:`~resharpen.interp.sampling_error.sampling_scale` on n counts as large:
the variance is then within a few percent of its limit."""

OCTAVES = 5
"""Octaves of n past that point in the default ladder."""

SMALLEST = 8
"""The smallest n of the default ladder."""


@dataclass(frozen=True, eq=False)
class SamplingRate:
    """The sampling error of one head over n.

    Attributes:
        checkpoint: Name of the model.
        probe: Name of what it was fed.
        layer: Which layer.
        head: Which head.
        constant: C, the derived limit of sqrt(n) times the error, mean over the queries.
        scale: How many keys stand for one that counts, the largest over the queries.
        settled: The n from which the rate is claimed, and the exponent fitted.
        exponent: The fitted exponent from there on, with its 95 % interval.
        whole_exponent: The same over the whole ladder.
        finding: The derived limit beside the measurement, from there on.
        result: Table, curves, findings, provenance, sentences.
    """

    checkpoint: str
    probe: str
    layer: int
    head: int
    constant: float
    scale: float
    settled: float
    exponent: Exponent
    whole_exponent: Exponent
    finding: Finding
    result: StudyResult

    @property
    def table(self) -> pd.DataFrame:
        """The tidy table; ``n_key`` is the number of keys that were drawn."""
        return self.result.table

    @property
    def curves(self) -> tuple[Curve, ...]:
        """What theory says of it."""
        return self.result.curves

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        return self.result.sentences[0]

    def __repr__(self) -> str:
        """Where, the exponent, the constant."""
        place = format_place(self.checkpoint, self.layer, self.head)
        return f"SamplingRate({place} on {self.probe}: n^{self.exponent}, C {self.constant:.3g})"

    def _repr_html_(self) -> str:
        """The sentence and the findings, for a notebook."""
        rows = [finding.row() for finding in self.result.findings]
        return f"<p>{escape(self.sentence)}</p>{html_table(rows, badge='outcome')}"


def measure_sampling_rate(
    source: Any,
    layer: int,
    head: int,
    *,
    length: int | None = None,
    sizes: Iterable[int] | None = None,
    probe: str | Probe | None = None,
    n_sequences: int = 8,
    n_draws: int = 128,
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
) -> SamplingRate:
    """Measure the sampling error of one head's output over n, beside 1 / sqrt(n).

    The queries are the last ones of a few sequences, each with the keys that it sees.

    Args:
        source: Whatever :func:`resharpen.models.adapters.adapt` takes.
        layer: Which layer, from 0.
        head: Which head, from 0.
        length: Length of the sequences; by default up to 1024, as far as model and probe allow.
        sizes: How many keys are drawn, a ladder; by default octaves from 8 on to well past where
            the rate is claimed. More than there are keys is possible: they are drawn with
            replacement.
        probe: What to feed it; by default the task of a checkpoint that names its own,
            ``"repeated"`` for others.
        n_sequences: Sequences, a query each.
        n_draws: Draws of each query at each size.
        seed: Seed of the sequences and of the draws.
        name: What to call the model.
        encode: Tokenizer for the text probe.
        text: File for the text probe; the passage that ships by default.
        past_positions: Run a length that the model was not made for.
        batch_tokens: Most positions in one forward pass.
        stack: ``"decoder"``, ``"encoder"`` or ``"cross"``; by default the first that has the layer.
        weights: For our checkpoints: which weights, ``"raw"`` or an average.
        dtype: For Hugging Face: dtype to load in.
        device_map: For Hugging Face: as ``from_pretrained`` takes it.
        progress: ``True`` for a bar, or called as ``progress(done, total, n)`` in sizes.

    An interrupt (ctrl-C) leaves the model as it was and gives what the finished sizes say, with a
    warning; with none finished it goes through.

    Raises:
        CheckpointError: If the model cannot be read.
        ValueError: If there is no such layer or head, its scores and values cannot be seen, or a
            length, size or number is not possible.
    """
    opened = open_head(
        source,
        layer,
        head,
        lengths=None if length is None else [length],
        probe=probe,
        n_sequences=n_sequences,
        name=name,
        encode=encode,
        text=text,
        weights=weights,
        dtype=dtype,
        device_map=device_map,
    )
    longest = opened.lengths[-1]
    parts = list(
        read_head_rows(
            opened.adapter, opened.probe, longest, (), layer, head, n_sequences=n_sequences,
            seed=seed, batch_tokens=batch_tokens, past_positions=past_positions, stack=stack,
        )
    )  # fmt: skip
    scores, values = _together(parts, layer)
    usable = torch.isfinite(scores).any(-1)
    if not usable.any():
        raise ValueError("no query of this head could be read: every one is padding")
    constant, scale = _constants(scores[usable], values[usable])
    settled = SETTLED * scale
    ladder = _ladder(sizes, settled)
    rows: list[dict[str, Any]] = []
    given = {
        "study": "sampling-rate", "checkpoint": opened.label, "task": opened.probe.name,
        "length": longest, "layer": layer, "head": head, "site": parts[0].site, "unit": "1",
    }  # fmt: skip
    title = f"sampling keys of {opened.label} L{layer} H{head}"
    with advancing(progress, title, "size") as advance:
        try:
            for done, size in enumerate(ladder, start=1):
                generator = length_generator(seed, size)
                found = sampling_errors(scores, values, size, n_draws, generator)[usable].numpy()
                rows += _rows({**given, "n_key": size}, found)
                advance(done, len(ladder), size)
        except KeyboardInterrupt:
            if not rows:
                raise
            warnings.warn(
                f"interrupted: the table holds the first {advance.done} of {len(ladder)} sizes",
                stacklevel=2,
            )
            ladder = ladder[: advance.done]
    measured = table(rows)
    errors = over(pick(measured, quantity="sampling_error"), "n_key")
    largest = over(pick(measured, quantity="largest_sampling_error"), "n_key")
    limit = _where_large(sampling_error_curve(ladder, constant, **opened.place), settled)
    curves = [limit] if np.isfinite(limit.values).any() else []
    if (largest > 0).all():
        fitted = math.exp(float(np.log(largest * np.sqrt(largest.index.to_numpy())).mean()))
        uniform = sampling_error_curve(ladder, fitted, uniform=True, **opened.place)
        hypotheses = (*uniform.hypotheses, "its constant is fitted: the exponent alone is theory")
        curves.append(replace(uniform, quantity="largest_sampling_error", hypotheses=hypotheses))
    findings = [compare(measured, curve) for curve in curves]
    finding = compare(measured, limit)
    whole = fit_exponent(errors.index.to_numpy(), errors.to_numpy())
    options = {
        "sizes": list(ladder), "n_draws": n_draws, "seed": seed, "past_positions": past_positions,
        "batch_tokens": batch_tokens, "stack": stack,
    }  # fmt: skip
    facts = opened.adapter.description
    asked = {**opened.asked, **options, "lengths": [longest]}
    where = f"{format_place(opened.label, layer, head)} on {opened.probe.name}"
    sentences = _sentences(where, constant, settled, finding, whole, errors)
    result = StudyResult(
        table=measured,
        curves=tuple(curves),
        findings=tuple(findings),
        verdicts=(),
        provenance=provenance(
            asked,
            {**asked, "constant": constant, "scale": scale, "settled": settled,
             "exponent": finding.exponent.to_dict(), "architecture": facts.architecture},
            seeds=[seed],
            checkpoints={} if facts.digest is None else {opened.label: facts.digest},
            completed=advance.complete,
        ),
        sentences=(*sentences, *facts.notes),
    )  # fmt: skip
    return SamplingRate(
        opened.label, opened.probe.name, layer, head, constant, scale, settled,
        finding.exponent, whole, finding, result,
    )  # fmt: skip


def _together(parts: Sequence[HeadRows], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores `[batch, key]` and values `[batch, key, d_value]` of every sequence's query."""
    values = [part.values for part in parts if part.values is not None]
    if len(values) < len(parts):
        raise ValueError(
            f"layer {layer} shows finished weights without the values that they average: its "
            "sampling error cannot be measured"
        )
    return torch.cat([part.scores[:, 0] for part in parts]), torch.cat(values)


def _constants(scores: torch.Tensor, values: torch.Tensor) -> tuple[float, float]:
    """The derived constant, mean over queries, and the largest scale."""
    rates = []
    for row, value in zip(scores, values, strict=True):
        seen = torch.isfinite(row)
        kept, each = row[seen].numpy(), value[seen].numpy().T
        share = np.full(kept.size, 1.0 / kept.size)
        rates.append(float(np.sqrt((sampling_error_rate(share, kept, each) ** 2).sum())))
    return float(np.mean(rates)), float(sampling_scale(scores).max())


def _ladder(sizes: Iterable[int] | None, settled: float) -> tuple[int, ...]:
    if sizes is not None:
        asked = tuple(sorted(set(sizes)))
        if not asked:
            raise ValueError("sizes must name at least one number of keys; got none")
        return asked
    top = math.ceil(math.log2(max(SMALLEST, settled))) + OCTAVES
    return tuple(2**step for step in range(int(math.log2(SMALLEST)), top + 1))


def _rows(given: dict[str, Any], found: np.ndarray) -> list[dict[str, Any]]:
    """The mean over queries of the root mean square error, and the largest."""
    count = found.size
    sem = float(found.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    low, high = float(found.min()), float(found.max())
    mean = {"mean": float(found.mean()), "sem": sem, "n_obs": count, "min": low, "max": high}
    most = {"mean": high, "sem": math.nan, "n_obs": 1, "min": high, "max": high}
    return [
        {**given, "quantity": "sampling_error", **mean},
        {**given, "quantity": "largest_sampling_error", **most},
    ]


def _where_large(curve: Curve, start: float) -> Curve:
    """The curve where n is large enough for its limit."""
    values = np.where(curve.x >= start, curve.values, np.nan)
    hypotheses = (*curve.hypotheses, f"n at least {start:.4g}, {SETTLED} keys for each that counts")
    return replace(curve, values=values, domain=(start, math.inf), hypotheses=hypotheses)


def _sentences(
    where: str,
    constant: float,
    settled: float,
    finding: Finding,
    whole: Exponent,
    errors: pd.Series,
) -> tuple[str, ...]:
    first = f"{where}: the distance of the output over n sampled keys to that over all of them "
    ladder = f"Over the whole ladder, from {errors.index[0]:g} to {errors.index[-1]:g} keys, it is "
    if finding.exponent.status != "ok":
        told = f"has no exponent from {settled:.4g} keys on ({finding.exponent.reason})"
        return (f"{first}{told}.", f"{ladder}n^{whole}.")
    held = "holds" if finding.exponent.contains(RATE) else "does not hold"
    return (
        f"{first}falls as n^{finding.exponent} from {settled:.4g} keys on, where theory has "
        f"n^{RATE:g} (its interval {held} it); at {finding.final_x:g} keys it is "
        f"{format_number(finding.final_ratio)} times the derived C / sqrt(n), C = "
        f"{format_number(constant)}.",
        f"{ladder}n^{whole}: before the limit is reached the error need not follow it.",
    )
