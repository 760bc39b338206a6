"""From query and key tiles to scores in base 2, and the biases that need no n x n array.

Weights are computed as ``2 ** (t - max t)`` with ``t = s / log 2``: the factor costs nothing (it
joins the scale), and exp2 on a CPU was measured 3 times as fast as exp at moderate arguments and
30 times as fast where exp underflows (torch 2.13, AVX-512), with exp2(0) exactly 1.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .rule import AttentionRule, BiasFunction
from .visibility import take_tile

LOG2E = 1.0 / math.log(2.0)
HIDDEN = -(2.0**100)
"""Stands for minus infinity: exactly representable, absorbs every score, and its product with a
weight of zero is zero, not NaN."""


def alibi_bias(slopes: Float[Tensor, "head"]) -> BiasFunction:
    """ALiBi: ``-slope * |query position - key position|`` for each head.

    Press et al., "Train Short, Test Long" (arXiv 2108.12409). Implementations that add
    ``slope * key position`` have the same rows, since a constant along the row drops out.
    """

    def bias(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return -slopes.to(key.device)[head] * (query - key).abs()

    return bias


def relative_bias(values: Float[Tensor, "head distance"], zero: int) -> BiasFunction:
    """Bias by distance: ``values[head, key position - query position + zero]``, as in T5.

    ``values`` needs a column for every distance that occurs (``2 * length - 1`` columns and
    ``zero = length - 1`` for a whole sequence); a distance outside raises ``IndexError``.
    """

    def bias(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        index = key - query + zero
        if int(index.min()) < 0 or int(index.max()) >= values.shape[-1]:
            raise IndexError(
                f"distances {int(index.min()) - zero} to {int(index.max()) - zero} lie outside the "
                f"{values.shape[-1]} values given around zero = {zero}"
            )
        return values.to(key.device)[head, index]

    return bias


@dataclass(frozen=True)
class Scoring:
    """The rule's arithmetic: ``t = (bias + softcap * tanh(scale * q . k / softcap)) / log 2``."""

    scale: float
    softcap: float | None
    bias: Tensor | BiasFunction | None
    offset: int

    @classmethod
    def of(cls, rule: AttentionRule, d_head: int, offset: int) -> "Scoring":
        """The scoring of a rule; ``offset`` is the position of the first query."""
        scale = d_head**-0.5 if rule.scale is None else float(rule.scale)
        return cls(scale, rule.softcap, rule.bias, offset)

    def query_factor(self) -> float:
        """What the query is multiplied by before its product with the keys."""
        return self.scale * (LOG2E if self.softcap is None else 1.0 / self.softcap)

    def bias_tile(
        self,
        batches: slice,
        heads: slice,
        queries: slice,
        keys: slice,
        like: Tensor,
    ) -> Tensor | None:
        """Bias ``[batch|1, head|1, query|1, key]`` in base 2, HIDDEN where it hides the key.

        In the dtype and on the device of ``like``.
        """
        if self.bias is None:
            return None
        if isinstance(self.bias, Tensor):
            tile = take_tile(self.bias, batches, heads, queries, keys)
        else:
            start, device = self.offset, like.device
            head = torch.arange(heads.start, heads.stop, device=device)
            query = torch.arange(start + queries.start, start + queries.stop, device=device)
            key = torch.arange(keys.start, keys.stop, device=device)
            tile = self.bias(head.view(-1, 1, 1), query.view(-1, 1), key.view(1, -1))[None]
        lowest = torch.finfo(tile.dtype).min
        scaled = (tile.to(like.dtype) * LOG2E).clamp_(min=HIDDEN)
        return torch.where(tile <= lowest / 2, HIDDEN, scaled) if lowest > HIDDEN else scaled

    def finish(self, products: Tensor, bias: Tensor | None) -> Tensor:
        """Scores in base 2 from the products of scaled queries and keys, in place."""
        if self.softcap is not None:
            products.tanh_().mul_(self.softcap * LOG2E)
        if bias is not None:
            products.add_(bias)
        return products
