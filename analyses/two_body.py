"""The two-body identity, confronted with a trained model (theory section 1.1).

In a block without positional information, a head's output at any length is a fixed linear function
of its outputs at lengths 1 and 2, with coefficients made of its attention weights. So from the
model's behaviour on one and two tokens alone, and its attention weights, follow its logits on every
longer input. This module makes that prediction for a real model and sets it beside what the model
says.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ..interp.capturing import HookedModel, capture
from ..interp.theory import predict_two_body
from ..models.facts import Facts

_Z = "blocks.0.attn.hook_z"
_PATTERN = "blocks.0.attn.hook_pattern"
_CHUNK = 4096

_FIXED_STRENGTH = ("softmax", "temperature", "linear")
"""Normalizers whose weights are shares of a strength that each pair of tokens has for itself."""


@dataclass(frozen=True, repr=False)
class TwoBodyPrediction(Facts):
    """Logits at the last position, predicted and measured.

    Attributes:
        measured: The model's own logits, ``[batch, d_vocab_out]``.
        from_outputs: Predicted from each head's *output* on one and two tokens: the head outputs
            that the identity gives replace the model's own, and the rest of the model (norms, MLP,
            unembedding) runs as it is. Holds for any placement and number of heads.
        from_logits: Predicted from the model's *logits* on one and two tokens, nothing else run;
            ``None`` unless the logits are linear in the attention weights (one head, attention
            only, no norm on the way from attention to the logits).
    """

    measured: Float[Tensor, "batch d_vocab_out"]
    from_outputs: Float[Tensor, "batch d_vocab_out"]
    from_logits: Float[Tensor, "batch d_vocab_out"] | None


def why_not_two_body(model: HookedModel) -> str | None:
    """Say which hypothesis of the identity a model does not meet, or ``None`` if it meets all."""
    cfg = getattr(model, "cfg", None)
    kind = getattr(cfg, "positional_embedding_type", None)
    if getattr(cfg, "n_layers", None) != 1:
        return "it has more than one block, so that keys depend on their own prefix"
    if kind != "none":
        return f"it has positions ({kind}), so that a token's key depends on where it stands"
    normalizer = getattr(cfg, "normalizer", "softmax")
    if normalizer not in _FIXED_STRENGTH:
        return (
            f"its normalizer ({normalizer}) weighs two keys against each other differently as "
            "others join them"
        )
    return None


def predict_from_short_inputs(
    model: HookedModel, tokens: Int[Tensor, "batch pos"]
) -> TwoBodyPrediction:
    """Predict the logits of the last position from inputs of one and two tokens.

    Args:
        model: One block, no positional information, HookedTransformer-compatible hook points.
        tokens: Inputs, ``[batch, pos]``; the last token is the query.

    Raises:
        ValueError: If the model does not meet a hypothesis of the identity.
    """
    reason = why_not_two_body(model)
    if reason is not None:
        raise ValueError(f"the two-body identity does not speak about this model: {reason}")
    last = tokens[:, -1]
    firsts = tokens[:, :-1]
    pairs = torch.stack([firsts, last[:, None].expand_as(firsts)], dim=-1)
    z1, logits1 = _run_distinct(model, last[:, None])
    batch, others = firsts.shape
    if others:
        z2, logits2 = _run_distinct(model, pairs.reshape(-1, 2))
    else:
        z2, logits2 = z1[:0], logits1[:0]
    found = capture(
        model, tokens, {_PATTERN: lambda pattern: pattern[:, :, -1].double().cpu().numpy()}
    )
    weights = found.values[_PATTERN]
    # [batch, head, d_head] and [batch, head, pos - 1, d_head]
    predicted = predict_two_body(
        z1, np.moveaxis(z2.reshape(batch, others, *z2.shape[1:]), 1, 2), weights
    )

    def replace(z: Tensor, hook: object) -> Tensor:
        z = z.clone()
        z[:, -1] = torch.as_tensor(predicted).to(z)
        return z

    patched = capture(model, tokens, {}, edits=[(_Z, replace)])
    from_logits = None
    if _logits_are_linear(model):
        from_logits = torch.as_tensor(
            predict_two_body(
                logits1, logits2.reshape(batch, others, logits1.shape[-1]), weights[:, 0]
            )
        )
    return TwoBodyPrediction(
        measured=found.logits[:, -1].double().cpu(),
        from_outputs=patched.logits[:, -1].double().cpu(),
        from_logits=from_logits,
    )


def _logits_are_linear(model: HookedModel) -> bool:
    cfg = getattr(model, "cfg", None)
    return (
        getattr(cfg, "n_heads", None) == 1
        and getattr(cfg, "attn_only", False)
        and getattr(cfg, "norm_placement", None) in ("none", "pre")
        and not getattr(cfg, "final_norm", True)
    )


def _run_distinct(
    model: HookedModel, inputs: Int[Tensor, "row pos"]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Head outputs ``[row, head, d_head]`` and logits ``[row, d_vocab_out]`` of the last position.

    Each distinct input is run once.
    """
    distinct, where = torch.unique(inputs, dim=0, return_inverse=True)
    outputs, logits = [], []
    for chunk in distinct.split(_CHUNK):
        found = capture(model, chunk, {_Z: lambda z: z[:, -1].double().cpu().numpy()})
        outputs.append(found.values[_Z])
        logits.append(found.logits[:, -1].double().cpu().numpy())
    index = where.numpy()
    return np.concatenate(outputs)[index], np.concatenate(logits)[index]
