"""Over lengths: one forward pass a batch, every quantity at the last query, one tidy table."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from torch import Tensor

from ..models.sites import Site, list_sites, weight_rule
from .arguments import check_counts, check_labels, check_lengths
from .batching import fitting_batch
from .capturing import HookedModel, capture
from .drawing import Drawn, Sample, draw
from .frozen import AloneScales, alone_scales, frozen_logits
from .measures import MEASURES, Measure, get_measure
from .progress import Progress, advancing
from .readings import Reading, reads_site, site_readers
from .reduce import Moments, VectorVariance
from .tables import concatenate, table
from .verify import is_causal, verify_taps

LOGITS = "logits"
"""What the ``site`` column says for quantities of the model's output."""

_N_VERIFIED = 4


@dataclass(frozen=True)
class _Plan:
    """What a sweep was asked to do, resolved."""

    model: HookedModel
    sample: Sample
    lengths: tuple[int, ...]
    measures: tuple[Measure, ...]
    explicit: bool
    batch: int
    n_batches: int
    seed: int
    labels: Mapping[str, Any]
    progress: Progress | None
    sites: tuple[Site, ...]
    failed: tuple[Site, ...]

    def asks(self, array: str) -> bool:
        return any(array in measure.reads for measure in self.measures)

    @property
    def deaf_norm(self) -> bool:
        """Whether a norm cannot be read, so that the scales cannot all be frozen."""
        return any(site.kind == "norm_scale" for site in self.failed)

    @property
    def freezes(self) -> bool:
        return self.asks("frozen_logits") and not self.deaf_norm


@dataclass
class _Totals:
    """Accumulators of one length, by (site name, quantity), in the order of first reading."""

    moments: dict[tuple[str, str], Moments | VectorVariance] = field(default_factory=dict)
    layer: dict[str, int | None] = field(default_factory=dict)
    n_key: dict[str, set[int]] = field(default_factory=dict)

    def take(self, name: str, layer: int | None, pos: int, reading: Reading) -> None:
        self.layer[name] = layer
        keys = {pos} if reading.n_key is None else set(reading.n_key.unique().tolist())
        self.n_key.setdefault(name, set()).update(keys)
        for quantity, values in reading.values.items():
            self.moments.setdefault((name, quantity), Moments()).update(values[..., -1])
        for quantity, vectors in reading.vectors.items():
            self.moments.setdefault((name, quantity), VectorVariance()).update(vectors)


def sweep(
    model: HookedModel,
    sample: Sample,
    lengths: Iterable[int],
    measures: Iterable[str] | None = None,
    *,
    batch: int = 256,
    n_batches: int = 1,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
    progress: bool | Progress | None = None,
    verify: bool = True,
) -> pd.DataFrame:
    """Measure a model at several lengths; returns the tidy table.

    For each length, ``batch * n_batches`` sequences are drawn in one stream, so that their split
    into batches does not matter, from a generator keyed by ``(seed, length)``, so that the other
    lengths do not matter. Everything is read at the last query: attention per layer and head, the
    stream, contributions and norm scales per site, and, when the sample carries exact targets,
    displacements and errors at the logits. ``mean``, ``sem``, ``min`` and ``max`` are over
    sequences, one value a sequence and place.

    An interrupt (ctrl-C) returns the lengths that are finished, with a warning; with none finished
    it goes through. :func:`sweep_lengths` gives each length as it comes.

    Args:
        model: Anything with HookedTransformer-compatible hook points; left as it was.
        sample: ``sample(generator, batch, length)``, such as a task's ``sample`` method.
        lengths: Lengths to ask of the task, each 1 or more, all different.
        measures: Names of quantities (:data:`~resharpen.interp.measures.MEASURES`). ``None``: all
            that model and sample allow. A named one that cannot be read gets a row that says so.
        batch: Sequences in one forward pass; run in parts where their patterns would not fit
            (:func:`~resharpen.interp.batching.fitting_batch`), which changes no number.
        n_batches: Batches a length. The frozen-scale quantities take a second pass each.
        seed: Seed of what is drawn (not a column of the table).
        labels: Values of the columns ``study``, ``checkpoint``, ``task`` and ``seed`` (the training
            seed); missing where not given.
        progress: ``True`` for a bar, or called after each batch as ``progress(done, total,
            length)``.
        verify: Check every site on a few short sequences before it is read
            (:mod:`resharpen.interp.verify`). The sites that fail are named in one warning, and
            their quantities get the status ``unavailable``.

    Returns:
        The table of :mod:`resharpen.interp.tables`; ``site`` is the hook name, or ``"logits"``.

    Raises:
        ValueError: If a length is impossible for the task or longer than the positions the model
            has learned, a measure or label is unknown, or a number is out of range. Lengths are
            checked before anything is run.
    """
    asked = check_lengths(lengths)
    tables: list[pd.DataFrame] = []
    try:
        with advancing(progress, "sweep", "batch") as advance:
            for frame in sweep_lengths(
                model,
                sample,
                asked,
                measures,
                batch=batch,
                n_batches=n_batches,
                seed=seed,
                labels=labels,
                progress=advance,
                verify=verify,
            ):
                tables.append(frame)
    except KeyboardInterrupt:
        if not tables:
            raise
        warnings.warn(
            f"interrupted: the table holds the {len(tables)} finished of {len(asked)} lengths",
            stacklevel=2,
        )
    return concatenate(tables)


