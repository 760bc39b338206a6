"""The figures of an audit's report."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..interp.capturing import capture
from ..interp.tables import table as make_table
from ..models.checkpoint import Checkpoint
from ..models.tasks import seeded_generator, task_from_dict
from .adapted import AdaptedAudit
from .clustering_layers import predict_turning, read_layer_shapes
from .clustering_sentences import section_sentences
from .figures import (
    SECTION,
    in_section,
    plot_clustering,
    plot_dispersion,
    plot_displacement,
    plot_error,
    plot_head_map,
    plot_patterns,
    plot_rescaling,
    plot_token_paths,
    retitle,
)
from .head_classes import classify_heads
from .head_records import HeadClass
from .result import StudyResult
from .rows import distinct, pick
from .thresholds import HeadThresholds

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_PATTERN_LENGTH = 64
"""Patterns are drawn at lengths up to here."""


def audit_figures(result: StudyResult, checkpoint: Checkpoint | None) -> "dict[str, Figure]":
    """Draw what an audit measured, leaving out what it did not.

    Args:
        result: The audit's result.
        checkpoint: The model, for its training length and attention patterns; ``None`` for
            neither.
    """
    table, curves = result.table, result.curves
    measured = set(table.loc[table["status"] == "ok", "quantity"])
    figures: dict[str, Figure] = {}
    if "total_variation" in measured:
        train_length = None if checkpoint is None else checkpoint.train_length
        figures["error"] = plot_error(table, curves, train_length=train_length)
    for quantity in ("entropy", "max_weight"):
        if quantity in measured:
            figures[quantity] = plot_dispersion(table, curves, quantity=quantity)
    if "displacement" in measured:
        figures["displacement"] = plot_displacement(table, curves)
    if measured & {"rescale_gain", "residual_norm"}:
        figures["rescaling"] = plot_rescaling(table, curves)
    config = None if checkpoint is None else checkpoint.config
    figures |= _clustering(
        table,
        None if config is None else config.norm_placement,
        config is None or config.attention_dir == "causal",
    )
    if checkpoint is not None and checkpoint.task is not None:
        lengths = sorted(int(length) for length in table["length"].dropna().unique())
        shown = [length for length in lengths if length <= MAX_PATTERN_LENGTH]
        picked = sorted({shown[(len(shown) - 1) * step // 4] for step in range(5)}) if shown else []
        if picked:
            figures["patterns"] = plot_patterns(
                _patterns(checkpoint, picked), head_names=_head_names(checkpoint)
            )
    return figures


def adapted_figures(audited: AdaptedAudit) -> "dict[str, Figure]":
    """Draw what an audit of an adapted model measured: the map of its heads, loss and accuracy.

    Args:
        audited: The audit.
    """
    figures = _profile_figures(audited.result, audited.profile.table, audited.classes)
    if audited.paths is not None:
        paths = audited.paths
        tokens = plot_token_paths(
            paths.coordinates,
            paths.labels,
            shares=paths.shares,
            position=paths.position,
            n_tokens=paths.n_tokens,
            title="Tokens over the layers",
        )
        figures["tokens"] = in_section(tokens, SECTION)
    return figures


def adapted_table_figures(result: StudyResult) -> "dict[str, Figure]":
    """The same from a saved result alone, which does not hold the tokens' paths.

    Args:
        result: An audit of an adapted model; its first checkpoint is the model without a remedy.
    """
    plain = pick(result.table, checkpoint=distinct(result.table, "checkpoint")[0])
    lines = HeadThresholds(**result.provenance.resolved["thresholds"])
    return _profile_figures(result, plain, classify_heads(plain, lines))


def _clustering(table: pd.DataFrame, placement: str | None, causal: bool) -> "dict[str, Figure]":
    """The figure of the streams with what it says; nothing if no cosine was measured."""
    shapes = read_layer_shapes(table)
    if shapes is None:
        return {}
    figure = plot_clustering(shapes, predict_turning(shapes, placement), placement=placement)
    return {"clustering": in_section(figure, SECTION, section_sentences(shapes, placement, causal))}


def _profile_figures(
    result: StudyResult, plain: pd.DataFrame, classes: Sequence[HeadClass]
) -> "dict[str, Figure]":
    table, facts = result.table, result.provenance.resolved["model"]
    figures = {"heads": plot_head_map(plain, classes)} if classes else {}
    measured = set(plain.loc[plain["status"] == "ok", "quantity"])
    if len(distinct(table, "checkpoint")) > 1 and "normalised_entropy" in measured:
        figures["what if"] = retitle(
            plot_error(
                _mean_over_heads(table), quantity="normalised_entropy", axis="n_key", log_y=False
            ),
            "What if: normalised entropy, mean over heads",
        )
    for quantity in ("loss", "accuracy"):
        if quantity in measured:
            figures[quantity] = plot_error(table, quantity=quantity, axis="n_key", log_y=False)
    return figures | _clustering(table, facts["placement"], facts["causal"] is not False)


def _mean_over_heads(frame: pd.DataFrame) -> pd.DataFrame:
    """Normalised entropy of the mean head at each number of keys, one series a checkpoint."""
    rows = pick(frame, quantity="normalised_entropy")
    means: Any = rows.groupby(["checkpoint", "n_key"], sort=False)["mean"].agg(
        ["mean", "min", "max"]
    )
    return make_table(
        {
            "study": "audit",
            "checkpoint": checkpoint,
            "length": n_key,
            "n_key": n_key,
            "site": "all heads",
            "quantity": "normalised_entropy",
            "unit": "ratio",
            "mean": values["mean"],
            "n_obs": 1,
            "min": values["min"],
            "max": values["max"],
            "status": "ok",
        }
        for (checkpoint, n_key), values in means.iterrows()
    )


def _head_names(checkpoint: Checkpoint) -> list[str]:
    config = checkpoint.config
    return [f"L{layer} H{h}" for layer in range(config.n_layers) for h in range(config.n_heads)]


def _patterns(checkpoint: Checkpoint, lengths: list[int]) -> dict[int, np.ndarray]:
    """Weights ``[layer * head, query, key]`` of one sequence at each length."""
    assert checkpoint.task is not None
    task, model = task_from_dict(checkpoint.task), checkpoint.model()
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(checkpoint.config.n_layers)]
    patterns = {}
    for length in lengths:
        tokens = task.sample(seeded_generator(0, length), 1, length).tokens
        found = capture(model, tokens, dict.fromkeys(names, lambda p: p[0].double().cpu().numpy()))
        patterns[length] = np.concatenate([found.values[name] for name in names])
    return patterns
