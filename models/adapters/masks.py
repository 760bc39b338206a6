"""What a transformers mask says, without an n x n array where it can be said in two numbers.

transformers describes a mask by a function ``visible(batch, head, query, key)`` of index tensors.
Most are "causal", "the last w keys" or "within w on both sides", times padding. The candidates come
from the configuration, the proof from the function: it is evaluated on every pair of positions or,
for long inputs, if it is put together from transformers' own functions of the distance alone, on
the rows where those could differ. Anything else is kept as the bool array that it is.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import masking_utils

_CHUNK = 256


@dataclass(frozen=True)
class MaskRule:
    """Which keys a query sees: all that ``causal``, ``window`` and ``mask`` allow.

    Attributes:
        causal: As in :class:`~resharpen.models.observed.AttentionSeen`.
        window: As there.
        mask: Bool, broadcastable to ``[batch, head, query, key]``, or ``None``.
        bias: What an additive mask adds where it hides nothing, or ``None``.
    """

    causal: bool
    window: int | tuple[int, int] | None = None
    mask: Bool[Tensor, "#batch #head #query key"] | None = None
    bias: Float[Tensor, "#batch #head #query key"] | None = None


def read_mask_request(request: Mapping[str, Any]) -> MaskRule:
    """Read what transformers asks of a mask function (the keywords of ``sdpa_mask``)."""
    padding = request.get("attention_mask")
    n_query, n_key = int(request["q_length"]), int(request["kv_length"])
    plain = (
        not request.get("use_vmap")
        and not request.get("q_offset")
        and not request.get("kv_offset")
        and n_query == n_key
        and (padding is None or padding.shape[-1] == n_key)
    )
    if plain:
        for causal, window in _candidates(request):
            if _is_rule(request, causal, window):
                mask = None
                if padding is not None and not bool(padding.all()):
                    mask = padding.bool()[:, None, None, :]
                binding = window is not None and _reach(window) < n_key
                return MaskRule(causal, window if binding else None, mask)
    full = dict(request, allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    return MaskRule(causal=False, mask=masking_utils.sdpa_mask(**full))


def read_finished_mask(mask: Tensor, n_query: int, n_key: int) -> MaskRule:
    """Read a mask that the model built itself: bool (true = visible) or additive.

    Raises:
        ValueError: If it is neither, or its shape does not fit.
    """
    fits = mask.ndim == 4 and mask.shape[-1] == n_key and mask.shape[-2] in (1, n_query)
    if not fits or not (mask.dtype is torch.bool or mask.is_floating_point()):
        raise ValueError(
            f"the model hands its attention a mask of shape {tuple(mask.shape)} and {mask.dtype} "
            f"for {n_query} queries and {n_key} keys, which this toolkit cannot read"
        )
    if mask.dtype is torch.bool:
        return MaskRule(causal=False, mask=mask)
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    bias = mask.masked_fill(hidden, 0.0)
    return MaskRule(causal=False, mask=~hidden, bias=bias if bool(bias.any()) else None)


def _reach(window: int | tuple[int, int]) -> int:
    return window if isinstance(window, int) else max(window) + 1


def _candidates(request: Mapping[str, Any]) -> list[tuple[bool, int | tuple[int, int] | None]]:
    function = request["mask_function"]
    if function is masking_utils.causal_mask_function:
        return [(True, None)]
    if function is masking_utils.bidirectional_mask_function:
        return [(False, None)]
    config = request.get("config")
    widths = {request.get("local_size")}
    widths |= {getattr(config, name, None) for name in ("sliding_window", "local_attention")}
    found: list[tuple[bool, int | tuple[int, int] | None]] = []
    for width in sorted(w for w in widths if isinstance(w, int) and w > 0):
        found += [(True, width), (False, (width, width)), (False, (width // 2, width // 2))]
    return [*found, (True, None), (False, None)]


def _is_rule(
    request: Mapping[str, Any], causal: bool, window: int | tuple[int, int] | None
) -> bool:
    """Whether the request's function is the rule."""
    function, n = request["mask_function"], int(request["kv_length"])
    if function is masking_utils.causal_mask_function:
        return causal and window is None
    if function is masking_utils.bidirectional_mask_function:
        return not causal and window is None
    device = request.get("device", "cpu")
    batch = torch.arange(int(request["batch_size"]), device=device).view(-1, 1, 1, 1)
    head = torch.zeros(1, 1, 1, 1, dtype=torch.int64, device=device)
    key = torch.arange(n, device=device).view(1, 1, 1, -1)
    rows = torch.arange(n, device=device)
    if n > 4 * _CHUNK and all(_depends_on_distance(leaf) for leaf in _leaves(function)):
        edge = min(n - 1, 0 if window is None else _reach(window))
        spread = torch.linspace(0, n - 1, 32, device=device).long()
        near = torch.arange(edge - 4, edge + 4, device=device).clamp(0, n - 1)
        rows = torch.cat([rows[:4], near, spread, rows[-4:]]).unique()
    for query in rows.split(_CHUNK):
        query = query.view(1, 1, -1, 1)
        allowed = function(batch, head, query, key)
        expected = key <= query if causal else (key >= 0)
        if isinstance(window, int):
            expected = expected & (key > query - window)
        elif window is not None:
            expected = expected & (key >= query - window[0]) & (key <= query + window[1])
        if not bool((allowed == expected).all()):
            return False
    return True


def _leaves(function: Any) -> list[Any]:
    """The functions that a conjunction of masks is made of."""
    parts = inspect.getclosurevars(function).nonlocals.get("mask_functions")
    is_conjunction = function.__qualname__ == "and_masks.<locals>.and_mask"
    if not is_conjunction or not isinstance(parts, tuple):
        return [function]
    return [leaf for part in parts for leaf in _leaves(part)]


def _depends_on_distance(function: Any) -> bool:
    """Whether a function is one of transformers' own that see nothing but the distance."""
    whole = (masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function)
    windows = ("sliding_window_overlay", "sliding_window_bidirectional_overlay")
    names = [f"{window}.<locals>.inner_mask" for window in windows]
    return function in whole or (
        function.__module__ == masking_utils.__name__ and function.__qualname__ in names
    )
