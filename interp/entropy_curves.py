r"""Entropy of every head against the number of keys, as cheaply as running the model.

What a profile measures in full, reduced to the two numbers a training run is watched by: entropy
``H`` [nats] and effective support ``1 / sum a^2`` [1] of each row, averaged over the rows that see
equally many keys (theory section 0). No table, no norms, no streams.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ..models.facts import Facts
from ..models.observed import AttentionSeen, NormSeen, PatternSeen, StreamSeen
from .attention_statistics import RowStatistics
from .profiling import Observable
from .profiling.attention_rows import measure_attention, measure_pattern

__all__ = ["EntropyCurve", "entropy_curves"]

_STATISTICS = ("entropy", "effective_support")


@dataclass(frozen=True, repr=False)
class EntropyCurve(Facts):
    """One head's curves.

    Attributes:
        site: ``"decoder.3.attn"``.
        layer: Block, from 0.
        head: Head, from 0.
        n_key: Numbers of keys that were seen, increasing, each at least 2, ``[n_key]``.
        entropy: Mean entropy of the rows that see so many, nats, ``[n_key]``.
        effective_support: Mean effective support of these rows, 1, ``[n_key]``.
    """

    site: str
    layer: int
    head: int
    n_key: NDArray[np.float64]
    entropy: NDArray[np.float64]
    effective_support: NDArray[np.float64]


def entropy_curves(
    adapter: Observable, batches: Iterable[Int[Tensor, "batch pos"]]
) -> tuple[EntropyCurve, ...]:
    """Run token sequences and return every head's curves, by site, layer and head.

    The attention output that comes with the statistics replaces the model's own, so that measuring
    costs little more than running.

    Args:
        adapter: The model.
        batches: Tokens; each batch may have a length of its own.

    Raises:
        ValueError: As the adapter raises it, or if there is no batch.
    """
    rows = _Rows()
    for tokens in batches:
        adapter.observe(tokens, rows)
    if not rows.sums:
        raise ValueError("entropy_curves needs at least one batch of tokens; got none")
    return tuple(
        curve
        for (stack, layer), sums in sorted(rows.sums.items())
        for curve in _curves(f"{stack}.{layer}.attn", layer, sums)
    )


@dataclass
class _Rows:
    """Sums over the rows of each layer by the number of keys: ``[1 + statistic, head, n_key]``."""

    sums: dict[tuple[str, int], Float[Tensor, "sum head n_key"]] = field(default_factory=dict)

    def attention(self, seen: AttentionSeen) -> Float[Tensor, "batch head query d_value"] | None:
        output, rows = measure_attention(seen, _STATISTICS, query_mask=None, relevant_key=None)
        self._take(seen.stack, seen.layer, rows)
        return output

    def pattern(self, seen: PatternSeen) -> None:
        rows, _ = measure_pattern(seen, _STATISTICS, query_mask=None, relevant_key=None)
        self._take(seen.stack, seen.layer, rows)

    def norm(self, seen: NormSeen) -> None:
        pass

    def stream(self, seen: StreamSeen) -> None:
        pass

    def _take(self, stack: str, layer: int, rows: RowStatistics) -> None:
        n_head = rows["entropy"].shape[1]
        n_key = rows.n_key.expand(rows["entropy"].shape).movedim(1, 0).flatten(1)
        values = torch.stack([rows[name].movedim(1, 0).flatten(1) for name in _STATISTICS])
        known = values.isfinite().all(0)
        found = torch.zeros(3, n_head, int(n_key.max()) + 1, dtype=torch.float64)
        parts = torch.stack([known.double(), *torch.where(known, values, 0.0).double()]).cpu()
        found.scatter_add_(2, n_key.cpu().expand_as(parts), parts)
        before = self.sums.get((stack, layer))
        if before is not None:
            size = max(before.shape[2], found.shape[2])
            found, before = (
                torch.nn.functional.pad(part, (0, size - part.shape[2])) for part in (found, before)
            )
            found = found + before
        self.sums[(stack, layer)] = found


def _curves(site: str, layer: int, sums: Tensor) -> list[EntropyCurve]:
    curves = []
    for head, (count, entropy, support) in enumerate(sums.movedim(1, 0).numpy()):
        n_key = np.flatnonzero(count)
        n_key = n_key[n_key >= 2]
        means = (entropy[n_key] / count[n_key], support[n_key] / count[n_key])
        curves.append(EntropyCurve(site, layer, head, n_key.astype(np.float64), *means))
    return curves
