"""How far the logits of the tokens that were seen lie below those of the tokens still to come.

For the Set Complement Task (theory section 1.1). ``present`` marks the output tokens that the
input holds, ``absent`` those that may follow; tokens in neither are not read. With ``m`` the mean
logit of the absent tokens, the displacement of a present token ``i`` is ``m - f_i``.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .precision import mask_like, widen


def _masks(
    logits: Tensor, present: Tensor, absent: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Widened logits, both masks, and where both have a token."""
    wide = widen(logits)
    here = mask_like(present, wide, "present")
    gone = ~here if absent is None else mask_like(absent, wide, "absent")
    return wide, here, gone, here.any(-1) & gone.any(-1)


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1)


def displacement(
    logits: Float[Tensor, "*row d_vocab_out"],
    present: Bool[Tensor, "*#row #d_vocab_out"],
    absent: Bool[Tensor, "*#row #d_vocab_out"] | None = None,
) -> Float[Tensor, "*row"]:
    """``mean over present i of (mean absent logit - f_i)``, unit logit, any sign.

    Positive: the tokens that were seen are suppressed. ``absent`` defaults to everything that is
    not present. NaN where nothing is present or nothing is absent.
    """
    wide, here, gone, defined = _masks(logits, present, absent)
    return torch.where(defined, _masked_mean(wide, gone) - _masked_mean(wide, here), torch.nan)


def min_displacement(
    logits: Float[Tensor, "*row d_vocab_out"],
    present: Bool[Tensor, "*#row #d_vocab_out"],
    absent: Bool[Tensor, "*#row #d_vocab_out"] | None = None,
) -> Float[Tensor, "*row"]:
    """``mean absent logit - max over present i of f_i``, unit logit, any sign.

    The displacement of the worst present token, never above :func:`displacement`. NaN where nothing
    is present or nothing is absent.
    """
    wide, here, gone, defined = _masks(logits, present, absent)
    worst = torch.where(here, wide, -torch.inf).amax(-1)
    return torch.where(defined, _masked_mean(wide, gone) - worst, torch.nan)


def oscillation(
    logits: Float[Tensor, "*row d_vocab_out"], absent: Bool[Tensor, "*#row #d_vocab_out"]
) -> Float[Tensor, "*row"]:
    """``max - min over absent tokens of f``, unit logit, range ``[0, inf)``.

    The ``osc`` of theory section 1.1: zero for a model that is exactly uniform on the complement.
    NaN where nothing is absent.
    """
    wide = widen(logits)
    gone = mask_like(absent, wide, "absent")
    highest = torch.where(gone, wide, -torch.inf).amax(-1)
    lowest = torch.where(gone, wide, torch.inf).amin(-1)
    return torch.where(gone.any(-1), highest - lowest, torch.nan)


def displacement_rescale(
    logits: Float[Tensor, "*row d_vocab_out"],
    frozen_logits: Float[Tensor, "*row d_vocab_out"],
    present: Bool[Tensor, "*#row #d_vocab_out"],
    absent: Bool[Tensor, "*#row #d_vocab_out"] | None = None,
) -> Float[Tensor, "*row"]:
    """``displacement / displacement with frozen scales``, a ratio of any sign.

    ``frozen_logits`` come from the same model and input with every norm's scale held at what the
    token at that position gets alone (:mod:`resharpen.interp.frozen`), so the ratio is the part of
    the displacement that the norms restore; 1 without norms. NaN where the frozen displacement is
    zero, or nothing is present or absent.
    """
    frozen = displacement(frozen_logits, present, absent)
    live = displacement(logits, present, absent)
    return torch.where(frozen == 0, torch.nan, live / frozen)
