"""The formula that an :class:`AttentionSeen` stands for, to check records against the model."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..observed import AttentionSeen


def visible_keys(seen: AttentionSeen) -> Bool[Tensor, "#batch #head query key"]:
    """Which keys each query sees."""
    n_query, n_key = seen.query.shape[2], seen.key.shape[2]
    device = seen.query.device
    query = torch.arange(n_key - n_query, n_key, device=device)[:, None]
    key = torch.arange(n_key, device=device)[None, :]
    visible = torch.ones(1, 1, n_query, n_key, dtype=torch.bool, device=device)
    if seen.causal:
        visible = visible & (key <= query)
    if isinstance(seen.window, int):
        visible = visible & (key > query - seen.window)
    elif seen.window is not None:
        left, right = seen.window
        visible = visible & (key >= query - left) & (key <= query + right)
    return visible if seen.mask is None else visible & seen.mask.bool()


def attend(
    seen: AttentionSeen,
) -> tuple[Float[Tensor, "batch head query d_value"], Float[Tensor, "batch head query key"]]:
    """Output and weights of the formula in :class:`AttentionSeen`, written out in float64.

    Rows that see no key are zero.
    """
    repeat = seen.query.shape[1] // seen.key.shape[1]
    key = seen.key.double().repeat_interleave(repeat, dim=1)
    value = seen.value.double().repeat_interleave(repeat, dim=1)
    scores = seen.scale * seen.query.double() @ key.transpose(-2, -1)
    if seen.soft_cap is not None:
        scores = seen.soft_cap * torch.tanh(scores / seen.soft_cap)
    if seen.bias is not None:
        scores = scores + seen.bias.double()
    scores = scores.masked_fill(~visible_keys(seen), -torch.inf)
    if seen.sinks is not None:
        sinks = seen.sinks.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    weights = weights.nan_to_num(0.0)
    return weights @ value, weights


def relative_tolerance(dtype: torch.dtype) -> float:
    """How far apart two ways to compute the same thing may lie, relative to the largest value."""
    return {torch.float64: 1e-6, torch.float32: 2e-4, torch.float16: 1e-2}.get(dtype, 6e-2)


def largest_error(
    one: Float[Tensor, "*shape"], other: Float[Tensor, "*shape"], rows: Bool[Tensor, "*row"]
) -> float:
    """Largest difference over the rows named, relative to the largest value there."""
    first, second = one[rows].double(), other[rows].double()
    if not first.numel():
        return 0.0
    return float((first - second).abs().max() / first.abs().max().clamp_min(1e-30))
