"""Every decomposition is right for its placement, or refused; patching runs."""

import pytest
import torch
from transformer_lens import patching

from resharpen.models import Transformer, TransformerCache, TransformerConfig
from resharpen.models.placements import PLACEMENTS

from .test_transformer import perturbed, tokens_for

ADDITIVE = [name for name, place in PLACEMENTS.items() if place.additive]
NORM_TYPES = ["LN", "LNPre", "RMS", "RMSPre"]


def model_of(placement: str, norm: str = "RMS", final_norm: bool = True, **rest) -> Transformer:
    values = dict(
        d_vocab=7,
        n_layers=2,
        n_heads=2,
        d_model=8,
        attn_only=False,
        biases=True,
        final_norm=final_norm,
    )
    return perturbed(
        TransformerConfig(norm_placement=placement, normalization_type=norm, **{**values, **rest})  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("norm", NORM_TYPES)
@pytest.mark.parametrize("placement", ADDITIVE)
def test_decompose_resid_sums_to_the_stream(placement: str, norm: str) -> None:
    model = model_of(placement, norm, positional_embedding_type="standard")
    _, cache = model.run_with_cache(tokens_for(model.cfg))
    assert isinstance(cache, TransformerCache)
    parts, labels = cache.decompose_resid(return_labels=True)
    assert labels == ["embed", "pos_embed", "0_attn_out", "0_mlp_out", "1_attn_out", "1_mlp_out"]
    torch.testing.assert_close(parts.sum(0), cache["resid_post", 1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", NORM_TYPES)
@pytest.mark.parametrize("placement", ADDITIVE)
def test_head_results_sum_to_attention(placement: str, norm: str) -> None:
    model = model_of(placement, norm, biases=False)
    _, cache = model.run_with_cache(tokens_for(model.cfg))
    results, labels = cache.stack_head_results(return_labels=True)
    assert labels == ["L0H0", "L0H1", "L1H0", "L1H1"]
    for layer in range(2):
        out = cache["attn_out", layer]
        norm_bias = getattr(model.blocks[layer].ln1_post, "b", None)
        if norm_bias is not None:
            out = out - norm_bias
        total = results[2 * layer : 2 * layer + 2].sum(0)
        torch.testing.assert_close(total, out, atol=1e-5, rtol=1e-5)
    first = cache.stack_head_results(layer=1, pos_slice=-1)
    torch.testing.assert_close(first, results[:2, :, -1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("placement", ADDITIVE)
def test_head_results_with_the_remainder_sum_to_the_stream(placement: str) -> None:
    model = model_of(placement, "LN")
    _, cache = model.run_with_cache(tokens_for(model.cfg))
    for layer in (1, 2):
        results = cache.stack_head_results(layer=layer, incl_remainder=True)
        torch.testing.assert_close(
            results.sum(0), cache["resid_post", layer - 1], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("final_norm", [False, True])
@pytest.mark.parametrize("norm", NORM_TYPES)
@pytest.mark.parametrize("placement", ADDITIVE)
def test_logit_attributions_sum_to_the_logits(placement: str, norm: str, final_norm: bool) -> None:
    model = model_of(placement, norm, final_norm)
    tokens = tokens_for(model.cfg)
    logits, cache = model.run_with_cache(tokens)
    parts = cache.decompose_resid()
    wanted = torch.full_like(tokens, 3)
    attributions = cache.logit_attrs(parts, wanted, incorrect_tokens=torch.full_like(tokens, 5))
    constant = model.b_U[3] - model.b_U[5]
    if model.ln_final is not None and model.ln_final.b is not None:
        constant = constant + (model.ln_final.b @ model.W_U)[[3, 5]] @ torch.tensor([1.0, -1.0])
    difference = logits[..., 3] - logits[..., 5]
    torch.testing.assert_close(attributions.sum(0) + constant, difference, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
def test_apply_ln_to_stack_is_what_the_next_layer_reads(placement: str) -> None:
    model = model_of(placement, "RMSPre")
    _, cache = model.run_with_cache(tokens_for(model.cfg))
    stream = cache["resid_pre", 1][None]
    read = cache.apply_ln_to_stack(stream, layer=1)[0]
    places = model.blocks[1].places
    expected = stream[0]
    if places.before:
        expected = cache["blocks.1.ln1.hook_normalized"] * places.input_factor
    torch.testing.assert_close(read, expected, atol=1e-5, rtol=1e-5)
    last = cache.apply_ln_to_stack(cache["resid_post", 1][None])[0]
    torch.testing.assert_close(last, cache["ln_final.hook_normalized"], atol=1e-5, rtol=1e-5)
    without = model_of(placement, "RMSPre", final_norm=False)
    _, cache = without.run_with_cache(tokens_for(model.cfg))
    stack = cache["resid_post", 1][None]
    assert torch.equal(cache.apply_ln_to_stack(stack), stack)


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
def test_accumulated_resid_is_the_stack_of_streams(placement: str) -> None:
    model = model_of(placement)
    _, cache = model.run_with_cache(tokens_for(model.cfg))
    streams, labels = cache.accumulated_resid(incl_mid=True, return_labels=True)
    assert labels == ["0_pre", "0_mid", "1_pre", "1_mid", "final_post"]
    assert torch.equal(streams[-1], cache["resid_post", 1])
    lens = cache.accumulated_resid(apply_ln=True)[-1] @ model.W_U + model.b_U
    torch.testing.assert_close(lens, model(tokens_for(model.cfg)), atol=2e-5, rtol=1e-4)


def test_full_decomposition_is_right_where_it_is_defined() -> None:
    for placement in ("none", "pre"):
        model = model_of(placement)
        _, cache = model.run_with_cache(tokens_for(model.cfg))
        total = cache.get_full_resid_decomposition(expand_neurons=True).sum(0)
        torch.testing.assert_close(total, cache["resid_post", 1], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("placement", "methods"),
    [
        (
            "post",
            [
                "decompose_resid",
                "stack_head_results",
                "get_full_resid_decomposition",
                "stack_neuron_results",
                "get_neuron_results",
            ],
        ),
        *(
            (
                placement,
                ["get_full_resid_decomposition", "stack_neuron_results", "get_neuron_results"],
            )
            for placement in ("res_post", "peri")
        ),
    ],
)
def test_decompositions_that_would_be_wrong_are_refused(placement: str, methods: list[str]) -> None:
    model = model_of(placement)
    _, cache = model.run_with_cache(tokens_for(model.cfg))
    for method in methods:
        with pytest.raises(
            NotImplementedError, match=f"{method} is not defined for norm_placement"
        ):
            getattr(cache, method)(1)
    assert cache.decompose_resid(0).shape[0] == 1


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
def test_patching_runs_and_patching_everything_restores_the_clean_run(
    placement: str,
) -> None:
    model = model_of(placement).eval()
    clean = tokens_for(model.cfg, batch=1, pos=4)
    corrupted = (clean + 1) % 7
    clean_logits, cache = model.run_with_cache(clean)

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return (logits[:, -1] - clean_logits[:, -1]).abs().sum()

    by_stream = patching.get_act_patch_resid_pre(model, corrupted, cache, metric)
    assert by_stream.shape == (2, 4)
    by_head = patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, metric)
    assert by_head.shape == (2, 2)
    by_pattern = patching.get_act_patch_attn_head_pattern_all_pos(model, corrupted, cache, metric)
    untouched = metric(model(corrupted)).item()
    assert (by_pattern - untouched).abs().max() > 1e-4
    restored = model.run_with_hooks(
        corrupted, fwd_hooks=[("blocks.0.hook_resid_pre", lambda x, hook: cache[hook.name])]
    )
    torch.testing.assert_close(restored, clean_logits, atol=1e-5, rtol=1e-5)


def test_tokens_without_a_tokenizer_are_refused() -> None:
    model = model_of("pre")
    with pytest.raises(TypeError, match="no tokenizer"):
        model.to_single_token("a")
