"""The study's figures, in the order of the report."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from ....interp.theory import predict_equiangular_tokens
from ...figures.clustering_study import Line, LinePanel, plot_line_panels
from .collapse import Collapse
from .config import IDEAL_PLACEMENTS, Case, ClusteringConfig
from .expectations import idealised
from .phases import PhaseSweep, sweep_phases
from .profiles import Profile, over_depth
from .sentences import families, note_of
from .study import ClusteringStudy

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SIMPLEX_COSINE = 0.5
_SIMPLEX_TOKENS = (16, 64, 256)
_ASSUMED = (
    "The idealised system assumes Q = K = V = I, the same weights in every block, no mask, no MLP "
    "and orthogonal tokens at the start; what is free in it is measured (inverse temperature: "
    "slope of the scores against the cosines; radius at the start). Over each panel, how far the "
    "models are from that: cosine of W_QK and W_OV to the identity (1 assumed), distance between "
    "blocks (0 assumed; 1: unrelated), cosine of two tokens at the start, mean and root mean "
    "square (0 assumed)."
)


def study_figures(config: ClusteringConfig, study: ClusteringStudy) -> "dict[str, Figure]":
    """Draw everything the report shows, by name."""
    table = study.result.table
    figures = {}
    if study.ideals:
        figures["ideal weights"] = _ideal_figure(config, study)
    by_family = families(study.cases)
    for family, members in by_family.items():
        if members[0].trained or members[0].n_layers == max(config.untrained_depths, default=0):
            figures[f"turning, {family}"] = _turning_figure(config, table, family, members)
    for name, groups in _compared(by_family).items():
        figures[f"cosine, {name}"] = _cosine_figure(config, table, name, groups)
    figures["collapse"] = _collapse_figure(config, study.collapses, by_family)
    if any(1.0 in one.reached for one in study.collapses):
        figures["depth of collapse"] = _depth_figure(config, study.collapses, by_family)
    figures["phases"] = _phase_figure(study.sweeps)
    return figures


def _line(label: str, profile: Profile, number: int, said: str = "") -> Line:
    return Line(label, profile.x, profile.mean, number, profile.low, profile.high, said=said)


def _ideal_figure(config: ClusteringConfig, study: ClusteringStudy) -> "Figure":
    panels = []
    for placement in IDEAL_PLACEMENTS:
        lines = []
        for number, layers in enumerate(config.ideal_layers):
            for ideal, path in study.ideals:
                if (ideal.placement, ideal.n_layers) != (placement, layers):
                    continue
                found = over_depth(
                    study.result.table, ideal.label, "mean_cosine", config.ideal_length
                )
                said = f"a block is a step of {ideal.step:.3g}"
                share = found.x / layers
                lines.append(Line(f"{layers} blocks", share, found.mean, number, said=said))
                lines.append(Line("cosine equation", share, path.cosine, number, kind="exact"))
        if lines:
            panels.append(LinePanel(placement, lines))
    return plot_line_panels(
        panels,
        title="Models whose weights are the theory's assumptions",
        caption=f"Mean cosine of {config.ideal_length} tokens, orthogonal at the start, over the "
        "blocks of attention-only models with Q = K = V = I, the same in every block "
        f"(inverse temperature {config.ideal_beta:g}); all models of a panel cover about the same "
        "time, so more blocks are smaller steps. Dashed: the equation of the placement.",
        x_title="share of the blocks",
        y_title="mean cosine",
        columns=4,
        y_range=(-0.02, 1.02),
    )


def _turning_figure(
    config: ClusteringConfig, table: pd.DataFrame, family: str, members: Sequence[Case]
) -> "Figure":
    panels = []
    for case in members:
        length = config.profile_length
        turn = over_depth(table, case.label, "attention_turn", length)
        predicted = over_depth(table, case.label, "first_order_turn", length)
        system = idealised(config, case, table)
        lines = [
            _line("measured turning", turn, 0),
            Line(
                "|P A| / s, s of the placement from the measured radius and |A|",
                predicted.x,
                predicted.mean,
                1,
                kind="limit",
                said="equal to first order in the step of a block",
            ),
            Line(
                "idealised system",
                turn.x,
                # What leaves a block was turned at the speed of the time before it.
                system.angular_speed[:-1],
                2,
                kind="conjecture",
                said="Q = K = V = I, shared weights, orthogonal start",
            ),
        ]
        panels.append(LinePanel(case.placement, lines, note_of(config, table, case)))
    return plot_line_panels(
        panels,
        title=f"Turning by attention, block by block: {family}",
        caption=f"Angle by which attention turns a token at {config.profile_length} tokens, mean "
        f"over tokens, sequences and {len(config.seeds)} seeds (band: 95 % interval over seeds), "
        "beside the placement's speed factor s evaluated at the measured stream, and the "
        f"idealised system of the placement (not drawn where it stands still). {_ASSUMED}",
        x_title="block",
        y_title="radians a block",
        columns=3,
        log_y=True,
        y_range=(1e-4, 10.0),
    )


def _compared(by_family: dict[str, list[Case]]) -> dict[str, list[list[Case]]]:
    """Families of one depth and kind side by side: untrained and trained."""
    found: dict[str, list[list[Case]]] = {}
    for members in by_family.values():
        first = members[0]
        kind = "with MLP" if first.mlp else "attention only"
        found.setdefault(f"{first.n_layers} layers, {kind}", []).append(members)
    return found


def _cosine_figure(
    config: ClusteringConfig, table: pd.DataFrame, name: str, groups: Sequence[Sequence[Case]]
) -> "Figure":
    panels = []
    for placement in config.placements:
        cases = [case for members in groups for case in members if case.placement == placement]
        lines = []
        for case in cases:
            number = int(case.trained)
            found = over_depth(table, case.label, "mean_cosine", config.profile_length)
            lines.append(_line("trained" if case.trained else "untrained", found, number))
            system = idealised(config, case, table)
            lines.append(
                Line("idealised system", found.x, system.cosine, number, kind="conjecture")
            )
        if lines:
            panels.append(LinePanel(placement, lines, note_of(config, table, cases[-1])))
    return plot_line_panels(
        panels,
        title=f"Mean cosine of the stream, block by block: {name}",
        caption=f"Mean cosine of two different tokens behind each block, {config.profile_length} "
        f"tokens, {len(config.seeds)} seeds (band: 95 % interval over seeds). {_ASSUMED}",
        x_title="blocks before it",
        y_title="mean cosine",
        columns=3,
        y_range=(-0.1, 1.05),
    )


def _collapse_figure(
    config: ClusteringConfig, collapses: Sequence[Collapse], by_family: dict[str, list[Case]]
) -> "Figure":
    panels = []
    for family, members in by_family.items():
        own = [one for one in collapses if one.case in members]
        lines = [
            _line(one.case.placement, one.final, config.placements.index(one.case.placement))
            for one in own
        ]
        panels.append(LinePanel(family, lines))
    return plot_line_panels(
        panels,
        title="Collapse against length",
        caption="Mean cosine of two different tokens behind the last block, "
        f"{len(config.seeds)} seeds (95 % intervals over seeds on hover). Trained models were "
        f"trained at {config.training.length} tokens.",
        x_title="length (tokens)",
        y_title="mean cosine",
        columns=2,
        log_x=True,
        y_range=(-0.1, 1.05),
        height=300,
    )


def _depth_figure(
    config: ClusteringConfig, collapses: Sequence[Collapse], by_family: dict[str, list[Case]]
) -> "Figure":
    panels = []
    for family, members in by_family.items():
        lines = []
        for one in (one for one in collapses if one.case in members):
            depth = one.depth
            every = np.array(one.reached) == 1.0
            if not every.any():
                continue
            shown = Profile(depth.x, np.where(every, depth.seeds, np.nan))
            number = config.placements.index(one.case.placement)
            lines.append(_line(one.case.placement, shown, number))
        if lines:
            panels.append(LinePanel(family, lines))
    return plot_line_panels(
        panels,
        title="How many blocks until the stream has collapsed",
        caption=f"Blocks until the mean cosine is {config.collapsed:g}, interpolated, where every "
        "seed gets there; placements that are not drawn do not.",
        x_title="length (tokens)",
        y_title="blocks",
        columns=2,
        log_x=True,
        log_y=True,
        height=300,
    )


def _phase_figure(sweeps: Mapping[str, PhaseSweep]) -> "Figure":
    lines = []
    for number, n in enumerate(_SIMPLEX_TOKENS):
        tokens = torch.from_numpy(predict_equiangular_tokens(n, _SIMPLEX_COSINE, n))
        lines += _sweep_lines(sweep_phases(tokens[None]), number, f"{n} equiangular tokens")
    mark = {"critical gamma": 1.0}
    panels = [LinePanel(f"equiangular tokens, cosine {_SIMPLEX_COSINE:g}", lines, marks=mark)]
    for label, swept in sweeps.items():
        note = (
            f"cosine {swept.cosine:.2f}, spread {swept.spread:.2f}\n"
            f"half-way at {swept.turn:.2f} (equiangular {swept.predicted_turn:.2f})"
        )
        own = _sweep_lines(swept, 3, f"tokens of a model ({swept.n_key})")
        panels.append(LinePanel(label, own, note, mark))
    return plot_line_panels(
        panels,
        title="A length-scaled temperature turns the phase",
        caption="One attention step with Q = K = V = I and inverse temperature gamma log n: mean "
        "cosine after it, against gamma over the critical 1 / (1 - rho) (Chen et al., 2510.05554, "
        "Theorem 2.1; rho: mean cosine before). Left of 1 the tokens meet, right of it they stay. "
        "Dashed: the exact cosine of equiangular tokens. The tokens of a model (first seed, middle "
        "of the stream) are not equiangular: their cosines have the spread given.",
        x_title="gamma over the critical one",
        y_title="mean cosine after",
        columns=3,
        y_range=(-0.02, 1.02),
        height=260,
    )


def _sweep_lines(swept: PhaseSweep | None, number: int, label: str) -> list[Line]:
    if swept is None:
        return []
    return [
        Line(label, swept.share, swept.measured, number),
        Line("equiangular tokens, exact", swept.share, swept.predicted, number, kind="exact"),
    ]
