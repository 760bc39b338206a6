"""What the study says: its sentences, and how far each family of models is from the assumptions."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ...findings import Finding
from ...rows import pick
from ...wording import format_interval, format_number, plural
from .collapse import Collapse, first_to_collapse
from .config import Case, ClusteringConfig
from .expectations import find_departure, idealised
from .profiles import Estimate, over_depth

LEARNED = 0.1
"""Total variation at the training length up to which a task counts as learned."""


def conclude(
    config: ClusteringConfig,
    table: pd.DataFrame,
    cases: Sequence[Case],
    collapses: Sequence[Collapse],
    findings: Sequence[Finding],
) -> list[str]:
    """The sentences that matter, most important first.

    Of the streams, those of the trained models are told, and those of the deepest untrained ones
    without MLP; the others stand in the lists and figures.
    """
    depth = max((case.n_layers for case in cases if not case.trained), default=0)
    plain = [case for case in cases if not (case.trained or case.mlp) and case.n_layers == depth]
    told = [case for case in cases if case.trained] + plain or list(cases)
    sentences = [_exact(config, findings), _turning(config, table, cases)]
    for family, members in families(told).items():
        own = [one for one in collapses if one.case in members]
        sentences.append(_collapse(config, family, own))
    sentences += [_learned(table, told), _idealised(config, table, told)]
    sentences.append(_phases(config, table, told))
    return [sentence for sentence in sentences if sentence]


def families(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """The cases by family, in order."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.family, []).append(case)
    return found


def said(estimate: Estimate) -> str:
    """`0.52 [0.48, 0.56]`."""
    return format_interval(estimate.mean, estimate.low, estimate.high)


