"""Attention with other weights than softmax, for a what-if: over blocks of queries, never n x n."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from ...models.observed import AttentionSeen, PatternSeen
from ..attention_statistics import AttentionRule, RowStatistics
from ..attention_statistics.scores import HIDDEN, LOG2E, Scoring
from ..attention_statistics.visibility import Visibility
from .attention_rows import attention_rule, measure_pattern

Weigh = Callable[[Tensor, Tensor], Tensor]
"""``weights = weigh(scores [batch, head, query, key], n_key [batch, head, query, 1])``: hidden
scores are ``-inf`` and must get weight zero; every row has a visible key."""

_CHUNK = 2**22
"""Scores held at a time."""


def score_tile(
    seen: AttentionSeen, rule: AttentionRule, queries: slice, heads: slice | None = None
) -> Float64[Tensor, "batch head query key"]:
    """Scores of some queries, in float64: scaled, soft-capped, biased; hidden keys are ``-inf``.

    Args:
        seen: What the adapter showed.
        rule: How the layer attends (:func:`~.attention_rows.attention_rule`).
        queries: Which queries.
        heads: Which heads, ``None`` for all.
    """
    batch, n_heads, n_query, d_head = seen.query.shape
    n_key, group = seen.key.shape[2], n_heads // seen.key.shape[1]
    heads = slice(0, n_heads) if heads is None else heads
    place = (slice(0, batch), heads, queries, slice(0, n_key))
    scoring = Scoring.of(rule, d_head, n_key - n_query)
    owner = torch.arange(heads.start, heads.stop, device=seen.key.device) // group
    keys = seen.key[:, owner].double()
    wanted = seen.query[:, heads, queries].double() * scoring.query_factor()
    products = wanted @ keys.transpose(2, 3)
    scores = scoring.finish(products, scoring.bias_tile(*place, products))
    hidden = scores <= HIDDEN / 2
    visible = Visibility(rule, n_query, n_key, seen.query.device).tile(*place)
    if isinstance(visible, Tensor):
        hidden = hidden | ~visible
    elif not visible:
        hidden = torch.ones_like(hidden)
    return (scores / LOG2E).masked_fill(hidden, -torch.inf)


def reweighed_attention(
    seen: AttentionSeen,
    weigh: Weigh,
    statistics: tuple[str, ...],
    *,
    query_mask: Bool[Tensor, "batch pos"] | None,
    relevant_key: Int[Tensor, "batch query"] | None,
) -> tuple[Float[Tensor, "batch head query d_value"], RowStatistics]:
    """Attention output and row statistics under other weights.

    The statistics are of the weights over their sum, as everywhere; the output is of the weights as
    they are. A row without a visible key gives zero.

    Args:
        seen: What the layer is given.
        weigh: From scores to weights.
        statistics: Names of row statistics.
        query_mask: False where the query is padding.
        relevant_key: Key that each query needs, negative for none, or ``None``.

    Raises:
        ValueError: If the layer has learned sinks, which only a softmax shares its mass with.
    """
    if seen.sinks is not None:
        raise ValueError(
            f"layer {seen.layer} has learned attention sinks, which take a share of a softmax: "
            "other weights than softmax cannot be tried on it"
        )
    rule = attention_rule(seen)
    batch, n_heads, n_query, _ = seen.query.shape
    n_key, group = seen.key.shape[2], n_heads // seen.key.shape[1]
    values = seen.value.repeat_interleave(group, dim=1) if group > 1 else seen.value
    mask, relevant = (
        None if per_query is None or per_query.shape[1] != n_query else per_query
        for per_query in (query_mask, relevant_key)
    )
    step = max(1, _CHUNK // max(1, batch * n_heads * n_key))
    outputs, parts = [], []
    for start in range(0, n_query, step):
        stop = min(start + step, n_query)
        scores = score_tile(seen, rule, slice(start, stop))
        visible = scores > -torch.inf
        count = visible.sum(-1, keepdim=True)
        # A row without keys is weighed as if it saw them all, and then given nothing.
        safe = torch.where(count == 0, 0.0, scores)
        weights = weigh(safe, count.clamp_min(1)).masked_fill(~visible, 0.0)
        outputs.append((weights.to(values.dtype) @ values).to(seen.query.dtype))
        rows, _ = measure_pattern(
            PatternSeen(seen.layer, weights, visible, scores, seen.stack),
            statistics,
            query_mask=None if mask is None else mask[:, start:stop],
            relevant_key=None if relevant is None else relevant[:, start:stop],
            first=n_key - n_query + start,
        )
        parts.append(rows)
    whole = RowStatistics(
        {name: torch.cat([rows[name] for rows in parts], dim=2) for name in parts[0]},
        torch.cat([rows.n_key for rows in parts], dim=2),
        torch.cat([rows.status for rows in parts], dim=2),
        "pattern",
    )
    return torch.cat(outputs, dim=2), whole
