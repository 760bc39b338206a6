"""Frozen scales: the reference is the token alone, and what the norms restore is exact."""

import pytest
import torch

from resharpen.interp.capturing import capture
from resharpen.interp.frozen import alone_scales, frozen_logits, frozen_scale_hooks
from resharpen.interp.measures import displacement
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.sites import list_sites

TOKENS = torch.tensor([[3, 1, 4, 0], [2, 0, 1, 3], [4, 2, 3, 1]])
NORM_TYPES = ["RMS", "RMSPre", "LN", "LNPre"]


def make(placement, **change):
    config = {"d_vocab": 7, "d_model": 8, "n_heads": 2, "norm_placement": placement, **change}
    model = Transformer(TransformerConfig(**config), seed=5).double()
    with torch.no_grad():  # gains and biases that differ from their defaults
        for name, parameter in model.named_parameters():
            if name.endswith((".w", ".b")):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def scale_names(model):
    return [site.name for site in list_sites(model, "norm_scale")]


@pytest.mark.parametrize("placement", ["pre", "post", "res_post", "peri"])
@pytest.mark.parametrize("normalization_type", NORM_TYPES)
def test_alone_scales_are_those_of_inputs_of_length_one(placement, normalization_type):
    model = make(placement, normalization_type=normalization_type, n_layers=2, attn_only=False)
    alone = alone_scales(model, TOKENS)
    assert alone.tokens.tolist() == [0, 1, 2, 3, 4]
    assert set(alone.scales) == set(scale_names(model))
    for token in range(5):
        _, cache = model.run_with_cache(torch.tensor([[token]]))
        for name in scale_names(model):
            got = alone.at(name, torch.tensor([[token]]))
            torch.testing.assert_close(got, cache[name])


def test_with_a_beginning_of_sequence_token_the_token_stands_after_it():
    model, bos = make("post"), 6
    alone = alone_scales(model, torch.tensor([[bos, 2, 0]]), bos)
    name = "blocks.0.ln1_resid.hook_scale"
    _, cache = model.run_with_cache(torch.tensor([[bos, 2], [bos, 0]]))
    expected = torch.stack([cache[name][0, 0], cache[name][0, 1], cache[name][1, 1]])
    torch.testing.assert_close(alone.at(name, torch.tensor([bos, 2, 0])), expected)


def test_a_bidirectional_model_does_not_look_from_bos_at_the_token():
    model, bos = make("post", attention_dir="bidirectional"), 6
    alone = alone_scales(model, torch.tensor([[bos, 2]]), bos)
    name = "blocks.0.ln1_resid.hook_scale"
    _, cache = model.run_with_cache(torch.tensor([[bos]]))
    torch.testing.assert_close(alone.at(name, torch.tensor([bos])), cache[name][0])


def test_each_distinct_token_is_run_once():
    model = make("post")
    batches = []
    model.add_hook("hook_embed", lambda x, hook: batches.append(tuple(x.shape[:2])))
    alone_scales(model, TOKENS.repeat(10, 1))
    assert batches == [(5, 1)]


def test_only_the_norms_that_are_named_are_measured():
    model = make("peri")
    name = "blocks.0.ln1_post.hook_scale"
    some = alone_scales(model, TOKENS, norms=[name])
    assert list(some.scales) == [name]
    torch.testing.assert_close(some.scales[name], alone_scales(model, TOKENS).scales[name])
    with pytest.raises(ValueError, match=r"no hook point 'ln_final.hook_scale'"):
        alone_scales(model, TOKENS, norms=["ln_final.hook_scale"])


@pytest.mark.parametrize("placement", ["pre", "post", "res_post", "peri"])
@pytest.mark.parametrize("normalization_type", NORM_TYPES)
def test_the_frozen_scale_is_what_the_norm_divides_by(placement, normalization_type):
    model = make(placement, normalization_type=normalization_type, final_norm=True)
    alone = alone_scales(model, TOKENS)
    names = scale_names(model)
    found = capture(
        model,
        TOKENS,
        {name: torch.Tensor.clone for name in names},
        edits=frozen_scale_hooks(alone, TOKENS),
    )
    for name in names:
        torch.testing.assert_close(found.values[name], alone.at(name, TOKENS))
    torch.testing.assert_close(found.logits, frozen_logits(model, TOKENS))


@pytest.mark.parametrize("normalization_type", ["RMS", "RMSPre"])
def test_one_block_post_norm_restores_exactly_the_ratio_of_scales(normalization_type):
    model = make("post", normalization_type=normalization_type)
    name = "blocks.0.ln1_resid.hook_scale"
    found = capture(model, TOKENS, {name: lambda scale: scale[:, -1, 0].clone()})
    alone = alone_scales(model, TOKENS)
    frozen = frozen_logits(model, TOKENS, alone=alone)
    gain = alone.at(name, TOKENS[:, -1])[:, 0] / found.values[name]
    present = torch.zeros(3, 7, dtype=torch.bool).scatter_(1, TOKENS, True)
    ratio = displacement(found.logits[:, -1], present) / displacement(frozen[:, -1], present)
    torch.testing.assert_close(ratio, gain, rtol=1e-12, atol=0)
    assert float((gain - 1).abs().min()) > 1e-3  # the test would pass on a norm that does nothing
    torch.testing.assert_close(found.logits[:, -1], frozen[:, -1] * gain[:, None])


def test_at_length_one_nothing_is_frozen():
    model = make("peri", final_norm=True)
    tokens = torch.arange(5)[:, None]
    torch.testing.assert_close(frozen_logits(model, tokens), model(tokens))


def test_a_model_without_norms_has_no_hooks_and_the_same_logits():
    model = make("none")
    alone = alone_scales(model, TOKENS)
    assert alone.scales == {}
    assert frozen_scale_hooks(alone, TOKENS) == []
    torch.testing.assert_close(frozen_logits(model, TOKENS), model(TOKENS))


def test_the_model_is_left_as_it_was():
    model = make("post").train()
    frozen_logits(model, TOKENS)
    assert model.training
    assert not any(point._forward_hooks for point in model.hook_dict.values())


def test_what_was_not_measured_is_refused():
    model = make("post")
    alone = alone_scales(model, TOKENS)
    with pytest.raises(ValueError, match="token 6 was not among those measured alone"):
        frozen_scale_hooks(alone, torch.tensor([[3, 6]]))
    with pytest.raises(ValueError, match=r"no scale was measured at 'ln_final.hook_scale'"):
        alone.at("ln_final.hook_scale", TOKENS)
    with pytest.raises(ValueError, match="no tokens to measure"):
        alone_scales(model, TOKENS[:0])
    with pytest.raises(ValueError, match=r"has shape \[3, 4, 1\], but .* has \[3, 3, 1\]"):
        capture(model, TOKENS, {}, edits=frozen_scale_hooks(alone, TOKENS[:, :3]))
