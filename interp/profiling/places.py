"""Where each position stands: how many keys it can see, which document it belongs to."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

REFERENCE = (2, 8)
"""Rows with so many tokens up to and with their own are what :func:`rescale_gain` compares with.
The first row is left out: in trained models it is often an attention sink with a massive
activation, whose scale is like no other's."""


@dataclass(frozen=True)
class Positions:
    """The positions of one batch.

    Attributes:
        shown: True where there is a token.
        documents: Number of each position's document, 0, 1, ... in each sequence.
        n_key: Tokens of its own document that a position can see: up to and with itself in a
            causal model, all of them otherwise; 0 for padding.
        order: Tokens of its own document up to and with itself; 0 for padding.
    """

    shown: Bool[Tensor, "batch pos"]
    documents: Int[Tensor, "batch pos"]
    n_key: Int[Tensor, "batch pos"]
    order: Int[Tensor, "batch pos"]

    def part(self, start: int, stop: int) -> "Positions":
        """Sequences ``start`` to ``stop``."""
        cut = slice(start, stop)
        return Positions(self.shown[cut], self.documents[cut], self.n_key[cut], self.order[cut])


def find_positions(batch: Any, causal: bool) -> Positions:
    """Positions of a probe's batch (its ``tokens``, ``attention_mask`` and ``documents``)."""
    tokens = batch.tokens
    mask = getattr(batch, "attention_mask", None)
    shown = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()
    given = getattr(batch, "documents", None)
    documents = torch.zeros_like(tokens)
    if given is not None:
        documents[:, 1:] = (given.diff(dim=-1) != 0).long().cumsum(-1)
    count = shown.long().cumsum(-1)
    begins = torch.nn.functional.pad(documents.diff(dim=-1) != 0, (1, 0), value=True)
    before = torch.where(begins, count - shown.long(), 0).cummax(-1).values
    order = torch.where(shown, count - before, 0)
    sizes = torch.zeros(tokens.shape[0], int(documents.max()) + 1, dtype=torch.int64)
    sizes = sizes.to(tokens.device).scatter_add_(1, documents, shown.long())
    total = torch.where(shown, sizes.gather(1, documents), 0)
    return Positions(shown, documents, order if causal else total, order)


def reference_log_scale(
    log_scale: Float[Tensor, "batch head pos"], positions: Positions
) -> Float[Tensor, "batch head pos"]:
    """Mean log scale of the first rows (:data:`REFERENCE`) of each position's own document.

    NaN where a document has none.
    """
    low, high = REFERENCE
    device = log_scale.device
    documents = positions.documents.to(device)[:, None].expand(log_scale.shape)
    order = positions.order.to(device)[:, None]
    chosen = ((order >= low) & (order <= high)).expand(log_scale.shape)
    shape = (*log_scale.shape[:2], int(documents.max()) + 1)

    def total(rows: Tensor) -> Tensor:
        return torch.zeros(shape, dtype=rows.dtype, device=device).scatter_add_(2, documents, rows)

    mean = total(torch.where(chosen, log_scale, 0.0)) / total(chosen.to(log_scale.dtype))
    return mean.gather(2, documents)
