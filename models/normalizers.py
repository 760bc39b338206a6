"""From the scores of a row to its weights: softmax and its remedies, one table.

For a query ``i`` with ``n`` visible keys and scores ``s_j`` (``n`` counts keys, never positions of
the whole sequence), a normalizer multiplies the scores by an inverse temperature ``β`` of the row
(:mod:`resharpen.models.temperatures`) and maps them to weights:

==================  =============================  ===============================  ==============
name                ``β`` of the row               weights ``a_j``                  row sums to
==================  =============================  ===============================  ==============
``softmax``         1                              ``e^{s_j} / Σ e^{s}``            1
``temperature``     ``cfg.inverse_temperature``    softmax                          1
``sqrt_log_n``      ``(log n)^½``                  softmax                          1
``log_n``           ``log n``                      softmax                          1
``ssmax``           ``s log n``, ``s`` learned     softmax                          1
``ssmax_bias``      ``s log n + b``, both learned  softmax                          1
``adaptive``        polynomial of the entropy      softmax                          1
``selective``       ``1 + σ(α) log n + tanh(x·w)`` softmax                          1
``entmax``          1                              ``[(α-1)s_j - τ]_+^{1/(α-1)}``   1
``asentmax``        ``1 + b(x) (log n)^{g(x)}``    the same                         1
``softmax1``        1                              ``e^{s_j} / (1 + Σ e^{s})``      less than 1
``sigmoid``         1                              ``1 / (1 + n e^{-s_j})``         anything
``differential``    1                              ``softmax(s) - λ softmax(s')``   ``1 - λ``
``hardmax``         infinite                       equal over the largest           1
``linear``          1                              ``φ(q)·φ(k_j) / Σ φ(q)·φ(k)``    1
==================  =============================  ===============================  ==============

Masked scores are ``-inf`` and get weight zero. Sources: theory sections 2, 3, 7, 9, 14 and 16, and
the ``source`` of each entry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from entmax import entmax15, entmax_bisect, sparsemax
from jaxtyping import Float
from torch import Tensor

from .config import TransformerConfig

WeightMap = Callable[[Tensor, Tensor, TransformerConfig], Tensor]
"""``weights = map(scores [batch, head, query, key], n_key [query, 1], cfg)``."""


@dataclass(frozen=True)
class Normalizer:
    """One way from scores to weights.

    Attributes:
        temperature: Name of the row's inverse temperature in
            :data:`~resharpen.models.temperatures.TEMPERATURES`, or ``None`` for one.
        weights: From scores to weights.
        fused: Whether a fused softmax kernel computes it, with the query scaled by ``β``.
        has_gradient: Whether it can be trained.
        source: Where it was published.
    """

    temperature: str | None
    weights: WeightMap
    fused: bool
    has_gradient: bool
    source: str


def softmax_weights(scores: Tensor, n_key: Tensor, cfg: TransformerConfig) -> Tensor:
    """``e^{s_j} / Σ e^{s}``."""
    return torch.softmax(scores, dim=-1)


def softmax1_weights(scores: Tensor, n_key: Tensor, cfg: TransformerConfig) -> Tensor:
    """``e^{s_j} / (1 + Σ e^{s})``: softmax beside one more key of score zero and value zero."""
    return torch.exp(scores - torch.logaddexp(_logsumexp(scores), scores.new_zeros(())))


def sigmoid_weights(scores: Tensor, n_key: Tensor, cfg: TransformerConfig) -> Tensor:
    """``σ(s_j - log n)``: a row of equal scores ``s`` has the mass ``n / (1 + n e^{-s})``."""
    return torch.sigmoid(scores - torch.log(n_key.to(scores.dtype)))


def entmax_weights(scores: Tensor, n_key: Tensor, cfg: TransformerConfig) -> Tensor:
    """``[(α-1) s_j - τ]_+^{1/(α-1)}`` with ``τ`` such that the row sums to one."""
    return _Entmax.apply(scores, cfg.entmax_alpha)  # type: ignore[return-value]


def hardmax_weights(scores: Tensor, n_key: Tensor, cfg: TransformerConfig) -> Tensor:
    """Equal weights on the keys of the largest score; no gradient."""
    largest = scores == scores.amax(-1, keepdim=True)
    return largest / largest.sum(-1, keepdim=True).to(scores.dtype)


def _logsumexp(scores: Tensor) -> Tensor:
    return torch.logsumexp(scores, dim=-1, keepdim=True)


class _Entmax(torch.autograd.Function):
    """The projection of the ``entmax`` package, with the rule that lets it run under ``vmap``.

    Backward: with ``g = a^{2-α}`` on the support, ``ds = g (da - <g, da> / Σ g)`` (Peters et al.
    2019, arXiv 1905.05702).
    """

    @staticmethod
    def forward(scores: Tensor, alpha: float) -> Tensor:
        # A masked key must be out of the support, but finite: the package squares its input. A row
        # that is not a number would have no support at all, which the package cannot index.
        broken = scores.isnan().any(-1, keepdim=True)
        scores = torch.where(broken, 0.0, scores)
        scores = torch.maximum(scores, scores.amax(-1, keepdim=True) - 2.0 / (alpha - 1.0))
        if alpha == 1.5:
            weights = entmax15(scores, dim=-1)
        elif alpha == 2.0:
            weights = sparsemax(scores, dim=-1)
        else:
            weights = entmax_bisect(scores, alpha=alpha, dim=-1)
        return weights.masked_fill(broken, torch.nan)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.alpha = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        slope = torch.where(weights > 0, weights.clamp_min(0) ** (2 - ctx.alpha), 0.0)
        mean = (slope * gradients[0]).sum(-1, keepdim=True) / slope.sum(-1, keepdim=True)
        return slope * (gradients[0] - mean), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        scores, alpha = inputs
        return _Entmax.apply(scores.movedim(in_dims[0], 0), alpha), 0  # type: ignore[return-value]


NORMALIZERS: dict[str, Normalizer] = {
    "softmax": Normalizer(None, softmax_weights, True, True, "Vaswani et al. 2017, 1706.03762"),
    "temperature": Normalizer("fixed", softmax_weights, True, True, "fixed inverse temperature"),
    "sqrt_log_n": Normalizer(
        "sqrt_log_n", softmax_weights, True, True, "Giorlandino & Goldt, 2505.24333"
    ),
    "log_n": Normalizer("log_n", softmax_weights, True, True, "Chiang & Cholak 2022, 2202.12172"),
    "ssmax": Normalizer("ssmax", softmax_weights, True, True, "Nakanishi 2025, 2501.19399"),
    "ssmax_bias": Normalizer(
        "ssmax_bias", softmax_weights, True, True, "Nakanishi 2025, 2501.19399 (bias variant)"
    ),
    "adaptive": Normalizer(
        "adaptive", softmax_weights, False, True, "Veličković et al. 2024, 2410.01104"
    ),
    "selective": Normalizer(
        "selective", softmax_weights, True, True, "Zhang et al. 2024, 2411.12892"
    ),
    "entmax": Normalizer(None, entmax_weights, False, True, "Peters et al. 2019, 1905.05702"),
    "asentmax": Normalizer(
        "asentmax", entmax_weights, False, True, "Vasylenko et al. 2025, 2506.16640"
    ),
    "softmax1": Normalizer(None, softmax1_weights, False, True, "Miller 2023, softmax plus one"),
    "sigmoid": Normalizer(
        None, sigmoid_weights, False, True, "Ramapuram et al. 2024, 2409.04431, bias -log n"
    ),
    "differential": Normalizer(None, softmax_weights, False, True, "Ye et al. 2024, 2410.05258"),
    "hardmax": Normalizer(None, hardmax_weights, False, False, "Alcalde et al. 2024, 2407.01602"),
    "linear": Normalizer(
        None, softmax_weights, False, True, "Katharopoulos et al. 2020, 2006.16236"
    ),
}
"""Normalizer by the name that ``TransformerConfig.normalizer`` takes."""


def feature_map(x: Float[Tensor, "*row d_head"]) -> Float[Tensor, "*row d_head"]:
    """``elu(x) + 1``, the positive features of linear attention (arXiv 2006.16236, equation 7)."""
    return torch.nn.functional.elu(x) + 1
