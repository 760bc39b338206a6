"""What the closed-form solutions share: one block, one head, no MLP, weights put in by hand.

Layout of the residual stream, ``(c, -c, out)``: what the token is, ``c``, stands there twice with
opposite signs, so that its mean is zero and LayerNorm's centring does not touch it; ``out`` is
where attention writes and what the unembedding reads as it is. Embeddings have one common norm
``b``, so a norm on the input of attention divides them all by the same number, which the weights
undo.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import Checkpoint
from ..config import TransformerConfig
from ..placements import PLACEMENTS
from ..tasks import Task
from ..transformer import Transformer

CLOSED_FORM_PLACEMENTS = ("none", "pre", "post", "res_post", "peri")
"""Norm placements for which there are closed forms."""

OPAQUE_NORMALIZERS = ("differential", "linear")
"""Normalizers whose weights are not a function of the scores alone."""


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a positive, finite number.

    Raises:
        ValueError: If it is not.
    """
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number; got {value}")


def check_closed_form(config: TransformerConfig) -> None:
    """Refuse a configuration for which there is no closed form.

    Raises:
        ValueError: If it is one.
    """
    if config.norm_placement not in CLOSED_FORM_PLACEMENTS:
        raise ValueError(
            f"norm_placement must be one of {', '.join(CLOSED_FORM_PLACEMENTS)} for a closed form; "
            f"got {config.norm_placement!r}"
        )
    if config.final_norm and config.norm_placement not in ("none", "pre"):
        raise ValueError(
            "final_norm has a closed form here only with norm_placement 'none' or 'pre'; "
            f"got {config.norm_placement!r}"
        )
    if config.normalizer in OPAQUE_NORMALIZERS:
        raise ValueError(
            f"normalizer={config.normalizer!r} has no closed form here: its weights are not a "
            "function of the scores alone"
        )


def needle_config(
    task: Task, *, margin: float, p: float, residual: float, **fields: Any
) -> TransformerConfig:
    """Configuration of a closed-form needle, once its numbers and its form are checked.

    Args:
        task: What the model solves.
        margin, p, residual: Numbers of the construction.
        **fields: Fields of the configuration beside the task's vocabularies.

    Raises:
        ValueError: If a number is not positive or the combination has no closed form.
    """
    for name, value in (("margin", margin), ("p", p), ("residual", residual)):
        check_positive(name, value)
    config = TransformerConfig(d_vocab=task.d_vocab, d_vocab_out=task.d_vocab_out, **fields)
    check_closed_form(config)
    return config


def assemble_needle(
    config: TransformerConfig,
    state: Mapping[str, Tensor],
    *,
    task: Task,
    margin: float,
    p: float,
    residual: float,
    gain: float,
) -> Checkpoint:
    """As :func:`assemble`, with the parameters and the name of a closed-form needle."""
    return assemble(
        config,
        state,
        task=task,
        parameters={
            "kind": task.name,
            "margin": float(margin),
            "p": float(p),
            "residual": float(residual),
        },
        gain=gain,
        name=f"constructed-{task.name}-{config.norm_placement}",
    )


def mirrored(content: Tensor, n_out: int) -> Tensor:
    """Rows ``(c, -c, 0) / sqrt(2)``, of the norm of ``c``, with ``n_out`` places to write."""
    nothing = content.new_zeros(len(content), n_out)
    return torch.cat([content, -content, nothing], dim=1) / 2**0.5


def output_block(d_model: int, n_out: int) -> Tensor:
    """The last ``n_out`` coordinates of the stream, ``[n_out, d_model]``."""
    return torch.eye(d_model, dtype=torch.float64)[d_model - n_out :]


def seen_norm(config: TransformerConfig, residual: float) -> float:
    """Norm of an embedding of norm ``residual`` where attention reads it."""
    if not PLACEMENTS[config.norm_placement].before:
        return residual
    return residual / (residual**2 / config.d_model + config.eps) ** 0.5


def assemble(
    config: TransformerConfig,
    state: Mapping[str, Tensor],
    *,
    task: Task,
    parameters: Mapping[str, Any],
    gain: float,
    name: str,
) -> Checkpoint:
    """Put weights into a model and return its checkpoint.

    What a remedy learns from the token (its own ``W_*``) is set to zero, its other parameters stay
    as they are initialised.

    Args:
        config: The model.
        state: The weights that the construction sets, by name.
        task: What the model solves.
        parameters: What ``Checkpoint.constructed`` says.
        gain: Gain of the norm that acts last on the way to the logits.
        name: Name of the checkpoint.

    Raises:
        ValueError: If ``gain`` is not 1 and no norm with a gain acts on the way to the logits.
    """
    weights = {key: tensor.clone() for key, tensor in Transformer(config).state_dict().items()}
    for key, tensor in weights.items():
        if key in state:
            weights[key] = state[key].float().contiguous()
        elif key.rsplit(".", 1)[-1].startswith("W_"):
            weights[key] = torch.zeros_like(tensor)
    norms = ("ln_final.w", "blocks.0.ln1_resid.w", "blocks.0.ln1_post.w")
    last_norm = next((key for key in norms if key in weights), None)
    if last_norm is not None:
        weights[last_norm] = torch.full_like(weights[last_norm], gain)
    elif gain != 1.0:
        raise ValueError(
            f"gain must be 1 where no norm with a gain acts on the way to the logits; got {gain}"
        )
    return Checkpoint(
        config=config,
        weights={"raw": weights},
        task=task.to_dict(),
        constructed={**parameters, "gain": float(gain)},
        name=name,
    )
