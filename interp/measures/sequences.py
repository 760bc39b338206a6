"""From errors at every position to one number a sequence.

With ``i_t`` the illegal mass at position ``t``, ``p_t`` the model's distribution there and ``t_t``
the exact one, over the positions whose target is a distribution (elsewhere :mod:`.error` gives NaN,
which is left out here; a sequence without any gives NaN):

    mean over positions   1/T Σ_t e_t, of any error e
    all legal rate        Π_t (1 - i_t)
    legal set rate        1 if {a : p_t(a) >= θ_t} = {a : t_t(a) > 0} at every t, else 0

The last two ask for the whole sequence at once, as Bhattamishra et al. (arXiv 2009.11264; theory
section 15) do: a string counts only if every position is right. Theirs compares k-hot sets with
sigmoid outputs at the threshold 0.5; of a distribution over legal tokens the like is half of the
smallest probability that a legal token should have, ``θ_t = min {t_t(a) : t_t(a) > 0} / 2``, which
under a uniform target over ``L`` legal tokens is ``1 / (2 L)``.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .error import illegal_mass


def mean_over_positions(values: Float[Tensor, "*row pos"]) -> Float[Tensor, "*row"]:
    """Mean of the defined positions, in the unit and the range of the values.

    Returns:
        NaN for a row that has none.
    """
    return values.nanmean(-1)


def all_legal_rate(illegal: Float[Tensor, "*row pos"]) -> Float[Tensor, "*row"]:
    """``Π (1 - illegal mass)`` over the defined positions, a ratio in ``[0, 1]``.

    The probability that one token drawn from the model at each position is legal at all of them,
    every prefix being the given one.

    Returns:
        NaN for a row that has no defined position.
    """
    defined = ~illegal.isnan()
    product = torch.where(defined, 1 - illegal, 1.0).prod(-1)
    return torch.where(defined.any(-1), product, torch.nan)


def legal_set_rate(
    logits: Float[Tensor, "*row pos d_vocab_out"], target: Float[Tensor, "*row pos d_vocab_out"]
) -> Float[Tensor, "*row"]:
    """1 where at every defined position exactly the legal tokens reach the threshold, else 0.

    Legal is what has a positive probability in the target; the threshold is half of the smallest of
    these. The mean over sequences is the share of sequences that are right throughout.

    Returns:
        NaN for a row that has no defined position.

    Raises:
        ValueError: If logits and target differ in the number of output tokens.
    """
    undefined = illegal_mass(logits, target).isnan()
    legal = target > 0
    smallest = torch.where(legal, target, torch.inf).amin(-1, keepdim=True)
    probability = torch.softmax(logits.double(), dim=-1)
    same = ((probability >= smallest.double() / 2) == legal).all(-1)
    right = (same | undefined).all(-1).to(torch.float64)
    return torch.where(undefined.all(-1), torch.nan, right)
