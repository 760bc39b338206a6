"""A model that is not ours: TransformerLens's own, through hook points alone."""

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge

from resharpen.interp import length_generator, sweep, verify_taps
from resharpen.interp.measures import entropy


@pytest.fixture(scope="module")
def bridge():
    torch.manual_seed(0)
    sizes = {"d_vocab": 12, "n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "d_mlp": 32}
    return TransformerBridge.boot_native(
        {**sizes, "n_ctx": 16, "act_fn": "gelu", "normalization_type": "LN"}
    )


def sample(generator, batch, length):
    return torch.from_numpy(generator.integers(0, 12, (batch, length)))


def test_its_taps_pass_but_for_scores_that_are_not_what_the_softmax_sees(bridge):
    # TransformerLens 4.3 shows the pattern after softmax at hook_attn_scores of native models.
    statuses = verify_taps(bridge, torch.tensor([[3, 1, 4, 0], [2, 0, 1, 3]]))
    assert {s.site.kind for s in statuses.values() if s.status != "ok"} == {"scores", "result"}


def test_its_table_is_filled_and_the_scores_said_to_be_unavailable(bridge):
    bridge.train()
    with pytest.warns(UserWarning, match="2 of .* sites are unavailable: blocks.0.attn.hook_attn"):
        frame = sweep(bridge, sample, [5], batch=6)
    assert bridge.training
    bad = frame[frame["status"] != "ok"]
    assert set(bad["quantity"]) == {"score_spread", "score_deviation"}
    tokens = sample(length_generator(0, 5), 6, 5)
    _, cache = bridge.eval().run_with_cache(tokens)
    expected = entropy(cache["blocks.1.attn.hook_pattern"][:, 1, -1]).mean().item()
    rows = frame[(frame["quantity"] == "entropy") & (frame["layer"] == 1) & (frame["head"] == 1)]
    assert rows["mean"].tolist() == [pytest.approx(expected, rel=1e-5)]
