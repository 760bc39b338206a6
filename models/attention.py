"""Multi-head attention with HookedTransformer's weights and hook points, fused until you listen.

As long as nothing is registered on the scores or the pattern, they are never materialised: where
the normalizer is a softmax whose scores are scaled row by row, attention runs through
``torch.nn.functional.scaled_dot_product_attention`` with the query scaled; any other normalizer
runs over blocks of queries when no gradient is asked for. The moment somebody listens there, the
same numbers are computed explicitly and the hooks are live.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from .config import TransformerConfig
from .normalizers import NORMALIZERS, feature_map
from .placements import PLACEMENTS
from .positions import alibi_bias, apply_rotary
from .temperatures import TEMPERATURES, adaptive_inverse_temperature

BLOCK_ELEMENTS = 2**24
"""Scores held at a time when attention runs over blocks of queries (64 MiB in float32)."""


def is_observed(point: HookPoint) -> bool:
    """Whether any forward or backward hook is registered on this hook point."""
    return bool(point._forward_hooks or point._forward_pre_hooks or point._backward_hooks)


@dataclass(frozen=True)
class AttentionInputs:
    """What one attention layer multiplies, once queries and keys are finished.

    Attributes:
        query: ``[batch, pos, head, d_head]``, after rotary positions and QK-norm.
        key: ``[batch, pos, head, d_head]``, likewise.
        value: ``[batch, pos, head, d_head]``.
        scale: Factor on the products.
        n_key: Visible keys of each query, ``[pos]``.
        factor: Inverse temperature of each row, ``[batch, head, pos, 1]``, each of the first two
            axes possibly of size one; ``None`` for one, or where it depends on the scores.
        second: For differential attention, the query and key that are subtracted.
    """

    query: Float[Tensor, "batch pos head d_head"]
    key: Float[Tensor, "batch pos head d_head"]
    value: Float[Tensor, "batch pos head d_head"]
    scale: float
    n_key: Int[Tensor, "pos"]
    factor: Float[Tensor, "#batch #head pos 1"] | None = None
    second: tuple[Tensor, Tensor] | None = None


Watcher = Callable[["Attention", AttentionInputs], Tensor | None]
"""Shown each layer's inputs; may return ``z [batch, pos, head, d_head]`` that it has computed."""


