"""Closed-form solutions of the Set Complement Task.

Theory section 1.1 (derived there for the model of arXiv 2510.08341). With last token ``k``,
attention weights ``a`` and one attention-only block,

    f(t) = B_k + sum_i a_i D_i,    B = E U,    D = E W_V W_O U,

the model is exactly uniform on the complement at every length iff, up to constants that softmax
does not see, ``D = -diag(p)`` and ``B = diag(p - delta)``; the displacement of a present token is
then ``a_i p_i``, and ``delta_k - (1 - a_k) p_k`` for the last.

Layout of the residual stream, ``d_model = 3 v``: two blocks say which token this is, with opposite
signs (so that their mean is zero and LayerNorm's centring does not touch them); the third is read
by the unembedding as it is. Attention copies token ``i`` into coordinate ``i`` of the third block,
with weight ``-p_i``. So the stream before any norm is ``(b e_k, -b e_k, 0) / sqrt(2)`` plus
``(0, 0, -sum_i a_i p_i e_i)``, of squared norm ``b^2 + sum_i (a_i p_i)^2``: the setting in which
every norm placement has a closed form.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checkpoint import Checkpoint
from ..config import NormalizationType, NormPlacement, TransformerConfig
from ..placements import PLACEMENTS
from ..tasks import SetComplement
from .assembling import (
    assemble,
    check_closed_form,
    check_positive,
    mirrored,
    output_block,
    seen_norm,
)


def construct_set_complement(
    vocabulary: int = 32,
    *,
    norm_placement: NormPlacement = "none",
    normalization_type: NormalizationType = "RMS",
    final_norm: bool = False,
    p: float | Sequence[float] = 40.0,
    delta: float | Sequence[float] | None = None,
    residual: float = 1.0,
    log_weights: np.ndarray | None = None,
    gain: float = 1.0,
    eps: float = 1e-5,
) -> Checkpoint:
    """Build a one-block, one-head, attention-only solution of Set Complement.

    Args:
        vocabulary: Number ``v`` of tokens; ``d_model = 3 v``, ``d_head = v``.
        norm_placement: One of ``none``, ``pre``, ``post``, ``res_post``, ``peri``. With ``pre`` and
            ``peri`` the input norm is undone in the value and query weights, so that the formulas
            above hold as they stand.
        normalization_type: Any type; the formulas differ between LayerNorm and RMSNorm.
        final_norm: Add a norm before the unembedding (with ``none`` and ``pre`` only).
        p: What one token alone is displaced by, in logits before any norm; one number or ``v``.
        delta: Displacement at length 1; ``None`` means ``p``, the *balanced* solution. Different
            values need a model in which no norm acts on the way to the logits.
        residual: Norm ``b > 0`` of the embedding, which the logits do not see.
        log_weights: Attention scores ``[query token, key token]``, ``[v, v]``; ``None`` means zero
            everywhere: uniform attention.
        gain: Gain of the norm that acts last (``LN`` and ``RMS`` types).
        eps: The norms' epsilon.

    Raises:
        ValueError: If a value is out of range or the combination has no closed form.
    """
    strengths = _per_token("p", p, vocabulary)
    lengths_one = strengths if delta is None else _per_token("delta", delta, vocabulary)
    check_positive("residual", residual)
    config = TransformerConfig(
        d_vocab=vocabulary,
        d_model=3 * vocabulary,
        d_head=vocabulary,
        n_ctx=vocabulary,
        norm_placement=norm_placement,
        normalization_type=normalization_type,
        final_norm=final_norm,
        eps=eps,
    )
    check_closed_form(config)
    normed = PLACEMENTS[norm_placement].after or PLACEMENTS[norm_placement].stream or final_norm
    if normed and delta is not None:
        raise ValueError(
            "delta must be left out (balanced) where a norm acts on the way to the logits: the "
            f"direct path would not be rescaled with attention; got norm_placement="
            f"{norm_placement!r}, final_norm={final_norm}"
        )
    identity = torch.eye(vocabulary, dtype=torch.float64)
    content = mirrored(identity, vocabulary)
    # For token i, attention reads `seen * e_i`; the direct path reads `residual * e_i`.
    reading = content.T
    read = output_block(config.d_model, vocabulary)
    seen = seen_norm(config, residual)
    scores = _scores(log_weights, vocabulary)
    state = {
        "embed.W_E": residual * content,
        "unembed.W_U": reading @ torch.diag(strengths - lengths_one) / residual + read.T,
        "blocks.0.attn.W_Q": (reading @ scores / (config.score_factor * seen))[None],
        "blocks.0.attn.W_K": (reading / seen)[None],
        "blocks.0.attn.W_V": (reading @ torch.diag(-strengths) / seen)[None],
        "blocks.0.attn.W_O": read[None],
    }
    parameters = {
        "kind": "set-complement",
        "p": strengths.tolist(),
        "delta": lengths_one.tolist(),
        "residual": float(residual),
        "uniform_attention": log_weights is None,
    }
    return _checkpoint(config, state, parameters, gain)


def construct_tight_set_complement(
    vocabulary: int = 32, *, p: float | Sequence[float] = 40.0, ratio: float = 1.0
) -> Checkpoint:
    """Build the narrowest solution: ``d_model = d_head = v - 1``, no norm, uniform attention.

    Theory section 1.1, Dimensions: positive displacements need width at least ``v - 1``; with
    ``delta = (1 + ratio) p`` that is enough, by factoring the rank-``(v-1)`` matrix ``B = E U`` and
    solving ``E W U = D``.

    Args:
        vocabulary: Number ``v`` of tokens, at least 3.
        p: Displacement of one token by attention alone, in logits; one number or ``v``.
        ratio: ``r > 0`` above; the exactly balanced ``r = 0`` needs about twice the width.

    Raises:
        ValueError: If a value is out of range.
    """
    if vocabulary < 3:
        raise ValueError(f"vocabulary must be at least 3; got {vocabulary}")
    check_positive("ratio", ratio)
    strengths = _per_token("p", p, vocabulary)
    width = vocabulary - 1
    displaced = strengths[:, None] / vocabulary - torch.diag(strengths)
    # delta - p = ratio * p, so B is a multiple of the same rank-(v-1) matrix.
    direct = ratio * displaced
    left, singular, right = torch.linalg.svd(direct)
    embedding, unembedding = left[:, :width] * singular[:width].sqrt(), right[:width]
    unembedding = singular[:width].sqrt()[:, None] * unembedding
    middle = torch.linalg.pinv(embedding) @ displaced @ torch.linalg.pinv(unembedding)
    config = TransformerConfig(
        d_vocab=vocabulary, d_model=width, d_head=width, n_ctx=vocabulary, norm_placement="none"
    )
    zeros = torch.zeros(1, width, width, dtype=torch.float64)
    state = {
        "embed.W_E": embedding,
        "unembed.W_U": unembedding,
        "blocks.0.attn.W_Q": zeros,
        "blocks.0.attn.W_K": zeros,
        "blocks.0.attn.W_V": middle[None],
        "blocks.0.attn.W_O": torch.eye(width, dtype=torch.float64)[None],
    }
    parameters = {
        "kind": "set-complement-tight",
        "p": strengths.tolist(),
        "delta": ((1 + ratio) * strengths).tolist(),
        "uniform_attention": True,
    }
    return _checkpoint(config, state, parameters, gain=1.0)


def _scores(log_weights: np.ndarray | None, vocabulary: int) -> Tensor:
    if log_weights is None:
        return torch.zeros(vocabulary, vocabulary, dtype=torch.float64)
    scores = torch.as_tensor(np.asarray(log_weights, dtype=np.float64))
    if scores.shape != (vocabulary, vocabulary) or not torch.isfinite(scores).all():
        raise ValueError(
            f"log_weights must be finite, of shape ({vocabulary}, {vocabulary}); "
            f"got shape {tuple(scores.shape)}"
        )
    return scores


def _per_token(name: str, value: float | Sequence[float], vocabulary: int) -> Tensor:
    numbers = torch.as_tensor(np.asarray(value, dtype=np.float64))
    if numbers.ndim == 0:
        numbers = numbers.expand(vocabulary)
    if numbers.shape != (vocabulary,) or not (torch.isfinite(numbers) & (numbers > 0)).all():
        raise ValueError(
            f"{name} must be one positive number or {vocabulary} of them; got {value!r}"
        )
    return numbers.clone()


def _checkpoint(
    config: TransformerConfig, state: dict[str, Tensor], parameters: dict[str, Any], gain: float
) -> Checkpoint:
    return assemble(
        config,
        state,
        task=SetComplement(config.d_vocab),
        parameters=parameters,
        gain=gain,
        name=f"constructed-{config.norm_placement}",
    )
