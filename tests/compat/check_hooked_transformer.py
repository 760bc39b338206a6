"""Run in an environment with TransformerLens 3.9 (``make compat``): same logits, same activations.

The file is not collected by ``make test``: TransformerLens 4 has no HookedTransformer.
"""

import itertools

import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from resharpen.models import (
    Transformer,
    TransformerConfig,
    hooked_transformer_config,
    hooked_transformer_state,
)

# TransformerLens 3.9 announces its own removal each time a model is built.
pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")

CASES = [
    dict(norm_placement=placement, final_norm=final, normalization_type=norm, **rest)
    for (placement, final), norm, rest in itertools.product(
        [("none", False), ("pre", True), ("peri", True)],
        ["LN", "LNPre", "RMS", "RMSPre"],
        [
            dict(attn_only=True, positional_embedding_type="none"),
            dict(attn_only=False, positional_embedding_type="standard", biases=True),
            dict(attn_only=False, positional_embedding_type="rotary", act_fn="gelu_new"),
            dict(attn_only=True, positional_embedding_type="alibi"),
            dict(attn_only=True, attention_dir="bidirectional", tied_unembed=True),
        ],
    )
    if placement != "peri" or norm.startswith("RMS")
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_same_logits_and_activations_in_hooked_transformer(case: dict) -> None:
    cfg = TransformerConfig(d_vocab=19, n_layers=2, n_heads=4, d_model=16, n_ctx=24, **case)
    model = Transformer(cfg, seed=3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.rsplit(".", 1)[-1].startswith(("b", "w")):
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    theirs = HookedTransformer(HookedTransformerConfig(**hooked_transformer_config(cfg)))
    theirs.load_state_dict(hooked_transformer_state(model), strict=False)
    missing = set(dict(theirs.named_parameters())) - set(hooked_transformer_state(model))
    assert not missing, f"not given to HookedTransformer: {missing}"
    tokens = torch.randint(19, (3, 24), generator=torch.Generator().manual_seed(0))
    mine, cache = model.run_with_cache(tokens)
    other, other_cache = theirs.run_with_cache(tokens)
    torch.testing.assert_close(mine, other, atol=2e-5, rtol=1e-5)
    for name in (
        "blocks.1.attn.hook_pattern",
        "blocks.1.hook_resid_post",
        "blocks.0.hook_attn_out",
    ):
        torch.testing.assert_close(cache[name], other_cache[name], atol=2e-5, rtol=1e-5)
