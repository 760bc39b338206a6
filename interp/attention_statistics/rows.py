"""The two entry points: statistics of the rows, alone or together with the attention output."""

from collections.abc import Iterable, Mapping
from math import nan

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .blockwise import BlockwisePass, Tile
from .catalogue import DEFAULT_STATISTICS, STATISTICS, Request, parse_statistics
from .kernels import fused_output, fused_refusal, fused_statistics
from .result import RowStatistics, RowStatus
from .rule import AttentionRule, check_marked, check_shapes

METHODS = ("auto", "blockwise", "fused")


def row_statistics(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    rule: AttentionRule | None = None,
    *,
    statistics: Iterable[str] = DEFAULT_STATISTICS,
    marked: Mapping[str, Bool[Tensor, "..."]] | None = None,
    last: int | None = None,
    method: str = "auto",
    tile: Tile | None = None,
) -> RowStatistics:
    """Exact statistics of every row of attention weights, without the weights, in O(n) memory.

    ``a_j = exp(s_j) / sum_i exp(s_i)`` over the visible keys ``j`` of each query, with the scores
    of :class:`AttentionRule` (default: causal, scale ``1 / sqrt(d_head)``), formulas, units and
    ranges of :data:`STATISTICS`; theory section 0.

    Args:
        query: ``[batch, head, query, d_head]`` as the model's attention gets it: rotated,
            normalised, in any floating dtype.
        key: ``[batch, kv_head, key, d_head]``, likewise; ``head`` is a multiple of ``kv_head``
            (grouped-query), head ``h`` reading key head ``h // group``.
        rule: How the layer attends.
        statistics: Names of :data:`STATISTICS`, ``top_{k}_mass`` or ``window_{w}_mass``.
        marked: Named keys: ``{"relevant": Bool [key] or [batch|1, query|1, key]}`` adds the
            statistic ``relevant_mass`` [ratio], the weight on the visible ones among them.
        last: Only the last so many queries; ``None`` is all. The cost falls in proportion.
        method: ``"blockwise"``, ``"fused"`` (two calls of the platform's kernel; ``ValueError``
            where it does not cover the case) or ``"auto"``: fused on CUDA where it covers the case,
            blockwise otherwise.
        tile: Shape of the blockwise tiles; changes the results by rounding only.

    Returns float64 statistics ``[batch, head, query]`` (the last ``last`` queries) with ``n_key``
    and a status for every row. Against float64 arithmetic on the same float32 arrays the error of
    the blockwise path is at most 1e-5 of each value or 2e-7, whichever is more, at scores of 1e4
    too (of ``log_partition``: 1e-5 of it or 2e-6). Float16 and bfloat16 arrays are widened to
    float32 and nothing is rounded back, so that the same holds for them as they are given; what the
    model's own half-precision softmax rounds is not in it. On a CPU the blocks run in threads, and
    the functions of a rule are called from them. No gradient is recorded.

    Raises ``ValueError`` and ``TypeError`` on arrays or options that do not fit together.
    """
    return _measure(query, key, None, rule, statistics, marked, last, method, tile)[1]


def attention_with_statistics(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_value"],
    rule: AttentionRule | None = None,
    *,
    statistics: Iterable[str] = DEFAULT_STATISTICS,
    marked: Mapping[str, Bool[Tensor, "..."]] | None = None,
    last: int | None = None,
    method: str = "auto",
    tile: Tile | None = None,
) -> tuple[Float[Tensor, "batch head query d_value"], RowStatistics]:
    """The attention output ``sum_j a_j v_j`` and the row statistics from one pass.

    For an observer that stands in for the model's attention call: the output comes from the very
    weights that are measured, and the statistics cost little more than the output. Arguments as in
    :func:`row_statistics`. The output covers every query, whatever ``last``, in the dtype of the
    query, computed in float32 (float64 for float64 arrays): it agrees with the platform's kernel to
    rounding, not bit for bit. Learned sinks take their share of it; a row without a visible key is
    zero. To leave logits untouched to the last bit, let the model's own attention run and call
    :func:`row_statistics` beside it.

    Raises ``ValueError`` also if the output would have to carry a gradient.
    """
    output, rows = _measure(query, key, value, rule, statistics, marked, last, method, tile)
    assert output is not None
    return output, rows


