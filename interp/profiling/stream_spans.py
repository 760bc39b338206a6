"""Which positions of a batch are looked at together: the first n tokens of each document."""

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from .ladder import Ladder
from .places import Positions


@dataclass(frozen=True)
class Span:
    """The same number of tokens in some sequences of a batch.

    Attributes:
        n: How many tokens.
        rows: Which sequences have them, ``[row]``.
        index: Their positions, ``[row, n]``.
    """

    n: int
    rows: Int[Tensor, "row"]
    index: Int[Tensor, "row n"]


def find_spans(positions: Positions, ladder: Ladder, causal: bool) -> Iterator[Span]:
    """The spans of a batch: of each document its first tokens, as many as each rung says.

    A causal model gives the first n tokens of a document the streams that they would have alone, so
    one pass shows every shorter length. Any other model shows whole documents alone.

    Args:
        positions: Where each position stands.
        ladder: Numbers of tokens.
        causal: Whether positions see no later ones.
    """
    for document in range(int(positions.documents.max()) + 1):
        own = positions.shown & (positions.documents == document)
        sizes = own.sum(-1)
        counts = ladder.rungs if causal else tuple(sizes[sizes > 0].unique().tolist())
        for n in counts:
            rows = (sizes >= n if causal else sizes == n).nonzero().squeeze(-1)
            if len(rows):
                chosen = own[rows] & (positions.order[rows] <= n)
                yield Span(n, rows, chosen.nonzero()[:, 1].view(len(rows), n))
