"""The explorer's arrays: an audit's numbers, a profile's what-ifs, whole patterns, payloads."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from resharpen.analyses.adapted import audit_adapted
from resharpen.analyses.exploring import WhatIfSetting, open_explorer
from resharpen.analyses.exploring.watching import HeadWatch
from resharpen.analyses.figures.explorer import MAP, explorer_data, explorer_layout, plot_explorer
from resharpen.analyses.fits import fit_slope
from resharpen.analyses.head_ladders import read_heads
from resharpen.analyses.rows import over, pick
from resharpen.interp.drawing import length_generator
from resharpen.interp.profiling import profile
from resharpen.interp.profiling.observing import ProfileObserver
from resharpen.interp.profiling.places import find_positions
from resharpen.interp.remedies import NormGain, Remedy
from resharpen.models import Transformer, TransformerConfig, load_checkpoint
from resharpen.models.adapters import adapt

LENGTHS = (8, 16, 31)


def small_model(seed=0, **settings):
    """Two layers of two heads with norms on the stream and after attention."""
    torch.manual_seed(seed)
    given = {"n_layers": 2, "n_heads": 2, "d_model": 32, "d_head": 16, "norm_placement": "peri"}
    return Transformer(TransformerConfig(d_vocab=160, **{**given, **settings})).eval()


@pytest.fixture(scope="module")
def shipped():
    return open_explorer("set-complement-post", lengths=LENGTHS, n_sequences=16)


@pytest.fixture(scope="module")
def nested():
    """A model on the probe whose longest length gives all the others."""
    return open_explorer(small_model(), probe="repeated", lengths=(32, 64, 300), n_sequences=3)


def test_the_numbers_are_those_of_an_audit(shipped):
    audited = audit_adapted("set-complement-post", lengths=LENGTHS, n_sequences=16)
    view, head_map = shipped.view(0, 0, 16)
    (head,) = read_heads(audited.profile.table)
    for quantity in ("entropy", "max_weight", "score_spread", "normalised_entropy"):
        for field in ("n_key", "mean", "half", "max"):
            np.testing.assert_array_equal(
                getattr(view.measured[quantity], field), getattr(head[quantity], field)
            )
    assert view.described == audited.classes[0]
    assert head_map.values.tolist() == [[audited.classes[0].slope.value]]
    rows = pick(audited.profile.table, quantity="norm_scale", site="blocks.0.ln1_resid")
    np.testing.assert_array_equal(view.norms[0].scale, over(rows, "n_key").to_numpy())
    accuracy = over(pick(audited.profile.table, quantity="accuracy"), "n_key")
    assert view.output["accuracy"] == accuracy.iloc[-1]


SETTINGS = [
    WhatIfSetting(temperature=1.7),
    WhatIfSetting(norm_gain=2.5, everywhere=True),
    WhatIfSetting(temperature=0.6, norm_gain=0.5),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=["temperature", "gain everywhere", "both"])
@pytest.mark.parametrize("which", ["shipped", "nested"])
def test_a_what_if_is_the_profile_with_the_same_remedy(which, setting, request):
    state = request.getfixturevalue(which)
    layer, head = (0, 0) if which == "shipped" else (1, 1)
    heads = None if setting.everywhere else {(layer, head)}
    remedy = None
    if setting.temperature != 1:
        remedy = Remedy("temperature", strength=setting.temperature, heads=heads)
    gain = NormGain(setting.norm_gain, None if heads is None else frozenset({layer}))
    with gain.applied(state.adapter):
        told = profile(
            state.adapter, state.probe, state.lengths, n_sequences=state.n_sequences, remedy=remedy
        )
    view, head_map = state.view(layer, head, state.lengths[0], setting, by="normalised_entropy")
    every = {(item.layer, item.head): item for item in read_heads(told.table)}
    expected = every[layer, head]
    for quantity in ("entropy", "normalised_entropy", "max_weight", "score_spread"):
        found, wanted = view.changed[quantity], expected[quantity]
        np.testing.assert_array_equal(found.n_key, wanted.n_key)
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-9)
        np.testing.assert_allclose(found.max, wanted.max, rtol=1e-9)
    assert view.changed_norms
    for norm in view.changed_norms:
        rows = over(pick(told.table, quantity="norm_scale", site=norm.name), "n_key")
        np.testing.assert_allclose(norm.scale, rows.to_numpy(), rtol=1e-9)
    loss = over(pick(told.table, quantity="loss"), "n_key")
    assert view.changed_output["loss"] == pytest.approx(loss.iloc[-1], rel=1e-9)
    assert view.changed_output["loss"] != view.output["loss"]
    for (row, column), item in every.items():
        ladder = item["normalised_entropy"]
        nearest = np.abs(np.log(ladder.n_key / state.lengths[0])).argmin()
        assert head_map.values[row, column] == pytest.approx(ladder.mean[nearest], rel=1e-9)
    slopes = state.view(layer, head, None, setting)[1]
    assert slopes.values[layer, head] == pytest.approx(
        fit_slope(expected["entropy"].n_key, expected["entropy"].mean).value, rel=1e-9
    )


def test_nothing_is_left_changed(shipped):
    before = shipped.view(0, 0, 16)[0]
    shipped.view(0, 0, 16, WhatIfSetting(3.0, 3.0))
    after = shipped.adapter.run_plain(shipped._sequences(16).batch.tokens)
    plain = adapt(load_checkpoint("set-complement-post")).run_plain(
        shipped._sequences(16).batch.tokens
    )
    assert torch.equal(after, plain)
    assert shipped.view(0, 0, 16)[0].words == before.words == ""


def test_an_interrupt_leaves_the_model_as_it_was(shipped, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(HeadWatch, "norm", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shipped.view(0, 0, 8, WhatIfSetting(2.0, 2.0))
    module = shipped.adapter.module
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert all(block.attn.watcher is None for block in module.blocks)
    assert shipped.view(0, 0, 8, WhatIfSetting(2.0, 2.0))[0].words


def test_one_pass_sees_what_each_view_sees(nested):
    for index, seen in nested.look(64, 16).items():
        view, _ = nested.view(nested.row_of(index), nested.classes[index].head, 64)
        whole = view.seen.weights.reshape(16, 4, 16, 4)
        assert seen.block == 4
        np.testing.assert_allclose(seen.weights, whole.mean((1, 3)), rtol=1e-12)
        np.testing.assert_array_equal(seen.scores, view.seen.scores)


def test_the_weights_are_the_models_own(shipped):
    tokens, weights = shipped.weights(0, 0, 16)
    _, cache = load_checkpoint("set-complement-post").model().run_with_cache(tokens[None])
    own = cache["blocks.0.attn.hook_pattern"][0, 0].detach().numpy()
    np.testing.assert_allclose(weights, own, atol=1e-6)
    view, _ = shipped.view(0, 0, 16)
    np.testing.assert_allclose(view.seen.weights, own, atol=1e-6)
    shown = shipped._sequences(16).batch.tokens[:16]
    _, cache = load_checkpoint("set-complement-post").model().run_with_cache(shown)
    scores = cache["blocks.0.attn.hook_attn_scores"][:, 0, -1].detach()
    expected = (scores - scores.mean(-1, keepdim=True)).flatten().numpy()
    np.testing.assert_allclose(view.seen.scores, expected, atol=1e-5)


def test_long_patterns_are_means_over_blocks(nested):
    view, head_map = nested.view(1, 0, 300)
    _, whole = nested.weights(1, 0, 300)
    assert whole.shape == (300, 300) and view.seen.block == 2
    brute = [
        [whole[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].mean() for column in range(150)]
        for row in range(150)
    ]
    np.testing.assert_allclose(view.seen.weights, brute, rtol=1e-12)
    assert view.levels.dtype == np.uint8 and view.levels.shape == (150, 150)
    figure = plot_explorer(view, head_map, "small")
    assert len(figure.to_json()) < 1_000_000


def test_a_view_of_any_length_is_below_a_megabyte():
    state = open_explorer(
        small_model(n_heads=4, n_layers=3), probe="random", lengths=(256, 1030), n_sequences=1
    )
    view, head_map = state.view(2, 3, 256, WhatIfSetting(2.0))
    assert view.shown.weights.shape == (256, 256)
    assert len(plot_explorer(view, head_map, "x").to_json()) < 1_000_000
    long, _ = state.view(2, 3, 1030)
    assert max(long.shown.weights.shape) <= 256 and long.seen.block == 5
    _, whole = state.weights(2, 3, 1030)
    np.testing.assert_allclose(long.seen.weights[100, 7], whole[500:505, 35:40].mean(), rtol=1e-9)
    # 1030 is a multiple of 5, so that no block is cut.
    np.testing.assert_allclose(long.seen.weights.sum() * 25, whole.sum(), rtol=1e-9)


def test_the_figure_draws_the_view(shipped):
    view, head_map = shipped.view(0, 0, 31, WhatIfSetting(2.0))
    figure = plot_explorer(view, head_map, "post")
    data = explorer_data(view, head_map)
    assert len(figure.data) == len(data)
    named = {}
    for trace in figure.data:
        named.setdefault(trace.name, trace)
    keys = view.measured["entropy"].n_key
    np.testing.assert_allclose(named["full dispersion"].y, np.log(keys), rtol=1e-3)
    np.testing.assert_allclose(named["measured"].y, view.measured["entropy"].mean, rtol=1e-3)
    np.testing.assert_allclose(named["with the change"].y, view.changed["entropy"].mean, rtol=1e-3)
    bound = np.array(named["bound of its score spread"].y)
    assert np.all(bound <= view.measured["entropy"].mean + 1e-3)
    bound = np.array(named["bound with the change"].y)
    assert np.all(bound <= view.changed["entropy"].mean + 1e-3)
    assert list(figure.data[MAP].customdata[0][0]) == [0, 0]
    shares = [trace.y for trace in figure.select_traces({"fill": "tozeroy"})]
    assert [sum(share) for share in shares] == pytest.approx([1.0, 1.0], abs=1e-2)
    layout = explorer_layout(view, head_map)
    assert "changed weights" in layout["annotations"][3]["text"]
    json.dumps(layout)


def test_what_is_refused(shipped, nested):
    for place, said in (((1, 0), "layer must be a number from 0 to 0"),
                        ((0, 3), "head must be a number from 0 to 0"),
                        ((0, True), "head must be a whole number"),
                        (("a", 0), "layer must be a whole number")):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            shipped.view(*place)
    with pytest.raises(ValueError, match=r"one that was run \(8, 16, 31\); got 9"):
        shipped.view(0, 0, 9)
    with pytest.raises(ValueError, match="slope or normalised_entropy; got 'entropy'"):
        shipped.head_map("entropy")
    for wrong in (0, -1.0, math.inf, True, "2"):
        with pytest.raises(ValueError, match="temperature must be a positive number"):
            WhatIfSetting(temperature=wrong)
    bare = open_explorer("set-complement-none", lengths=LENGTHS, n_sequences=2)
    with pytest.raises(ValueError, match="norm_gain needs a norm"):
        bare.view(0, 0, 8, WhatIfSetting(norm_gain=2.0))
    unseen = replace(nested, classes=(replace(nested.classes[0], site="decoder.7.attn", layer=7),))
    with pytest.raises(ValueError, match="layer 7 of Transformer showed no attention pattern"):
        unseen.view(0, 0, 32)


def test_finished_weights_are_shown_and_their_temperature_is_refused():
    model = small_model(normalizer="entmax", norm_placement="none")
    state = open_explorer(model, probe="random", lengths=(16, 32, 64), n_sequences=2)
    view, head_map = state.view(1, 1, 32)
    np.testing.assert_allclose(view.seen.weights.sum(-1), 1.0, atol=1e-5)
    assert view.seen.scores.size == 0
    assert plot_explorer(view, head_map, "entmax").data
    with pytest.raises(ValueError, match="the temperature cannot be changed"):
        state.view(1, 1, 32, WhatIfSetting(2.0))


def test_a_pretrained_model_and_one_that_is_not_causal():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=200,
        n_positions=128,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    state = open_explorer(
        transformers.GPT2LMHeadModel(config).eval(), lengths=(16, 32, 64), n_sequences=2
    )
    assert state.rows == ("L0", "L1")
    view, head_map = state.view(1, 1, 32, WhatIfSetting(2.0, everywhere=True))
    assert np.all(view.changed["entropy"].mean < view.measured["entropy"].mean)
    assert [norm.name.rpartition(".")[2] for norm in view.norms] == ["ln_1", "ln_2", "ln_f"]
    assert head_map.values.shape == (2, 2)
    with pytest.raises(ValueError, match="norm_gain needs a norm"):
        state.view(1, 1, 32, WhatIfSetting(norm_gain=2.0))

    config = transformers.T5Config(
        vocab_size=200, d_model=32, d_kv=16, d_ff=32, num_layers=2, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    state = open_explorer(
        transformers.T5ForConditionalGeneration(config).eval(), probe="random",
        lengths=(16, 32), n_sequences=2,
    )  # fmt: skip
    assert all(item.site.startswith("encoder.") for item in state.classes)
    for row in range(len(state.rows)):
        view, _ = state.view(row, 1, 16, WhatIfSetting(2.0))
        assert view.changed["entropy"].mean[-1] != view.measured["entropy"].mean[-1]


def test_a_learned_sink_takes_its_share():
    model = small_model(normalizer="softmax1", norm_placement="none")
    adapter = adapt(model)
    tokens = torch.randint(160, (2, 12))
    drawn = type("Drawn", (), {"tokens": tokens})
    rows = ProfileObserver(("entropy",), _ladder(12), find_positions(drawn, True))
    watch = HeadWatch(1, frozenset({("decoder", 1, 0)}), rows)
    adapter.observe(tokens, watch)
    _, cache = model.run_with_cache(tokens)
    own = cache["blocks.1.attn.hook_pattern"][0, 0].detach().numpy()
    assert own.sum(-1).max() < 1
    np.testing.assert_allclose(watch.seen["decoder", 1, 0].weights, own, atol=1e-6)


def _ladder(longest):
    from resharpen.interp.profiling.ladder import geometric_ladder

    return geometric_ladder(longest)


def test_reprs_say_what_is_held(shipped):
    assert repr(shipped) == (
        "ExplorerState(set-complement-post: 1 layer x 1 head on task, lengths 8 to 31, 16 "
        "sequences a length, seed 0)"
    )
    view, head_map = shipped.view(0, 0, 16, WhatIfSetting(1.5))
    assert "L0 H0 at length 16" in repr(view) and "weights 16 x 16" in repr(view)
    assert repr(head_map) == "HeadMap(slope (nats), 1 layer x 1 head)"
    assert "What if inverse temperature 1.5 on L0 H0: loss" in view.summary
    drawn = shipped.probe.sample(length_generator(0, 16), 1, 16).tokens
    assert torch.equal(shipped._sequences(16).batch.tokens[:1], drawn)
