"""A closed-form solution of FIRST: a needle among keys that say nothing.

After Chiang and Cholak (arXiv 2202.12172; theory section 14). Every query scores the marked token
``m`` and all others 0, so that with ``n`` keys the mark has the weight

    a = e^(βm) / (e^(βm) + n - 1)

under softmax with the inverse temperature ``β`` of the normalizer (``log n``: ``n^m / (n^m + n -
1)``, at least 1/2 iff ``m >= 1``); for other normalizers ``a`` is their weight of a score ``m``
beside ``n - 1`` zeros. The values are ``+-p`` for the marked bits and nothing for the plain ones.
At every position, with ``D = 10`` the width and ``g`` the gain, the logit of the right bit exceeds
that of the wrong one by

=============================  ==========================================
``none``, ``pre``              ``a p``
``res_post``, ``peri``         ``g a p / sqrt(a^2 p^2 / (2D) + eps)``
``post``, or with final norm   ``g a p / sqrt((b^2 + a^2 p^2 / 2) / D + eps)``
=============================  ==========================================

A norm on the attention output alone gives ``g sqrt(2D)`` whatever ``n``, until ``a p`` falls to
``sqrt(2 D eps)``: where the other keys say nothing, a norm restores a needle whole. Where they do
speak, it does not: :mod:`.dictionary_lookup`.
"""

import torch

from ..checkpoint import Checkpoint
from ..config import NormalizationType, NormalizerName, NormPlacement
from ..tasks import First
from .assembling import assemble_needle, mirrored, needle_config, output_block, seen_norm

MARKED = (2, 3)
"""Ids of the marked bits 0 and 1."""


def construct_first(
    *,
    norm_placement: NormPlacement = "none",
    normalization_type: NormalizationType = "RMS",
    final_norm: bool = False,
    margin: float = 5.0,
    p: float = 10.0,
    residual: float = 1.0,
    gain: float = 1.0,
    eps: float = 1e-5,
    normalizer: NormalizerName = "softmax",
    inverse_temperature: float = 1.0,
    entmax_alpha: float = 1.5,
) -> Checkpoint:
    """Build a one-block, one-head, attention-only solution of FIRST; ``d_model = 10``.

    Args:
        norm_placement: One of ``none``, ``pre``, ``post``, ``res_post``, ``peri``. With ``pre`` and
            ``peri`` the input norm is undone in the weights.
        normalization_type: Any type; the formulas are the same.
        final_norm: Add a norm before the unembedding (with ``none`` and ``pre`` only).
        margin: Score ``m > 0`` of the mark above the other keys, before the normalizer.
        p: Logit gap where the mark has all the weight, before any norm.
        residual: Norm ``b > 0`` of the embedding, which the logits do not see.
        gain: Gain of the norm that acts last (``LN`` and ``RMS`` types).
        eps: The norms' epsilon.
        normalizer: Any but ``differential`` and ``linear``.
        inverse_temperature: As in the configuration.
        entmax_alpha: As in the configuration.

    Raises:
        ValueError: If a value is out of range or the combination has no closed form.
    """
    task = First()
    config = needle_config(
        task,
        margin=margin,
        p=p,
        residual=residual,
        d_model=2 * task.d_vocab + task.d_vocab_out,
        d_head=1,
        norm_placement=norm_placement,
        normalization_type=normalization_type,
        final_norm=final_norm,
        eps=eps,
        normalizer=normalizer,
        inverse_temperature=inverse_temperature,
        entmax_alpha=entmax_alpha,
    )
    tokens = mirrored(torch.eye(task.d_vocab, dtype=torch.float64), task.d_vocab_out)
    out = output_block(config.d_model, task.d_vocab_out)
    # For each token, one where attention reads it.
    reading = tokens / seen_norm(config, residual)
    zero, one = (reading[token] for token in MARKED)
    state = {
        "embed.W_E": residual * tokens,
        "unembed.W_U": out.T,
        "blocks.0.attn.W_Q": reading.sum(0)[None, :, None] * margin / config.score_factor,
        "blocks.0.attn.W_K": (zero + one)[None, :, None],
        "blocks.0.attn.W_V": (one - zero)[None, :, None],
        "blocks.0.attn.W_O": p / 2 * (out[1] - out[0])[None, None],
    }
    return assemble_needle(
        config, state, task=task, margin=margin, p=p, residual=residual, gain=gain
    )
