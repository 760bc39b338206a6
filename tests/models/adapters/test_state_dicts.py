import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from resharpen.models import (
    Transformer,
    TransformerConfig,
    hooked_transformer_config,
    hooked_transformer_state,
)
from resharpen.models.adapters import adapt
from resharpen.models.checkpoint import CheckpointError

# TransformerLens checks an optional dependency with a call that Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SIZES = dict(d_vocab=50, n_layers=2, n_heads=4, d_model=16, n_ctx=32)


def hooked(**changes: Any) -> tuple[Transformer, dict[str, Tensor], dict[str, Any]]:
    given = {**SIZES, "norm_placement": "pre", "final_norm": True, **changes}
    model = Transformer(TransformerConfig(**given), seed=3)
    return model, hooked_transformer_state(model), hooked_transformer_config(model.cfg)


@pytest.mark.parametrize(
    ("changes", "compared"),
    [
        (dict(positional_embedding_type="standard", attn_only=False, biases=True), True),
        (dict(normalization_type="LN", attn_only=False, act_fn="gelu_new"), True),
        (dict(normalization_type="LNPre", attention_dir="bidirectional"), True),
        (dict(norm_placement="none", final_norm=False), False),
        (dict(norm_placement="peri"), False),
        (dict(positional_embedding_type="rotary", attn_only=False), False),
        (dict(positional_embedding_type="alibi"), False),
    ],
    ids=str,
)
def test_hooked_transformer_states_are_the_same_function(changes, compared, tokens) -> None:
    model, state, config = hooked(**changes)
    adapter = adapt(state, config=config)
    torch.testing.assert_close(adapter.run_plain(tokens), model(tokens))
    assert adapter.placement == model.cfg.norm_placement
    (note,) = adapter.description.notes
    assert note.startswith("Logits equal" if compared else "The checkpoint could not be compared")


def test_files_with_and_without_their_configuration(tmp_path, tokens) -> None:
    model, state, config = hooked()
    wanted = model(tokens)
    save_file(state, tmp_path / "state.safetensors")
    # As TransformerLens saves it: NumPy numbers, a torch dtype, buffers with -inf in them.
    full = {**config, "attn_scale": np.float64(2.0), "dtype": torch.float32, "seed": None}
    buffers = {
        "blocks.0.attn.mask": torch.ones(2, 2),
        "blocks.0.attn.IGNORE": torch.tensor(-np.inf),
    }
    torch.save({"state_dict": {**state, **buffers}, "cfg": full}, tmp_path / "both.pt")
    torch.save(state, tmp_path / "state.pth")
    for name, given in (("state.safetensors", config), ("state.pth", config), ("both.pt", None)):
        torch.testing.assert_close(adapt(tmp_path / name, config=given).run_plain(tokens), wanted)
    with pytest.raises(CheckpointError, match="give its configuration with config="):
        adapt(tmp_path / "state.safetensors")


def test_grouped_keys_and_values(tokens) -> None:
    model, state, config = hooked()
    grouped = dict(state)
    with torch.no_grad():
        for layer, block in enumerate(model.blocks):
            for part in ("W_K", "W_V"):
                weight = getattr(block.attn, part)
                weight[1], weight[3] = weight[0], weight[2]
                del grouped[f"blocks.{layer}.attn.{part}"]
                grouped[f"blocks.{layer}.attn._{part}"] = weight[::2].clone()
            for part in ("b_K", "b_V"):
                bias = grouped.pop(f"blocks.{layer}.attn.{part}")
                grouped[f"blocks.{layer}.attn._{part}"] = bias[::2]
    adapter = adapt(grouped, config={**config, "n_key_value_heads": 2})
    torch.testing.assert_close(adapter.run_plain(tokens), model(tokens))


@pytest.mark.parametrize(
    "feature",
    [
        dict(use_local_attn=True, window_size=4, attn_types=["local", "global"]),
        dict(parallel_attn_mlp=True),
        dict(scale_attn_by_inverse_layer_idx=True),
        dict(rotary_adjacent_pairs=True),
        dict(gated_mlp=True),
        dict(attn_scores_soft_cap=30.0),
        dict(output_logits_soft_cap=30.0),
        dict(num_experts=8),
        dict(use_yarn_rope=True),
        dict(post_embedding_ln=True),
        dict(a_feature_of_tomorrow=True),
    ],
    ids=lambda feature: next(iter(feature)),
)
def test_a_feature_that_would_be_ignored_is_refused(feature) -> None:
    _, state, config = hooked()
    with pytest.raises(CheckpointError, match=next(iter(feature))):
        adapt(state, config={**config, **feature})


def test_attention_without_a_scale_is_read(tokens) -> None:
    model, state, config = hooked(attn_scale=1.0)
    adapter = adapt(state, config={**config, "use_attn_scale": False, "attn_scale": -1.0})
    torch.testing.assert_close(adapter.run_plain(tokens), model(tokens))


