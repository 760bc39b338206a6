"""Entropy and effective support from the platform's fused attention kernel.

With ``phi(beta) = log sum_j exp(beta s_j)`` (theory section 0),
    H = phi(1) - scale * q . attention(q, k, k),    sum_j a_j^2 = exp(phi(2) - 2 phi(1)),
and the kernel returns ``phi`` beside its output: two calls, no scores in memory. The subtraction
cancels, so this path is taken only where the scores are small. It is the path for CUDA, where the
blockwise pass would move every tile through memory several times. On a CPU the blockwise pass is
faster (it forms the scores once, not twice) and more precise.
"""

import torch
from torch import Tensor

from .catalogue import Request
from .rule import AttentionRule

FUSED_SCORE_LIMIT = 16.0
"""Largest ``scale * |q| * |k|`` of a call on the fused path: the entropy's error was measured below
1e-5 nats up to there."""

_FUSED_BASE = frozenset({"entropy", "effective_support", "log_partition", "sink_mass"})


def fused_refusal(
    query: Tensor,
    key: Tensor,
    rule: AttentionRule,
    request: Request,
    n_marked: int,
    n_measured: int,
) -> str | None:
    """Why the fused path does not cover this call, or ``None`` if it does."""
    conditions = ("window", "key_mask", "documents", "mask", "softcap", "bias")
    given = [name for name in conditions if getattr(rule, name) is not None]
    if given:
        return f"it knows causal and full attention without {', '.join(given)}"
    if more := sorted(request.base - _FUSED_BASE):
        return f"it does not give {', '.join(more)}"
    if n_marked:
        return "it does not give the mass on marked keys"
    n_query, n_key = query.shape[2], key.shape[2]
    if n_measured != n_query or (rule.causal and n_query != n_key):
        return "it needs every query, and under a causal mask as many queries as keys"
    if query.device.type not in ("cpu", "cuda"):
        return f"there is no kernel for {query.device.type}"
    if query.device.type == "cuda" and (query.dtype is torch.float64 or query.shape[3] % 4):
        return "the CUDA kernel needs float32 or less and a d_head divisible by 4"
    bound = abs(_scale(query, rule)) * _longest(query) * _longest(key)
    if not bound <= FUSED_SCORE_LIMIT:
        return f"scores may reach {bound:.3g} in size, where log-sum-exp minus mean score cancels"
    return None


def fused_statistics(
    query: Tensor, key: Tensor, rule: AttentionRule, request: Request
) -> tuple[dict[str, Tensor], Tensor]:
    """Base statistics by name, float64, and ``n_key``, ``[batch, head, query]``, in two calls.

    The error of the entropy is below 1e-5 nats, that of the effective support below 1e-5 of it.
    """
    scale = _scale(query, rule)
    if query.dtype is not torch.float64:
        query, key = query.float(), key.float()
    n_key = torch.full(query.shape[:3], key.shape[2], device=query.device)
    if rule.causal:
        n_key = torch.arange(1, key.shape[2] + 1, device=query.device).expand_as(n_key)
    mean_key, phi = _attend(query, key, key, scale, rule.causal)
    result = {"log_partition": phi}
    if "entropy" in request.base:
        mean_score = scale * torch.linalg.vecdot(query, mean_key).double()
        result["entropy"] = torch.where(n_key == 1, 0.0, (phi - mean_score).clamp(min=0.0))
    if "effective_support" in request.base:
        doubled = _attend(query, key, key, 2.0 * scale, rule.causal)[1]
        support = (2.0 * phi - doubled).exp().clamp(min=1.0)
        result["effective_support"] = torch.where(n_key == 1, 1.0, support)
    if "sink_mass" in request.base:
        first = key[:, :, :1].repeat_interleave(query.shape[1] // key.shape[1], 1)
        score = scale * torch.linalg.vecdot(query, first.expand_as(query)).double()
        result["sink_mass"] = torch.where(n_key == 1, 1.0, (score - phi).exp().clamp(max=1.0))
    return result, n_key


def fused_output(
    query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule, phi: Tensor
) -> Tensor:
    """The platform's attention output, less the share of the rule's learned sinks."""
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=rule.causal, scale=_scale(query, rule), enable_gqa=True
    )
    if rule.sinks is None:
        return output
    share = torch.sigmoid(rule.sinks.double()[:, None] - phi)
    return (output * (1.0 - share)[..., None]).to(output.dtype)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Attention output and its log-sum-exp (float64) from the device's fused kernel."""
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    if query.device.type == "cpu":
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        output, phi = kernel(query, key, value, 0.0, causal, scale=scale)
        return output, phi.double()
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    output, phi = kernel(query, key, value, None, True, 0.0, causal, scale=scale)[:2]
    return output, phi[..., : query.shape[2]].double()


def _scale(query: Tensor, rule: AttentionRule) -> float:
    """The factor of ``q . k``."""
    return query.shape[3] ** -0.5 if rule.scale is None else float(rule.scale)


def _longest(array: Tensor) -> float:
    """The largest norm of a head vector."""
    return float(torch.linalg.vector_norm(array, dim=-1, dtype=torch.float32).max())
