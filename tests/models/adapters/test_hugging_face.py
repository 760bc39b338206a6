import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from resharpen.models.adapters import adapt

TYPED = ("query", "key", "value")


def eager_run(model: Any, tokens: Tensor, mask: Tensor | None = None) -> Any:
    """The architecture's own eager path, with attentions and streams."""
    model = copy.deepcopy(model).eval()
    # Falcon cannot be told by set_attn_implementation, and under "sdpa" its attentions are wrong.
    model.config._attn_implementation = "eager"
    given: dict[str, Any] = {"input_ids": tokens}
    if mask is not None:
        given = {"input_ids": tokens.masked_fill(~mask, 0), "attention_mask": mask.long()}
        if type(model).__name__.startswith("Roberta"):
            given["input_ids"] = tokens.masked_fill(~mask, model.config.pad_token_id)
        elif "T5" not in type(model).__name__ and type(model).__name__ not in (
            "BloomForCausalLM",
            "MptForCausalLM",
        ):
            given["position_ids"] = (mask.long().cumsum(-1) - 1).clamp_min(0)
    with torch.no_grad():
        return model(**given, output_attentions=True, output_hidden_states=True)


def outputs_of(output: Any) -> Tensor:
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def test_weights_equal_the_eager_path_and_logits_stay(
    architecture, tiny_model, tokens, recorder
) -> None:
    model = tiny_model(architecture)
    reference = eager_run(model, tokens)
    with torch.no_grad():
        plain = outputs_of(model.eval()(tokens))
    adapter = adapt(model)
    observed = adapter.observe(tokens, recorder)
    # Seen through the model's own attention function, nothing moves by a single bit.
    bitwise = adapter.description.capture == "attention"
    torch.testing.assert_close(
        observed, plain, rtol=0 if bitwise else 1e-4, atol=0 if bitwise else 1e-5
    )
    found = recorder.weights()
    assert sorted(found) == list(range(adapter.description.n_layers))
    assert len(reference.attentions) == adapter.description.n_layers
    for layer, weights in enumerate(reference.attentions):
        torch.testing.assert_close(found[layer].float(), weights.float(), rtol=1e-4, atol=2e-6)
    # The test would say nothing if patterns were uniform.
    assert max(float(weights.max() - weights.median()) for weights in found.values()) > 0.1


def test_padding_gives_the_eager_rows_and_the_unpadded_rows(
    architecture, tiny_model, tokens, new_recorder
) -> None:
    model = tiny_model(architecture)
    adapter = adapt(model)
    assert adapter.description.padding
    alone, padded = new_recorder(), new_recorder()
    short = adapter.observe(tokens[1:, :9], alone)
    fed, mask = tokens.clone(), torch.ones_like(tokens, dtype=torch.bool)
    fed[1, 4:], mask[1, :4] = tokens[1, :9], False
    together = adapter.observe(fed, padded, mask)
    torch.testing.assert_close(together[1:, 4:], short, rtol=1e-3, atol=1e-4)
    reference = eager_run(model, fed, mask)
    found, apart = padded.weights(), alone.weights()
    for layer, weights in enumerate(reference.attentions):
        mine = found[layer].float()
        torch.testing.assert_close(
            mine[1, :, 4:, 4:], apart[layer][0].float(), rtol=1e-3, atol=1e-5
        )
        assert not bool(mine[1, :, 4:, :4].any()), "padding was seen"
        torch.testing.assert_close(mine[0], weights[0].float(), rtol=1e-4, atol=2e-6)
        torch.testing.assert_close(mine[1, :, 4:], weights[1, :, 4:].float(), rtol=1e-4, atol=2e-6)


def test_streams_and_norms_are_the_models_own(architecture, tiny_model, tokens, recorder) -> None:
    model = tiny_model(architecture)
    adapter = adapt(model)
    streams = eager_run(model, tokens).hidden_states
    adapter.observe(tokens, recorder)
    n_layers = adapter.description.n_layers
    assert [seen.layer for seen in recorder.streams] == list(range(n_layers + 1))
    assert recorder.streams[-1].name == "final"
    for seen in recorder.streams[:-1]:
        torch.testing.assert_close(seen.stream, streams[seen.layer], rtol=1e-4, atol=1e-5)
    modules = dict(model.named_modules())
    for seen in recorder.norms:
        norm = modules[seen.name]
        wide = seen.input.double()
        if seen.centred:
            wide = wide - wide.mean(-1, keepdim=True)
        scaled = wide / (wide.square().mean(-1, keepdim=True) + seen.eps).sqrt()
        with torch.no_grad():
            made = norm(seen.input).double()
        gain = made / scaled
        if getattr(norm, "bias", None) is None:
            # Without a bias, output over normalised input is the same gain in every row.
            shape = (-1, gain.shape[-1])
            spread = (gain - gain.mean(dim=(0, 1), keepdim=True)).abs().reshape(shape)
            steady = scaled.abs().reshape(shape) > 0.05
            assert float(spread[steady].max()) < 0.02


