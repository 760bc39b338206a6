"""From one attention record to one number a row: statistics, relevant mass, status."""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from ...models.observed import AttentionSeen, PatternSeen
from ..attention_statistics import (
    AttentionRule,
    RowStatistics,
    RowStatus,
    attention_with_statistics,
    row_statistics,
)
from ..attention_statistics.catalogue import parse_statistics
from ..measures.dispersion import (
    effective_support,
    entropy,
    entropy_support,
    max_weight,
    normalised_entropy,
    score_deviation,
    score_spread,
    sink_mass,
    top_k_mass,
)

FAST_STATISTICS: tuple[str, ...] = ("entropy", "normalised_entropy", "effective_support")
"""What ``statistics="fast"`` measures: what the platform's fused kernel can give."""

FULL_STATISTICS: tuple[str, ...] = (
    *FAST_STATISTICS,
    "max_weight",
    "score_spread",
    "score_deviation",
    "sink_mass",
    "top_4_mass",
    "window_16_mass",
)
"""What ``statistics="full"`` measures. ``window_16_mass`` is the mass on the 16 nearest keys: wide
enough for heads that look a few tokens back, and 1/8 already of a uniform row of 128 keys."""

_CHUNK = 2**22
"""Elements of a pattern that are widened at a time."""


def chosen_statistics(asked: str | Iterable[str]) -> tuple[str, ...]:
    """Names of the row statistics that were asked for: ``"fast"``, ``"full"``, or names.

    Raises:
        ValueError: If a name is unknown or there is none.
    """
    if isinstance(asked, str):
        named = {"fast": FAST_STATISTICS, "full": FULL_STATISTICS}
        if asked not in named:
            raise ValueError(
                f'statistics must be "fast", "full" or a collection of names; got {asked!r}'
            )
        return named[asked]
    names = tuple(dict.fromkeys(asked))
    parse_statistics(names, has_sinks=True)
    return names


def attention_rule(
    seen: AttentionSeen, query_mask: Bool[Tensor, "batch pos"] | None = None
) -> AttentionRule:
    """How the layer attends, in the words of :mod:`resharpen.interp.attention_statistics`.

    Args:
        seen: What the adapter showed.
        query_mask: False where the query is padding.
    """
    n_query, n_key = seen.query.shape[2], seen.key.shape[2]
    window = seen.window
    if isinstance(window, int) and not seen.causal:
        window = (window - 1, n_key)
    mask = None if seen.mask is None else seen.mask.bool()
    key_mask = None
    if mask is not None:
        mask = mask.expand(*mask.shape[:3], n_key)
        if mask.shape[1] == mask.shape[2] == 1:
            key_mask, mask = mask[:, 0, 0], None
    bias = None if seen.bias is None else seen.bias.expand(*seen.bias.shape[:3], n_key)
    if query_mask is not None and query_mask.shape[1] == n_query:
        query_mask = query_mask.to(seen.query.device)
    else:
        query_mask = None
    return AttentionRule(
        scale=seen.scale,
        causal=seen.causal,
        window=window,
        key_mask=key_mask,
        query_mask=query_mask,
        mask=mask,
        softcap=seen.soft_cap,
        bias=bias,
        sinks=seen.sinks,
    )


def most_keys(seen: AttentionSeen) -> int | None:
    """The most keys that the layer's window lets a query see, or ``None`` without a window."""
    if isinstance(seen.window, int):
        return seen.window if seen.causal else None
    if seen.window is None:
        return None
    return seen.window[0] + 1 + (0 if seen.causal else seen.window[1])


