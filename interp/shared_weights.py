"""Whether the blocks of a model share their weights, as theory's particle systems do."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def weight_cosine(first: nn.Module, second: nn.Module) -> float:
    """Cosine of two blocks' weight matrices, each block taken as one vector, in [-1, 1].

    1 for shared weights, about 0 for independent ones. Over the weights of two or more axes that
    both have under one name and shape; gains and biases, which hardly differ from block to block,
    are left out. NaN where there is none, they wait elsewhere (offloaded), or all are zero.
    """
    one, other = _matrices(first), _matrices(second)
    shared = [name for name in one if name in other and one[name].shape == other[name].shape]
    product = square = other_square = 0.0
    for name in shared:
        a, b = one[name].flatten(), other[name].flatten().to(one[name].device)
        product += _dot(a, b)
        square += _dot(a, a)
        other_square += _dot(b, b)
    scale = math.sqrt(square * other_square)
    return product / scale if scale > 0 else math.nan


def weight_cosines(blocks: Sequence[nn.Module]) -> list[float]:
    """:func:`weight_cosine` of every block with the next."""
    return [weight_cosine(*pair) for pair in pairwise(blocks)]


def _matrices(block: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.detach()
        for name, parameter in block.named_parameters()
        if parameter.ndim >= 2 and parameter.device.type != "meta"
    }


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.float(), b.float()))