def test_states_that_do_not_fit() -> None:
    _, state, config = hooked()
    with pytest.raises(CheckpointError, match=r"lacks tensor 'blocks.1.attn.W_Q'"):
        adapt({k: v for k, v in state.items() if k != "blocks.1.attn.W_Q"}, config=config)
    with pytest.raises(CheckpointError, match="has unknown tensor"):
        adapt({**state, "blocks.2.attn.W_Q": state["blocks.1.attn.W_Q"]}, config=config)
    with pytest.raises(CheckpointError, match=r"shape .* asks for"):
        adapt(state, config={**config, "d_vocab": 49})
    with pytest.raises(CheckpointError, match="holds NaN or infinity"):
        adapt({**state, "embed.W_E": state["embed.W_E"] * torch.nan}, config=config)
    with pytest.raises(CheckpointError, match="act_fn must be one of"):
        adapt(state, config={**config, "attn_only": False, "act_fn": "solu_ln"})
    with pytest.raises(CheckpointError, match="unknown architecture"):
        adapt({"layer.weight": torch.ones(2)})
    with pytest.raises(CheckpointError, match="holds no state dict"):
        adapt({"accuracy": 0.9})


class NanoGPT(nn.Module):
    """The model of nanoGPT, by the names of its state dict."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        torch.manual_seed(0)

        def block() -> nn.ModuleDict:
            return nn.ModuleDict(
                {
                    "ln_1": nn.LayerNorm(16, bias=bias),
                    "attn": nn.ModuleDict(
                        {
                            "c_attn": nn.Linear(16, 48, bias=bias),
                            "c_proj": nn.Linear(16, 16, bias=bias),
                        }
                    ),
                    "ln_2": nn.LayerNorm(16, bias=bias),
                    "mlp": nn.ModuleDict(
                        {
                            "c_fc": nn.Linear(16, 64, bias=bias),
                            "c_proj": nn.Linear(64, 16, bias=bias),
                        }
                    ),
                }
            )

        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(50, 16),
                "wpe": nn.Embedding(32, 16),
                "h": nn.ModuleList([block(), block()]),
                "ln_f": nn.LayerNorm(16, bias=bias),
            }
        )
        self.lm_head = nn.Linear(16, 50, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1]))
        for block in parts["h"]:
            given = block["attn"]["c_attn"](block["ln_1"](x)).chunk(3, -1)
            query, key, value = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in given)
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + block["attn"]["c_proj"](mixed.transpose(1, 2).flatten(2))
            hidden = nn.functional.gelu(block["mlp"]["c_fc"](block["ln_2"](x)))
            x = x + block["mlp"]["c_proj"](hidden)
        return self.lm_head(parts["ln_f"](x))


ARGUMENTS = dict(n_layer=2, n_head=4, n_embd=16, block_size=32, vocab_size=50, dropout=0.1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_nanogpt(bias, prefix, tmp_path, tokens, recorder) -> None:
    model = NanoGPT(bias)
    state = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    state[f"{prefix}transformer.h.0.attn.bias"] = torch.ones(1, 1, 32, 32).tril()
    content = {"model": state, "model_args": dict(bias=bias, **ARGUMENTS)}
    content |= {"config": {"dataset": "shakespeare"}, "iter_num": 7, "optimizer": {"state": {}}}
    torch.save(content, tmp_path / "ckpt.pt")
    adapter = adapt(tmp_path / "ckpt.pt")
    torch.testing.assert_close(adapter.observe(tokens, recorder), model(tokens))
    assert adapter.placement == "pre" and adapter.max_length == 32
    assert "exact GELU" in adapter.description.notes[0]
    older = adapt(tmp_path / "ckpt.pt", config={"activation_function": "gelu_new"})
    assert older.description.notes == ()
    assert not torch.equal(older.run_plain(tokens), model(tokens))


def test_nanogpt_that_does_not_fit(tmp_path) -> None:
    state = NanoGPT(True).state_dict()
    with pytest.raises(CheckpointError, match="does not say n_layer, n_head"):
        adapt({"model": state})
    with pytest.raises(CheckpointError, match="lacks tensor"):
        adapt({"model": state, "model_args": {**ARGUMENTS, "n_layer": 3}})
    with pytest.raises(CheckpointError, match="has unknown tensor"):
        adapt({"model": state, "model_args": {**ARGUMENTS, "n_layer": 1}})
    with pytest.raises(CheckpointError, match="but model_args ask for"):
        adapt({"model": state, "model_args": {**ARGUMENTS, "block_size": 16}})


class Bomb:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("form", ["torch", "plain", "inside"])
def test_a_pickle_that_would_run_code_is_not_run(form, tmp_path) -> None:
    target, path = tmp_path / "ran", tmp_path / "ckpt.pt"
    if form == "plain":
        path.write_bytes(pickle.dumps(Bomb(target)))
    else:
        content = (
            Bomb(target) if form == "torch" else {"model": {"w": torch.ones(1)}, "x": Bomb(target)}
        )
        torch.save(content, path)
    with pytest.raises(CheckpointError, match="could run code"):
        adapt(path)
    assert not target.exists()


def test_a_whole_pickled_model_is_refused(tmp_path) -> None:
    torch.save(NanoGPT(True), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="save the state dict alone"):
        adapt(tmp_path / "model.pt")


def test_truncated_files(tmp_path) -> None:
    torch.save(NanoGPT(True).state_dict(), tmp_path / "whole.pt")
    save_file({"w": torch.ones(100)}, tmp_path / "whole.safetensors")
    for suffix in (".pt", ".safetensors"):
        whole = (tmp_path / f"whole{suffix}").read_bytes()
        for kept in (0, 10, len(whole) // 2, len(whole) - 30):
            path = tmp_path / f"cut-{kept}{suffix}"
            path.write_bytes(whole[:kept])
            with pytest.raises(CheckpointError, match=r"truncated|could run code"):
                adapt(path)