def sweep_lengths(
    model: HookedModel,
    sample: Sample,
    lengths: Iterable[int],
    measures: Iterable[str] | None = None,
    *,
    batch: int = 256,
    n_batches: int = 1,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    verify: bool = True,
) -> Iterator[pd.DataFrame]:
    """As :func:`sweep`, but yields one table a length, each as soon as it is finished.

    Arguments are checked, and sites verified, when this is called, not at the first table.

    Raises:
        ValueError: As :func:`sweep`.
    """
    asked = check_lengths(lengths)
    check_counts(batch=batch, n_batches=n_batches)
    given = check_labels(labels)
    explicit = measures is not None
    wanted = (
        [get_measure(name) for name in dict.fromkeys(measures)]
        if measures is not None
        else _fitting_measures(model)
    )
    if not wanted:
        raise ValueError("measures must name at least one quantity, or be None for all")
    for length in asked:
        check_positions(model, draw(sample, seed, length, 1), length)
    sites = _needed_sites(model, wanted)
    failed: list[Site] = []
    if verify:
        short = min((length for length in asked if length > 1), default=asked[0])
        tokens = draw(sample, seed, short, _N_VERIFIED).tokens
        broken = [tap for tap in verify_taps(model, tokens, sites).values() if tap.status != "ok"]
        failed = [tap.site for tap in broken]
        if broken:
            warnings.warn(
                f"{len(broken)} of {len(sites)} sites are unavailable: "
                + "; ".join(tap.reason for tap in broken),
                stacklevel=3,
            )
    plan = _Plan(
        model,
        sample,
        asked,
        tuple(wanted),
        explicit,
        batch,
        n_batches,
        seed,
        given,
        progress,
        tuple(site for site in sites if site not in failed),
        tuple(failed),
    )
    return _tables(plan)


def _fitting_measures(model: HookedModel) -> list[Measure]:
    """Every measure, but for the sum of weights that sum to one by construction."""
    normalised = weight_rule(model).row_sum == 1.0
    return [
        measure
        for measure in MEASURES.values()
        if not (normalised and "unnormalised" in measure.reads)
    ]


def _needed_sites(model: HookedModel, measures: Sequence[Measure]) -> list[Site]:
    """Sites that a measure reads, scores that tell which keys are visible, and norms to freeze."""
    every = list_sites(model)
    read = {site for site in every if any(reads_site(measure, site) for measure in measures)}
    layers = {site.layer for site in read if site.kind == "pattern"}
    freezes = any("frozen_logits" in measure.reads for measure in measures)
    return [
        site
        for site in every
        if site in read
        or (site.kind == "scores" and site.layer in layers)
        or (site.kind == "norm_scale" and freezes)
    ]


def check_positions(model: Any, drawn: Drawn, length: int) -> None:
    """Refuse an input longer than the positions that the model has learned.

    Raises:
        ValueError: If it is, by what ``model.cfg`` says.
    """
    cfg = getattr(model, "cfg", None)
    learned = getattr(cfg, "positional_embedding_type", None) in ("standard", "shortformer")
    n_ctx = getattr(cfg, "n_ctx", None)
    pos = drawn.tokens.shape[1]
    if learned and isinstance(n_ctx, int) and pos > n_ctx:
        raise ValueError(
            f"length {length} needs {pos} positions, but the model has learned {n_ctx} (n_ctx): "
            "ask for shorter lengths or take a model without learned positions"
        )


def _tables(plan: _Plan) -> Iterator[pd.DataFrame]:
    done, total = 0, plan.n_batches * len(plan.lengths)
    for length in plan.lengths:
        drawn = draw(plan.sample, plan.seed, length, plan.batch * plan.n_batches)
        alone = _alone(plan, drawn)
        totals = _Totals()
        step = fitting_batch(plan.model, plan.batch, drawn.tokens.shape[1])
        for first in range(0, plan.batch * plan.n_batches, plan.batch):
            end = first + plan.batch
            for start in range(first, end, step):
                _measure_batch(plan, drawn.part(start, min(start + step, end)), alone, totals)
            done += 1
            if plan.progress is not None:
                plan.progress(done, total, length)
        yield table(_rows(plan, length, drawn.tokens.shape[1], totals))