def test_placement_is_found(architecture, tiny_model, expected) -> None:
    placement, parallel = expected(architecture)
    adapter = adapt(tiny_model(architecture))
    assert (adapter.placement, adapter.parallel) == (placement, parallel)
    places = {name: place for name, place in adapter.layout.norms.items() if place.in_block}
    positions = {place.position for place in places.values()} - {"query_key"}
    wanted = {"pre": {"before"}, "post": {"stream"}, "res_post": {"after"}}
    assert positions == wanted.get(placement, {"before", "after"})
    for name, place in places.items():
        if place.position == "query_key":
            assert "q_" in name or "k_" in name or "query" in name or "key" in name
        elif "mlp" in name or "ffn" in name or "feedforward" in name or name.endswith(".ln_2"):
            assert place.sublayer == "mlp", name
        elif "input_layernorm" in name or name.endswith((".ln_1", "norm_1")):
            assert place.sublayer == "attention", name


def test_names_do_not_decide_where_a_norm_stands(tiny_model) -> None:
    same_name = "model.layers.0.post_attention_layernorm"
    llama = adapt(tiny_model("llama")).layout.norms[same_name]
    gemma = adapt(tiny_model("gemma2")).layout.norms[same_name]
    assert (llama.position, llama.sublayer) == ("before", "mlp")
    assert (gemma.position, gemma.sublayer) == ("after", "attention")


def test_norm_kinds_are_found_from_what_they_do(tiny_model) -> None:
    # T5's class is called LayerNorm and takes no mean off.
    t5 = adapt(tiny_model("t5_encoder")).layout.norms
    assert t5 and not any(place.centred for place in t5.values())
    assert all(place.eps == 1e-6 for place in t5.values())
    bert = adapt(tiny_model("bert")).layout.norms
    assert all(place.centred for place in bert.values())
    assert bert["bert.embeddings.LayerNorm"].position == "embedding"
    assert adapt(tiny_model("gpt2")).layout.norms["transformer.ln_f"].position == "final"


def test_the_model_is_left_as_it_was(architecture, tiny_model, tokens, recorder) -> None:
    model = tiny_model(architecture).train()
    next(model.children()).eval()
    modes = [part.training for part in model.modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    implementation = model.config._attn_implementation
    adapter = adapt(model)
    adapter.observe(tokens, recorder)

    class Fails(type(recorder)):
        def stream(self, seen: Any) -> None:
            if seen.layer == 1:
                raise KeyError("observer failed")

    with pytest.raises(KeyError, match="observer failed"):
        adapter.observe(tokens, Fails())
    assert [part.training for part in model.modules()] == modes
    assert model.config._attn_implementation == implementation
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "t5_encoder", "bert"])
def test_the_observers_output_takes_the_place_of_attention(name, tiny_model, tokens, recorder):
    adapter = adapt(tiny_model(name))
    plain = adapter.run_plain(tokens)

    class Gives(type(recorder)):
        shift = 0

        def attention(self, seen: Any) -> Tensor:
            super().attention(seen)
            repeat = seen.query.shape[1] // seen.value.shape[1]
            value = seen.value.repeat_interleave(repeat, dim=1)
            return (type(self)._weights(seen).float() @ value).roll(self.shift, dims=1)

        @staticmethod
        def _weights(seen: Any) -> Tensor:
            one = type(recorder)()
            one.attentions.append(seen)
            return one.weights()[seen.layer]

    observer = Gives()
    torch.testing.assert_close(adapter.observe(tokens, observer), plain, rtol=1e-3, atol=1e-4)
    observer.shift = 1  # every head gets its neighbour's output
    assert not torch.allclose(adapter.observe(tokens, observer), plain, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt_oss", "bert", "gpt_neox", "olmo2"])
def test_half_precision(name, dtype, tiny_model, expected, tokens, recorder) -> None:
    model = tiny_model(name).to(dtype)
    reference = eager_run(model, tokens)
    adapter = adapt(model)
    assert adapter.description.dtype == str(dtype).removeprefix("torch.")
    assert (adapter.placement, adapter.parallel) == expected(name)
    adapter.observe(tokens, recorder)
    assert all(getattr(seen, part).dtype == dtype for seen in recorder.attentions for part in TYPED)
    found = recorder.weights()
    first = reference.attentions[0]
    torch.testing.assert_close(found[0].float(), first.float(), rtol=0.05, atol=0.02)


def test_windows_are_two_numbers_and_no_array(tiny_model, tokens, new_recorder) -> None:
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1, :4] = False
    for name, window in (("mistral", 4), ("gemma3", 4), ("modernbert", (2, 2))):
        adapter = adapt(tiny_model(name))
        plain, padded, short = new_recorder(), new_recorder(), new_recorder()
        adapter.observe(tokens, plain)
        adapter.observe(tokens, padded, mask)
        adapter.observe(tokens[:, :3], short)
        local = [seen for seen in plain.attentions if seen.window is not None]
        assert local and all(seen.window == window and seen.mask is None for seen in local)
        assert all(seen.mask.shape == (2, 1, 1, 13) for seen in padded.attentions)
        # A window that reaches every key is none.
        assert all(seen.window is None for seen in short.attentions)


