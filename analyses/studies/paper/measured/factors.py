"""The displacement of a seen token, factorised: attention weight times a strength of its own.

Theory section 1.1, Structure. In a model of one attention-only block without norms that is uniform
on the complement at lengths 1 and 2, the displacement of a present token ``i`` other than the
query ``k`` is, at every length,

    Delta_i = a_i p_i

with its attention weight ``a_i`` and a strength ``p_i`` that no length changes. On a trained model
the strength is read off inputs of two tokens, ``p_ik = Delta_i(i, k) / a_i(i, k)``, and both
factors are measured at every other length.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .....interp.capturing import HookedModel, capture

_PATTERN = "blocks.0.attn.hook_pattern"


@dataclass(frozen=True)
class Factors:
    """The two factors over a batch; means over the keys other than the query's own.

    Attributes:
        log_weight: Mean of ``log a_i``, ``[batch]``, nats.
        log_displacement: Mean of ``log Delta_i``, ``[batch]``, nats; NaN where some present token
            is not displaced (a logarithm of nothing, and leaving it out would flatter).
        error: Largest ``|Delta_i / (a_i p_ik) - 1|``, ``[batch]``, ratio.
        balance: Displacement of the query's own token over the mean of the others, ``[batch]``,
            ratio: 1 in a *balanced* solution.
    """

    log_weight: Float[Tensor, " batch"]
    log_displacement: Float[Tensor, " batch"]
    error: Float[Tensor, " batch"]
    balance: Float[Tensor, " batch"]


def key_displacements(
    model: HookedModel, tokens: Int[Tensor, "batch pos"]
) -> tuple[Float[Tensor, "batch key"], Float[Tensor, "batch key"]]:
    """Attention weights of the last query, and how far each key's own logit is displaced.

    Args:
        model: One block, one head.
        tokens: Inputs without repetitions.

    Returns:
        ``a_i`` and ``mean absent logit - f_i``, both ``[batch, key]``, float64.
    """
    found = capture(model, tokens, {_PATTERN: lambda pattern: pattern[:, 0, -1].double().cpu()})
    logits = found.logits[:, -1].double().cpu()
    present = torch.zeros_like(logits).scatter(1, tokens, 1.0) > 0
    absent = torch.where(present, 0.0, logits).sum(-1) / (~present).sum(-1)
    return found.values[_PATTERN], absent[:, None] - logits.gather(1, tokens)


def pair_strengths(model: HookedModel, vocabulary: int) -> Float[Tensor, "token query"]:
    """``p_ik`` of every token ``i`` before every query ``k``, in logits; NaN for ``i = k``."""
    pairs = torch.cartesian_prod(torch.arange(vocabulary), torch.arange(vocabulary))
    different = pairs[pairs[:, 0] != pairs[:, 1]]
    weights, displaced = key_displacements(model, different)
    strengths = torch.full((vocabulary, vocabulary), torch.nan, dtype=torch.float64)
    strengths[different[:, 0], different[:, 1]] = displaced[:, 0] / weights[:, 0]
    return strengths


def factorise(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    strengths: Float[Tensor, "token query"],
) -> Factors:
    """Both factors on inputs of one length; NaN everywhere at length 1, which has no other key.

    Args:
        model: One block, one head, no norms.
        tokens: Inputs without repetitions; the last token is the query.
        strengths: What :func:`pair_strengths` gave.
    """
    if tokens.shape[1] < 2:
        nothing = torch.full((len(tokens),), torch.nan, dtype=torch.float64)
        return Factors(nothing, nothing, nothing, nothing)
    weights, displaced = key_displacements(model, tokens)
    own, weights, displaced = displaced[:, -1], weights[:, :-1], displaced[:, :-1]
    predicted = weights * strengths[tokens[:, :-1], tokens[:, -1:]]
    positive = (displaced > 0).all(-1)
    return Factors(
        log_weight=weights.log().mean(-1),
        log_displacement=torch.where(
            positive, displaced.clamp(min=1e-300).log().mean(-1), torch.nan
        ),
        error=(displaced / predicted - 1).abs().amax(-1),
        balance=own / displaced.mean(-1),
    )
