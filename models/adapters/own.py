"""Our own :class:`~resharpen.models.transformer.Transformer`, seen through its own watcher.

What is a softmax of scaled products, with or without an inverse temperature of the row, is shown as
queries and keys; other normalizers show their finished weights.
"""

from collections.abc import Iterator

from torch import Tensor

from ..attention import Attention, AttentionInputs, Watcher
from ..observed import AttentionSeen, Observer, PatternSeen
from ..positions import alibi_bias
from ..sites import weight_rule
from ..transformer import Transformer
from .adapter import Adapter
from .description import Description
from .digest import check_finite, digest_weights
from .wrappers import check_weights_present


class OwnAdapter(Adapter):
    """A model of ours; queries and keys are taken where its attention receives them."""

    module: Transformer
    describes_itself = True

    def __init__(self, model: Transformer, digest: str | None = None) -> None:
        """Adapt a model.

        Args:
            model: The model.
            digest: Its checkpoint's digest, or ``None`` to take that of the weights alone.

        Raises:
            CheckpointError: If a weight is not a finite number.
            ValueError: If the weights are not there (meta device).
        """
        check_weights_present(model)
        check_finite(model, "Transformer")
        cfg = model.cfg
        facts = Description(
            architecture="Transformer",
            n_layers=cfg.n_layers,
            n_heads=cfg.n_heads,
            n_kv_heads=cfg.n_heads,
            d_model=cfg.d_model,
            d_vocab=cfg.d_vocab,
            max_positions=cfg.longest_input,
            positions_fixed=cfg.longest_input is not None,
            causal=cfg.attention_dir == "causal",
            dtype=str(model.W_E.dtype).removeprefix("torch."),
            n_parameters=sum(parameter.numel() for parameter in model.parameters()),
            digest=digest or digest_weights(model),
        )
        attention = [block.attn for block in model.blocks]
        super().__init__(model, facts, blocks=model.blocks, attention=attention)

    def watch(self, observer: Observer) -> Iterator["_Watching"]:
        """Show the observer what each layer's attention is given."""
        for block in self.module.blocks:
            yield _Watching(block.attn, _watcher(observer))


class _Watching:
    """A watcher on one attention layer until ``remove()``."""

    def __init__(self, attention: Attention, watcher: Watcher) -> None:
        self._attention = attention
        attention.watcher = watcher

    def remove(self) -> None:
        """Take the watcher off."""
        self._attention.watcher = None


def _watcher(observer: Observer) -> Watcher:
    def watch(attention: Attention, inputs: AttentionInputs) -> Tensor | None:
        if _is_softmax(attention):
            given = observer.attention(_attention_seen(attention, inputs))
            return None if given is None else given.transpose(1, 2)
        observer.pattern(_pattern_seen(attention, inputs))
        return None

    return watch


def _is_softmax(attention: Attention) -> bool:
    """Whether the layer is a softmax of scaled products, as an attention record says it."""
    return attention.normalizer.fused or attention.cfg.normalizer in ("adaptive", "softmax1")


def _stack(attention: Attention) -> str:
    return "decoder" if attention.cfg.attention_dir == "causal" else "encoder"


def _attention_seen(attention: Attention, inputs: AttentionInputs) -> AttentionSeen:
    cfg = attention.cfg
    query, factor, bias = inputs.query.transpose(1, 2), attention.row_factor(inputs), None
    if cfg.positional_embedding_type == "alibi":
        bias = alibi_bias(cfg.n_heads, query.shape[2], query)[None]
        bias = bias if factor is None else bias * factor
    return AttentionSeen(
        layer=attention.layer,
        query=query if factor is None else query * factor,
        key=inputs.key.transpose(1, 2),
        value=inputs.value.transpose(1, 2),
        scale=inputs.scale,
        causal=cfg.attention_dir == "causal",
        bias=bias,
        # The one of softmax plus one is a key of score zero without a value.
        sinks=query.new_zeros(cfg.n_heads) if cfg.normalizer == "softmax1" else None,
        stack=_stack(attention),
    )


def _pattern_seen(attention: Attention, inputs: AttentionInputs) -> PatternSeen:
    n_pos = inputs.query.shape[1]
    weights = attention.pattern(inputs, 0, n_pos)
    visible = attention.masked(weights.new_zeros(1, 1, n_pos, n_pos), 0) == 0
    rule = weight_rule(attention)
    return PatternSeen(
        attention.layer,
        weights,
        visible,
        stack=_stack(attention),
        normalised=rule.row_sum == 1.0,
        signed=rule.signed,
    )