def test_packed_documents_give_the_rows_of_each_alone(tiny_model, tokens, new_recorder) -> None:
    for name in ("llama", "gpt2", "qwen3", "mistral", "gemma3"):
        adapter = adapt(tiny_model(name))
        assert adapter.description.packing, name
        packed, alone = new_recorder(), new_recorder()
        documents = torch.zeros_like(tokens)
        documents[:, 6:] = 1
        together = adapter.observe(tokens, packed, documents=documents)
        apart = adapter.observe(tokens[:, 6:], alone)
        torch.testing.assert_close(together[:, 6:], apart, rtol=1e-3, atol=1e-4)
        for layer, weights in alone.weights().items():
            mine = packed.weights()[layer][:, :, 6:]
            torch.testing.assert_close(mine[..., 6:], weights, rtol=1e-3, atol=1e-5)
            assert not bool(mine[..., :6].any())
    bert = adapt(tiny_model("bert"))
    assert not bert.description.packing
    with pytest.raises(ValueError, match="not found to keep packed documents apart"):
        bert.observe(tokens, new_recorder(), documents=documents)


def test_an_attention_function_that_does_something_else_is_refused(tiny_model) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def sharper(module: Any, query: Tensor, *args: Any, **kwargs: Any) -> Any:
        return sdpa_attention_forward(module, query * 1.2, *args, **kwargs)

    AttentionInterface.register("sharper", sharper)
    AttentionMaskInterface.register("sharper", sdpa_mask)
    model = tiny_model("llama")
    model.set_attn_implementation("sharper")
    with pytest.raises(ValueError, match="computes its attention in a way"):
        adapt(model)
    assert model.config._attn_implementation == "sharper"


def test_a_custom_mask_is_taken_as_it_is(tiny_model, tokens, recorder) -> None:
    # Gemma 3 as an embedding model: bidirectional, with a window on both sides in some layers.
    model = tiny_model("gemma3", use_bidirectional_attention=True)
    adapter = adapt(model)
    assert adapter.description.causal is False
    adapter.observe(tokens, recorder)
    reference = eager_run(model, tokens)
    for layer, weights in enumerate(reference.attentions):
        torch.testing.assert_close(recorder.weights()[layer].float(), weights, rtol=1e-4, atol=2e-6)


def test_lengths_past_the_positions(tiny_model, recorder) -> None:
    long = torch.full((1, 65), 7)
    llama = adapt(tiny_model("llama"))
    assert llama.max_length == 64 and not llama.description.positions_fixed
    with pytest.raises(ValueError, match="65 positions, but the model was made for at most 64"):
        llama.observe(long, recorder)
    assert llama.observe(long, recorder, past_positions=True).shape == (1, 65, 50)
    gpt2 = adapt(tiny_model("gpt2"))
    with pytest.raises(ValueError, match="65 positions, but the model has learned 64"):
        gpt2.observe(long, recorder, past_positions=True)
    # RoBERTa counts from the padding token's id: two of its 64 positions are never used.
    roberta = adapt(tiny_model("roberta", pad_token_id=1, bos_token_id=0))
    assert roberta.max_length == 62
    assert roberta.observe(long[:, :62], recorder).shape[1] == 62
    assert adapt(tiny_model("t5_encoder")).max_length is None


def test_only_the_last_position(tiny_model, tokens, recorder) -> None:
    for name in ("llama", "bert", "t5_encoder", "bloom"):
        adapter = adapt(tiny_model(name))
        last = adapter.observe(tokens, recorder, last_only=True)
        torch.testing.assert_close(last, adapter.run_plain(tokens)[:, -1:])


