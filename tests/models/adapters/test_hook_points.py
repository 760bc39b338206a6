import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from resharpen.models import Transformer, TransformerConfig
from resharpen.models.adapters import HookPointAdapter, adapt

# TransformerLens checks an optional dependency with a call that Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BRIDGED = ["gpt2", "gpt_neox", "llama", "qwen3", "gemma2", "gemma3", "mistral", "olmo2", "gpt_oss"]
BRIDGED += ["bloom", "mpt", "bert"]
NATIVE = dict(n_layers=2, d_model=16, n_heads=4, d_head=4, n_ctx=32, d_vocab=50, act_fn="gelu")


def bridge_of(model: Any) -> Any:
    return build_bridge_from_module(
        model, architecture=type(model).__name__, hf_config=model.config, tokenizer=None
    )


@pytest.mark.parametrize("name", BRIDGED)
def test_a_bridge_gives_the_numbers_of_the_model_it_wraps(
    name, tiny_model, expected, tokens, new_recorder
) -> None:
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1, :4] = False
    wanted, found = new_recorder(), new_recorder()
    hugging_face = adapt(tiny_model(name))
    bridge = bridge_of(tiny_model(name)).train()
    adapter = adapt(bridge)
    assert isinstance(adapter, HookPointAdapter)
    facts = adapter.description
    assert (adapter.placement, adapter.parallel) == expected(name)
    assert (facts.n_layers, facts.n_heads, facts.d_vocab) == (2, 4, 50)
    assert facts.causal == hugging_face.description.causal
    for given in (None, mask):
        if given is not None and not facts.padding:
            continue
        logits = hugging_face.observe(tokens, wanted, given)
        torch.testing.assert_close(
            adapter.observe(tokens, found, given)[mask], logits[mask], rtol=1e-3, atol=1e-4
        )
    real = mask[:, None, :, None]
    for patterns, records in ((found.patterns[:2], "whole"), (found.patterns[2:], "padded")):
        for seen in patterns:
            layer = seen.layer if records == "whole" else seen.layer + 2
            records_of = wanted.attentions or wanted.patterns
            one = new_recorder()
            (one.attentions if wanted.attentions else one.patterns).append(records_of[layer])
            weights = one.weights()[seen.layer].float()
            torch.testing.assert_close(
                seen.weights * real, weights * real, rtol=1e-3, atol=1e-5, msg=records
            )
            visible = seen.visible.expand_as(weights)
            # Only keys that count are visible; with a window, no more than it holds.
            assert not bool((weights * real)[~visible].any())
            rows = visible.sum(-1)[mask[:, None].expand(2, 4, 13)]
            assert int(rows.max()) <= 13 and int(rows.min()) >= 1
    assert bridge.training
    scales = {seen.name: seen.input for seen in found.norms}
    assert len(found.streams) % 3 == 0 and scales


def test_windows_are_seen_in_the_weights(tiny_model, tokens, recorder) -> None:
    adapt(bridge_of(tiny_model("mistral"))).observe(tokens, recorder)
    for seen in recorder.patterns:
        rows = seen.visible.expand_as(seen.weights).sum(-1)
        wanted = torch.arange(1, 14).clamp_max(4)
        assert bool((rows == wanted).all())


@pytest.mark.parametrize("norm", ["LN", "RMS"])
def test_native_models(norm, tokens, recorder) -> None:
    bridge = TransformerBridge.boot_native(dict(normalization_type=norm, **NATIVE))
    adapter = adapt(bridge)
    assert adapter.placement == "pre" and adapter.max_length == 32
    assert adapter.description.positions_fixed
    assert all(place.centred == (norm == "LN") for place in adapter.layout.norms.values())
    with torch.no_grad():
        bridge.eval()
        plain, cache = bridge.run_with_cache(tokens)
    torch.testing.assert_close(adapter.observe(tokens, recorder), plain)
    assert len(recorder.patterns) == 2
    for seen in recorder.patterns:
        torch.testing.assert_close(seen.weights, cache[f"blocks.{seen.layer}.attn.hook_pattern"])
        # What it calls scores is the pattern after softmax: not passed on.
        assert seen.scores is None
    for seen in recorder.streams[:-1]:
        torch.testing.assert_close(seen.stream, cache[f"blocks.{seen.layer}.hook_resid_pre"])
    torch.testing.assert_close(recorder.streams[-1].stream, cache["blocks.1.hook_resid_post"])


def test_scores_are_passed_on_where_they_explain_the_weights(tiny_model, tokens, recorder) -> None:
    adapt(bridge_of(tiny_model("llama"))).observe(tokens, recorder)
    for seen in recorder.patterns:
        assert seen.scores is not None
        torch.testing.assert_close(torch.softmax(seen.scores, -1), seen.weights)
        assert bool((seen.scores == -torch.inf).eq(~seen.visible).all())


