"""How widely a row of attention spreads: entropy, support, masses, and the spread of its scores.

A row is one query with its ``n`` visible keys, scores ``s`` and weights ``a = softmax(s)``
(theory section 0). Every function takes rows along the last axis, any leading axes, and a boolean
mask ``visible`` that broadcasts to the array; keys outside the mask are never read. Half-precision
rows are widened to float32 first; float64 stays float64.

Weights are taken as they are, neither clamped nor renormalised: a negative weight gives an entropy
of ``-inf``, a NaN weight gives NaN. A row whose weights do not sum to one (a sink logit took the
rest) is the reader's to divide by its sum, if the distribution over the keys is meant.

=====================  ===================  =====================
quantity               no visible key       one visible key
=====================  ===================  =====================
``entropy``            NaN                  0
``normalised_entropy`` NaN                  NaN (``log 1 = 0``)
supports, masses       NaN                  1 (masses: 0 or 1)
spread, deviation      NaN                  0
=====================  ===================  =====================
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .precision import mask_like, widen


def _row(array: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
    """Widened array and its mask."""
    wide = widen(array)
    return wide, mask_like(visible, wide, "visible")


def _where_defined(values: Tensor, mask: Tensor) -> Tensor:
    """NaN where a row has no visible key."""
    return torch.where(mask.any(-1), values, torch.nan)


def _weights(weights: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
    """Widened weights with exact zeros on the keys that are not visible, and the mask."""
    wide, mask = _row(weights, visible)
    return torch.where(mask, wide, 0.0), mask


def key_count(visible: Bool[Tensor, "*row key"]) -> Int[Tensor, "*row"]:
    """``n_key``: the number of visible keys of each row; unit 1, range ``[0, key]``."""
    return visible.sum(-1)


def entropy(
    weights: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """``H = -sum_j a_j log a_j`` in nats, range ``[0, log n_key]``; NaN without a visible key.

    Shannon entropy (theory section 0); fully dispersed at ``log n_key``.
    """
    kept, mask = _weights(weights, visible)
    return _where_defined(torch.special.entr(kept).sum(-1), mask)


def normalised_entropy(
    weights: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """``H / log n_key``, a ratio in ``[0, 1]``; NaN with fewer than two visible keys.

    Theory section 0; one is fully dispersed.
    """
    kept, mask = _weights(weights, visible)
    count = key_count(mask).to(kept.dtype)
    ratio = torch.special.entr(kept).sum(-1) / count.log()
    return torch.where(count > 1, ratio, torch.nan)


def effective_support(
    weights: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """``1 / sum_j a_j**2``, unit 1, range ``[1, n_key]``; NaN without a visible key.

    The participation ratio (theory section 0): the number of keys that share the mass evenly.
    """
    kept, mask = _weights(weights, visible)
    return _where_defined(kept.square().sum(-1).reciprocal(), mask)


def entropy_support(
    weights: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """``e**H``, unit 1, range ``[1, n_key]``; NaN without a visible key.

    The perplexity of the row (theory section 0), never below :func:`effective_support`.
    """
    return entropy(weights, visible).exp()


def max_weight(
    weights: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """``max_j a_j``, a ratio in ``[1/n_key, 1]``; NaN without a visible key.

    Theory section 0.
    """
    kept, mask = _weights(weights, visible)
    return _where_defined(kept.amax(-1), mask)


def total_mass(
    unnormalised: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """``sum_j a_j``, unit 1: what a row gives away where its weights need not sum to one.

    Sigmoid attention may give more than 1, softmax-plus-one less, differential attention
    ``1 - λ`` (theory section 16); NaN without a visible key.
    """
    kept, mask = _weights(unnormalised, visible)
    return _where_defined(kept.sum(-1), mask)


def top_k_mass(
    weights: Float[Tensor, "*row key"],
    visible: Bool[Tensor, "*#row #key"] | None = None,
    k: int = 4,
) -> Float[Tensor, "*row"]:
    """Sum of the ``k`` largest weights, a ratio in ``[min(k, n_key)/n_key, 1]``.

    With ``k`` visible keys or fewer it is the whole mass; NaN without a visible key.

    Raises:
        ValueError: If ``k`` is less than 1.
    """
    if k < 1:
        raise ValueError(f"k, the number of largest weights, must be 1 or more; got {k}")
    kept, mask = _weights(weights, visible)
    top = kept.topk(min(k, kept.shape[-1]), dim=-1).values
    return _where_defined(top.sum(-1), mask)


def relevant_mass(
    weights: Float[Tensor, "*row key"],
    relevant: Bool[Tensor, "*#row #key"],
    visible: Bool[Tensor, "*#row #key"] | None = None,
) -> Float[Tensor, "*row"]:
    """``sum of a_j over relevant j``, a ratio in ``[0, 1]``; NaN without a visible key.

    The task says which keys are relevant; 0 where none of the visible ones is.
    """
    kept, mask = _weights(weights, visible)
    chosen = mask_like(relevant, kept, "relevant")
    return _where_defined(torch.where(chosen, kept, 0.0).sum(-1), mask)


def irrelevant_mass(
    weights: Float[Tensor, "*row key"],
    relevant: Bool[Tensor, "*#row #key"],
    visible: Bool[Tensor, "*#row #key"] | None = None,
) -> Float[Tensor, "*row"]:
    """``sum of a_j over visible j that are not relevant``, a ratio in ``[0, 1]``.

    Summed, not taken as one minus :func:`relevant_mass`; NaN without a visible key.
    """
    kept, mask = _weights(weights, visible)
    chosen = mask_like(relevant, kept, "relevant")
    return _where_defined(torch.where(chosen, 0.0, kept).sum(-1), mask)


def sink_mass(
    weights: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """Weight of the first visible key, a ratio in ``[0, 1]``; NaN without a visible key.

    Theory section 0.
    """
    kept, mask = _weights(weights, visible)
    first = mask.to(torch.uint8).argmax(-1, keepdim=True)
    return _where_defined(kept.gather(-1, first).squeeze(-1), mask)


def score_spread(
    scores: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """``delta = max_j s_j - min_j s_j`` over visible keys, unit 1, range ``[0, inf)``.

    The ``delta`` of Veličković et al. (arXiv 2410.01104), theory sections 0 and 2. Scores after
    scaling, soft-cap and bias. NaN without a visible key.
    """
    wide, mask = _row(scores, visible)
    highest = torch.where(mask, wide, -torch.inf).amax(-1)
    lowest = torch.where(mask, wide, torch.inf).amin(-1)
    return _where_defined(highest - lowest, mask)


def score_deviation(
    scores: Float[Tensor, "*row key"], visible: Bool[Tensor, "*#row #key"] | None = None
) -> Float[Tensor, "*row"]:
    """``sqrt(mean_j (s_j - mean s)**2)`` over visible keys, unit 1, range ``[0, inf)``.

    The standard deviation under the uniform measure over the visible keys (divided by ``n_key``,
    not ``n_key - 1``): the ``sigma`` of Gaussian scores, theory section 0. NaN without a visible
    key.
    """
    wide, mask = _row(scores, visible)
    count = key_count(mask).to(wide.dtype)[..., None]
    mean = torch.where(mask, wide, 0.0).sum(-1, keepdim=True) / count
    square = torch.where(mask, wide - mean, 0.0).square().sum(-1, keepdim=True) / count
    return _where_defined(square.sqrt().squeeze(-1), mask)
