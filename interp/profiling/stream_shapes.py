"""How far a stream's tokens have drawn together, boundary by boundary, while a model runs.

At each block boundary, of the first n tokens of a document (:mod:`.stream_spans`), one number a
sequence and n; the formulas are in :mod:`resharpen.interp.stream_values`:

============================  ======  ============================================================
quantity                      unit    what it is
============================  ======  ============================================================
``mean_cosine``               1       of two different tokens
``trimmed_cosine``            1       the same without the one coordinate that adds most to it
``top_coordinate_share``      ratio   share of ``|sum_i y_i|**2`` that this coordinate has, where
                                      ``y = x / |x|``
``mean_square_cosine``        1       second moment of the cosines
``effective_rank``            1       of the stream
``stable_rank``               1       of the stream
``direction_rank``            1       effective rank of the directions: every token counts once
``cluster_count``             1       at a cosine of 0.9, single linkage
``largest_cluster_share``     ratio   share of the tokens in the largest of them
============================  ======  ============================================================

One token of huge norm (a massive activation, often the first token) makes the effective rank of a
stream small and its stable rank 1, whatever the other tokens do; the ``direction_rank`` does not
see it. One coordinate that is large in every token makes all cosines large; the ``trimmed_cosine``
does not see that. Both happen in trained models.

All but the first three ask for an eigenvalue problem or for pairs, so they are taken of the first
sequences alone, as many as :data:`WORK` allows (one at least); where a stream is wide and long,
ranks are of :data:`MOST_RANKED` positions, evenly spaced, and clusters are always of at most
:data:`MOST_CLUSTERED`. The result does not depend on how the sequences were split into batches.

Across block l, at the site ``"blocks.{l}"``, one number a token, averaged by rung as everywhere:
``angular_speed`` [1: radians a block] and ``norm_growth`` [ratio]. For these the stream before the
block is held until the next boundary.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ...models.observed import StreamSeen
from ..measures.clustering import (
    angular_speed,
    directions,
    mean_cosine,
    mean_square_cosine,
    norm_growth,
    ranks,
)
from ..stream_values import BOUNDARY_UNITS, STEP_UNITS, boundary_values
from .ladder import Ladder
from .places import Positions
from .stream_spans import Span, find_spans

SPAN_UNITS: dict[str, str] = {
    **{name: unit for name, unit in BOUNDARY_UNITS.items() if name != "residual_norm"},
    "direction_rank": "1",
    "trimmed_cosine": "1",
    "top_coordinate_share": "ratio",
}
"""Quantities of one boundary, with their units."""

ROW_UNITS: dict[str, str] = dict(STEP_UNITS)
"""Quantities of one block, one number a token, with their units."""

MOST_RANKED = 1024
"""Positions of which ranks are taken where the stream is wider than that too."""

MOST_CLUSTERED = 256
"""Positions among which clusters are counted."""

WORK = 2**26
"""Cube of an eigenvalue problem's side times the number of sequences it is solved for."""

_CLUSTERS = ("cluster_count", "largest_cluster_share")


@dataclass
class StreamShapes:
    """Looks at the streams of one batch.

    Attributes:
        positions: Where each position stands.
        ladder: Numbers of tokens to look at, met exactly.
        causal: Whether positions see no later ones.
        first: Number of the batch's first sequence among all of the length.
    """

    positions: Positions
    ladder: Ladder
    causal: bool
    first: int = 0
    _spans: list[Span] | None = field(default=None, init=False)
    _before: StreamSeen | None = field(default=None, init=False)

    def of_boundary(
        self, stream: Float[Tensor, "batch pos d_model"]
    ) -> dict[str, tuple[Float[Tensor, "batch span"], Float[Tensor, "batch span"]]]:
        """By quantity, one number a sequence and span, and how many tokens the span has.

        0 tokens where a sequence has no such span or was not looked at.
        """
        if self._spans is None:
            self._spans = list(find_spans(self.positions, self.ladder, self.causal))
        shape = len(stream), len(self._spans)
        values = {name: torch.full(shape, torch.nan, dtype=torch.float64) for name in SPAN_UNITS}
        n_key = {name: torch.zeros(shape, dtype=torch.int64) for name in SPAN_UNITS}
        for column, span in enumerate(self._spans):
            for rows, found in _measured(stream, span, self.first):
                for name, numbers in found.items():
                    values[name][rows, column] = numbers.double().cpu()
                    n_key[name][rows, column] = span.n
        return {name: (values[name], n_key[name]) for name in SPAN_UNITS}

    def across_block(self, seen: StreamSeen) -> dict[str, Float[Tensor, "batch pos"]] | None:
        """By quantity, one number a token over the block that ends here; ``None`` for no block."""
        before, self._before = self._before, None
        found = None
        if before is not None and _follows(before, seen):
            start = before.stream.to(seen.stream.device)
            found = {
                "angular_speed": angular_speed(start, seen.stream),
                "norm_growth": norm_growth(start, seen.stream),
            }
        if seen.name != "final":
            # A later block may work in place.
            self._before = StreamSeen(seen.name, seen.layer, seen.stream.clone(), seen.stack)
        return found

    def entering(self, layer: int) -> Float[Tensor, "batch pos d_model"] | None:
        """The stream that entered the block that is running, or ``None`` if it was not seen."""
        if self._before is None or self._before.layer != layer:
            return None
        return self._before.stream


def _follows(before: StreamSeen, seen: StreamSeen) -> bool:
    """Whether two streams are the two sides of one block."""
    same = before.stack == seen.stack and before.stream.shape == seen.stream.shape
    return same and seen.layer == before.layer + 1


def spared_sequences(side: int) -> int:
    """Of how many sequences the dear quantities are taken, for an eigenvalue problem's side."""
    return max(1, WORK // max(1, side) ** 3)


def _measured(stream: Tensor, span: Span, first: int) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Rows of the batch, and by quantity one number for each of them."""
    rows, index = span.rows.to(stream.device), span.index.to(stream.device)
    tokens = stream[rows[:, None], index]
    summed = directions(tokens).sum(1).square()
    top = summed.nan_to_num(nan=-1.0).argmax(-1)
    trimmed = tokens.clone()
    trimmed[torch.arange(len(rows), device=top.device), :, top] = 0.0
    yield (
        span.rows,
        {
            "mean_cosine": mean_cosine(tokens),
            "trimmed_cosine": mean_cosine(trimmed),
            "top_coordinate_share": summed.amax(-1) / summed.sum(-1),
        },
    )
    side = min(span.n, stream.shape[2])
    kept = span.rows + first < spared_sequences(side)
    if not bool(kept.any()):
        return
    tokens = tokens[kept.to(tokens.device)]
    ranked = tokens if side <= MOST_RANKED else _thinned(tokens, MOST_RANKED)
    effective, stable = ranks(ranked)
    yield (
        span.rows[kept],
        {
            "mean_square_cosine": mean_square_cosine(ranked),
            "effective_rank": effective,
            "stable_rank": stable,
            "direction_rank": ranks(directions(ranked).nan_to_num(nan=0.0))[0],
            **boundary_values(_thinned(tokens, MOST_CLUSTERED), quantities=_CLUSTERS),
        },
    )


def _thinned(tokens: Float[Tensor, "row n d_model"], most: int) -> Float[Tensor, "row m d_model"]:
    """At most so many of the tokens, evenly spaced, the first and the last among them."""
    n = tokens.shape[1]
    if n <= most:
        return tokens
    return tokens[:, torch.linspace(0, n - 1, most, device=tokens.device).round().long()]
