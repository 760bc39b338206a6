"""The frozen-scale intervention: what the logits would be if no norm noticed the length.

Every norm divides by a scale that depends on its input. Hold each scale at what the token at that
position gets when it stands alone, and the norms become fixed linear maps; the ratio of the live
to the frozen displacement is then exactly the part of the displacement that the norms restore. In a
one-block attention-only post-norm RMS model it is ``scale(alone) / scale(here)`` of the last token
(theory section 1.1, "Norm resharpens"; this project's own decomposition).

Hypotheses: a model without positions, where "the same token alone" has one meaning. With positions
the reference is the token at position 0 (position 1 after a beginning-of-sequence token), whose
positional embedding differs from that of the place it is compared with.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..models.facts import Facts
from ..models.sites import list_sites
from .capturing import Hook, HookedModel, capture

_CHUNK = 1024


@dataclass(frozen=True, repr=False)
class AloneScales(Facts):
    """The scale that each token gets at each norm when it stands alone.

    Attributes:
        tokens: Distinct token ids, increasing, ``[token]``, int64.
        scales: By name of the norm's ``hook_scale``, ``[token]``, in the model's dtype; empty for a
            model without norms.
    """

    tokens: Int[Tensor, "token"]
    scales: Mapping[str, Float[Tensor, "token"]]

    def at(self, name: str, tokens: Int[Tensor, "*place"]) -> Float[Tensor, "*place 1"]:
        """Look up the scale alone of each given token at one norm.

        Raises:
            ValueError: If the norm or a token is not among those that were measured.
        """
        if name not in self.scales:
            raise ValueError(
                f"no scale was measured at {name!r}; there are {', '.join(self.scales) or 'none'}"
            )
        wanted = tokens.to(self.tokens).contiguous()
        index = torch.searchsorted(self.tokens, wanted).clamp(max=len(self.tokens) - 1)
        if not torch.equal(self.tokens[index], wanted):
            strange = wanted[self.tokens[index] != wanted].flatten()[0]
            raise ValueError(f"token {int(strange)} was not among those measured alone")
        return self.scales[name][index][..., None]


def alone_scales(
    model: HookedModel,
    tokens: Int[Tensor, "*place"],
    bos: int | None = None,
    norms: Iterable[str] | None = None,
) -> AloneScales:
    """Measure every norm's scale for each distinct token on its own.

    The input is ``[token]``, or ``[bos, token]`` where the task has a beginning-of-sequence token;
    ``bos`` itself is measured as ``[bos]``. Each distinct token is run once.

    Args:
        model: A model with hook points; restored afterwards.
        tokens: Token ids of any shape.
        bos: Id of the beginning-of-sequence token, if the task has one.
        norms: Names of the ``hook_scale`` to measure; all of the model's when not given.

    Raises:
        ValueError: If there are no tokens, a name is no hook point, or a scale is not of shape
            ``[batch, pos, 1]``.
    """
    distinct = torch.unique(tokens.detach().to("cpu", torch.int64))
    if not distinct.numel():
        raise ValueError("there are no tokens to measure alone")
    all_names = (site.name for site in list_sites(model, "norm_scale"))
    names = list(all_names if norms is None else norms)
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    if names:
        for chunk in distinct.split(_CHUNK):
            inputs = chunk[:, None]
            if bos is not None:
                inputs = torch.cat((torch.full_like(inputs, bos), inputs), dim=1)
            for name, scale in _last_scales(model, inputs, names).items():
                found[name].append(scale)
    scales = {name: torch.cat(parts) for name, parts in found.items()}
    if bos is not None and names:
        for name, scale in _last_scales(model, torch.tensor([[bos]]), names).items():
            scales[name][distinct == bos] = scale
    return AloneScales(distinct, scales)


def _last_scales(model: HookedModel, inputs: Tensor, names: list[str]) -> dict[str, Tensor]:
    batch, pos = inputs.shape

    def read(name: str, scale: Tensor) -> Tensor:
        if scale.shape != (batch, pos, 1):
            raise ValueError(
                f"{name} must have shape {[batch, pos, 1]} to be frozen; got {list(scale.shape)}"
            )
        return scale[:, -1, 0].to("cpu", copy=True)

    def reader(name: str) -> Any:
        return lambda scale: read(name, scale)

    return dict(capture(model, inputs, {name: reader(name) for name in names}).values)


def frozen_scale_hooks(
    alone: AloneScales, tokens: Int[Tensor, "batch pos"]
) -> list[tuple[str, Hook]]:
    """Hooks that replace every norm's scale by that of the token at the position, alone.

    Pass them to ``model.run_with_hooks(tokens, fwd_hooks=...)``, or as ``edits`` to
    :func:`~resharpen.interp.capturing.capture`. Empty for a model without norms.

    Raises:
        ValueError: If a token was not measured alone; or, when the hook fires, if the scale has
            another shape than ``[batch, pos, 1]``.
    """

    def freeze(name: str) -> Hook:
        frozen = alone.at(name, tokens)

        def hook_function(scale: Tensor, hook: Any) -> Tensor:
            if scale.shape != frozen.shape:
                raise ValueError(
                    f"{name} has shape {list(scale.shape)}, but the frozen scale of these tokens "
                    f"has {list(frozen.shape)}"
                )
            return frozen.to(scale)

        return hook_function

    return [(name, freeze(name)) for name in alone.scales]


def frozen_logits(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    bos: int | None = None,
    alone: AloneScales | None = None,
) -> Float[Tensor, "batch pos d_vocab_out"]:
    """Run the model with every norm's scale frozen.

    Args:
        model: A model with hook points; restored afterwards.
        tokens: Token ids ``[batch, pos]``.
        bos: Id of the beginning-of-sequence token, if the task has one.
        alone: What :func:`alone_scales` gave, when it is at hand.

    Raises:
        ValueError: As :func:`alone_scales` and :func:`frozen_scale_hooks`.
    """
    measured = alone_scales(model, tokens, bos) if alone is None else alone
    return capture(model, tokens, {}, edits=frozen_scale_hooks(measured, tokens)).logits
