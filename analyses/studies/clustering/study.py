"""Models of every placement, and models that are the theory: measured, set beside it, concluded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from ....interp.stream_sweeping import stream_rows
from ....interp.tables import concatenate
from ....interp.theory import CosinePath, Curve
from ...comparing import Tolerance, compare
from ...findings import Finding
from ...named_runs import check_any_finished, run_named
from ...provenance import provenance
from ...result import StudyResult
from ...runs import default_cache
from ...side_by_side import Backend
from .collapse import Collapse, find_collapse
from .config import IDEAL_PLACEMENTS, Case, ClusteringConfig
from .ideal import Ideal
from .measuring import STUDY, measure_case, models_of, phase_depths, phase_sweeps
from .phases import PhaseSweep
from .sentences import conclude

Say = Callable[[str], None]

STEP_ERROR = 0.5
"""Deviation in the cosine that a step of one is allowed: a block of step h is an Euler step, whose
error over the whole path is a multiple of h; 0.48 h is the largest of all placements."""


@dataclass(frozen=True)
class ClusteringStudy:
    """What the study leaves.

    Attributes:
        result: Table, curves, findings, sentences.
        cases: The cases that were measured.
        ideals: The models that are the theory, and what theory says of their streams.
        collapses: How each case collapses.
        sweeps: By placement, untrained and trained, the sweep of the temperature on the middle of
            the first seed's stream.
        left_out: By label, why a case could not be run.
    """

    result: StudyResult
    cases: tuple[Case, ...]
    ideals: tuple[tuple[Ideal, CosinePath], ...]
    collapses: tuple[Collapse, ...]
    sweeps: Mapping[str, PhaseSweep]
    left_out: Mapping[str, str]


def run(
    config: ClusteringConfig,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    say: Say = lambda message: None,
    asked: Mapping[str, object] | None = None,
) -> ClusteringStudy:
    """Run the study; what an earlier run with the same cache has finished is not run again.

    Args:
        config: What to do.
        cache: Folder of trained models and measured cases; ``None`` for the user's cache folder.
        jobs: Cases side by side; ``None`` for one a core, or all of a cluster.
        backend: Where they run: local processes, a Dask cluster, or Ray.
        address: Of a running Dask scheduler or Ray head.
        say: Called with one line as each case is done.
        asked: What the user asked for, for the record; the configuration by default.

    Returns:
        The result, and what its figures need beside it.

    Raises:
        ValueError: As :func:`~resharpen.analyses.side_by_side.run_side_by_side`, or if not one case
            could be run.
    """
    folder = (cache or default_cache()).resolve()
    every = config.cases()
    say(f"{len(every)} cases, {len(config.seeds)} seeds each (kept in {folder})")
    runs = run_named(
        {case.label: partial(measure_case, config, case, folder) for case in every},
        verb="measured",
        jobs=jobs,
        backend=backend,
        address=address,
        say=say,
    )
    check_any_finished(runs.frames, runs.failures.values(), "not one case could be run")
    cases = [case for case in every if case.label in runs.frames]
    ideals = [
        (ideal, ideal.path(config.ideal_length))
        for ideal in _ideals(config)
        if ideal.placement in config.placements
    ]
    say(f"building {len(ideals)} models whose weights are the theory's assumptions")
    exact = [measure_ideal(ideal, config.ideal_length) for ideal, _ in ideals]
    table = concatenate([*runs.frames.values(), *exact])
    curves, findings = confront(concatenate(exact), ideals, config.ideal_length)
    collapses = tuple(find_collapse(config, case, runs.frames[case.label]) for case in cases)
    result = StudyResult(
        table=table,
        curves=tuple(curves),
        findings=tuple(findings),
        verdicts=(),
        provenance=provenance(
            dict(asked or config.to_dict()), config.to_dict(), seeds=config.seeds
        ),
        sentences=tuple(conclude(config, table, cases, collapses, findings)),
    )
    sweeps = _sweeps(config, cases, folder)
    return ClusteringStudy(result, tuple(cases), tuple(ideals), collapses, sweeps, runs.failures)


def measure_ideal(ideal: Ideal, length: int) -> pd.DataFrame:
    """The stream of a model that is the theory, over its blocks: one sequence says it all.

    Orthogonal tokens stay equiangular, so every sequence of different tokens gives the same.
    """

    def sample(generator: np.random.Generator, batch: int, length: int) -> torch.Tensor:
        return torch.arange(length).repeat(batch, 1)

    return stream_rows(
        ideal.model(),
        sample,
        [length],
        n_sequences=1,
        quantities=["mean_cosine", "angular_speed", "norm_growth"],
        verify=False,
        labels={"study": STUDY, "checkpoint": ideal.label, "task": "orthogonal-tokens"},
    )


def confront(
    table: pd.DataFrame, ideals: Sequence[tuple[Ideal, CosinePath]], length: int
) -> tuple[list[Curve], list[Finding]]:
    """The cosine behind every block beside the equation, allowed a multiple of the block's step.

    Returns:
        Of each model the block whose cosine is furthest from the equation: what is predicted there
        and what came of it. The tolerance is the same for all blocks, so no violation is left out.
    """
    curves, findings = [], []
    for ideal, path in ideals:
        tolerance = Tolerance(
            STEP_ERROR * ideal.step,
            0.0,
            0.0,
            f"a block is one Euler step: {STEP_ERROR} times its step in the cosine",
        )
        found = []
        for layer, cosine in enumerate(path.cosine[1:].tolist()):
            curve = Curve(
                name=f"cosine equation, step {ideal.step:.4g}, furthest of {ideal.n_layers} blocks",
                quantity="mean_cosine",
                unit="1",
                x=np.array([float(length)]),
                values=np.array([cosine]),
                kind="exact",
                hypotheses=(
                    "query, key and value matrices the identity",
                    "every block the same, no MLP",
                    "every token sees all",
                    "orthogonal tokens at the start",
                    "the step of a block goes to 0",
                ),
                source="Karagodin et al., arXiv 2510.22026 [second-hand]; the equation of every "
                "placement derived here (theory 11)",
                domain=(float(length), float(length)),
                checkpoint=ideal.label,
                layer=layer,
                site=f"blocks.{layer}.hook_resid_post",
            )
            found.append((curve, compare(table, curve, tolerance)))
        curve, finding = max(found, key=lambda pair: pair[1].max_error)
        curves.append(curve)
        findings.append(finding)
    return curves, findings


def _ideals(config: ClusteringConfig) -> list[Ideal]:
    return [
        Ideal(placement, layers, config.ideal_time / layers, config.ideal_beta, config.ideal_width)
        for layers in config.ideal_layers
        for placement in IDEAL_PLACEMENTS
    ]


def _sweeps(config: ClusteringConfig, cases: Sequence[Case], cache: Path) -> dict[str, PhaseSweep]:
    """The sweep on the middle of one stream a case: the first rows of theory 11, least depth."""
    least = min(case.n_layers for case in cases)
    found = {}
    for case in cases:
        if case.placement not in ("post", "pre", "peri", "ngpt") or case.mlp:
            continue
        if case.n_layers != least:
            continue
        _, model = models_of(config, case, cache)[0]
        depth = phase_depths(case.n_layers)[-2]
        swept = phase_sweeps(config, model, (depth,)).get(depth)
        if swept is not None:
            found[f"{case.placement}, {'trained' if case.trained else 'untrained'}"] = swept
    return found
