"""State dicts of HookedTransformer (TransformerLens 2 and 3), loaded into a model of ours.

The configuration decides: a feature that a :class:`~resharpen.models.transformer.Transformer` does
not have is refused by name, and so is a key that nobody here has read about, since a feature that
is silently ignored gives wrong numbers. Where TransformerLens 4 converts such checkpoints itself,
the logits of both are compared.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import CheckpointError
from ..config import TransformerConfig
from ..transformer import Transformer

_WITHOUT_EFFECT = frozenset(
    {
        "model_name",
        "original_architecture",
        "architecture",
        "from_checkpoint",
        "checkpoint_index",
        "checkpoint_label_type",
        "checkpoint_value",
        "tokenizer_name",
        "device",
        "n_devices",
        "init_mode",
        "init_weights",
        "seed",
        "dtype",
        "n_params",
        "default_prepend_bos",
        "tokenizer_prepends_bos",
        "tokenizer_appends_eos",
        "default_padding_side",
        "trust_remote_code",
        "attn_implementation",
        "use_attn_result",
        "use_split_qkv_input",
        "use_hook_mlp_in",
        "use_attn_in",
        "use_hook_tokens",
        "initializer_range",
        "weight_init_mode",
        "ungroup_grouped_query_attention",
        "layer_norm_folding",
        "tie_word_embeddings",
        "train_seq_length",
        "decoder_start_token_id",
        "load_in_4bit",
        "quantization_method",
    }
)
_PARTS_OF_A_SWITCH = frozenset(
    {
        "NTK_by_parts_low_freq_factor",
        "NTK_by_parts_high_freq_factor",
        "NTK_by_parts_factor",
        "NTK_original_ctx_len",
        "yarn_factor",
        "yarn_attention_factor",
        "yarn_beta_fast",
        "yarn_beta_slow",
        "yarn_original_max_position_embeddings",
        "yarn_truncate",
        "yarn_global_attn_only",
        "relative_attention_max_distance",
        "relative_attention_num_buckets",
        "experts_per_token",
        "norm_topk_prob",
    }
)
_READ = frozenset(
    {
        "n_layers",
        "n_heads",
        "d_model",
        "d_head",
        "d_mlp",
        "d_vocab",
        "d_vocab_out",
        "n_ctx",
        "attn_only",
        "act_fn",
        "normalization_type",
        "eps",
        "positional_embedding_type",
        "rotary_dim",
        "rotary_base",
        "attention_dir",
        "use_attn_scale",
        "attn_scale",
        "final_rms",
        "n_key_value_heads",
        "uses_rms_norm",
        "use_normalization_before_and_after",
    }
)
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "use_local_attn": (False, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "parallel_attn_mlp": (False, None),
    "gated_mlp": (False, None),
    "num_experts": (None,),
    "relative_attention_bias": (False, None),
    "rotary_adjacent_pairs": (False, None),
    "use_NTK_by_parts_rope": (False, None),
    "use_dynamic_ntk_rope": (False, None),
    "use_yarn_rope": (False, None),
    "rotary_base_local": (None,),
    "rotary_scaling_factor": (1.0, None),
    "attn_scores_soft_cap": (-1.0, None),
    "output_logits_soft_cap": (-1.0, None),
    "post_embedding_ln": (False, None),
    "use_qk_norm": (False, None),
    "use_logn_attn": (False, None),
    "use_attention_sinks": (False, None),
    "clip_qkv": (None,),
    "rmsnorm_uses_offset": (False, None),
}
_BUFFERS = ("attn.mask", "attn.IGNORE", "attn.rotary_sin", "attn.rotary_cos", "attn.alibi")


def is_hooked_state(state: Mapping[str, Tensor]) -> bool:
    """Whether the names are HookedTransformer's."""
    return "embed.W_E" in state and "blocks.0.attn.W_Q" in state


def load_hooked_state(
    state: Mapping[str, Tensor], config: Mapping[str, Any] | None, name: str
) -> tuple[Transformer, str]:
    """Build our model with the same logits, and say how that was checked.

    Args:
        state: The state dict.
        config: ``cfg.to_dict()`` of the model.
        name: What to call the checkpoint in errors.

    Raises:
        CheckpointError: If the configuration is missing, asks for what this model does not have, or
            does not fit the weights, or if the parity check fails.
    """
    if config is None:
        raise CheckpointError(
            f"{name} is a state dict of HookedTransformer, whose weights do not say everything: "
            "give its configuration with config=model.cfg.to_dict() to resharpen.models.adapt in "
            "Python, and audit what that returns"
        )
    check_features(config, name)
    try:
        cfg = _our_config(config)
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{name}: {error}") from error
    model = Transformer(cfg)
    wanted = model.state_dict()
    given = _our_state(state, cfg)
    absent, extra = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    if absent or extra:
        which = f"lacks tensor {absent[0]!r}" if absent else f"has unknown tensor {extra[0]!r}"
        raise CheckpointError(f"{name} {which}: weights and configuration do not belong together")
    for key, tensor in wanted.items():
        if given[key].shape != tensor.shape:
            raise CheckpointError(
                f"{name}: tensor {key!r} has shape {tuple(given[key].shape)}, but the "
                f"configuration asks for {tuple(tensor.shape)}"
            )
    model.load_state_dict({key: tensor.float() for key, tensor in given.items()})
    model.eval()
    return model, _check_parity(model, state, config, name)


