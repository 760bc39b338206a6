"""What theory expects of a checkpoint: its curves, with the parameters filled in.

Three kinds of expectation, from the most general to the most special:

* any softmax attention: full dispersion, and the bounds that the head's own score spread implies;
* a one-block model without positions, trained on set complement: everything beyond length 2 from
  what was measured at lengths 1 and 2 (the theorem's setting, theory section 1.1);
* a closed-form construction: exact curves, from its parameters.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..interp.theory import (
    Curve,
    dispersion_limit_curves,
    displacement_rescale_curve,
    entropy_bound_curve,
    error_curve,
    gap_curve,
    predict_balanced_displacement,
    predict_rescale_gain_from_short,
    rescale_gain_curve,
    rescale_gain_from_short_curve,
    scale_curve,
    scale_from_short_curve,
    weight_bound_curves,
)
from ..models.config import TransformerConfig
from ..models.placements import PLACEMENTS
from .rows import ERRORS, over, pick, places

FROM_SHORT = "parameters measured on the same model at lengths 1 and 2"

OUTPUT = "logits"


def attention_expectations(frame: pd.DataFrame, checkpoint: str) -> list[Curve]:
    """Bounds of every head, from the largest score spread that was seen at each number of keys.

    Args:
        frame: The tidy table, with ``score_spread`` measured.
        checkpoint: Whose rows.
    """
    spreads = pick(frame, checkpoint=checkpoint, quantity="score_spread")
    curves: list[Curve] = []
    for layer, head in places(spreads):
        largest = over(pick(spreads, layer=layer, head=head), "n_key", "max", "max")
        n_key, spread = largest.index.to_numpy(), largest.to_numpy()
        place: Any = {"checkpoint": checkpoint, "layer": layer, "head": head}
        entropy, _, _ = dispersion_limit_curves(n_key, **place)
        lower, upper = weight_bound_curves(n_key, spread, **place)
        curves += [entropy, entropy_bound_curve(n_key, spread, **place), lower, upper]
    return curves


def why_no_length_theorem(config: TransformerConfig, task: Mapping[str, Any] | None) -> str | None:
    """Say why the set-complement theorem does not speak about a model; ``None`` if it does."""
    if task is None or task.get("name") != "set-complement":
        return "the theorem is about the set complement task"
    if task.get("bos") or task.get("replacement"):
        return "the theorem is about inputs without repetitions and without an opening token"
    if config.n_layers != 1 or not config.attn_only:
        return "the theorem is about one attention-only block"
    if config.positional_embedding_type != "none":
        return "the theorem is about models without positions"
    if config.normalizer in ("softmax1", "sigmoid", "differential"):
        return f"its attention weights ({config.normalizer}) do not sum to one"
    if config.norm_placement == "ngpt":
        return "the stream moves along the sphere instead of adding up"
    if len(_output_norms(config)) > 1:
        return "two norms act on the way from attention to the logits"
    return None


def short_expectations(
    frame: pd.DataFrame,
    checkpoint: str,
    config: TransformerConfig,
    task: Mapping[str, Any] | None,
    lengths: NDArray[np.float64],
) -> list[Curve]:
    """Curves over length from what was measured at lengths 1 and 2.

    Args:
        frame: The tidy table.
        checkpoint: Whose rows; several seeds are averaged.
        config: The model.
        task: Its task, as plain values.
        lengths: Where to predict, increasing.

    Returns:
        The curves; none where the theorem does not speak about the model, lengths 1 and 2 were not
        measured, or the tokens of length 2 are not displaced: then there is nothing to disperse.
    """
    if why_no_length_theorem(config, task) is not None:
        return []
    assert task is not None
    frozen_at_2 = _mean_at(frame, checkpoint, "frozen_displacement", 2)
    if frozen_at_2 is None or not frozen_at_2 > 0:
        return []
    place: Any = {"checkpoint": checkpoint}
    dispersed = predict_balanced_displacement(lengths, frozen_at_2, 2)
    gain = np.ones_like(lengths)
    curves: list[Curve] = []
    for site in _output_norms(config):
        square_1, square_2 = (_mean_square_at(frame, checkpoint, site, s) for s in (1, 2))
        if square_1 is None or square_2 is None:
            return []
        scales = (square_1**0.5, square_2**0.5)
        gain = predict_rescale_gain_from_short(lengths, *scales, hypothesis="exchangeable")
        at_site = {**place, "site": site}
        curves += [
            scale_from_short_curve(lengths, *scales, hypothesis="exchangeable", **at_site),
            rescale_gain_from_short_curve(lengths, *scales, hypothesis="exchangeable", **at_site),
        ]
        curves.append(replace(curves[-1], quantity="displacement_rescale", site=OUTPUT))
    law = gap_curve("none", None, lengths, frozen_at_2 * 2, width=int(task["vocabulary"]), **place)
    balanced = replace(
        law,
        name="2/s law from length 2",
        quantity="frozen_displacement",
        values=dispersed,
        kind="fit",
        hypotheses=(*law.hypotheses, FROM_SHORT),
    )
    known = np.isfinite(gain)  # The fit of the scale may end at some length.
    whole = replace(
        balanced,
        name="2/s law x gain, from lengths 1 and 2" if _output_norms(config) else balanced.name,
        quantity="displacement",
        x=lengths[known],
        values=(dispersed * gain)[known],
        domain=(1.0, np.inf if known.all() else float(lengths[known].max())),
    )
    return [*curves, balanced, whole, *_error_expectations(whole, int(task["vocabulary"]))]


def constructed_expectations(
    checkpoint: str,
    config: TransformerConfig,
    parameters: Mapping[str, Any],
    lengths: NDArray[np.float64],
) -> list[Curve]:
    """Exact curves of a closed-form solution.

    Args:
        checkpoint: Whose rows the curves belong to.
        config: The model.
        parameters: What ``Checkpoint.constructed`` says.
        lengths: Where to predict, increasing.

    Returns:
        The curves; none for a construction with unequal strengths or non-uniform attention, whose
        displacement differs from sequence to sequence.
    """
    if parameters.get("kind") != "set-complement":
        return []
    p, delta = (np.unique(np.asarray(parameters[name])) for name in ("p", "delta"))
    if not parameters.get("uniform_attention") or len(p) > 1 or (p != delta).any():
        return []
    placement, norm = config.norm_placement, config.normalization_type
    law: Any = {
        "width": config.d_model,
        "residual": float(parameters["residual"]),
        "eps": config.eps,
        "checkpoint": checkpoint,
    }
    gains: Any = {"final_norm": config.final_norm}
    gains["final_gain" if config.final_norm else "gain"] = float(parameters["gain"])
    arguments = (placement, norm, lengths, float(p[0]))
    curves: list[Curve] = []
    for site in _output_norms(config):
        # A final norm sees what a norm on the stream would see.
        seen = "post" if site.startswith("ln_final") else placement
        for build in (scale_curve, rescale_gain_curve):
            curves.append(build(seen, *arguments[1:], site=site, **law))
    gap = gap_curve(*arguments, **law, **gains)
    curves += [
        gap,
        gap_curve(*arguments, **law, **gains, frozen=True),
        displacement_rescale_curve(*arguments, **law, final_norm=config.final_norm),
    ]
    # The colour says which placement; one name keeps one entry in a legend.
    closed = [replace(curve, name="closed form") for curve in curves]
    return [*closed, *_error_expectations(replace(gap, name="closed form"), config.output_size)]


def _error_expectations(displacement: Curve, vocabulary: int) -> list[Curve]:
    """What each error would be, had every present token the displacement of the curve."""
    curves = []
    for quantity in ERRORS:
        curve = error_curve(quantity, displacement.x, displacement.values, vocabulary)
        curves.append(
            replace(
                curve,
                name=displacement.name,
                kind=displacement.kind,
                hypotheses=tuple(dict.fromkeys((*displacement.hypotheses, *curve.hypotheses))),
                checkpoint=displacement.checkpoint,
            )
        )
    return curves


def _output_norms(config: TransformerConfig) -> list[str]:
    """Scale sites of the norms between attention and the logits, in a one-block model."""
    place = PLACEMENTS[config.norm_placement].at(0, config.n_layers)
    names = [("blocks.0.ln1_post", place.after), ("blocks.0.ln1_resid", place.stream)]
    names.append(("ln_final", config.final_norm))
    return [f"{name}.hook_scale" for name, present in names if present]


def _mean_at(frame: pd.DataFrame, checkpoint: str, quantity: str, length: int) -> float | None:
    rows = pick(frame, checkpoint=checkpoint, quantity=quantity, length=length)
    return None if rows.empty else float(rows["mean"].to_numpy(dtype=np.float64).mean())


def _mean_square_at(frame: pd.DataFrame, checkpoint: str, site: str, length: int) -> float | None:
    """Mean square of a scale over sequences (and seeds): mean² + variance."""
    rows = pick(frame, checkpoint=checkpoint, quantity="norm_scale", length=length, site=site)
    if rows.empty:
        return None
    mean, sem, n_obs = (rows[name].to_numpy(dtype=np.float64) for name in ("mean", "sem", "n_obs"))
    # The standard error is unknown (NaN) for a single sequence, whose variance is 0.
    return float((mean**2 + np.nan_to_num(sem) ** 2 * (n_obs - 1)).mean())
