"""Arithmetic that half-precision inputs survive: widen first, then compute."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def widen(array: Tensor) -> Tensor:
    """Return the array in float32 or wider: half precisions go up, float64 stays.

    An entropy summed in bfloat16 is off by 0.03 nat and may be negative; widened first it is as
    good as the weights themselves.

    Raises:
        TypeError: If the array is complex.
    """
    if array.is_complex():
        raise TypeError(f"a measure needs real numbers; got {array.dtype}")
    return array.to(torch.promote_types(array.dtype, torch.float32))


def mask_like(
    mask: Bool[Tensor, "*#row #last"] | None, array: Float[Tensor, "*row last"], name: str
) -> Bool[Tensor, "*row last"]:
    """Return a boolean mask broadcast to the shape of the array; all true for ``None``.

    Raises:
        TypeError: If the mask is not boolean.
        ValueError: If it does not broadcast to the array, or the array has no axis.
    """
    if array.ndim == 0:
        raise ValueError("a measure reads rows: the array needs at least one axis, got a scalar")
    if mask is None:
        return torch.ones_like(array, dtype=torch.bool)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} must be a boolean tensor; got {mask.dtype}")
    try:
        return mask.broadcast_to(array.shape)
    except RuntimeError:
        raise ValueError(
            f"{name} must broadcast to the shape {tuple(array.shape)} of the array that it masks; "
            f"got {tuple(mask.shape)}"
        ) from None
