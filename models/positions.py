"""Where a token stands, told to attention: rotary rotations and ALiBi's linear bias.

Learned absolute positions (``"standard"``) are an embedding table of the model itself; models of
type ``"none"`` know the order only through the causal mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def apply_rotary(
    vectors: Float[Tensor, "batch pos head d_head"], base: float
) -> Float[Tensor, "batch pos head d_head"]:
    """Rotate coordinate pairs ``(i, i + d_head/2)`` by ``pos * base**(-2i/d_head)``.

    Su et al., *RoFormer* (arXiv 2104.09864), in the non-adjacent pairing of GPT-NeoX and Llama,
    which is TransformerLens's ``rotary_adjacent_pairs=False`` with ``rotary_dim = d_head``.
    """
    length, half = vectors.shape[1], vectors.shape[-1] // 2
    exponents = torch.arange(half, device=vectors.device, dtype=torch.float32) / half
    positions = torch.arange(length, device=vectors.device, dtype=torch.float32)
    angles = positions[:, None] * base**-exponents
    cosine = angles.cos().to(vectors.dtype)[:, None, :]
    sine = angles.sin().to(vectors.dtype)[:, None, :]
    first, second = vectors[..., :half], vectors[..., half:]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def alibi_slopes(n_heads: int) -> Float[Tensor, "head"]:
    """Slope of each head: ``2**(-8 h / n_heads)``, ``h = 1..n_heads``.

    Press et al., *Train Short, Test Long* (arXiv 2108.12409), and TransformerLens.
    """
    return 2.0 ** (-8.0 * torch.arange(1, n_heads + 1) / n_heads)


def alibi_bias(n_heads: int, length: int, like: Tensor) -> Float[Tensor, "head query key"]:
    """Bias ``-slope * |query - key|`` in the dtype and on the device of ``like``."""
    # Whole numbers up to 2**24 are exact in float32, and several times as fast as in int64.
    positions = torch.arange(length, device=like.device, dtype=torch.float32)
    distance = (positions[:, None] - positions[None, :]).abs_()
    return -alibi_slopes(n_heads).to(like)[:, None, None] * distance.to(like.dtype)
