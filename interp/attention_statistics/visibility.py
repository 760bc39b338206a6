"""Which keys each query sees, tile by tile, in memory that grows with the length alone."""

import functools

import torch
from jaxtyping import Int
from torch import Tensor

from .rule import AttentionRule


def documents_from_positions(
    positions: Int[Tensor, "batch pos"],
) -> Int[Tensor, "batch pos"]:
    """Document numbers ``0, 1, ...`` of packed sequences from their position numbers.

    A new document begins wherever a position does not follow the one before it:
    ``0 1 2 0 1 0`` becomes ``0 0 0 1 1 2``.
    """
    starts = positions.diff(dim=-1) != 1
    return torch.nn.functional.pad(starts.long().cumsum(-1), (1, 0))


class Visibility:
    """The visible keys of a rule, asked for one tile at a time.

    Positions are key indices; query ``i`` stands at position ``n_key - n_query + i``.
    """

    def __init__(self, rule: AttentionRule, n_query: int, n_key: int, device: torch.device):
        """Keep the rule's conditions; a key mask that hides nothing is dropped."""
        self.offset, self.n_key, self.device = n_key - n_query, n_key, device
        self.causal, self.reach = rule.causal, rule.reach()
        self.mask = rule.mask
        padded = rule.key_mask is not None and not bool(rule.key_mask.all())
        self.key_mask = rule.key_mask if padded else None
        self.documents = rule.documents
        self._extent = None if rule.documents is None else _document_extent(rule.documents)

    def key_range(self, batches: slice, first: int, stop: int) -> tuple[int, int]:
        """Keys ``[low, high)`` outside of which queries ``[first, stop)`` see nothing."""
        start, end = self.offset + first, self.offset + stop
        low, high = 0, self.n_key
        if self.causal:
            high = min(high, end)
        if self.reach is not None:
            low, high = max(low, start - self.reach[0]), min(high, end + self.reach[1])
        if self._extent is not None:
            lows, highs = (_rows(edge, batches)[:, start:end] for edge in self._extent)
            low, high = max(low, int(lows.min())), min(high, int(highs.max()) + 1)
        return low, high

    def tile(self, batches: slice, heads: slice, queries: slice, keys: slice) -> Tensor | bool:
        """Bool ``[batch|1, head|1, query, key]`` of the tile; True or False if it is uniform."""
        start, last = self.offset + queries.start, self.offset + queries.stop - 1
        query = torch.arange(start, last + 1, device=self.device).view(1, 1, -1, 1)
        key = torch.arange(keys.start, keys.stop, device=self.device).view(1, 1, 1, -1)
        conditions: list[Tensor] = []
        if self.causal and keys.stop - 1 > start:
            conditions.append(key <= query)
        if self.reach is not None:
            left, right = self.reach
            if keys.start < last - left:
                conditions.append(key >= query - left)
            if keys.stop - 1 > start + right:
                conditions.append(key <= query + right)
        n_ordered = len(conditions)
        if self.key_mask is not None:
            shown = _rows(self.key_mask, batches)[:, None, None, keys]
            if not bool(shown.all()):
                conditions.append(shown)
        if self.documents is not None:
            own = _rows(self.documents, batches)
            conditions.append(own[:, None, start : last + 1, None] == own[:, None, None, keys])
        if isinstance(self.mask, Tensor):
            conditions.append(take_tile(self.mask, batches, heads, queries, keys))
        elif self.mask is not None:
            batch = torch.arange(batches.start, batches.stop, device=self.device)
            head = torch.arange(heads.start, heads.stop, device=self.device)
            conditions.append(
                self.mask(batch.view(-1, 1, 1, 1), head.view(1, -1, 1, 1), query, key)
            )
        if not conditions:
            return True
        visible = functools.reduce(torch.Tensor.logical_and, conditions)
        whole = torch.broadcast_shapes(visible.shape, (1, 1, query.shape[2], key.shape[3]))
        visible = visible.expand(whole)
        if n_ordered == len(conditions):
            return visible
        if not bool(visible.any()):
            return False
        return True if bool(visible.all()) else visible


def take_tile(array: Tensor, batches: slice, heads: slice, queries: slice, keys: slice) -> Tensor:
    """The tile of a ``[batch|1, head|1, query|1, key]`` array; axes of size one stay."""
    axes = zip(array.shape[:3], (batches, heads, queries), strict=True)
    index = tuple(slice(None) if size == 1 else part for size, part in axes)
    return array[(*index, keys)]


def _rows(array: Tensor, batches: slice) -> Tensor:
    """The rows of a ``[batch|1, key]`` array; a single row serves every batch element."""
    return array if array.shape[0] == 1 else array[batches]


def _document_extent(documents: Tensor) -> tuple[Tensor, Tensor]:
    """First and last index of each position's own document, each ``[batch|1, key]``."""
    group = documents.unique(return_inverse=True)[1]
    index = torch.arange(documents.shape[-1], device=documents.device).expand_as(group)
    size = int(group.max()) + 1
    edge = torch.zeros(group.shape[0], size, dtype=torch.int64, device=documents.device)
    low = edge.scatter_reduce(1, group, index, "amin", include_self=False)
    high = edge.scatter_reduce(1, group, index, "amax", include_self=False)
    return low.gather(1, group), high.gather(1, group)
