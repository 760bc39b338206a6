"""What an adapter shows an observer while a model runs: tensors and what they mean, no statistics.

With :mod:`resharpen.models.sites` this is all that ``resharpen.interp`` knows of models. An adapter
(:mod:`resharpen.models.adapters`) turns any model into a sequence of these records, in the order in
which the model computes them; an observer (``resharpen.interp``) turns the records into numbers. So
each new kind of model is one adapter, and each new measurement works on every kind of model.
"""

from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float, Shaped
from torch import Tensor

from .facts import Facts


@dataclass(frozen=True, repr=False)
class AttentionSeen(Facts):
    """One attention layer's inputs, exactly as the model multiplies them.

    The scores are ``scale * query @ key^T``, then ``soft_cap * tanh(scores / soft_cap)`` if there
    is a soft-cap, then ``+ bias``; a query sees the keys that ``causal``, ``window`` and ``mask``
    all allow; ``sinks`` add one more exponential per head to the denominator, without a value.

    Attributes:
        layer: Block that holds the attention layer, from 0.
        stack: Which stack of layers: ``"decoder"`` or ``"encoder"``; with ``cross``, layers of a
            decoder that attend to the encoder are ``"cross"``.
        query: ``[batch, head, query, d_head]``, after rotary positions and QK-norm.
        key: ``[batch, kv_head, key, d_head]``; ``head`` is a multiple of ``kv_head``.
        value: ``[batch, kv_head, key, d_value]``.
        scale: Factor on the products.
        causal: Whether query ``i`` sees no later key (the last query is aligned with the last key).
        window: Number of most recent keys a query sees, itself included; or ``(left, right)``, the
            farthest keys it sees before and after itself; or ``None`` for all.
        mask: Further restriction, broadcastable to ``[batch, head, query, key]``: bool (true =
            visible), or ``None``. What ``causal`` and ``window`` say need not be repeated in it.
        bias: Added to the scores, broadcastable to ``[batch, head, query, key]``, or ``None``.
        soft_cap: Soft-cap of the scores, or ``None``.
        sinks: Learned sink logit of each head, ``[head]``, or ``None``.
    """

    layer: int
    query: Float[Tensor, "batch head query d_head"]
    key: Float[Tensor, "batch kv_head key d_head"]
    value: Float[Tensor, "batch kv_head key d_value"]
    scale: float
    causal: bool
    window: int | tuple[int, int] | None = None
    mask: Shaped[Tensor, "#batch #head #query #key"] | None = None
    bias: Float[Tensor, "#batch #head #query #key"] | None = None
    soft_cap: float | None = None
    sinks: Float[Tensor, "head"] | None = None
    stack: str = "decoder"


@dataclass(frozen=True, repr=False)
class PatternSeen(Facts):
    """One attention layer's weights, where only the finished pattern can be had.

    Attributes:
        layer: Attention layer, from 0.
        weights: ``[batch, head, query, key]``; zero where a key is not visible.
        visible: Bool, broadcastable to the weights: which keys each query sees.
        scores: Scores before softmax, masked ones ``-inf``, or ``None``. Given only where
            ``softmax(scores)`` was checked to equal the weights.
        stack: As in :class:`AttentionSeen`.
        normalised: Whether a row sums to one, or to less where a sink takes a share; false for
            weights that sum to anything (sigmoid, differential attention).
        signed: Whether weights may be negative (differential attention): then no row is a
            distribution over keys, not even one that happens to have no negative weight.
    """

    layer: int
    weights: Float[Tensor, "batch head query key"]
    visible: Shaped[Tensor, "#batch #head query key"]
    scores: Float[Tensor, "batch head query key"] | None = None
    stack: str = "decoder"
    normalised: bool = True
    signed: bool = False


@dataclass(frozen=True, repr=False)
class NormSeen(Facts):
    """One norm at work.

    Attributes:
        name: The norm's module name in the model.
        layer: Block it belongs to, or ``None``.
        position: Where it stands: ``"before"`` a sub-layer, ``"after"`` it (before the addition),
            on the ``"stream"``, ``"final"``, on queries or keys (``"query_key"``), on the
            embedding (``"embedding"``), or ``"unknown"``. Found from what feeds what, not by name.
        sublayer: ``"attention"``, ``"mlp"`` or ``None``.
        input: ``[batch, pos, width]``; on queries and keys that are normalised head by head,
            ``[batch, pos, head, width]``.
        centred: Whether the mean is taken off (LayerNorm).
        eps: Its epsilon; NaN if the module does not say.
    """

    name: str
    layer: int | None
    position: str
    sublayer: str | None
    input: Float[Tensor, "batch pos *head width"]
    centred: bool
    eps: float


@dataclass(frozen=True, repr=False)
class StreamSeen(Facts):
    """The residual stream at a block boundary.

    Attributes:
        name: ``"blocks.{l}.resid_pre"``, or ``"final"`` for what leaves the last block.
        layer: Block that it enters; the number of blocks for what leaves the last one.
        stream: ``[batch, pos, d_model]``.
    """

    name: str
    layer: int
    stream: Float[Tensor, "batch pos d_model"]
    stack: str = "decoder"


class Observer(Protocol):
    """What looks on while a model runs. Must not change or keep the tensors it is shown."""

    def attention(self, seen: AttentionSeen) -> Float[Tensor, "batch head query d_value"] | None:
        """Look at one attention layer.

        May return the layer's attention output, when computing the statistics gave it for free;
        the adapter then uses it in place of the model's own kernel. ``None`` leaves that to the
        model.
        """
        ...

    def pattern(self, seen: PatternSeen) -> None:
        """Look at one finished pattern."""
        ...

    def norm(self, seen: NormSeen) -> None:
        """Look at one norm."""
        ...

    def stream(self, seen: StreamSeen) -> None:
        """Look at the residual stream at one block boundary."""
        ...