def _measure(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    rule: AttentionRule | None,
    statistics: Iterable[str],
    marked: Mapping[str, Tensor] | None,
    last: int | None,
    method: str,
    tile: Tile | None,
) -> tuple[Tensor | None, RowStatistics]:
    """Check, choose the path, run it outside autograd and autocast, derive what was asked for."""
    rule = AttentionRule() if rule is None else rule
    check_shapes(rule, query, key, value)
    request = parse_statistics(statistics, has_sinks=rule.sinks is not None)
    shape = (query.shape[0], query.shape[2], key.shape[2])
    keys = _marked_keys(marked or {}, shape, request)
    if last is not None and not 1 <= last <= query.shape[2]:
        raise ValueError(f"expected last between 1 and {query.shape[2]} queries, got {last}")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: expected one of {', '.join(METHODS)}")
    arrays = [query, key, *([] if value is None else [value])]
    if value is not None and torch.is_grad_enabled() and any(a.requires_grad for a in arrays):
        raise ValueError(
            "the output would need a gradient, which this pass does not record: call it under "
            "torch.no_grad(), or row_statistics beside the model's own attention"
        )
    first = 0 if last is None else query.shape[2] - last
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        refusal = "the blockwise pass is faster here"
        if method == "fused" or (method == "auto" and query.device.type == "cuda"):
            refusal = fused_refusal(query, key, rule, request, len(keys), query.shape[2] - first)
        if method == "fused" and refusal is not None:
            raise ValueError(f"the fused path does not cover this call: {refusal}")
        if method != "blockwise" and refusal is None:
            base, n_key = fused_statistics(query, key, rule, request)
            output = None
            if value is not None:
                output = fused_output(query, key, value, rule, base["log_partition"])
        else:
            blocks = BlockwisePass(query, key, value, rule, keys, tile)
            base, n_key, output = blocks.run(request, first)
        status = _status(base, n_key, rule, first)
        values = {
            name: torch.where(status <= RowStatus.SINGLE_KEY, _derive(name, base, n_key, rule), nan)
            for name in (*request.names, *keys)
        }
    n_key = torch.where(status == RowStatus.PADDING, 0, n_key)
    used = "blockwise" if method == "blockwise" or refusal is not None else "fused"
    output = None if output is None else output.to(query.dtype)
    return output, RowStatistics(values, n_key, status, used)


def _derive(name: str, base: Mapping[str, Tensor], n_key: Tensor, rule: AttentionRule) -> Tensor:
    """The statistic ``name`` from the base statistics of the pass."""
    if name == "normalised_entropy":
        log_n = n_key.double().log()
        return torch.where(n_key > 1, base["entropy"] / log_n, nan)
    if name == "entropy_support":
        return base["entropy"].exp()
    if name == "learned_sink_mass" and rule.sinks is not None:
        return torch.sigmoid(rule.sinks.double()[:, None] - base["log_partition"])
    return base[name]


def _status(base: Mapping[str, Tensor], n_key: Tensor, rule: AttentionRule, first: int) -> Tensor:
    """The :class:`RowStatus` of every row, uint8."""
    status = torch.where(n_key == 1, int(RowStatus.SINGLE_KEY), int(RowStatus.OK))
    finite = torch.stack([entry.isfinite() for entry in base.values()]).all(0)
    status = torch.where(finite, status, int(RowStatus.NON_FINITE))
    status = torch.where(n_key == 0, int(RowStatus.NO_KEY), status)
    if rule.query_mask is not None:
        kept = rule.query_mask[:, None, first:]
        status = torch.where(kept, status, int(RowStatus.PADDING))
    return status.to(torch.uint8)


def _marked_keys(
    marked: Mapping[str, Tensor], shape: tuple[int, int, int], request: Request
) -> dict[str, Tensor]:
    """Marked keys as ``[batch|1, 1, query|1, key]``, by the name of their mass."""
    keys: dict[str, Tensor] = {}
    for name, array in marked.items():
        check_marked(name, array, shape)
        mass = f"{name}_mass"
        if mass in STATISTICS or mass in request.names:
            raise ValueError(
                f"the marked keys {name!r} would hide the statistic {mass!r}: rename them"
            )
        keys[mass] = array.view(1, 1, 1, -1) if array.ndim == 1 else array[:, None]
    return keys