def relevant_mass_of_rows(
    seen: AttentionSeen,
    log_partition: Float64[Tensor, "batch head query"],
    relevant_key: Int[Tensor, "batch query"],
) -> Float64[Tensor, "batch head query"]:
    """``exp(s_r - log sum_j exp(s_j))``, the weight on each query's relevant key ``r``; a ratio.

    Scores are formed for the relevant pairs alone, in O(n) memory. 0 where the relevant key is not
    visible; NaN where there is none (negative index), or the log-partition is NaN.
    """
    result = torch.full_like(log_partition, torch.nan)
    relevant_key = relevant_key.to(seen.query.device)
    known = relevant_key >= 0
    columns = known.any(0).nonzero().squeeze(-1)
    if not len(columns):
        return result
    batch, head = seen.query.shape[:2]
    kv_head, n_key = seen.key.shape[1:3]
    target = relevant_key[:, columns].clamp(min=0)
    index = target[:, None, :, None].expand(batch, kv_head, -1, seen.key.shape[3])
    chosen = seen.key.gather(2, index)[:, :, None]
    query = seen.query[:, :, columns].unflatten(1, (kv_head, head // kv_head))
    score = seen.scale * torch.linalg.vecdot(query.double(), chosen.double()).flatten(1, 2)
    if seen.soft_cap is not None:
        score = seen.soft_cap * torch.tanh(score / seen.soft_cap)
    if seen.bias is not None:
        score = score + _at_pairs(seen.bias, columns, target, score.shape)
    visible = torch.ones(score.shape, dtype=torch.bool, device=score.device)
    if seen.mask is not None:
        visible = _at_pairs(seen.mask.bool(), columns, target, score.shape)
    distance = (n_key - seen.query.shape[2] + columns) - target
    if seen.causal:
        visible = visible & (distance >= 0)[:, None]
    if isinstance(seen.window, int):
        visible = visible & (distance < seen.window)[:, None]
    elif seen.window is not None:
        left, right = seen.window
        visible = visible & ((distance <= left) & (-distance <= right))[:, None]
    weight = (score - log_partition[:, :, columns]).exp().clamp(max=1.0)
    unknown = log_partition[:, :, columns].isnan() | ~known[:, None, columns]
    weight = torch.where(visible, weight, 0.0).masked_fill(unknown, torch.nan)
    result[:, :, columns] = weight
    return result


def _at_pairs(array: Tensor, columns: Tensor, target: Tensor, shape: torch.Size) -> Tensor:
    """Entries of a ``[batch|1, head|1, query|1, key|1]`` array at the (query, key) pairs."""
    if array.shape[-1] == 1:
        array = array.expand(*array.shape[:3], int(target.max()) + 1)
    if array.shape[2] > 1:
        array = array[:, :, columns]
    array = array.expand(shape[0], shape[1], shape[2], -1)
    return array.gather(3, target[:, None, :, None].expand(*shape, 1)).squeeze(3)


def measure_attention(
    seen: AttentionSeen,
    statistics: tuple[str, ...],
    *,
    query_mask: Bool[Tensor, "batch pos"] | None,
    relevant_key: Int[Tensor, "batch query"] | None,
    with_output: bool = True,
) -> tuple[Float[Tensor, "batch head query d_value"] | None, RowStatistics]:
    """Attention output (or ``None``) and row statistics, with ``relevant_mass`` if keys are named.

    ``learned_sink_mass`` is added where the layer has sinks and left out where it has none.
    """
    names = [name for name in statistics if name != "learned_sink_mass"]
    if seen.sinks is not None:
        names.append("learned_sink_mass")
    relevant = relevant_key is not None and relevant_key.shape[1] == seen.query.shape[2]
    asked = [*names, "log_partition"] if relevant or not names else names
    rule, output = attention_rule(seen, query_mask), None
    if with_output:
        output, rows = attention_with_statistics(
            seen.query, seen.key, seen.value, rule, statistics=asked
        )
    else:
        rows = row_statistics(seen.query, seen.key, rule, statistics=asked)
    values = {name: rows[name] for name in names}
    if relevant and relevant_key is not None:
        values["relevant_mass"] = relevant_mass_of_rows(seen, rows["log_partition"], relevant_key)
    return output, RowStatistics(values, rows.n_key, rows.status, rows.method)


Reader = Callable[[Tensor, Tensor | None, Tensor, Tensor], Tensor]
"""``read(weights, scores, visible, position)``: one number a row."""

_OF_WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "entropy": entropy,
    "normalised_entropy": normalised_entropy,
    "entropy_support": entropy_support,
    "effective_support": effective_support,
    "max_weight": max_weight,
    "sink_mass": sink_mass,
}
_OF_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "score_spread": score_spread,
    "score_deviation": score_deviation,
}