def _alone(plan: _Plan, drawn: Drawn) -> AloneScales | None:
    """Scales of the tokens alone at the norms that can be read, if anything asks for them."""
    freezes = plan.freezes and drawn.present is not None
    if not (freezes or plan.asks("scale_alone")):
        return None
    tokens = drawn.tokens if freezes else drawn.tokens[:, -1]
    norms = [site.name for site in plan.sites if site.kind == "norm_scale"]
    return alone_scales(plan.model, tokens, drawn.bos, norms)


def _measure_batch(plan: _Plan, part: Drawn, alone: AloneScales | None, totals: _Totals) -> None:
    last = part.tokens[:, -1:]
    readers = site_readers(
        plan.sites,
        plan.measures,
        causal=is_causal(plan.model),
        relevant=None if part.relevant is None else part.relevant[:, None],
        rule=weight_rule(plan.model),
        scale_alone=None
        if alone is None
        else {name: alone.at(name, last) for name in alone.scales},
    )
    found = capture(plan.model, part.tokens, readers)
    pos = part.tokens.shape[1]
    layer = {site.name: site.layer for site in plan.sites}
    for name, reading in found.values.items():
        totals.take(name, layer[name], pos, reading)
    arrays = _output_arrays(plan, part, alone, found.logits)
    values = {
        measure.name: measure(arrays)[:, None]
        for measure in plan.measures
        if _reads_output(measure) and all(array in arrays for array in measure.reads)
    }
    totals.take(LOGITS, None, pos, Reading(values))


def _reads_output(measure: Measure) -> bool:
    return "logits" in measure.reads or "frozen_logits" in measure.reads


def _output_arrays(
    plan: _Plan, part: Drawn, alone: AloneScales | None, logits: Tensor
) -> dict[str, Tensor]:
    """What the measures of the model's output may read, at the last position, in float64."""
    if part.target is None:
        return {}
    if logits.shape[-1] != part.target.shape[-1]:
        raise ValueError(
            f"the model has {logits.shape[-1]} output tokens (d_vocab_out), but the targets have "
            f"{part.target.shape[-1]}: model and task do not fit"
        )
    arrays = {
        "logits": logits[:, -1].cpu().double(),
        "target": part.target.cpu().double(),
    }
    if part.present is None or part.absent is None:
        return arrays
    arrays |= {"present": part.present.cpu(), "absent": part.absent.cpu()}
    if alone is not None and plan.freezes:
        frozen = frozen_logits(plan.model, part.tokens, alone=alone) if alone.scales else logits
        arrays["frozen_logits"] = frozen[:, -1].cpu().double()
    return arrays


def _rows(plan: _Plan, length: int, pos: int, totals: _Totals) -> Iterator[dict[str, Any]]:
    for (name, quantity), accumulated in totals.moments.items():
        keys = totals.n_key[name]
        place = {
            **_place(plan, length, MEASURES[quantity], name, totals.layer[name]),
            "n_key": min(keys) if len(keys) == 1 else None,
        }
        summary = accumulated.result()
        per_head = summary.mean.ndim > 0
        columns = zip(
            *(
                value.reshape(-1).tolist()
                for value in (summary.mean, summary.sem, summary.n_obs, summary.min, summary.max)
            ),
            strict=True,
        )
        for head, (mean, sem, n_obs, low, high) in enumerate(columns):
            yield {
                **place,
                "head": head if per_head else None,
                "mean": mean,
                "sem": sem,
                "n_obs": n_obs,
                "min": low,
                "max": high,
                "status": "undefined" if mean != mean else "ok",
            }
    yield from _unavailable(plan, length, pos, totals)


def _unavailable(plan: _Plan, length: int, pos: int, totals: _Totals) -> Iterator[dict[str, Any]]:
    """Rows that say what could not be read: at a site that failed, or at all if asked by name."""
    read = {quantity for _, quantity in totals.moments}
    for measure in plan.measures:
        places = [(site.name, site.layer) for site in plan.failed if reads_site(measure, site)]
        blocked = plan.deaf_norm and "frozen_logits" in measure.reads
        if measure.name not in read and not places and (plan.explicit or blocked):
            places = [(_usual_site(measure), None)]
        for name, layer in places:
            yield {
                **_place(plan, length, measure, name, layer),
                "n_key": pos,
                "status": "unavailable",
            }


def _usual_site(measure: Measure) -> str | None:
    return LOGITS if _reads_output(measure) else None


def _place(
    plan: _Plan, length: int, measure: Measure, site: str | None, layer: int | None
) -> dict[str, Any]:
    return {
        **plan.labels,
        "length": length,
        "layer": layer,
        "site": site,
        "quantity": measure.name,
        "unit": measure.unit,
    }