def check_features(config: Mapping[str, Any], name: str) -> None:
    """Refuse a configuration that asks for something this toolkit would silently leave out.

    Raises:
        CheckpointError: Naming the first such key.
    """
    windowed = bool(config.get("use_local_attn"))
    for key, value in config.items():
        if key in _NEUTRAL and value not in _NEUTRAL[key]:
            raise CheckpointError(
                f"{name}: the configuration has {key}={value!r}, which cannot be loaded exactly: "
                "adapt the HookedTransformer itself instead"
            )
        known = _WITHOUT_EFFECT | _PARTS_OF_A_SWITCH | _READ | set(_NEUTRAL)
        if not windowed:
            known |= {"window_size", "attn_types"}
        if key not in known and value:
            raise CheckpointError(
                f"{name}: the configuration has {key}={value!r}, which this toolkit does not know "
                "and will not ignore: adapt the HookedTransformer itself instead"
            )


def _our_config(config: Mapping[str, Any]) -> TransformerConfig:
    norm, both = config.get("normalization_type"), config.get("use_normalization_before_and_after")
    d_head = int(config.get("d_head") or config["d_model"] // config["n_heads"])
    scale: float | None = None if config.get("use_attn_scale", True) else 1.0
    if scale is None and float(config.get("attn_scale") or -1.0) > 0:
        scale = float(config["attn_scale"])
    kind = config.get("positional_embedding_type", "standard")
    if kind == "rotary" and int(config.get("rotary_dim") or d_head) != d_head:
        raise ValueError(
            f"rotary_dim={config['rotary_dim']} of d_head={d_head}: only full rotary positions "
            "can be loaded exactly"
        )
    mixes = config.get("final_rms") or config.get("uses_rms_norm") or both
    if norm is not None and norm.startswith("LN") and mixes:
        raise ValueError("LayerNorm blocks with an RMSNorm beside them cannot be loaded exactly")
    d_vocab = int(config["d_vocab"])
    d_vocab_out = int(config.get("d_vocab_out") or -1)
    attn_only = bool(config.get("attn_only", False))
    return TransformerConfig(
        d_vocab=d_vocab,
        n_layers=int(config["n_layers"]),
        n_heads=int(config.get("n_heads") or config["d_model"] // d_head),
        d_model=int(config["d_model"]),
        d_head=d_head,
        d_mlp=None if attn_only else int(config.get("d_mlp") or 4 * config["d_model"]),
        d_vocab_out=d_vocab_out if d_vocab_out > 0 else d_vocab,
        n_ctx=int(config["n_ctx"]),
        attn_only=attn_only,
        act_fn="gelu" if attn_only else config["act_fn"],
        normalization_type=norm or "RMS",
        norm_placement="none" if norm is None else "peri" if both else "pre",
        final_norm=norm is not None,
        eps=float(config.get("eps", 1e-5)),
        positional_embedding_type=kind,
        rotary_base=float(config.get("rotary_base") or 10000.0),
        attention_dir=config.get("attention_dir", "causal"),
        attn_scale=math.sqrt(d_head) if scale is None else scale,
        biases=True,
    )


def _our_state(state: Mapping[str, Tensor], cfg: TransformerConfig) -> dict[str, Tensor]:
    given: dict[str, Tensor] = {}
    for key, tensor in state.items():
        if key.endswith(_BUFFERS):
            continue
        # Grouped keys and values (`_W_K` is [kv_head, d_model, d_head]): each serves its group.
        prefix, _, last = key.rpartition(".")
        if last in ("_W_K", "_W_V", "_b_K", "_b_V"):
            last, repeat = last[1:], cfg.n_heads // tensor.shape[0]
            tensor = tensor.repeat_interleave(repeat, dim=0)
        given[f"{prefix}.{last}"] = tensor
    if cfg.positional_embedding_type == "alibi":
        # HookedTransformer makes the table and never reads it.
        given.pop("pos_embed.W_pos", None)
    return given


def _check_parity(
    model: Transformer, state: Mapping[str, Tensor], config: Mapping[str, Any], name: str
) -> str:
    """Compare with TransformerLens 4's own conversion where it has one; say what was found.

    Its conversion is known to be wrong, without a word, for rotary positions that are not paired
    with their neighbour, for sandwich norms and for attention without a scale, and it has neither
    ALiBi nor a model without a final norm: there nothing is compared.
    """
    unchecked = "The checkpoint could not be compared with TransformerLens's own conversion."
    positions = config.get("positional_embedding_type", "standard")
    both = config.get("use_normalization_before_and_after")
    if both or positions in ("alibi", "rotary") or not config.get("use_attn_scale", True):
        return unchecked
    try:
        from transformer_lens.model_bridge import TransformerBridge
        from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint
    except ImportError:
        # TransformerLens before 4.
        return unchecked
    read = {
        key: value
        for key, value in config.items()
        if key in _READ and (value is not None or key == "normalization_type")
    }
    try:
        bridge = TransformerBridge.boot_native(read)  # type: ignore[attr-defined]
        converted = convert_tl_checkpoint({k: v.float() for k, v in state.items()}, bridge.cfg)
        bridge.load_state_dict(converted, strict=True)
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return unchecked
    generator = torch.Generator().manual_seed(0)
    length = min(12, model.cfg.n_ctx)
    tokens = torch.randint(model.cfg.d_vocab, (2, length), generator=generator)
    bridge.eval()
    with torch.inference_mode():
        ours, theirs = model(tokens), bridge(tokens)
    error = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))
    if not error < 1e-4:
        raise CheckpointError(
            f"{name}: the logits differ from those of TransformerLens's own conversion by "
            f"{error:.2g} of the largest, so the checkpoint is not read as it was meant"
        )
    return f"Logits equal TransformerLens's own conversion to {error:.0e} of the largest."
