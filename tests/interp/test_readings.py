"""What readers make of activations: the last rows, their visible keys, and nothing larger."""

import pytest
import torch

from resharpen.interp.capturing import capture
from resharpen.interp.measures import MEASURES, entropy, max_weight, score_spread
from resharpen.interp.readings import reads_site, site_readers
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.sites import list_sites

SCORES, PATTERN = "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern"
ALL = list(MEASURES.values())


def make(**change):
    config = {"d_vocab": 9, "n_layers": 2, "n_heads": 2, "d_model": 8, "norm_placement": "peri"}
    return Transformer(TransformerConfig(**{**config, **change}), seed=2)


def tokens_of(batch, pos, seed=0):
    return torch.randint(0, 9, (batch, pos), generator=torch.Generator().manual_seed(seed))


def read(model, tokens, **options):
    return capture(model, tokens, site_readers(list_sites(model), ALL, **options)).values


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize("with_scores", [True, False])
def test_last_rows_equal_the_cached_pattern(direction, with_scores):
    model, tokens = make(attention_dir=direction), tokens_of(3, 7)
    _, cache = model.run_with_cache(tokens)
    sites = [s for s in list_sites(model) if with_scores or s.kind != "scores"]
    readers = site_readers(sites, ALL, n_queries=3, causal=direction == "causal")
    found = capture(model, tokens, readers).values
    reading = found[PATTERN]
    keys = [5, 6, 7] if direction == "causal" else [7, 7, 7]
    assert reading.n_key.tolist() == [[keys] * 2] * 3
    rows = cache[PATTERN][:, :, -3:]
    torch.testing.assert_close(reading.values["entropy"], entropy(rows))
    torch.testing.assert_close(reading.values["max_weight"], max_weight(rows))
    if with_scores:
        rows = cache[SCORES][:, :, -3:]
        torch.testing.assert_close(
            found[SCORES].values["score_spread"], score_spread(rows, rows.isfinite())
        )


def test_vectors_are_those_of_the_last_positions():
    model, tokens = make(), tokens_of(3, 6)
    _, cache = model.run_with_cache(tokens)
    found = read(model, tokens, n_queries=2)
    stream = cache["blocks.1.hook_resid_post"]
    torch.testing.assert_close(
        found["blocks.1.hook_resid_post"].values["residual_norm"], stream[:, -2:].norm(dim=-1)
    )
    torch.testing.assert_close(
        found["blocks.0.ln1.hook_scale"].values["norm_scale"],
        cache["blocks.0.ln1.hook_scale"][:, -2:, 0],
    )
    torch.testing.assert_close(
        found["blocks.0.hook_attn_out"].vectors["output_variance"],
        cache["blocks.0.hook_attn_out"][:, -1],
    )


def test_nothing_of_the_size_of_a_pattern_or_stream_is_kept():
    model, (batch, pos) = make(), (4, 64)
    alone = {s.name: torch.ones(batch, 1, 1) for s in list_sites(model, "norm_scale")}
    relevant = torch.ones(batch, 1, pos, dtype=torch.bool)
    found = read(model, tokens_of(batch, pos), scale_alone=alone, relevant=relevant)
    kept = [
        tensor
        for reading in found.values()
        for tensor in [*reading.values.values(), *reading.vectors.values(), reading.n_key]
        if tensor is not None
    ]
    assert len(kept) > 40
    # batch x head x 1 numbers of 8 bytes, or batch x d_model of 4: below one row of the stream.
    assert max(tensor.untyped_storage().nbytes() for tensor in kept) <= batch * 8 * 4


def test_the_mask_of_a_layer_is_dropped_once_its_pattern_was_read():
    model = make()
    readers = site_readers(list_sites(model), ALL)
    capture(model, tokens_of(2, 5), readers)
    held = {
        name: cell.cell_contents
        for name, reader in readers.items()
        for variable, cell in zip(reader.__code__.co_freevars, reader.__closure__, strict=True)
        if variable == "visible"
    }
    assert SCORES in held
    assert all(mask == {} for mask in held.values())


def test_a_measure_is_skipped_where_an_array_is_missing():
    found = read(make(), tokens_of(2, 5))
    quantities = {name for reading in found.values() for name in reading.values}
    assert "entropy" in quantities
    assert "norm_scale" in quantities
    assert quantities.isdisjoint({"relevant_mass", "irrelevant_mass", "rescale_gain"})


def test_relevant_keys_and_scales_alone_are_used():
    model, tokens = make(), tokens_of(2, 5)
    alone = {"blocks.0.ln1_post.hook_scale": torch.full((2, 1, 1), 3.0)}
    relevant = torch.tensor([True, False, False, False, True]).expand(2, 1, 5)
    found = read(model, tokens, relevant=relevant, scale_alone=alone)
    _, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(
        found[PATTERN].values["relevant_mass"][..., 0], cache[PATTERN][:, :, -1, [0, 4]].sum(-1)
    )
    torch.testing.assert_close(
        found["blocks.0.ln1_post.hook_scale"].values["rescale_gain"],
        3.0 / cache["blocks.0.ln1_post.hook_scale"][:, -1:, 0],
    )
    assert "rescale_gain" not in found["blocks.0.ln1.hook_scale"].values


def test_only_sites_that_a_measure_reads_are_hooked():
    model = make()
    sites = list_sites(model)
    assert set(site_readers(sites, [MEASURES["norm_scale"]])) == {
        site.name for site in sites if site.kind == "norm_scale"
    }
    # The scores come along for the visible keys.
    assert set(site_readers(sites, [MEASURES["entropy"]])) == {
        site.name for site in sites if site.kind in ("scores", "pattern")
    }
    variance = [s.name for s in sites if reads_site(MEASURES["output_variance"], s)]
    assert variance == ["blocks.0.hook_attn_out", "blocks.1.hook_attn_out"]


def test_bad_numbers_of_queries_are_refused():
    model = make()
    with pytest.raises(ValueError, match="n_queries must be 1 or more"):
        site_readers(list_sites(model), ALL, n_queries=0)
    with pytest.raises(ValueError, match="6 query rows were asked for, but the input has 5"):
        read(model, tokens_of(2, 5), n_queries=6)
