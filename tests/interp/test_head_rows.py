"""Whole rows of one head: what they give is what the model's own attention gives."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from resharpen.interp.drawing import length_generator
from resharpen.interp.head_rows import HeadObserver, read_head_rows
from resharpen.models import Transformer, TransformerConfig, adapt
from resharpen.models.observed import AttentionSeen, PatternSeen
from resharpen.models.probes import RandomTokens, Repeated

SHAPE: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "d_vocab": 20}


def own(**more: Any) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**{**SHAPE, "n_ctx": 32, **more}))
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.mul_(40.0)
    return model.eval()


@pytest.mark.parametrize("more", [{}, {"attention_dir": "bidirectional"}, {"normalizer": "log_n"}])
def test_weights_times_values_are_the_models_own_output(more: dict[str, Any]) -> None:
    model, probe = own(**more), RandomTokens(20)
    tokens = probe.sample(length_generator(3, 16), 5, 16).tokens
    _, cache = model.run_with_cache(tokens)
    causal = "attention_dir" not in more
    n_key = (4, 16) if causal else (16,)
    parts = list(
        read_head_rows(adapt(model), probe, 16, n_key, 1, 1, n_sequences=5, seed=3, batch_tokens=32)
    )
    assert [len(part.scores) for part in parts] == [2, 2, 1]
    weights = torch.cat([part.weights for part in parts])
    values = torch.cat([part.values for part in parts if part.values is not None])
    expected = cache["blocks.1.attn.hook_z"][:, [n - 1 for n in n_key], 1]
    torch.testing.assert_close((weights @ values).float(), expected, rtol=1e-4, atol=1e-5)
    visible = torch.cat([part.visible for part in parts])
    assert visible.sum(-1).tolist() == [list(n_key)] * 5
    assert parts[0].site == ("decoder.1.attn" if causal else "encoder.1.attn")


def test_grouped_keys_and_a_window_are_read_as_the_model_has_them() -> None:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 20}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 6}
    config = MistralConfig(**shape, **heads, max_position_embeddings=64, initializer_range=0.5)
    model = MistralForCausalLM(config).eval()
    probe, head = RandomTokens(20), 3
    tokens = probe.sample(length_generator(0, 16), 3, 16).tokens
    (part,) = read_head_rows(adapt(model), probe, 16, (4, 16), 0, head, n_sequences=3)
    assert part.visible.sum(-1).tolist() == [[4, 6]] * 3
    kept: dict[str, torch.Tensor] = {}
    attention = model.model.layers[0].self_attn
    handle = attention.o_proj.register_forward_pre_hook(
        lambda module, given: kept.update(z=given[0])
    )
    with torch.no_grad():
        model(tokens)
    handle.remove()
    expected = kept["z"].unflatten(-1, (4, 4))[:, [3, 15], head]
    assert part.values is not None
    torch.testing.assert_close((part.weights @ part.values).float(), expected)


def test_last_query_is_read_where_no_number_of_keys_is_named() -> None:
    model, probe = own(), Repeated(20)
    (part,) = read_head_rows(adapt(model), probe, 16, (), 0, 0, n_sequences=2)
    assert part.scores.shape[1] == 1 and int(part.visible.sum(-1).max()) == part.scores.shape[-1]


def observer(**more: Any) -> HeadObserver:
    return HeadObserver(0, 1, (2, 3), torch.ones(2, 4, dtype=torch.bool), **more)


def test_a_pattern_gives_its_scores_and_no_values() -> None:
    scores = torch.randn(2, 2, 4, 4).masked_fill(~torch.ones(4, 4).tril().bool(), -torch.inf)
    visible = (scores > -torch.inf)[:, :1]
    watching = observer()
    watching.pattern(PatternSeen(0, scores.softmax(-1), visible, scores))
    assert watching.rows is not None and watching.rows.values is None
    torch.testing.assert_close(watching.rows.weights.float(), scores.softmax(-1)[:, 1, 2:])
    with pytest.raises(ValueError, match="without the scores behind them"):
        observer().pattern(PatternSeen(0, scores.softmax(-1), visible))


def test_padding_hides_every_key_and_other_layers_and_stacks_are_let_be() -> None:
    query = torch.randn(2, 2, 4, 3)
    shown = torch.ones(2, 4, dtype=torch.bool)
    shown[1, 3] = False
    watching = HeadObserver(0, 1, (2, 3), shown)
    for layer, stack in ((1, "decoder"), (0, "encoder"), (0, "cross")):
        watching.attention(AttentionSeen(layer, query, query, query, 1.0, True, stack=stack))
    assert watching.rows is not None and watching.rows.site == "encoder.0.attn"
    assert watching.rows.visible.any(-1).tolist() == [[True, True], [True, False]]
    assert not watching.rows.weights.isnan().any()
    np.testing.assert_array_equal(watching.rows.weights[1, 1], np.zeros(4))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layer": 2}, "showed no attention; the model has 2 layers"),
        ({"head": 2}, "heads 0 to 1; asked for 2"),
        ({"n_key": (40,)}, "no query sees 40 tokens; the most that one sees is 16"),
        ({"n_sequences": 0}, "n_sequences must be a whole number"),
        ({"batch_tokens": True}, "batch_tokens must be a whole number"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"n_key": (), "layer": 0, "head": 0, "n_sequences": 2, **change}
    place = [given.pop(name) for name in ("n_key", "layer", "head")]
    with pytest.raises(ValueError, match=sentence):
        list(read_head_rows(adapt(own()), RandomTokens(20), 16, *place, **given))


def test_a_hugging_face_model_gives_the_same_rows_whatever_the_batch() -> None:
    torch.manual_seed(0)
    shape = {"n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 20, "n_positions": 32}
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    model = GPT2LMHeadModel(GPT2Config(**shape, **tokens, initializer_range=0.4)).eval()
    found = [
        torch.cat(
            [
                part.scores
                for part in read_head_rows(
                    adapt(model), RandomTokens(20), 16, (8,), 0, 1, n_sequences=4, batch_tokens=size
                )
            ]
        )
        for size in (16, 1000)
    ]
    torch.testing.assert_close(*found)
