"""How far the model's next-token distribution lies from the exact one.

``p = softmax(logits)``, ``t`` the exact distribution, divided by its own sum (in half or single
precision it sums to one only to rounding). A row whose target is not a distribution (its entries do
not sum to one within 1e-3: no token may follow) gives NaN.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .precision import widen

_SUM_TOLERANCE = 1e-3


def _pair(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, target in the same dtype, and where the target is a distribution."""
    if target.shape[-1:] != logits.shape[-1:]:
        raise ValueError(
            f"target must have as many output tokens as the logits, {tuple(logits.shape[-1:])}; "
            f"got {tuple(target.shape[-1:])}"
        )
    log_p = torch.log_softmax(widen(logits), dim=-1)
    exact = target.to(log_p.dtype)
    total = exact.sum(-1, keepdim=True)
    defined = ((total[..., 0] - 1).abs() <= _SUM_TOLERANCE) & (exact >= 0).all(-1)
    return log_p, exact / total, defined


def total_variation(
    logits: Float[Tensor, "*row d_vocab_out"], target: Float[Tensor, "*row d_vocab_out"]
) -> Float[Tensor, "*row"]:
    """``sum_i |p_i - t_i| / 2``, a ratio in ``[0, 1]`` (theory section 1.1, "Error metric").

    Raises:
        ValueError: If logits and target differ in the number of output tokens.
    """
    log_p, exact, defined = _pair(logits, target)
    return torch.where(defined, (log_p.exp() - exact).abs().sum(-1) / 2, torch.nan)


def kl_divergence(
    logits: Float[Tensor, "*row d_vocab_out"], target: Float[Tensor, "*row d_vocab_out"]
) -> Float[Tensor, "*row"]:
    """``KL(t || p) = sum_i t_i log(t_i / p_i)`` in nats, range ``[0, inf)``.

    Summed as ``sum_i t_i (e^u_i - 1 - u_i) + sum of p over t_i = 0`` with ``u = log(p / t)``: the
    same number, since both distributions sum to one, in terms that are zero or more, so that a
    model at its optimum does not come out negative by cancellation.

    Raises:
        ValueError: If logits and target differ in the number of output tokens.
    """
    log_p, exact, defined = _pair(logits, target)
    legal = exact > 0
    u = log_p - torch.where(legal, exact, 1.0).log()
    terms = torch.where(legal, exact * (torch.expm1(u) - u), log_p.exp())
    return torch.where(defined, terms.sum(-1), torch.nan)


def illegal_mass(
    logits: Float[Tensor, "*row d_vocab_out"], target: Float[Tensor, "*row d_vocab_out"]
) -> Float[Tensor, "*row"]:
    """``sum of p_i over t_i = 0``, a ratio in ``[0, 1]``: the mass on tokens that may not follow.

    Raises:
        ValueError: If logits and target differ in the number of output tokens.
    """
    log_p, exact, defined = _pair(logits, target)
    return torch.where(defined, torch.where(exact > 0, 0.0, log_p.exp()).sum(-1), torch.nan)