class Attention(nn.Module):
    """Attention with the configured normalizer.

    For each head, with visible keys ``j`` of query ``i``:

        raw[i, j]    = <q_i, k_j> / attn_scale  (+ ALiBi bias)
        scores[i, j] = factor[i] raw[i, j]
        pattern[i]   = weights over visible j of scores[i]   (softmax, or see the normalizer)
        z[i]         = sum_j pattern[i, j] v_j,     output = sum over heads of z W_O

    In training, with ``p = cfg.attn_dropout``, each weight is set to zero with probability ``p``
    and divided by ``1 - p`` otherwise, after the normalizer (so for differential attention after
    the difference). HookedTransformer has no dropout; ``hook_pattern`` shows and edits the weights
    before it.

    Hook points beyond HookedTransformer's: ``hook_raw_scores`` (unmasked) where the normalizer is
    not plain softmax, and ``hook_score_factor`` ``[batch, head, query, 1]`` where it has an inverse
    temperature.

    Attributes:
        W_Q, W_K, W_V: ``[head, d_model, d_head]``.
        W_O: ``[head, d_head, d_model]``.
        fused: Whether the fused kernel may be used when nobody listens (default). Off, scores are
            always materialised: for short inputs under ``torch.func.vmap``, which the fused CPU
            kernel has no rule for.
        kept: Set by who draws the dropout: factors on the pattern, ``[batch, head, query, key]``,
            zero or ``1 / (1 - p)``. ``None`` (default): drawn here, in training mode only.
        watcher: Shown the inputs of every call, see :data:`Watcher`; ``None`` for nobody.
        b_Q, b_K, b_V: ``[head, d_head]``, and b_O ``[d_model]``; ``None`` without ``cfg.biases``.
    """

    def __init__(self, cfg: TransformerConfig, layer: int = 0) -> None:
        """Create uninitialised weights; ``Transformer`` fills them."""
        super().__init__()
        self.cfg = cfg
        self.layer = layer
        self.fused = True
        # A buffer, so that functional_call can give each seed of a vmap its own.
        self.kept: Tensor | None
        self.register_buffer("kept", None, persistent=False)
        self.watcher: Watcher | None = None
        self.normalizer = NORMALIZERS[cfg.normalizer]
        heads, width, d_head = cfg.n_heads, cfg.d_model, cfg.head_width
        self.W_Q = nn.Parameter(torch.empty(heads, width, d_head))
        self.W_K = nn.Parameter(torch.empty(heads, width, d_head))
        self.W_V = nn.Parameter(torch.empty(heads, width, d_head))
        self.W_O = nn.Parameter(torch.empty(heads, d_head, width))
        self.b_Q = nn.Parameter(torch.zeros(heads, d_head)) if cfg.biases else None
        self.b_K = nn.Parameter(torch.zeros(heads, d_head)) if cfg.biases else None
        self.b_V = nn.Parameter(torch.zeros(heads, d_head)) if cfg.biases else None
        self.b_O = nn.Parameter(torch.zeros(width)) if cfg.biases else None
        self.qk_gain = (
            nn.Parameter(torch.full((heads,), cfg.qk_gain)) if cfg.qk_norm == "learned" else None
        )
        self.unit = PLACEMENTS[cfg.norm_placement].unit
        self.s_qk = nn.Parameter(torch.ones(heads, d_head)) if self.unit else None
        kind = self.normalizer.temperature
        self.temperature = TEMPERATURES[kind](cfg) if kind in TEMPERATURES else None
        self.hook_q = HookPoint()
        self.hook_k = HookPoint()
        self.hook_v = HookPoint()
        if cfg.positional_embedding_type == "rotary":
            self.hook_rot_q = HookPoint()
            self.hook_rot_k = HookPoint()
        if cfg.normalizer != "softmax":
            self.hook_raw_scores = HookPoint()
        if kind is not None:
            self.hook_score_factor = HookPoint()
        self.hook_attn_scores = HookPoint()
        self.hook_pattern = HookPoint()
        self.hook_z = HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Attend; see the class for the formula."""
        z = self.hook_z(self.attend(self.inputs(x)))
        # One product over all heads: sum over head and d_head of z W_O.
        out = z.flatten(2) @ self.W_O.flatten(0, 1)
        return out if self.b_O is None else out + self.b_O

    def inputs(self, x: Float[Tensor, "batch pos d_model"]) -> AttentionInputs:
        """Project the stream and finish queries, keys and the rows' inverse temperatures."""
        query = self.hook_q(_project(x, self.W_Q, self.b_Q))
        key = self.hook_k(_project(x, self.W_K, self.b_K))
        value = self.hook_v(_project(x, self.W_V, self.b_V))
        if self.cfg.positional_embedding_type == "rotary":
            query = self.hook_rot_q(apply_rotary(query, self.cfg.rotary_base))
            key = self.hook_rot_k(apply_rotary(key, self.cfg.rotary_base))
        query, key, scale = self._normalised(query, key)
        n_pos = x.shape[1]
        n_key = torch.full((n_pos,), n_pos, device=x.device)
        if self.cfg.attention_dir == "causal":
            n_key = torch.arange(1, n_pos + 1, device=x.device)
        factor = None
        if self.temperature is not None:
            factor = self.hook_score_factor(self.temperature(x, n_key)[..., None])
        return AttentionInputs(query, key, value, scale, n_key, factor)

    def attend(self, inputs: AttentionInputs) -> Float[Tensor, "batch pos head d_head"]:
        """Take the weighted means of the values, the cheapest way that nobody can tell apart."""
        observed = any(is_observed(point) for point in self._row_points())
        given = None if self.watcher is None else self.watcher(self, inputs)
        if given is not None and not observed:
            return given
        if self.fused and not observed and self.normalizer.fused and not self._drops():
            return self._attend_fused(inputs)
        if observed or torch.is_grad_enabled():
            return self._attend_rows(inputs, 0, inputs.query.shape[1])
        return torch.cat([self._attend_rows(inputs, *block) for block in _blocks(inputs)], dim=1)

    def scores(
        self, inputs: AttentionInputs, start: int, stop: int
    ) -> Float[Tensor, "batch head query key"]:
        """Scores of the queries ``start..stop-1`` after the remedy, ``-inf`` where masked."""
        raw = self._products(inputs.query, inputs.key, inputs.scale, start, stop)
        if self.cfg.normalizer != "softmax":
            raw = self.hook_raw_scores(raw)
        factor = None if inputs.factor is None else inputs.factor[:, :, start:stop]
        if self.normalizer.temperature == "adaptive":
            factor = self.hook_score_factor(adaptive_inverse_temperature(self.masked(raw, start)))
        # Masked last: a factor of zero times a masked score would not be a number.
        return self.masked(raw, start) if factor is None else self._mask(raw * factor, start)

    def pattern(
        self, inputs: AttentionInputs, start: int, stop: int
    ) -> Float[Tensor, "batch head query key"]:
        """Weights of the queries ``start..stop-1``, as ``hook_pattern`` sees them."""
        scores = self.hook_attn_scores(self.scores(inputs, start, stop))
        weights = self.normalizer.weights(scores, inputs.n_key[start:stop, None], self.cfg)
        return self.hook_pattern(weights)

    def masked(
        self, scores: Float[Tensor, "batch head query key"], start: int
    ) -> Float[Tensor, "batch head query key"]:
        """Set what the queries from ``start`` on do not see to ``-inf``."""
        return scores if self.cfg.attention_dir != "causal" else self._mask(scores.clone(), start)

    def _mask(self, scores: Tensor, start: int) -> Tensor:
        """As :meth:`masked`, in place."""
        if self.cfg.attention_dir == "causal":
            n_query, n_key = scores.shape[-2:]
            hidden = torch.ones(n_query, n_key, dtype=torch.bool, device=scores.device)
            scores.masked_fill_(hidden.triu(start + 1), -torch.inf)
        return scores

    def row_factor(self, inputs: AttentionInputs) -> Float[Tensor, "#batch #head pos 1"] | None:
        """Inverse temperature of each row, also where it depends on the scores."""
        if self.normalizer.temperature != "adaptive":
            return inputs.factor
        factors = []
        for start, stop in _blocks(inputs):
            raw = self._products(inputs.query, inputs.key, inputs.scale, start, stop)
            factors.append(adaptive_inverse_temperature(self.masked(raw, start)))
        return torch.cat(factors, dim=2)

    def _drops(self) -> bool:
        return self.kept is not None or (self.training and self.cfg.attn_dropout > 0)

    def _row_points(self) -> list[HookPoint]:
        points = [self.hook_attn_scores, self.hook_pattern]
        if self.cfg.normalizer != "softmax":
            points.append(self.hook_raw_scores)
        if self.normalizer.temperature == "adaptive":
            points.append(self.hook_score_factor)
        return points

    def _normalised(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        """Queries and keys after QK-norm or nGPT's, and the factor that goes with them."""
        if self.s_qk is not None:
            query, key = _to_unit(query) * self.s_qk, _to_unit(key) * self.s_qk
            return query, key, float(self.cfg.head_width) ** 0.5
        if self.cfg.qk_norm == "none":
            return query, key, self.cfg.score_factor
        gain = self.cfg.qk_gain if self.qk_gain is None else self.qk_gain[:, None]
        return _to_unit(query) * gain, _to_unit(key), 1.0

    def _products(
        self, query: Tensor, key: Tensor, scale: float, start: int, stop: int
    ) -> Float[Tensor, "batch head query key"]:
        rows = query[:, start:stop]
        if self.cfg.normalizer == "linear":
            rows, key = feature_map(rows * scale**0.5), feature_map(key * scale**0.5)
            scale = 1.0
        scores = einsum(
            rows, key, "batch query head d_head, batch key head d_head -> batch head query key"
        )
        # In place: these are the largest arrays of a pass, and a fresh one costs more than the sum.
        scores = scores.log() if self.cfg.normalizer == "linear" else scores.mul_(scale)
        if self.cfg.positional_embedding_type == "alibi":
            bias = alibi_bias(self.cfg.n_heads, query.shape[1], scores)
            scores.add_(bias[:, start:stop])
        return scores

    def _attend_rows(self, inputs: AttentionInputs, start: int, stop: int) -> Tensor:
        weights = self.pattern(inputs, start, stop)
        if self.kept is not None:
            weights = weights * self.kept[..., start:stop, :]
        elif self._drops():
            weights = F.dropout(weights, self.cfg.attn_dropout)
        return einsum(
            weights,
            inputs.value,
            "batch head query key, batch key head d_head -> batch query head d_head",
        )

    def _attend_fused(self, inputs: AttentionInputs) -> Tensor:
        causal = self.cfg.attention_dir == "causal"
        query, factor = inputs.query.transpose(1, 2), inputs.factor
        if factor is not None:
            query = query * factor
        bias = None
        if self.cfg.positional_embedding_type == "alibi":
            bias = alibi_bias(self.cfg.n_heads, query.shape[2], query)[None]
            bias = self.masked(bias if factor is None else bias * factor, 0)
        z = F.scaled_dot_product_attention(
            query,
            inputs.key.transpose(1, 2),
            inputs.value.transpose(1, 2),
            attn_mask=bias,
            is_causal=causal and bias is None,
            scale=inputs.scale,
        )
        return z.transpose(1, 2)


def _blocks(inputs: AttentionInputs) -> list[tuple[int, int]]:
    """Queries ``start..stop-1`` of each block whose scores may be held at a time."""
    batch, n_pos, heads, _ = inputs.query.shape
    size = max(1, BLOCK_ELEMENTS // (batch * heads * n_pos))
    return [(start, min(start + size, n_pos)) for start in range(0, n_pos, size)]


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # One product for all heads: [batch, pos, d_model] times [d_model, head * d_head].
    heads, _, d_head = weight.shape
    out = (x @ weight.movedim(0, 1).flatten(1)).unflatten(-1, (heads, d_head))
    return out if bias is None else out + bias


def _to_unit(x: Float[Tensor, "*row d_head"]) -> Float[Tensor, "*row d_head"]:
    return F.normalize(x, dim=-1)