def test_the_encoder_of_an_encoder_decoder(tokens, recorder) -> None:
    import transformers

    sizes = dict(d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, vocab_size=50)
    full = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    adapter = adapt(full)
    assert "Only the encoder of T5ForConditionalGeneration is seen." in adapter.description.notes
    assert adapter.observe(tokens, recorder).shape == (2, 13, 16)
    assert {seen.stack for seen in recorder.attentions} == {"encoder"}


def test_description(tiny_model) -> None:
    facts = adapt(tiny_model("llama")).description
    assert (facts.n_layers, facts.n_heads, facts.n_kv_heads, facts.d_model) == (2, 4, 2, 16)
    assert (facts.d_vocab, facts.causal, facts.bos_token, facts.pad_token) == (50, True, 1, 0)
    assert facts.capture == "attention" and facts.notes == ()
    again = adapt(tiny_model("llama")).description
    assert facts.digest == again.digest and len(facts.digest) == 64
    other = tiny_model("llama")
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1e-3
    assert adapt(other).description.digest != facts.digest
    bloom = adapt(tiny_model("bloom")).description
    assert bloom.capture == "pattern" and "attention interface" in bloom.notes[0]


def test_weights_kept_elsewhere(tiny_model, tokens, new_recorder) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = tiny_model("llama")
    wanted, found = new_recorder(), new_recorder()
    plain = adapt(model).observe(tokens, wanted)
    offloaded = accelerate.cpu_offload(tiny_model("llama"), execution_device=torch.device("cpu"))
    adapter = adapt(offloaded)
    assert adapter.description.digest is None, "weights that are not there cannot be hashed"
    torch.testing.assert_close(adapter.observe(tokens, found), plain)
    for layer, weights in wanted.weights().items():
        torch.testing.assert_close(found.weights()[layer], weights)


def test_inputs_are_checked(tiny_model, tokens, recorder) -> None:
    adapter = adapt(tiny_model("llama"))
    mask = torch.ones_like(tokens)
    with pytest.raises(TypeError, match="integer tensor"):
        adapter.observe(tokens.float(), recorder)
    with pytest.raises(ValueError, match=r"shape \[batch, pos\]"):
        adapter.observe(tokens[0], recorder)
    with pytest.raises(ValueError, match=r"0\.\.49"):
        adapter.observe(tokens + 40, recorder)
    with pytest.raises(ValueError, match="tokens' shape"):
        adapter.observe(tokens, recorder, mask[:, 1:])
    with pytest.raises(TypeError, match="bool or integer"):
        adapter.observe(tokens, recorder, mask.float())
    mask[0] = 0
    with pytest.raises(ValueError, match="hides a whole sequence"):
        adapter.observe(tokens, recorder, mask)
    mask[0], mask[0, 5] = 1, 0
    with pytest.raises(ValueError, match="gap"):
        adapter.observe(tokens, recorder, mask)


def test_a_model_cannot_be_observed_twice_at_once(tiny_model, tokens, recorder) -> None:
    adapter = adapt(tiny_model("llama"))

    class Nested(type(recorder)):
        def attention(self, seen: Any) -> None:
            adapter.observe(tokens, recorder)

    with pytest.raises(ValueError, match="already being observed"):
        adapter.observe(tokens, Nested())
    assert adapter.observe(tokens, recorder).shape == (2, 13, 50)


def test_architectures_that_cannot_be_seen_are_refused() -> None:
    import transformers

    mamba = transformers.MambaConfig(
        hidden_size=16, num_hidden_layers=2, vocab_size=50, state_size=4
    )
    with pytest.raises(ValueError, match="neither calls transformers' attention interface nor"):
        adapt(transformers.MambaForCausalLM(mamba))
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32)
    with pytest.raises(ValueError, match="takes no tokens"):
        adapt(transformers.ViTModel(transformers.ViTConfig(**sizes)))


def test_layers_without_attention_are_said(tokens, recorder) -> None:
    import transformers

    model = transformers.Qwen3NextForCausalLM(
        transformers.Qwen3NextConfig(
            layer_types=["linear_attention", "full_attention"], **TINY_HYBRID
        )
    )
    adapter = adapt(model)
    adapter.observe(tokens, recorder)
    assert [seen.layer for seen in recorder.attentions] == [1]
    assert any("1 of 2 blocks have softmax attention" in note for note in adapter.description.notes)


TINY_HYBRID = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=32,
    moe_intermediate_size=8,
    shared_expert_intermediate_size=8,
    num_experts=4,
    num_experts_per_tok=2,
    linear_num_value_heads=2,
    linear_num_key_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    vocab_size=50,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
)