def measure_pattern(
    seen: PatternSeen,
    statistics: tuple[str, ...],
    *,
    query_mask: Bool[Tensor, "batch pos"] | None,
    relevant_key: Int[Tensor, "batch query"] | None,
    first: int | None = None,
) -> tuple[RowStatistics, tuple[str, ...]]:
    """Row statistics of a finished pattern, and the names that cannot be had from it.

    ``first`` is the position of the first query; by default the last query stands at the last key.

    The weights are divided by their sum over the visible keys, as in
    :mod:`resharpen.interp.attention_statistics`. Rows of signed weights (differential attention)
    are no distribution over keys: their status is ``NON_FINITE``.
    """
    n_query, n_key = seen.weights.shape[2:]
    readers = {
        name: function
        for name in statistics
        if (function := _reader(name, seen.scores is not None)) is not None
    }
    missing = tuple(name for name in statistics if name not in readers)
    missing = tuple(name for name in missing if name != "learned_sink_mass")
    visible = seen.visible.expand(seen.weights.shape)
    step = max(1, _CHUNK // max(1, seen.weights[:, :, 0].numel()))
    parts: dict[str, list[Tensor]] = {name: [] for name in readers}
    sums: list[Tensor] = []
    relevant_parts: list[Tensor] = []
    for start in range(0, n_query, step):
        rows = slice(start, start + step)
        mask = visible[:, :, rows]
        weights = torch.where(mask, seen.weights[:, :, rows].double(), 0.0)
        total = weights.sum(-1, keepdim=True)
        if seen.signed:
            total = torch.full_like(total, torch.nan)
        sums.append(total.squeeze(-1))
        weights = weights / total
        scores = None if seen.scores is None else seen.scores[:, :, rows]
        position = torch.arange(start, start + weights.shape[2], device=weights.device)
        position = position + (n_key - n_query if first is None else first)
        for name, function in readers.items():
            parts[name].append(function(weights, scores, mask, position).double())
        if relevant_key is not None:
            target = relevant_key[:, None, rows, None].to(weights.device)
            index = target.clamp(min=0).expand(*weights.shape[:3], 1)
            found = weights.gather(3, index).masked_fill(target < 0, torch.nan)
            relevant_parts.append(found.squeeze(3))
    count = visible.sum(-1)
    status = torch.where(count == 1, int(RowStatus.SINGLE_KEY), int(RowStatus.OK))
    positive = torch.cat(sums, 2)
    status = torch.where(positive.isfinite() & (positive > 0), status, int(RowStatus.NON_FINITE))
    status = torch.where(count == 0, int(RowStatus.NO_KEY), status)
    if query_mask is not None and query_mask.shape[1] == n_query:
        kept = query_mask[:, None].to(status.device)
        status = torch.where(kept, status, int(RowStatus.PADDING))
        count = torch.where(kept, count, 0)
    usable = status <= RowStatus.SINGLE_KEY
    values = {name: torch.cat(found, 2) for name, found in parts.items()}
    if relevant_parts:
        values["relevant_mass"] = torch.cat(relevant_parts, 2)
    values = {name: torch.where(usable, found, torch.nan) for name, found in values.items()}
    return RowStatistics(values, count, status.to(torch.uint8), "pattern"), missing


def _reader(name: str, has_scores: bool) -> Reader | None:
    """How a statistic is read off finished weights (and scores), or ``None`` if it cannot be."""
    if name in _OF_WEIGHTS:
        return partial(_read_weights, _OF_WEIGHTS[name])
    if name in _OF_SCORES:
        return partial(_read_scores, _OF_SCORES[name]) if has_scores else None
    family, _, number = name.removesuffix("_mass").partition("_")
    if family == "top":
        return partial(_read_weights, partial(top_k_mass, k=int(number)))
    if family == "window":
        return partial(_read_window, int(number))
    return None


def _read_weights(
    function: Callable[[Tensor, Tensor], Tensor],
    weights: Tensor,
    scores: Tensor | None,
    visible: Tensor,
    position: Tensor,
) -> Tensor:
    return function(weights, visible)


def _read_scores(
    function: Callable[[Tensor, Tensor], Tensor],
    weights: Tensor,
    scores: Tensor | None,
    visible: Tensor,
    position: Tensor,
) -> Tensor:
    assert scores is not None
    return function(scores, visible)


def _read_window(
    size: int, weights: Tensor, scores: Tensor | None, visible: Tensor, position: Tensor
) -> Tensor:
    key = torch.arange(weights.shape[-1], device=weights.device)
    near = (position[:, None] - key).abs() < size
    return torch.where(near, weights, 0.0).sum(-1)
