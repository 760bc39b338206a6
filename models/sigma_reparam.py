"""σReparam: every weight matrix divided by its largest singular value and given a learned gain.

Zhai et al., *Stabilizing Transformer Training by Preventing Attention Entropy Collapse* (arXiv
2303.06296, section 3; theory section 14): ``Ŵ = γ W / σ(W)``. It keeps scores, and with them the
sharpness of attention, from growing faster than ``γ``. ``σ`` is exact here, where the authors
iterate: the matrices are small.
"""

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.utils import parametrize

# As one matrix, inputs by outputs: the heads of a layer together.
_AS_MATRIX = {
    "W_Q": "head d_model d_head -> d_model (head d_head)",
    "W_K": "head d_model d_head -> d_model (head d_head)",
    "W_V": "head d_model d_head -> d_model (head d_head)",
    "W_Q2": "head d_model d_head -> d_model (head d_head)",
    "W_K2": "head d_model d_head -> d_model (head d_head)",
    "W_O": "head d_head d_model -> (head d_head) d_model",
    "W_in": "d_model d_mlp -> d_model d_mlp",
    "W_out": "d_mlp d_model -> d_mlp d_model",
}


class SpectralScale(nn.Module):
    """``γ W / σ(W)`` with ``γ`` learned, initially one."""

    def __init__(self, layout: str) -> None:
        """Remember how the weight is read as a matrix."""
        super().__init__()
        self.layout = layout
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, weight: Tensor) -> Tensor:
        """Give the effective weight."""
        largest = torch.linalg.matrix_norm(rearrange(weight, self.layout), ord=2)
        return self.gamma * weight / largest


def reparametrise(module: nn.Module) -> None:
    """Let every attention and MLP weight below ``module`` be ``γ W / σ(W)``.

    ``module.W_Q`` and its like give the effective weights from then on.
    """
    for part in list(module.modules()):
        for name, layout in _AS_MATRIX.items():
            if name in part._parameters:
                parametrize.register_parametrization(part, name, SpectralScale(layout))
