"""nanoGPT checkpoints (``ckpt.pt``): the same function as a GPT-2 of transformers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from ..checkpoint import CheckpointError

_TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
_ARGUMENTS = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size")
_COMPILED = "_orig_mod."

NOTE = (
    "The activation is taken to be the exact GELU of nanoGPT since 2023; give "
    "config={'activation_function': 'gelu_new'} for older checkpoints."
)
"""What a state dict cannot say."""


def is_nanogpt(state: Mapping[str, Tensor]) -> bool:
    """Whether the names are nanoGPT's."""
    return any(
        name.removeprefix(_COMPILED) == "transformer.h.0.attn.c_attn.weight" for name in state
    )


def load_nanogpt(
    state: Mapping[str, Tensor], arguments: Mapping[str, Any] | None, name: str
) -> GPT2LMHeadModel:
    """Build the GPT-2 with the same logits.

    Linear layers are transposed, ``torch.compile``'s prefix is taken off, and absent biases are
    zero.

    Args:
        state: nanoGPT's state dict.
        arguments: Its ``model_args`` (``n_layer n_head n_embd block_size vocab_size``), and
            ``activation_function`` if it is not the exact GELU.
        name: What to call the checkpoint in errors.

    Raises:
        CheckpointError: If arguments are missing or do not fit the weights.
    """
    missing = [key for key in _ARGUMENTS if key not in (arguments or {})]
    if arguments is None or missing:
        raise CheckpointError(
            f"{name} looks like nanoGPT but does not say {', '.join(missing)}: give them with "
            "config={...} to resharpen.models.adapt in Python, and audit what that returns"
        )
    config = GPT2Config(
        n_layer=arguments["n_layer"],
        n_head=arguments["n_head"],
        n_embd=arguments["n_embd"],
        n_positions=arguments["block_size"],
        vocab_size=arguments["vocab_size"],
        activation_function=arguments.get("activation_function", "gelu"),
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config)
    wanted = model.state_dict()
    given: dict[str, Tensor] = {}
    for key, tensor in state.items():
        key = key.removeprefix(_COMPILED)
        if not key.endswith((".attn.bias", ".attn.masked_bias")):
            given[key] = tensor.t() if key.endswith(_TRANSPOSED) else tensor
    given.setdefault("lm_head.weight", given.get("transformer.wte.weight", torch.empty(0)))
    for key, tensor in wanted.items():
        if key.endswith(".bias") and key not in given:
            given[key] = torch.zeros_like(tensor)
    _check_fit(given, wanted, name)
    if not torch.equal(given["lm_head.weight"], given["transformer.wte.weight"]):
        raise CheckpointError(
            f"{name} has an unembedding of its own, but nanoGPT's is its embedding transposed"
        )
    model.load_state_dict({key: tensor.to(wanted[key].dtype) for key, tensor in given.items()})
    return model.eval()


def _check_fit(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], name: str) -> None:
    absent, extra = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    if absent or extra:
        which = f"lacks tensor {absent[0]!r}" if absent else f"has unknown tensor {extra[0]!r}"
        raise CheckpointError(f"{name} {which}: weights and model_args do not belong together")
    for key, tensor in wanted.items():
        if given[key].shape != tensor.shape:
            raise CheckpointError(
                f"{name}: tensor {key!r} has shape {tuple(given[key].shape)}, but model_args ask "
                f"for {tuple(tensor.shape)}"
            )
