"""Every normalizer of ours passes the adapter's check and is measured as its pattern says."""

import numpy as np
import pytest
import torch

from resharpen.interp.profiling import profile
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.adapters import adapt
from resharpen.models.normalizers import NORMALIZERS
from resharpen.models.probes import RandomTokens


@pytest.mark.parametrize("positions", ["none", "alibi"])
@pytest.mark.parametrize("normalizer", sorted(NORMALIZERS))
def test_profiles_agree_with_the_pattern(normalizer: str, positions: str) -> None:
    if (normalizer, positions) == ("linear", "alibi"):
        positions = "rotary"
    cfg = TransformerConfig(
        d_vocab=9,
        n_heads=2,
        d_model=8,
        normalizer=normalizer,  # type: ignore[arg-type]
        positional_embedding_type=positions,  # type: ignore[arg-type]
        init_range=0.7,
    )
    model = Transformer(cfg, seed=2)
    adapter = adapt(model)
    probe = RandomTokens(9)
    found = profile(adapter, probe, [12], n_sequences=3, statistics=("entropy", "max_weight"))
    entropies = found.table[found.table["quantity"] == "entropy"]
    rows = entropies[entropies["n_key"] == 12]
    if normalizer == "differential":
        # Signed weights are no distribution over keys, not even where none is negative.
        assert entropies["mean"].isna().all() and len(entropies)
        return
    assert len(rows) == 2
    seen = []
    tokens = probe.sample(_generator(), 3, 12).tokens
    with torch.no_grad():
        model.run_with_hooks(
            tokens, fwd_hooks=[("blocks.0.attn.hook_pattern", lambda x, hook: seen.append(x))]
        )
    last = seen[0][:, :, -1].double().numpy()
    last = last / last.sum(-1, keepdims=True)
    entropy = -np.where(last > 0, last * np.log(np.where(last > 0, last, 1)), 0).sum(-1).mean(0)
    np.testing.assert_allclose(rows.sort_values("head")["mean"], entropy, rtol=1e-4, atol=1e-5)
    assert model.blocks[0].attn.watcher is None


def _generator() -> np.random.Generator:
    from resharpen.interp.drawing import length_generator

    return length_generator(0, 12)
