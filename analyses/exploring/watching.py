"""Looking on while a model runs: the rows of every head, and one head's weights and scores."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...interp.profiling.attention_rows import attention_rule
from ...interp.profiling.observing import ProfileObserver
from ...interp.profiling.reweighed import score_tile
from ...interp.remedies import Remedy
from ...models.facts import Facts
from ...models.observed import AttentionSeen, NormSeen, PatternSeen, StreamSeen
from ..figures.patterns import MAX_KEYS, block_means

__all__ = ["HeadSeen", "HeadWatch"]

_CHUNK = 2**22
"""Weights that are held at a time."""


@dataclass(frozen=True, repr=False)
class HeadSeen(Facts):
    """What one head did with the sequences of one length.

    Attributes:
        weights: Attention weights of the first sequence (ratio), ``[row, column]``: means over
            square blocks of ``block`` queries and keys above 256 keys; 0 where a key is hidden.
        block: How many queries and keys one of them stands for.
        n_query: Queries of the sequence.
        n_key: Keys.
        scores: Scores of the last query of every sequence on the keys that it sees, each row less
            its mean (a softmax does not see it), 1-d; empty where only weights are shown.
    """

    weights: NDArray[np.float64]
    block: int
    n_query: int
    n_key: int
    scores: NDArray[np.float32]


@dataclass
class HeadWatch:
    """Looks on while an adapted model runs; a :mod:`resharpen.models.observed` Observer.

    Attributes:
        layer: Layer whose norms are measured.
        heads: Heads that are looked at, as ``(stack, layer, head)``.
        rows: Takes one number a row of every head.
        remedy: Changes what attention is given, or ``None``.
        limit: Most rows and columns of the weights that are kept; ``None`` for all of them.
        seen: What was kept of each.
    """

    layer: int
    heads: frozenset[tuple[str, int, int]]
    rows: ProfileObserver
    remedy: Remedy | None = None
    limit: int | None = MAX_KEYS
    seen: dict[tuple[str, int, int], HeadSeen] = field(default_factory=dict)

    def attention(self, seen: AttentionSeen) -> Tensor | None:
        """Change what the layer is given, look at it, and give its output."""
        if self.remedy is not None:
            seen = self.remedy(seen)
        for head in self._chosen(seen):
            self._keep(seen, head)
        return self.rows.attention(seen)

    def pattern(self, seen: PatternSeen) -> None:
        """Look at a finished pattern.

        Raises:
            ValueError: There is a remedy: a finished pattern cannot be changed.
        """
        if self.remedy is not None:
            raise ValueError(
                "the temperature cannot be changed: this model shows finished weights only, not "
                "the scores that they come from"
            )
        for head in self._chosen(seen):
            scores = seen.scores
            self._take(
                (seen.stack, seen.layer, head),
                seen.weights.shape[2:],
                lambda start, stop, head=head: seen.weights[0, head, start:stop].double(),
                None if scores is None else scores[:, head, -1].double(),
                seen.visible.expand(seen.weights.shape)[:, head, -1],
            )
        self.rows.pattern(seen)

    def norm(self, seen: NormSeen) -> None:
        """Measure the norms of the layer, and those that belong to none."""
        if seen.layer in (self.layer, None):
            self.rows.norm(seen)

    def stream(self, seen: StreamSeen) -> None:
        """Let the stream be."""

    def _chosen(self, seen: AttentionSeen | PatternSeen) -> list[int]:
        place = (seen.stack, seen.layer)
        return sorted(head for *at, head in self.heads if tuple(at) == place)

    def _keep(self, seen: AttentionSeen, head: int) -> None:
        first, rule = _first(seen), attention_rule(seen)
        own = attention_rule(first)
        n_query, n_key = seen.query.shape[2], seen.key.shape[2]
        heads = slice(head, head + 1)
        sink = None if seen.sinks is None else seen.sinks[head].double()

        def read(start: int, stop: int) -> Tensor:
            scores = score_tile(first, own, slice(start, stop), heads)[0, 0]
            total = scores.logsumexp(-1, keepdim=True)
            total = total if sink is None else torch.logaddexp(total, sink)
            return (scores - total).exp().nan_to_num(0.0)

        last = score_tile(seen, rule, slice(n_query - 1, n_query), heads)[:, 0, 0]
        place = (seen.stack, seen.layer, head)
        self._take(place, (n_query, n_key), read, last, last != -torch.inf)

    def _take(
        self,
        place: tuple[str, int, int],
        shape: tuple[int, ...],
        read: Callable[[int, int], Tensor],
        scores: Tensor | None,
        visible: Tensor,
    ) -> None:
        n_query, n_key = shape
        limit = max(shape) if self.limit is None else self.limit
        block = -(-max(shape) // limit)
        # A part of a square pattern has the blocks of the whole one.
        step = n_query if n_key < n_query else block * max(1, _CHUNK // (block * n_key))
        weights = [
            block_means(read(start, min(start + step, n_query)).cpu().numpy(), limit)
            for start in range(0, n_query, step)
        ]
        flat = np.empty(0, np.float32)
        if scores is not None:
            mask = visible.double()
            known = scores.masked_fill(~visible, 0.0)
            centre = known.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
            flat = (known - centre)[visible].float().cpu().numpy()
        self.seen[place] = HeadSeen(np.concatenate(weights), block, n_query, n_key, flat)


def _first(seen: AttentionSeen) -> AttentionSeen:
    """The first sequence alone."""
    parts = {
        name: None if array is None else array[:1]
        for name in ("query", "key", "value", "mask", "bias")
        for array in (getattr(seen, name),)
    }
    return replace(seen, **parts)  # type: ignore[arg-type]
