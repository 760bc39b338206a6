"""How a layer attends: everything beside query, key and value that decides a row's weights."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...models.facts import Facts

BiasFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``bias(head [h, 1, 1], query_position [q, 1], key_position [1, k])`` -> ``[h|1, q, k]``, called
tile by tile with index tensors."""

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``visible(batch, head, query_position, key_position)`` -> Bool that broadcasts to
``[batch, head, q, k]``, called tile by tile with index tensors of shapes ``[b, 1, 1, 1]``,
``[1, h, 1, 1]``, ``[1, 1, q, 1]`` and ``[1, 1, 1, k]``: the convention of FlexAttention and of
transformers' masking functions."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionRule(Facts):
    """Scores ``s = bias + cap(scale * q . k)`` with ``cap(x) = softcap * tanh(x / softcap)``.

    A key is visible if every condition given here allows it. Positions are indices of the key
    axis; the queries are the **last** ``n_query`` of the ``n_key`` positions (so that a query block
    after a key cache needs no offset), except that with neither ``causal`` nor ``window`` nor
    ``documents`` positions do not matter and the query may be longer than the key.

    ``scale``
        [1] factor of ``q . k``; ``None`` is ``1 / sqrt(d_head)``. Normalised queries and keys
        (QK-norm) come normalised.
    ``causal``
        Hide the keys after the query's own position.
    ``window``
        ``(left, right)``: keys further than that before or after the query's own position are
        hidden. An integer ``w`` is the causal window of the ``w`` latest keys, the query's own
        among them: ``(w - 1, 0)``.
    ``key_mask``
        Bool ``[batch|1, key]``, True = visible (padding).
    ``query_mask``
        Bool ``[batch|1, query]``, False = this query is no row (padding): its statistics are NaN
        with status ``PADDING``.
    ``documents``
        Int ``[batch|1, key]``: keys of other documents are hidden (packed sequences).
    ``mask``
        Bool ``[batch|1, head|1, query|1, key]``, True = visible, or a :data:`MaskFunction`.
    ``softcap``
        [1] positive bound of the scores, applied before the bias.
    ``bias``
        Float ``[batch|1, head|1, query|1, key]`` or a :data:`BiasFunction`, added to the scores.
        Entries that are ``-inf`` or the lowest finite number of the dtype hide the key.
    ``sinks``
        Float ``[head]``: a learned logit that joins each row's softmax and receives no value.
    """

    scale: float | None = None
    causal: bool = True
    window: int | tuple[int, int] | None = None
    key_mask: Bool[Tensor, "#batch key"] | None = None
    query_mask: Bool[Tensor, "#batch query"] | None = None
    documents: Int[Tensor, "#batch key"] | None = None
    mask: Bool[Tensor, "#batch #head #query key"] | MaskFunction | None = None
    softcap: float | None = None
    bias: Float[Tensor, "#batch #head #query key"] | BiasFunction | None = None
    sinks: Float[Tensor, "head"] | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without query and key; ``ValueError`` says what to change."""
        if self.softcap is not None and not self.softcap > 0:
            raise ValueError(f"expected a positive softcap or None, got {self.softcap}")
        if isinstance(self.window, int):
            if self.window < 1 or not self.causal:
                raise ValueError(
                    f"expected an integer window of at least 1 with causal=True, got {self.window} "
                    f"with causal={self.causal}: give (left, right) for any other window"
                )
        elif self.window is not None and (len(self.window) != 2 or min(self.window) < 0):
            raise ValueError(f"expected window = (left, right), both >= 0, got {self.window}")
        for name in ("key_mask", "query_mask", "mask"):
            given = getattr(self, name)
            if isinstance(given, Tensor) and given.dtype is not torch.bool:
                raise TypeError(
                    f"expected {name} of dtype bool (True = visible), got {given.dtype}"
                )
        if self.documents is not None and self.documents.is_floating_point():
            raise TypeError(f"expected integer documents, got {self.documents.dtype}")

    def reach(self) -> tuple[int, int] | None:
        """The window as ``(left, right)``, or ``None``."""
        return (self.window - 1, 0) if isinstance(self.window, int) else self.window


def check_shapes(rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor | None) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless query, key, value and rule fit together."""
    arrays = {"query": query, "key": key} | ({} if value is None else {"value": value})
    for name, array in arrays.items():
        if array.ndim != 4 or 0 in array.shape:
            raise ValueError(
                f"expected {name} [batch, head, pos, d_head], not empty, got {tuple(array.shape)}"
            )
        if not array.is_floating_point() or array.dtype != query.dtype:
            raise TypeError(
                f"expected floating-point arrays of one dtype, got {name} of {array.dtype} "
                f"with query of {query.dtype}"
            )
    batch, head, n_query, d_head = query.shape
    kv_head, n_key = key.shape[1:3]
    if key.shape[0] != batch or key.shape[3] != d_head or head % kv_head:
        raise ValueError(
            f"expected key [batch={batch}, a divisor of head={head}, key, d_head={d_head}], "
            f"got {tuple(key.shape)}"
        )
    if value is not None and value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"expected value {tuple(key.shape[:3])} + (d_value,), got {tuple(value.shape)}"
        )
    ordered = rule.causal or rule.window is not None or rule.documents is not None
    if ordered and n_query > n_key:
        raise ValueError(
            f"expected at most {n_key} queries, the number of keys, since positions matter under "
            f"causal, window or documents; got {n_query}"
        )
    limits = {
        "key_mask": (batch, n_key),
        "query_mask": (batch, n_query),
        "documents": (batch, n_key),
        "mask": (batch, head, n_query, n_key),
        "bias": (batch, head, n_query, n_key),
        "sinks": (head,),
    }
    for name, full in limits.items():
        given = getattr(rule, name)
        if isinstance(given, Tensor) and not _fits(given, full, fixed=1):
            raise ValueError(f"expected {name} that broadcasts to {full}, got {tuple(given.shape)}")


def check_marked(name: str, keys: Tensor, full: tuple[int, int, int]) -> None:
    """Raise unless ``keys`` is Bool and broadcasts to ``full = (batch, query, key)``."""
    if keys.dtype is not torch.bool:
        raise TypeError(f"expected bool for the marked keys {name!r}, got {keys.dtype}")
    if keys.ndim not in (1, 3) or not _fits(keys, full[-keys.ndim :], fixed=1):
        raise ValueError(
            f"expected marked keys {name!r} of shape [key] or [batch|1, query|1, key] for "
            f"(batch, query, key) = {full}, got {tuple(keys.shape)}"
        )


def _fits(given: Tensor, full: tuple[int, ...], *, fixed: int) -> bool:
    """Whether the shape broadcasts to ``full``, its last ``fixed`` axes being exact."""
    shape = tuple(given.shape)
    pairs = zip(shape, full, strict=False)
    broadcasts = all(size in (1, whole) for size, whole in pairs)
    return len(shape) == len(full) and broadcasts and shape[-fixed:] == full[-fixed:]
