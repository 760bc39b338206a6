"""Open a model for the explorer: audit it, and keep what is needed to measure it again.

What is measured comes from :func:`resharpen.analyses.audit_adapted`, so its numbers are an audit's.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...interp.progress import Progress, is_watched
from ...models.probes import Probe, TaskProbe
from ..adapted import audit_adapted
from ..arguments import check_run
from ..head_ladders import read_heads
from ..one_head import open_head
from ..rows import distinct, over, pick, plain
from ..thresholds import HeadThresholds
from .state import OUTPUT, ExplorerState
from .views import NormCurve

__all__ = ["open_explorer"]

LONGEST = 256
"""The longest length that is run where none are given."""

LONG = 1e10
"""Weights times tokens from which opening takes long enough, some seconds on a few cores, for a bar
and for batches of one sequence, so that the bar moves."""


def open_explorer(
    source: Any,
    *,
    probe: str | Probe | None = None,
    lengths: Iterable[int] | None = None,
    n_sequences: int | None = None,
    seed: int = 0,
    thresholds: HeadThresholds | None = None,
    name: str | None = None,
    encode: Callable[[str], Sequence[int]] | None = None,
    text: str | Path | None = None,
    past_positions: bool = False,
    weights: str = "raw",
    dtype: str = "auto",
    device_map: Any = None,
    progress: bool | Progress | None = None,
) -> ExplorerState:
    """Open a model, audit it, and keep what is needed to measure it again with a change.

    Args:
        source: Whatever :func:`resharpen.models.adapters.adapt` takes.
        probe: What it is fed; by default the task of a checkpoint that names its own,
            ``"repeated"`` for others.
        lengths: Lengths to run; by default one or two an octave up to 256, as far as the model and
            the probe allow: a change is answered at once then. The work grows with their square.
        n_sequences: Sequences a length; by default 32 of a task, 8 of any other probe: few, so
            that a change answers at once.
        seed: Seed of the sequences.
        thresholds: Where the lines between classes of heads are drawn.
        name: What to call the model.
        encode: Tokenizer for the text probe.
        text: File for the text probe.
        past_positions: Run lengths that the model was not made for.
        weights: For our checkpoints: which weights.
        dtype: For Hugging Face: dtype to load in.
        device_map: For Hugging Face: as ``from_pretrained`` takes it.
        progress: ``True`` for a bar, ``False`` for none, or called as ``progress(done, total,
            length)``; by default a bar in a notebook or a terminal where it takes long.

    Raises:
        CheckpointError: If the model cannot be read.
        ValueError: If no head's attention could be measured, or no probe or length fits.
        TypeError: If lengths, probe or thresholds are of another kind.
    """
    # Before the model is opened, which may take minutes.
    lengths = check_run(
        lengths=lengths, n_sequences=n_sequences, seed=seed, probe=probe, thresholds=thresholds,
        kind=HeadThresholds,
    )  # fmt: skip
    opened = open_head(
        source, 0, 0, lengths=lengths, probe=probe, name=name, encode=encode, text=text,
        weights=weights, dtype=dtype, device_map=device_map,
    )  # fmt: skip
    run = opened.lengths
    if lengths is None:
        run = tuple(n for n in run if n <= LONGEST) or run
    if n_sequences is None:
        n_sequences = 32 if isinstance(opened.probe, TaskProbe) else 8
    long = opened.adapter.description.n_parameters * n_sequences * sum(run) >= LONG
    audited = audit_adapted(
        opened.adapter,
        probe=opened.probe,
        lengths=run,
        n_sequences=n_sequences,
        seed=seed,
        thresholds=thresholds,
        name=opened.label,
        past_positions=past_positions,
        batch_tokens=max(run) if long else 16384,
        progress=long and is_watched() if progress is None else progress,
    )
    measured = audited.profile.table
    by_place = {(head.site, head.head): head for head in read_heads(measured)}
    if not audited.classes:
        raise ValueError(
            f"no attention pattern of {opened.label} could be measured: there is no head to explore"
        )
    finished = audited.profile.lengths
    kept = tuple(n for n in run if n <= max(finished))
    return ExplorerState(
        label=opened.label,
        adapter=opened.adapter,
        probe=opened.probe,
        lengths=kept,
        n_sequences=n_sequences,
        seed=seed,
        table=measured,
        classes=audited.classes,
        heads=tuple(by_place[item.site, item.head] for item in audited.classes),
        output=_read_output(measured),
        norms=_read_norms(measured),
        past_positions=past_positions,
    )


def _read_output(frame: pd.DataFrame) -> dict[str, float]:
    """Loss and accuracy at the most keys; empty where the output is not scored."""
    found = {name: over(pick(frame, quantity=name), "n_key") for name in OUTPUT}
    return {name: float(means.iloc[-1]) for name, means in found.items() if len(means)}


def _read_norms(frame: pd.DataFrame) -> dict[int | None, tuple[NormCurve, ...]]:
    """The scale of every norm, by its layer."""
    rows, curves = pick(frame, quantity="norm_scale"), {}
    for site in distinct(rows, "site"):
        found = pick(rows, site=site)
        means = over(found, "n_key")
        curve = NormCurve(site, means.index.to_numpy(np.float64), means.to_numpy())
        curves.setdefault(plain(found["layer"].iloc[0]), []).append(curve)
    return {layer: tuple(each) for layer, each in curves.items()}
