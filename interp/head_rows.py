"""Whole rows of one head, scores and values both, for the few queries that are asked for.

What an output is made of: the scores of one query and the values that its weights average. Batch x
query x key numbers are held for the queries that were named, and no more. Works on everything that
an adapter shows as queries, keys and values; a finished pattern that comes with its scores gives
these, and no values. A learned sink, which takes a share and has no value, is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from ..models.observed import AttentionSeen, NormSeen, PatternSeen, StreamSeen
from .arguments import check_counts
from .drawing import length_generator
from .profiling.attention_rows import attention_rule
from .profiling.places import find_positions
from .profiling.result import Observable, Probing, cut
from .score_rows import row_scores


@dataclass(frozen=True)
class HeadRows:
    """Rows of one head, one batch of sequences.

    Attributes:
        site: What was read, such as ``decoder.3.attn``.
        scores: What enters the softmax; ``-inf`` where a key is hidden, in every key of a query
            that is padding.
        values: What the weights average, or ``None`` where only the weights are shown.
    """

    site: str
    scores: Float64[Tensor, "batch query key"]
    values: Float64[Tensor, "batch key d_value"] | None

    @property
    def visible(self) -> Bool[Tensor, "batch query key"]:
        """Which keys each query sees."""
        return self.scores != -torch.inf

    @property
    def weights(self) -> Float64[Tensor, "batch query key"]:
        """Softmax of the scores; 0 in every key of a row without a visible key."""
        return torch.where(self.visible, self.scores.softmax(-1), 0.0)


@dataclass
class HeadObserver:
    """Looks on while an adapted model runs one batch, and keeps rows of one head.

    Attributes:
        layer: Which layer.
        head: Which head.
        queries: Which queries are kept, by position.
        shown: True where there is a token.
        stack: Stack of layers that is read; ``None`` for the first that shows the layer.
        rows: What was kept.
    """

    layer: int
    head: int
    queries: tuple[int, ...]
    shown: Bool[Tensor, "batch pos"]
    stack: str | None = None
    rows: HeadRows | None = field(default=None)

    def attention(self, seen: AttentionSeen) -> None:
        """Keep the rows of the head; the layer's own attention runs."""
        if not self._is_chosen(seen, seen.query.shape[1]):
            return
        rule = attention_rule(seen, self.shown)
        scores = [row_scores(seen, self.head, query, rule).cpu() for query in self.queries]
        owner = self.head // (seen.query.shape[1] // seen.key.shape[1])
        self._keep(seen, torch.stack(scores, 1), seen.value[:, owner].double().cpu())

    def pattern(self, seen: PatternSeen) -> None:
        """Keep the rows of the head of a finished pattern.

        Raises:
            ValueError: If the layer does not show scores whose softmax the weights are.
        """
        if not self._is_chosen(seen, seen.weights.shape[1]):
            return
        if seen.scores is None:
            raise ValueError(
                f"layer {seen.layer} shows finished weights without the scores behind them (its "
                "attention is no softmax of scores, or they cannot be read): what is measured here "
                "is of a softmax"
            )
        self._keep(seen, seen.scores[:, self.head, list(self.queries)].double().cpu(), None)

    def norm(self, seen: NormSeen) -> None:
        """Let the norm be."""

    def stream(self, seen: StreamSeen) -> None:
        """Let the stream be."""

    def _is_chosen(self, seen: AttentionSeen | PatternSeen, n_heads: int) -> bool:
        if seen.layer != self.layer or self.stack not in (None, seen.stack):
            return False
        if not 0 <= self.head < n_heads:
            raise ValueError(
                f"layer {seen.layer} has heads 0 to {n_heads - 1}; asked for {self.head}"
            )
        self.stack = seen.stack
        return True

    def _keep(
        self, seen: AttentionSeen | PatternSeen, scores: Tensor, values: Tensor | None
    ) -> None:
        padding = ~self.shown[:, list(self.queries)].cpu()
        scores = scores.masked_fill(padding[..., None], -torch.inf)
        self.rows = HeadRows(f"{seen.stack}.{seen.layer}.attn", scores, values)


def read_head_rows(
    adapter: Observable,
    probe: Probing,
    length: int,
    n_key: tuple[int, ...],
    layer: int,
    head: int,
    *,
    n_sequences: int,
    seed: int = 0,
    batch_tokens: int = 16384,
    past_positions: bool = False,
    stack: str | None = None,
) -> Iterator[HeadRows]:
    """Run a model on sequences of one length and show rows of one head, batch by batch.

    Args:
        adapter: The model.
        probe: What it is fed.
        length: Length of the sequences, as the probe counts it.
        n_key: For each query that is wanted, how many tokens it can see; ``()`` for the last query
            alone. The last position with so many is read. A causal model has one with every number
            up to that of its last; a model that is not causal has its full number alone.
        layer: Which layer.
        head: Which head.
        n_sequences: How many sequences.
        seed: Seed of what is drawn.
        batch_tokens: Most positions in one forward pass (but one sequence at least).
        past_positions: Run a length that the model was not made for, where it can.
        stack: ``"decoder"``, ``"encoder"`` or ``"cross"``; ``None`` for the first that is shown.

    Yields:
        The rows, in the order of ``n_key``.

    Raises:
        ValueError: If there is no such layer or head, no query sees so many tokens, an argument is
            out of range, or the layer's weights are no softmax of scores that it shows.
    """
    check_counts(n_sequences=n_sequences, batch_tokens=batch_tokens)
    drawn = probe.sample(length_generator(seed, length), n_sequences, length)
    positions = find_positions(drawn, adapter.description.causal is not False)
    queries = tuple(_find_query(positions.n_key, size) for size in n_key)
    batch = min(n_sequences, max(1, batch_tokens // drawn.tokens.shape[1]))
    for start in range(0, n_sequences, batch):
        arrays: dict[str, Any] = cut(drawn, start, start + batch)
        shown = positions.shown[start : start + batch]
        last = (drawn.tokens.shape[1] - 1,)
        observer = HeadObserver(layer, head, queries or last, shown, stack)
        adapter.observe(
            arrays["tokens"],
            observer,
            arrays["attention_mask"],
            documents=arrays["documents"],
            past_positions=past_positions,
            last_only=True,
        )
        if observer.rows is None:
            raise ValueError(
                f"layer {layer} showed no attention; the model has {adapter.description.n_layers} "
                "layers, counted from 0"
            )
        yield observer.rows


def _find_query(n_key: Tensor, size: int) -> int:
    columns = (n_key == size).any(0).nonzero().flatten().tolist()
    if not columns:
        most = int(n_key.max())
        raise ValueError(f"no query sees {size} tokens; the most that one sees is {most}")
    return columns[-1]