def _exact(config: ClusteringConfig, findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    worst = {
        layers: max(f.max_error for f in findings if f", {layers} layers" in (f.checkpoint or ""))
        for layers in config.ideal_layers
    }
    parts = [
        f"{format_number(error)} with {layers} blocks of step {config.ideal_time / layers:.3g}"
        for layers, error in worst.items()
    ]
    return (
        "Where the weights are the theory's assumptions, the cosine behind every block follows the "
        f"equation of its placement: the largest deviation over all placements is "
        f"{' and '.join(parts)}."
    )


def _turning(config: ClusteringConfig, table: pd.DataFrame, cases: Sequence[Case]) -> str:
    step = [find_departure(config, case, table) for case in cases]
    if not step:
        return ""
    later = np.array([one.step.mean for one in step])
    first = np.array([one.first_step.mean for one in step])
    return (
        f"In the models as they are, measured turning times the speed factor is |P A| to first "
        f"order: measured over predicted is {np.nanmin(later):.2f} to {np.nanmax(later):.2f} over "
        f"the {plural(len(step), 'case')} behind the first block, and {np.nanmin(first):.2f} to "
        f"{np.nanmax(first):.2f} in it, where the step is large against a stream that is short."
    )


def _collapse(config: ClusteringConfig, family: str, found: Sequence[Collapse]) -> str:
    ordered = first_to_collapse(found, -1)
    every = [one for one in ordered if one.reached[-1] == 1.0]
    never = [one.case.placement for one in ordered if one.reached[-1] < 1.0]
    parts = []
    if every:
        first = ", ".join(
            f"{one.case.placement} ({said(one.depth.estimates[-1])} blocks)" for one in every[:3]
        )
        parts.append(f"first with {first}")
        if len(every) > 3:
            last = every[-1]
            parts.append(f"last with {last.case.placement} ({said(last.depth.estimates[-1])})")
    if never:
        parts.append(f"not in every seed with {', '.join(never)}")
    changes = {
        words: [one.case.placement for one in found if change_of(one) == words]
        for words in ("more", "less")
    }
    told = [f"{words} with {', '.join(names)}" for words, names in changes.items() if names]
    low, high = min(config.lengths), max(config.lengths)
    return (
        f"The streams of the {family} models collapse (mean cosine {config.collapsed:g}, "
        f"{high} tokens) {'; '.join(parts)}. From {low} to {high} tokens the last stream is "
        f"collapsed {', '.join(told) or 'neither more nor less'} (95 % intervals over seeds)."
    )


def change_of(one: Collapse) -> str:
    """Whether the stream behind the last block is collapsed more or less at the longest length.

    `undecided` where the interval of the difference holds 0.
    """
    if one.change.low > 0:
        return "more"
    return "less" if one.change.high < 0 else "undecided"


def _learned(table: pd.DataFrame, cases: Sequence[Case]) -> str:
    """Which trained models did not learn their task: what is said of them is of a failure."""
    failed = []
    for case in cases:
        errors = pick(table, checkpoint=case.label, quantity="total_variation")["mean"]
        mean = Estimate.of(errors.to_numpy(dtype=np.float64))
        if case.trained and not mean.mean <= LEARNED:
            kind = "with MLP" if case.mlp else "attention only"
            failed.append(f"{case.placement}, {kind} ({said(mean)})")
    if not failed:
        return ""
    return (
        f"Not every trained case learned its task (total variation at the training length above "
        f"{LEARNED:g}, mean over seeds): {'; '.join(failed)}."
    )


def _idealised(config: ClusteringConfig, table: pd.DataFrame, cases: Sequence[Case]) -> str:
    parts = []
    for family, members in families(cases).items():
        gaps = []
        for case in members:
            measured = over_depth(table, case.label, "mean_cosine", config.profile_length).mean
            gaps.append(float(idealised(config, case, table).cosine[-1] - measured[-1]))
        parts.append(
            f"{family}: {min(gaps):+.2f} to {max(gaps):+.2f} (mean size "
            f"{np.mean(np.abs(gaps)):.2f})"
        )
    return (
        "The idealised system (Q = K = V = I, shared weights, orthogonal start) is no description "
        "of these models: its cosine behind the last block less the measured one is "
        f"{'; '.join(parts)}."
    )


def _phases(config: ClusteringConfig, table: pd.DataFrame, cases: Sequence[Case]) -> str:
    parts = []
    for family, members in families(cases).items():
        turns, ratios = [], []
        for case in members:
            turn = over_depth(table, case.label, "phase_turn", config.phase_length)
            expected = over_depth(table, case.label, "predicted_phase_turn", config.phase_length)
            _, at, there = np.intersect1d(turn.x, expected.x, return_indices=True)
            if len(turn.seeds) == len(expected.seeds) == len(config.seeds) and at.size:
                turns.append(np.nanmean(turn.seeds[:, at], axis=1))
                ratios.append(np.nanmean(turn.seeds[:, at] / expected.seeds[:, there], axis=1))
        if turns:
            parts.append(
                f"{family}: at {said(Estimate.of(np.mean(turns, axis=0)))} of the critical gamma, "
                f"{said(Estimate.of(np.mean(ratios, axis=0)))} of where equiangular tokens turn"
            )
    if not parts:
        return ""
    return (
        "An inverse temperature gamma log n turns attention with Q = K = V = I on the measured "
        "streams from meeting to staying earlier than the critical gamma 1 / (1 - rho) of their "
        f"mean cosine: {'; '.join(parts)}."
    )


def listed(
    config: ClusteringConfig,
    table: pd.DataFrame,
    cases: Sequence[Case],
    collapses: Sequence[Collapse],
    left_out: Mapping[str, str],
) -> dict[str, list[str]]:
    """What the report lists after its figures."""
    return {
        "How far the models are from the assumptions (assumed in brackets)": [
            _departure(config, table, case) for case in cases
        ],
        f"Collapse: mean cosine {config.collapsed:g}, and what the length changes": [
            _collapsing(config, one) for one in collapses
        ],
        "What could not be run": [f"{name}: {why}" for name, why in left_out.items()],
    }


def _collapsing(config: ClusteringConfig, one: Collapse) -> str:
    low, high = min(config.lengths), max(config.lengths)
    depths = [
        f"{said(one.depth.estimates[index])} at {length}"
        if one.reached[index] == 1.0
        else f"not in every seed at {length}"
        for index, length in ((0, low), (-1, high))
    ]
    change = one.change
    return (
        f"{one.case.label}: blocks until collapse {' and '.join(depths)} tokens; mean cosine of "
        f"the last stream {said(one.final.estimates[0])} at {low} and "
        f"{said(one.final.estimates[-1])} at {high} tokens, difference {change.mean:+.2f} "
        f"[{change.low:+.2f}, {change.high:+.2f}]; shortest length that collapses: "
        f"{_crossing(config, one)}"
    )


def _crossing(config: ClusteringConfig, one: Collapse) -> str:
    n_seeds = len(one.final.seeds)
    if not one.n_reaching:
        return f"none of {n_seeds} seeds up to {max(config.lengths)} tokens"
    if bool((one.final.seeds[:, 0] >= config.collapsed).all()):
        return f"there from the start ({min(config.lengths)} tokens), all {n_seeds} seeds"
    return f"{said(one.length)} tokens, {one.n_reaching} of {n_seeds} seeds"


def _departure(config: ClusteringConfig, table: pd.DataFrame, case: Case) -> str:
    found = find_departure(config, case, table)
    parts = [
        f"cosine to the identity W_QK {said(found.qk)}, W_OV {said(found.ov)} [1]",
        f"distance between blocks W_QK {said(found.layers_qk)}, W_OV {said(found.layers_ov)} [0]",
        f"cosine at the start {said(found.start)}, root mean square {said(found.start_spread)} [0]",
        f"radius at the start {said(found.radius)} [1]",
        f"pairs that see each other {said(found.visible)} [1]",
        f"turning by the MLP {said(found.mlp)} [0]",
        f"turning over its first order {said(found.step)}, in the first block "
        f"{said(found.first_step)} [1]",
    ]
    return f"{case.label}: {'; '.join(parts)}"


def note_of(config: ClusteringConfig, table: pd.DataFrame, case: Case) -> str:
    """How far a case is from the assumptions, in a few words for its panel."""
    found = find_departure(config, case, table)
    return (
        f"cos(W, I): QK {found.qk.mean:.2f}, OV {found.ov.mean:.2f}\n"
        f"between blocks: QK {found.layers_qk.mean:.2f}, OV {found.layers_ov.mean:.2f}\n"
        f"start: cos {found.start.mean:.2f}, rms {found.start_spread.mean:.2f}"
    )
