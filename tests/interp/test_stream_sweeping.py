"""Rows of the stream: against a pass over the cache, and whatever the batches were."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge

from resharpen.interp.drawing import length_generator
from resharpen.interp.measures import angular_speed, mean_cosine, norm_growth, stable_rank
from resharpen.interp.stream_sweeping import STREAM_UNITS, list_boundaries, stream_rows
from resharpen.interp.stream_values import BOUNDARY_UNITS
from resharpen.interp.tables import check_table
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.tasks import SetComplement

TASK = SetComplement(12)


def make(placement="post", **change):
    sizes = {"d_vocab": 12, "n_layers": 3, "n_heads": 2, "d_model": 8}
    return Transformer(
        TransformerConfig(**{**sizes, "norm_placement": placement, **change}), seed=1
    )


def numbers(frame):
    return frame[["mean", "sem", "min", "max", "n_obs"]].to_numpy(dtype=float)


@pytest.mark.parametrize("placement", ["none", "post", "ngpt"])
def test_rows_equal_a_pass_over_the_cache(placement):
    model = make(placement, attn_only=False).double()
    labels = {"study": "s", "checkpoint": "c", "task": "t", "seed": 4}
    frame = stream_rows(model, TASK.sample, [6], n_sequences=7, batch=3, seed=2, labels=labels)
    check_table(frame)
    assert all((frame[name] == value).all() for name, value in labels.items())
    assert (frame["n_key"] == 6).all()
    tokens = TASK.sample(length_generator(2, 6), 7, 6).tokens
    _, cache = model.run_with_cache(tokens)
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(3))]
    streams = [cache[name] for name in names]
    assert len(frame) == 4 * len(BOUNDARY_UNITS) + 3 * 2

    def check(quantity, site, expected):
        rows = frame[(frame["quantity"] == quantity) & (frame["site"] == site)]
        values = expected.detach().numpy()
        assert rows["mean"].tolist() == [pytest.approx(values.mean(), rel=1e-9)]
        assert rows["sem"].tolist() == [pytest.approx(values.std(ddof=1) / 7**0.5, rel=1e-8)]
        assert rows["unit"].tolist() == [STREAM_UNITS[quantity]]

    for index, (name, stream) in enumerate(zip(names, streams, strict=True)):
        check("mean_cosine", name, mean_cosine(stream))
        check("stable_rank", name, stable_rank(stream))
        rows = frame[frame["site"] == name]
        assert set(rows["layer"]) == {max(index - 1, 0)}
        if index:
            before = streams[index - 1]
            check("angular_speed", name, angular_speed(before, stream).mean(1))
            check("norm_growth", name, norm_growth(before, stream).log().mean(1).exp())


@settings(max_examples=8, deadline=None, derandomize=True)
@given(batch=st.integers(1, 11), length=st.sampled_from([2, 5, 9]))
def test_the_split_into_batches_does_not_matter(batch, length):
    model = make("peri").double()
    whole = stream_rows(model, TASK.sample, [length], n_sequences=10, batch=10, verify=False)
    split = stream_rows(model, TASK.sample, [length], n_sequences=10, batch=batch, verify=False)
    np.testing.assert_allclose(numbers(split), numbers(whole), rtol=1e-9, atol=1e-11)


def test_lengths_do_not_matter_to_each_other_and_one_token_has_no_cosine():
    model = make("pre")
    both = stream_rows(model, TASK.sample, [1, 4], n_sequences=5)
    alone = stream_rows(model, TASK.sample, [4], n_sequences=5)
    np.testing.assert_array_equal(numbers(both[both["length"] == 4]), numbers(alone))
    one = both[both["length"] == 1]
    undefined = one[one["status"] == "undefined"]
    assert set(undefined["quantity"]) == {"mean_cosine", "mean_square_cosine"}
    assert (one.loc[one["quantity"] == "cluster_count", "mean"] == 1).all()


def test_the_model_is_left_as_it_was_and_only_what_is_asked_for_is_there():
    model = make().train()
    frame = stream_rows(model, TASK.sample, [3], n_sequences=2, quantities=["angular_speed"])
    assert model.training and all(not point._forward_hooks for point in model.hook_dict.values())
    assert frame["site"].tolist() == [f"blocks.{layer}.hook_resid_post" for layer in range(3)]


class Foreign(HookedRootModule):
    """Shows the embedding and, of one block, only what enters the next."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.hook_embed = torch.nn.Embedding(12, 4), HookPoint()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
        self.blocks[1].hook_resid_pre, self.blocks[1].hook_resid_post = HookPoint(), HookPoint()
        self.setup()

    def forward(self, tokens):
        x = self.hook_embed(self.embed(tokens))
        x = self.blocks[1].hook_resid_pre(x + self.blocks[0](x))
        return self.blocks[1].hook_resid_post(x + self.blocks[1](x))


def test_other_models_show_their_boundaries_too():
    names = [boundary.site.name for boundary in list_boundaries(Foreign())]
    assert names == ["hook_embed", "blocks.1.hook_resid_pre", "blocks.1.hook_resid_post"]
    frame = stream_rows(Foreign(), TASK.sample, [4], n_sequences=2)
    assert len(frame) == 3 * 7 + 2 * 2
    speeds = frame[frame["quantity"] == "angular_speed"]
    assert speeds["layer"].tolist() == [0, 1]
    sizes = {"d_vocab": 12, "n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "d_mlp": 32}
    bridge = TransformerBridge.boot_native(
        {**sizes, "n_ctx": 16, "act_fn": "gelu", "normalization_type": "LN"}
    )
    frame = stream_rows(bridge, TASK.sample, [4], n_sequences=2)
    assert len(frame) == 3 * 7 + 2 * 2 and (frame["status"] == "ok").all()


def test_bad_input_is_refused():
    model = make()
    for arguments, message in (
        ({"lengths": [0]}, "length must be a whole number"),
        ({"n_sequences": 0}, "n_sequences must be a whole number"),
        ({"batch": True}, "batch must be a whole number"),
        ({"threshold": 1.5}, "threshold must be a cosine"),
        ({"labels": {"layer": 1}}, "labels may be study"),
        ({"quantities": ["entropy"]}, "quantities must be among"),
        ({"lengths": [12]}, "cannot draw sequences of length 12"),
    ):
        with pytest.raises(ValueError, match=message):
            stream_rows(model, TASK.sample, **{"lengths": [3], **arguments})
    with pytest.raises(ValueError, match="does not show the stream of any block"):
        list_boundaries(_bare())


def _bare():
    model = HookedRootModule()
    model.setup()
    return model


def test_a_model_that_hides_a_block_is_refused():
    class Hiding(Foreign):
        def __init__(self):
            super().__init__()
            del self.blocks[1].hook_resid_pre
            self.setup()

    with pytest.raises(ValueError, match="does not show what leaves block 0"):
        list_boundaries(Hiding())


def test_a_dead_hook_point_is_refused():
    class Dead(Foreign):
        def forward(self, tokens):
            x = self.hook_embed(self.embed(tokens))
            self.blocks[1].hook_resid_pre(x.clone())  # type: ignore[operator]  # what comes after does not use it
            return self.blocks[1].hook_resid_post(x)

    with pytest.raises(ValueError, match="the stream cannot be read"):
        stream_rows(Dead(), TASK.sample, [4], n_sequences=2)
