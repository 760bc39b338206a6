"""Differential attention: the difference of two softmax patterns.

Ye et al., *Differential Transformer* (arXiv 2410.05258; theory section 16). With a second query and
key for each head and one learned ``λ`` a layer:

    pattern = softmax(scores) - λ softmax(scores'),
    λ       = exp(<λ_q1, λ_k1>) - exp(<λ_q2, λ_k2>) + λ_init,   λ_init = 0.8 - 0.6 exp(-0.3 layer),
    z       = (1 - λ_init) RMSNorm(sum_j pattern_j v_j)          (layer from 0, norm over d_head)

Rows sum to ``1 - λ`` and weights may be negative. The norm on each head's output is part of the
published form: it rescales what a dispersed head writes, like any norm after attention. Our heads
keep values of width ``d_head``, where the paper doubles them and halves the number of heads.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from .attention import Attention, AttentionInputs, _project
from .config import TransformerConfig
from .positions import apply_rotary


class DifferentialAttention(Attention):
    """Differential attention; see the module for the formula.

    Attributes:
        W_Q2, W_K2: The second query and key weights, ``[head, d_model, d_head]``.
        lambda_q1, lambda_k1, lambda_q2, lambda_k2: ``[d_head]``, whose products make ``λ``.
        gain: Gain of the norm on each head's output, ``[d_head]``.
        hook_attn_scores_2: Scores of the second pattern; ``hook_attn_scores`` has the first's.
        hook_lambda: ``λ``, a single number.
        hook_head_scale: What the norm divides by, ``[batch, pos, head, 1]``.
    """

    def __init__(self, cfg: TransformerConfig, layer: int = 0) -> None:
        """Create uninitialised weights; ``Transformer`` fills them."""
        super().__init__(cfg, layer)
        heads, width, d_head = cfg.n_heads, cfg.d_model, cfg.head_width
        self.W_Q2 = nn.Parameter(torch.empty(heads, width, d_head))
        self.W_K2 = nn.Parameter(torch.empty(heads, width, d_head))
        self.lambda_q1 = nn.Parameter(torch.empty(d_head))
        self.lambda_k1 = nn.Parameter(torch.empty(d_head))
        self.lambda_q2 = nn.Parameter(torch.empty(d_head))
        self.lambda_k2 = nn.Parameter(torch.empty(d_head))
        self.gain = nn.Parameter(torch.ones(d_head))
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.hook_attn_scores_2 = HookPoint()
        self.hook_lambda = HookPoint()
        self.hook_head_scale = HookPoint()

    def inputs(self, x: Float[Tensor, "batch pos d_model"]) -> AttentionInputs:
        """Project the stream, twice for queries and keys."""
        first = super().inputs(x)
        query, key = _project(x, self.W_Q2, None), _project(x, self.W_K2, None)
        if self.cfg.positional_embedding_type == "rotary":
            query = apply_rotary(query, self.cfg.rotary_base)
            key = apply_rotary(key, self.cfg.rotary_base)
        query, key, _ = self._normalised(query, key)
        return replace(first, second=(query, key))

    def attend(self, inputs: AttentionInputs) -> Float[Tensor, "batch pos head d_head"]:
        """Take the difference of the weighted means, normalised head by head."""
        z = super().attend(inputs)
        scale = (z.square().mean(-1, keepdim=True) + self.cfg.eps).sqrt()
        return z / self.hook_head_scale(scale) * self.gain * (1 - self.lambda_init)

    def pattern(
        self, inputs: AttentionInputs, start: int, stop: int
    ) -> Float[Tensor, "batch head query key"]:
        """Signed weights of the queries ``start..stop-1``, as ``hook_pattern`` sees them."""
        assert inputs.second is not None
        n_key = inputs.n_key[start:stop, None]
        first = self.hook_attn_scores(self.scores(inputs, start, stop))
        other = self._products(*inputs.second, inputs.scale, start, stop)
        second = self.hook_attn_scores_2(self.masked(other, start))
        weigh = self.normalizer.weights
        weights = weigh(first, n_key, self.cfg) - self._lambda() * weigh(second, n_key, self.cfg)
        return self.hook_pattern(weights)

    def _lambda(self) -> Tensor:
        first = torch.exp((self.lambda_q1 * self.lambda_k1).sum())
        second = torch.exp((self.lambda_q2 * self.lambda_k2).sum())
        return self.hook_lambda(first - second + self.lambda_init)

    def _row_points(self) -> list[HookPoint]:
        return [*super()._row_points(), self.hook_attn_scores_2]
