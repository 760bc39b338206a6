"""Run with TransformerLens 2.18 and 3.9 (``make compat``): their models through our adapters.

The file is not collected by ``make test``: TransformerLens 4 has no HookedTransformer.
"""

import sys
import types

import pytest
import torch
import transformer_lens
from transformer_lens import HookedTransformer, HookedTransformerConfig

try:
    import transformer_lens.utilities.slice
except ImportError:
    # The names under which TransformerLens 3 and later keep what our models import.
    import transformer_lens.hook_points
    import transformer_lens.utils

    transformer_lens.HookedRootModule = transformer_lens.hook_points.HookedRootModule
    for name in ("transformer_lens.utilities", "transformer_lens.utilities.slice"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["transformer_lens.utilities.slice"].Slice = transformer_lens.utils.Slice

from resharpen.models.adapters import adapt
from resharpen.models.checkpoint import CheckpointError

# TransformerLens 3.9 announces its own removal each time a model is built.
pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")

# What the configuration changes: placement, parallel, whether its state dict can be loaded.
CASES = {
    "plain": ({}, "pre", False, True),
    "rotary": (
        dict(positional_embedding_type="rotary", normalization_type="RMS"),
        "pre",
        False,
        True,
    ),
    "parallel": (dict(normalization_type="LNPre", parallel_attn_mlp=True), "pre", True, False),
    "grouped": (dict(n_key_value_heads=2), "pre", False, True),
    "local": (
        dict(use_local_attn=True, window_size=4, attn_types=["global", "local"]),
        "pre",
        False,
        False,
    ),
    "sandwich": (
        dict(normalization_type="RMS", use_normalization_before_and_after=True),
        "peri",
        False,
        True,
    ),
    "capped": (dict(attn_scores_soft_cap=2.0), "pre", False, False),
    "both ways": (dict(attention_dir="bidirectional"), "pre", False, True),
    "alibi": (dict(positional_embedding_type="alibi"), "pre", False, True),
    "no norm": (dict(attn_only=True, normalization_type=None), "none", False, True),
}


class Recorder:
    """Keeps patterns and streams."""

    def __init__(self) -> None:
        self.patterns, self.streams = [], []

    def attention(self, seen):
        raise AssertionError("hook points show patterns")

    def pattern(self, seen) -> None:
        self.patterns.append(seen)

    def norm(self, seen) -> None:
        return None

    def stream(self, seen) -> None:
        self.streams.append(seen)


@pytest.mark.parametrize("case", CASES)
def test_hooked_transformers(case, tmp_path) -> None:
    changes, placement, parallel, loads = CASES[case]
    sizes = dict(n_layers=2, d_model=16, n_heads=4, d_head=4, n_ctx=32, d_vocab=30)
    common = dict(act_fn="gelu", normalization_type="LN", seed=0, initializer_range=0.3)
    model = HookedTransformer(HookedTransformerConfig(**{**sizes, **common, **changes})).train()
    adapter, recorder = adapt(model), Recorder()
    assert (adapter.placement, adapter.parallel) == (placement, parallel)
    tokens = torch.randint(30, (2, 12), generator=torch.Generator().manual_seed(0))
    logits = adapter.observe(tokens, recorder)
    assert model.training
    with torch.no_grad():
        wanted, cache = model.eval().run_with_cache(tokens)
    torch.testing.assert_close(logits, wanted)
    for seen in recorder.patterns:
        torch.testing.assert_close(seen.weights, cache[f"blocks.{seen.layer}.attn.hook_pattern"])
        scores = cache[f"blocks.{seen.layer}.attn.hook_attn_scores"]
        assert torch.equal(seen.visible.expand_as(scores), scores > -1e5)
    for seen in recorder.streams[:-1]:
        torch.testing.assert_close(seen.stream, cache[f"blocks.{seen.layer}.hook_resid_pre"])
    path = tmp_path / "model.pt"
    torch.save({"state_dict": model.state_dict(), "cfg": model.cfg.to_dict()}, path)
    if loads:
        torch.testing.assert_close(adapt(path).run_plain(tokens), wanted, atol=2e-5, rtol=1e-5)
    else:
        with pytest.raises(CheckpointError, match="adapt the HookedTransformer itself"):
            adapt(path)
