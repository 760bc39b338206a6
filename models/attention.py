"""Multi-head attention with HookedTransformer's weights and hook points, fused until you listen.

As long as nothing is registered on ``hook_attn_scores`` or ``hook_pattern``, the scores are never
materialised: attention runs through ``torch.nn.functional.scaled_dot_product_attention``. The
moment somebody listens there, the same numbers are computed explicitly and both hooks are live.
"""

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from .config import TransformerConfig
from .positions import alibi_bias, apply_rotary


def is_observed(point: HookPoint) -> bool:
    """Whether any forward or backward hook is registered on this hook point."""
    return bool(point._forward_hooks or point._forward_pre_hooks or point._backward_hooks)


class Attention(nn.Module):
    """Softmax attention.

    For each head, with visible keys ``j`` of query ``i``:

        scores[i, j] = <q_i, k_j> / attn_scale  (+ ALiBi bias)
        pattern[i]   = softmax over visible j of scores[i]
        z[i]         = sum_j pattern[i, j] v_j,     output = sum over heads of z W_O

    Attributes:
        W_Q, W_K, W_V: ``[head, d_model, d_head]``.
        W_O: ``[head, d_head, d_model]``.
        fused: Whether the fused kernel may be used when nobody listens (default). Off, scores are
            always materialised: for short inputs under ``torch.func.vmap``, which the fused CPU
            kernel has no rule for.
        b_Q, b_K, b_V: ``[head, d_head]``, and b_O ``[d_model]``; ``None`` without ``cfg.biases``.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        """Create uninitialised weights; ``Transformer`` fills them."""
        super().__init__()
        self.cfg = cfg
        self.fused = True
        heads, width, d_head = cfg.n_heads, cfg.d_model, cfg.head_width
        self.W_Q = nn.Parameter(torch.empty(heads, width, d_head))
        self.W_K = nn.Parameter(torch.empty(heads, width, d_head))
        self.W_V = nn.Parameter(torch.empty(heads, width, d_head))
        self.W_O = nn.Parameter(torch.empty(heads, d_head, width))
        self.b_Q = nn.Parameter(torch.zeros(heads, d_head)) if cfg.biases else None
        self.b_K = nn.Parameter(torch.zeros(heads, d_head)) if cfg.biases else None
        self.b_V = nn.Parameter(torch.zeros(heads, d_head)) if cfg.biases else None
        self.b_O = nn.Parameter(torch.zeros(width)) if cfg.biases else None
        self.hook_q = HookPoint()
        self.hook_k = HookPoint()
        self.hook_v = HookPoint()
        if cfg.positional_embedding_type == "rotary":
            self.hook_rot_q = HookPoint()
            self.hook_rot_k = HookPoint()
        self.hook_attn_scores = HookPoint()
        self.hook_pattern = HookPoint()
        self.hook_z = HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Attend; see the class for the formula."""
        query = self.hook_q(_project(x, self.W_Q, self.b_Q))
        key = self.hook_k(_project(x, self.W_K, self.b_K))
        value = self.hook_v(_project(x, self.W_V, self.b_V))
        if self.cfg.positional_embedding_type == "rotary":
            query = self.hook_rot_q(apply_rotary(query, self.cfg.rotary_base))
            key = self.hook_rot_k(apply_rotary(key, self.cfg.rotary_base))
        observed = is_observed(self.hook_attn_scores) or is_observed(self.hook_pattern)
        attend = self._attend_fused if self.fused and not observed else self._attend_explicitly
        z = attend(query, key, value)
        z = self.hook_z(z)
        out = einsum(z, self.W_O, "batch pos head d_head, head d_head d_model -> batch pos d_model")
        return out if self.b_O is None else out + self.b_O

    def _attend_explicitly(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = einsum(
            query, key, "batch query head d_head, batch key head d_head -> batch head query key"
        )
        scores = scores * self.cfg.score_factor
        length = query.shape[1]
        if self.cfg.positional_embedding_type == "alibi":
            scores = scores + alibi_bias(self.cfg.n_heads, length, scores)
        if self.cfg.attention_dir == "causal":
            masked = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(masked, -torch.inf)
        pattern = self.hook_pattern(torch.softmax(self.hook_attn_scores(scores), dim=-1))
        return einsum(
            pattern, value, "batch head query key, batch key head d_head -> batch query head d_head"
        )

    def _attend_fused(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        causal = self.cfg.attention_dir == "causal"
        bias = None
        if self.cfg.positional_embedding_type == "alibi":
            length = query.shape[1]
            bias = alibi_bias(self.cfg.n_heads, length, query)
            if causal:
                masked = torch.ones(length, length, dtype=torch.bool, device=bias.device).triu(1)
                bias = bias.masked_fill(masked, -torch.inf)
            bias = bias[None]
        z = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=bias,
            is_causal=causal and bias is None,
            scale=self.cfg.score_factor,
        )
        return z.transpose(1, 2)


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = einsum(x, weight, "batch pos d_model, head d_model d_head -> batch pos head d_head")
    return out if bias is None else out + bias
