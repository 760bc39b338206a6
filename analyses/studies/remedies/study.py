"""Train every cell, measure it over lengths, set theory beside it, draw one map."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from ....interp.tables import concatenate
from ....interp.theory import Curve
from ...bounds import compare_everywhere
from ...expectations import attention_expectations
from ...findings import Finding
from ...named_runs import check_any_finished, run_named
from ...provenance import provenance
from ...result import StudyResult
from ...runs import default_cache
from ...side_by_side import Backend
from .cells import measure_cell
from .claims import Claim, test_claims
from .config import Cell, RemediesConfig
from .expectations import expected_curves
from .mapping import MapCell, build_map
from .sentences import conclude

Say = Callable[[str], None]


@dataclass(frozen=True)
class RemediesStudy:
    """What the study leaves.

    Attributes:
        result: Table, curves, findings, sentences.
        cells: The map, cell by cell.
        claims: The claims under test.
        left_out: By label and task, why a cell could not be run.
    """

    result: StudyResult
    cells: tuple[MapCell, ...]
    claims: tuple[Claim, ...]
    left_out: Mapping[str, str]


def run(
    config: RemediesConfig,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    say: Say = lambda message: None,
    asked: Mapping[str, object] | None = None,
) -> RemediesStudy:
    """Run the study; what an earlier run with the same cache has finished is not run again.

    Args:
        config: What to do.
        cache: Folder of trained and measured cells; ``None`` for the user's cache folder.
        jobs: Cells side by side; ``None`` for one a core, or all of a cluster.
        backend: Where they run: local processes, a Dask cluster, or Ray. The workers of a cluster
            of several machines must share the cache folder.
        address: Of a running Dask scheduler or Ray head.
        say: Called with one line as each cell is done.
        asked: What the user asked for, for the record; the configuration by default.

    Returns:
        The map, the claims, and the result with its table.

    Raises:
        ValueError: As :func:`~resharpen.analyses.side_by_side.run_side_by_side` raises it, or if
            not one cell could be run.
    """
    folder = (cache or default_cache()).resolve()
    every = config.cells()
    why_not = {_name(cell): why for cell in every if (why := cell.why_not()) is not None}
    cells = {_name(cell): cell for cell in every if cell.why_not() is None}
    say(f"{len(cells)} cells, {len(config.seeds)} seeds each (kept in {folder})")
    runs = run_named(
        {name: partial(measure_cell, config, cell, folder) for name, cell in cells.items()},
        verb="measured",
        jobs=jobs,
        backend=backend,
        address=address,
        say=say,
    )
    left_out = {**why_not, **runs.failures}
    check_any_finished(runs.frames, left_out.values(), "not one cell could be run")
    measured = [(cells[name], frame) for name, frame in runs.frames.items()]
    return _conclude(config, measured, left_out, asked)


def _name(cell: Cell) -> str:
    return f"{cell.task}, {cell.label}"


def _conclude(
    config: RemediesConfig,
    measured: Sequence[tuple[Cell, pd.DataFrame]],
    left_out: Mapping[str, str],
    asked: Mapping[str, object] | None,
) -> RemediesStudy:
    curves: list[Curve] = []
    findings: list[Finding] = []
    n_bounds, n_violated = 0, 0
    for cell, frame in measured:
        # Cells of two tasks may share a label: each curve is compared with its own rows only.
        expected = [
            replace(curve, name=f"{curve.name} ({cell.task})")
            for curve in expected_curves(frame, cell)
        ]
        findings += [compare_everywhere(frame, curve) for curve in expected]
        curves += expected
        if cell.is_softmax:
            bounds = attention_expectations(frame, cell.label)
            held = [compare_everywhere(frame, curve) for curve in bounds]
            violated = [finding for finding in held if finding.violated]
            n_bounds, n_violated = n_bounds + len(held), n_violated + len(violated)
            findings += violated
    table = concatenate([frame for _, frame in measured])
    found = build_map(config, table, [cell for cell, _ in measured])
    claims = test_claims(config, found)
    result = StudyResult(
        table=table,
        curves=tuple(curves),
        findings=tuple(findings),
        verdicts=(),
        provenance=provenance(
            dict(asked or config.to_dict()), config.to_dict(), seeds=config.seeds
        ),
        sentences=(
            *conclude(config, found, claims),
            f"Of {n_bounds} bounds on weights and entropies, from each head's own score spread, "
            f"{n_violated} are violated.",
        ),
    )
    return RemediesStudy(result, tuple(found), tuple(claims), dict(left_out))
