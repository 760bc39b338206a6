"""nGPT: everything on the unit sphere.

Loshchilov, Hsieh, Sun and Ginsburg, *nGPT* (arXiv 2410.01131; theory section 12). With ``U(x)`` =
``x / |x|`` and learned vectors ``a``, ``s``, each sub-layer ``F`` moves the stream along the arc
towards its own normalised output, and every weight vector along ``d_model`` has length one:

    x <- U(x + |a| (U(F(x)) - x)),    queries and keys: s_qk U(.),  softmax scale sqrt(d_head),
    hidden pre-activations times s_u sqrt(d_model),    logits times s_z

:func:`normalise_weights` puts the weights back on the sphere after each optimiser step, as the
authors do. Our MLP has no gate, so their second scale ``s_v`` has no counterpart. Learned scales
are stored as they act, without the authors' division by a fixed number, which only changes their
learning rate.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from .config import TransformerConfig

STEP_INIT = 0.05
"""Initial ``a``: how far a sub-layer moves the stream towards its output."""

# Axis of d_model, counted from the end so that leading axes (a stack of seeds) do not matter.
_D_MODEL_AXIS = {
    "W_E": -1,
    "W_pos": -1,
    "W_U": -2,
    "W_Q": -2,
    "W_K": -2,
    "W_V": -2,
    "W_Q2": -2,
    "W_K2": -2,
    "W_O": -1,
    "W_in": -2,
    "W_out": -1,
}


class UnitNorm(nn.Module):
    """``x / |x|``, the mean taken off first for the LayerNorm types.

    Attributes:
        w, b: ``None``: no gain and no bias.
        centred: Whether the mean is taken off first.
        hook_scale: Fires with ``|x|``, ``[batch, pos, 1]``.
        hook_normalized: Fires with ``x / |x|``, ``[batch, pos, d_model]``.
    """

    w = None
    b = None

    def __init__(self, cfg: TransformerConfig) -> None:
        """Create the norm."""
        super().__init__()
        self.eps = cfg.eps
        self.centred = cfg.normalization_type in ("LN", "LNPre")
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row d_model"]:
        """Set the length to one."""
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        # The epsilon of the other norms is added to a mean square, not to a sum.
        squares = x.square().sum(-1, keepdim=True) + self.eps / x.shape[-1]
        return self.hook_normalized(x / self.hook_scale(squares.sqrt()))


@torch.no_grad()
def normalise_weights(parameters: Iterable[tuple[str, Tensor]]) -> None:
    """Set every weight vector along ``d_model`` to length one, in place.

    Args:
        parameters: Names, whose last part says which weight it is, and weights; leading axes beyond
            the usual ones are allowed.
    """
    for name, weight in parameters:
        axis = _D_MODEL_AXIS.get(name.rsplit(".", 1)[-1])
        if axis is not None:
            weight.div_(weight.norm(dim=axis, keepdim=True).clamp_min(1e-12))
