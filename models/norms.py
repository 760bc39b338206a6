"""LayerNorm and RMSNorm whose scale and output are live hook points.

Both divide by a scale and, unless the type ends in ``Pre``, apply a learned gain (and, for
LayerNorm, a bias):

    RMSNorm:    scale = sqrt(mean(x**2) + eps),          y = w * x / scale
    LayerNorm:  scale = sqrt(mean((x-mean(x))**2) + eps), y = w * (x-mean(x)) / scale + b

The arithmetic is always written out, never a fused kernel, so that the value that passes through
``hook_scale`` is the value that is divided by: an edit there changes the logits in training mode,
under ``no_grad``, and whether or not attention is fused.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from .config import TransformerConfig


class Norm(nn.Module):
    """One norm over the last axis, of the type that the configuration names.

    Attributes:
        centred: Whether the mean is taken off first (LayerNorm).
        w: Gain ``[d_model]``, or ``None`` for the types that end in ``Pre``.
        b: Bias ``[d_model]``, LayerNorm with gain only, else ``None``.
        hook_scale: Fires with the scale, ``[batch, pos, 1]``.
        hook_normalized: Fires with ``x / scale`` before gain and bias, ``[batch, pos, d_model]``,
            as in TransformerLens 3.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        """Create the norm with gain one and bias zero."""
        super().__init__()
        self.eps = cfg.eps
        self.centred = cfg.normalization_type in ("LN", "LNPre")
        has_gain = cfg.normalization_type in ("LN", "RMS")
        self.w = nn.Parameter(torch.ones(cfg.d_model)) if has_gain else None
        self.b = nn.Parameter(torch.zeros(cfg.d_model)) if has_gain and self.centred else None
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row d_model"]:
        """Normalise; same shape and dtype as the input, the square summed in float32 or wider."""
        wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
        if self.centred:
            wide = wide - wide.mean(-1, keepdim=True)
        scale = self.hook_scale((wide.square().mean(-1, keepdim=True) + self.eps).sqrt())
        return self.gain(self.hook_normalized(wide / scale).to(x.dtype))

    def gain(self, normalized: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row d_model"]:
        """Apply gain and bias, where there are any."""
        if self.w is not None:
            normalized = normalized * self.w
        return normalized if self.b is None else normalized + self.b
