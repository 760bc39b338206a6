from typing import Any

import pytest
import torch

from resharpen.interp.attention_statistics import row_statistics
from resharpen.interp.profiling import attention_rule, relevant_mass_of_rows
from resharpen.models.adapters.exactness import attend
from resharpen.models.observed import AttentionSeen

B, H, KV, Q, K, D = 2, 4, 2, 7, 9, 5
_GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_GENERATOR)


CASES: dict[str, dict[str, Any]] = {
    "causal": dict(causal=True),
    "window": dict(causal=True, window=3),
    "both sides": dict(causal=False, window=(2, 1)),
    "latest keys, not causal": dict(causal=False, window=3),
    "soft-cap": dict(causal=True, soft_cap=0.7),
    "bias": dict(causal=True, bias=normal(1, H, Q, K)),
    "bias of keys": dict(causal=False, bias=normal(B, 1, 1, K)),
    "padding": dict(causal=False, mask=torch.arange(K).view(1, 1, 1, -1) > 2),
    "mask": dict(causal=False, mask=normal(B, 1, Q, K) > -0.5),
    "all": dict(causal=True, window=6, soft_cap=2.0, bias=normal(B, H, Q, K)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_mass_is_the_weight_of_the_formula(case: str) -> None:
    seen = AttentionSeen(
        0, normal(B, H, Q, D), normal(B, KV, K, D), normal(B, KV, K, D), scale=0.9, **CASES[case]
    )
    relevant = torch.randint(-1, K, (B, Q), generator=_GENERATOR)
    weights = attend(seen)[1]
    log_partition = row_statistics(
        seen.query, seen.key, attention_rule(seen), statistics=["log_partition"]
    )["log_partition"]
    found = relevant_mass_of_rows(seen, log_partition, relevant)
    known = (relevant >= 0)[:, None].expand(B, H, Q)
    index = relevant.clamp(min=0)[:, None, :, None].expand(B, H, Q, 1)
    wanted = weights.gather(3, index).squeeze(3)
    torch.testing.assert_close(found[known], wanted[known], rtol=1e-5, atol=1e-9)
    assert bool(found[~known].isnan().all())
    assert bool((wanted[known] > 0.05).any())