def test_patterns_that_need_the_eager_path(tiny_model, tokens, recorder) -> None:
    model = tiny_model("bert")
    bridge = bridge_of(model)
    adapter = adapt(bridge)
    assert adapter.observe(tokens, recorder).shape == (2, 13, 50)
    assert len(recorder.patterns) == 2
    assert {seen.stack for seen in recorder.patterns} == {"encoder"}
    assert bridge.original_model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("positions", ["none", "standard", "rotary", "alibi"])
@pytest.mark.parametrize("placement", ["none", "pre", "post", "res_post", "peri"])
def test_our_models_through_both_doors(placement, positions, tokens, new_recorder) -> None:
    cfg = TransformerConfig(
        d_vocab=50,
        n_layers=2,
        n_heads=4,
        d_model=16,
        n_ctx=32,
        attn_only=positions == "none",
        norm_placement=placement,
        normalization_type="LN" if positions == "alibi" else "RMS",
        final_norm=positions == "rotary",
        positional_embedding_type=positions,
        attention_dir="bidirectional" if positions == "standard" else "causal",
        init_range=0.4,
    )
    model = Transformer(cfg)
    own, hooks = adapt(model), adapt(HookPointAdapter(copy.deepcopy(model)))
    assert own.placement == hooks.placement == placement
    assert own.max_length == (32 if positions == "standard" else None)
    records, patterns = new_recorder(), new_recorder()
    with torch.no_grad():
        plain, cache = model.run_with_cache(tokens)
    close = dict(rtol=1e-3, atol=1e-3 * float(plain.abs().max()))
    torch.testing.assert_close(own.observe(tokens, records), plain, **close)
    torch.testing.assert_close(hooks.observe(tokens, patterns), plain, **close)
    for layer, weights in records.weights().items():
        wanted = cache[f"blocks.{layer}.attn.hook_pattern"]
        torch.testing.assert_close(weights.float(), wanted, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(patterns.weights()[layer].float(), wanted)
    assert [seen.stream.shape for seen in records.streams] == [(2, 13, 16)] * 3
    for seen in (*records.norms, *patterns.norms):
        wide = seen.input - seen.input.mean(-1, keepdim=True) if seen.centred else seen.input
        scale = (wide.square().mean(-1, keepdim=True) + seen.eps).sqrt()
        torch.testing.assert_close(scale, cache[f"{seen.name}.hook_scale"])
    assert model.blocks[0].attn.watcher is None


def test_our_fused_attention_is_replaced_but_hooks_still_fire(tokens, recorder) -> None:
    model = Transformer(TransformerConfig(d_vocab=50, n_heads=4, d_model=16))
    adapter = adapt(model)
    plain = adapter.run_plain(tokens)

    class Zero(type(recorder)):
        def attention(self, seen: Any) -> Tensor:
            return torch.zeros_like(seen.value)

    zeroed = adapter.observe(tokens, Zero())
    torch.testing.assert_close(zeroed, model.embed(tokens) @ model.W_U)
    fired = []
    model.blocks[0].attn.hook_pattern.add_hook(lambda pattern, hook: fired.append(pattern.shape))
    torch.testing.assert_close(adapter.observe(tokens, recorder), plain)
    assert fired == [(2, 4, 13, 13)] and len(recorder.attentions) == 1


class Tiny(nn.Module):
    """Somebody's model: hook points, their own names, no configuration."""

    def __init__(self, fires: bool = True, mask: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 8)
        block = {"attn": nn.ModuleDict({"qkv": nn.Linear(8, 24), "hook_pattern": HookPoint()})}
        block["norm"] = nn.LayerNorm(8)
        self.my_blocks = nn.ModuleList([nn.ModuleDict(block)])
        self.head = nn.Linear(8, 50)
        self.fires, self.masked = fires, mask

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.my_blocks:
            query, key, value = block["attn"]["qkv"](block["norm"](x)).chunk(3, -1)
            scores = query @ key.mT
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
            pattern = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)[:, None]
            if self.fires:
                pattern = block["attn"]["hook_pattern"](pattern)
            x = x + pattern[:, 0] @ value
        return self.head(x)


def test_a_module_with_hook_points(tokens, recorder) -> None:
    adapter = adapt(Tiny().train())
    assert adapter.description.n_heads == 1 and adapter.description.causal
    adapter.observe(tokens, recorder)
    (seen,) = recorder.patterns
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(2, 1, 13))
    assert bool(seen.visible.expand_as(seen.weights).eq(torch.ones(13, 13).tril().bool()).all())
    assert adapter.module.training
    assert not adapter.description.padding
    mask = torch.ones_like(tokens)
    mask[0, 0] = 0
    with pytest.raises(ValueError, match="not found to give the same outputs with padding"):
        adapter.observe(tokens, recorder, mask)


def test_hook_points_that_never_fire_are_refused() -> None:
    with pytest.raises(ValueError, match=r"declares my_blocks.0.attn.hook_pattern but it never"):
        adapt(Tiny(fires=False))


def test_a_module_without_hook_points_is_told_about_adapters() -> None:
    with pytest.raises(ValueError, match="through a small Adapter"):
        adapt(nn.Linear(3, 3))
