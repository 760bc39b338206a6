"""How large activations are: norms of vectors, norm scales, and variance over sequences.

Half-precision inputs are widened to float32 before they are squared (the square of a float16 above
255 overflows); float64 stays float64.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .precision import widen


def residual_norm(stream: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row"]:
    """``sqrt(sum_c x_c**2)`` of the residual stream, unit l2, range ``[0, inf)``."""
    return torch.linalg.vector_norm(widen(stream), dim=-1)


def contribution_norm(contribution: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row"]:
    """``sqrt(sum_c x_c**2)`` of what a sub-layer adds to the stream, unit l2, range ``[0, inf)``.

    After the output norm, where the placement has one.
    """
    return torch.linalg.vector_norm(widen(contribution), dim=-1)


def norm_scale(scale: Float[Tensor, "*row 1"]) -> Float[Tensor, "*row"]:
    """What a norm divides by, ``sqrt(mean_c x_c**2 + eps)``, unit 1, range ``[0, inf)``.

    Of the centred ``x`` for LayerNorm; read as the model gives it, at the norm's ``hook_scale``.

    Raises:
        ValueError: If the last axis is not of size 1.
    """
    return one_a_row(scale, "scale")


def one_a_row(scale: Float[Tensor, "*row 1"], name: str) -> Float[Tensor, "*row"]:
    """Drop the last axis of size 1, widened.

    Raises:
        ValueError: If the last axis is not of size 1.
    """
    if scale.ndim == 0 or scale.shape[-1] != 1:
        raise ValueError(
            f"{name} must have one number a row, shape [..., 1]; got {tuple(scale.shape)}"
        )
    return widen(scale).squeeze(-1)


def output_variance(outputs: Float[Tensor, "batch *place d_model"]) -> Float[Tensor, "*place"]:
    """``mean_c Var_batch(o_c)``, unit 1, range ``[0, inf)``; NaN for fewer than two sequences.

    The unbiased variance over sequences (divided by ``batch - 1``) of each coordinate of the
    attention output, averaged over coordinates: the quantity of *On Vanishing Variance in
    Transformer Length Generalization* (arXiv 2504.02827), theory section 10.

    Raises:
        ValueError: If there are fewer than two axes.
    """
    if outputs.ndim < 2:
        raise ValueError(
            f"outputs must have axes [batch, ..., d_model]; got shape {tuple(outputs.shape)}"
        )
    wide = widen(outputs)
    if wide.shape[0] < 2:
        return wide.new_full(wide.shape[1:-1], torch.nan)
    return wide.var(dim=0, correction=1).mean(-1)
