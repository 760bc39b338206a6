"""Hand a model of ours to the HookedTransformer of TransformerLens 2 and 3.

TransformerLens 4 removed the class, but notebooks and tools are written for it. What it can express
crosses over with the same logits: no norm at all, pre-norm with a final norm, and peri-norm with
RMSNorm and a final norm (its ``use_normalization_before_and_after``).
"""

from typing import Any

import torch
from torch import Tensor

from .config import TransformerConfig
from .transformer import Transformer

_EXPRESSIBLE = {("none", False), ("pre", True), ("peri", True)}


def hooked_transformer_config(cfg: TransformerConfig) -> dict[str, Any]:
    """Keyword arguments of ``HookedTransformerConfig`` for the same function.

    A model without positions becomes one with learned positions that are all zero.

    Raises:
        ValueError: If HookedTransformer has no such norm placement.
    """
    expressible = (cfg.norm_placement, cfg.final_norm) in _EXPRESSIBLE
    if not expressible or (cfg.norm_placement == "peri" and not cfg.final_rms):
        raise ValueError(
            "HookedTransformer knows no norm at all, pre-norm with a final norm, or peri-norm with "
            f"RMSNorm and a final norm; got norm_placement={cfg.norm_placement!r}, "
            f"normalization_type={cfg.normalization_type!r}, final_norm={cfg.final_norm}"
        )
    if (cfg.normalizer, cfg.qk_norm, cfg.sigma_reparam) != ("softmax", "none", False):
        raise ValueError(
            "HookedTransformer knows softmax attention on plain queries, keys and weights; got "
            f"normalizer={cfg.normalizer!r}, qk_norm={cfg.qk_norm!r}, "
            f"sigma_reparam={cfg.sigma_reparam}"
        )
    kind = cfg.positional_embedding_type
    return {
        "n_layers": cfg.n_layers,
        "d_model": cfg.d_model,
        "d_head": cfg.d_head,
        "n_heads": cfg.n_heads,
        "d_mlp": cfg.d_mlp,
        "d_vocab": cfg.d_vocab,
        "d_vocab_out": cfg.d_vocab_out,
        "n_ctx": cfg.n_ctx,
        "attn_only": cfg.attn_only,
        "act_fn": None if cfg.attn_only else cfg.act_fn,
        "normalization_type": None if cfg.norm_placement == "none" else cfg.normalization_type,
        "use_normalization_before_and_after": cfg.norm_placement == "peri",
        "eps": cfg.eps,
        "positional_embedding_type": "standard" if kind == "none" else kind,
        "attention_dir": cfg.attention_dir,
        "use_attn_scale": True,
        "attn_scale": cfg.attn_scale,
        "rotary_dim": cfg.d_head if kind == "rotary" else None,
        "rotary_base": int(cfg.rotary_base),
        "final_rms": cfg.final_rms,
    }


def hooked_transformer_state(model: Transformer) -> dict[str, Tensor]:
    """Weights under HookedTransformer's names, with the zeros for what this model leaves out.

    Raises:
        ValueError: If HookedTransformer has no such norm placement.
    """
    cfg = model.cfg
    hooked_transformer_config(cfg)
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    state["unembed.W_U"] = model.W_U.detach().clone()
    state["unembed.b_U"] = model.b_U.detach().clone()
    if cfg.positional_embedding_type in ("none", "alibi"):
        state["pos_embed.W_pos"] = torch.zeros(cfg.n_ctx, cfg.d_model)
    for layer in range(cfg.n_layers):
        prefix = f"blocks.{layer}"
        heads = (cfg.n_heads, cfg.head_width)
        for name, shape in (("b_Q", heads), ("b_K", heads), ("b_V", heads), ("b_O", cfg.d_model)):
            state.setdefault(f"{prefix}.attn.{name}", torch.zeros(shape))
        if cfg.d_mlp is not None and not cfg.attn_only:
            state.setdefault(f"{prefix}.mlp.b_in", torch.zeros(cfg.d_mlp))
            state.setdefault(f"{prefix}.mlp.b_out", torch.zeros(cfg.d_model))
        if cfg.norm_placement == "peri":
            # HookedTransformer's output norms always have a gain.
            for name in ("ln1_post", "ln2_post")[: 1 if cfg.attn_only else 2]:
                state.setdefault(f"{prefix}.{name}.w", torch.ones(cfg.d_model))
    return state
