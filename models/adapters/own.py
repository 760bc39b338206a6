"""Our own :class:`~resharpen.models.transformer.Transformer`: exact, and fused until replaced."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from ..attention import Attention
from ..observed import AttentionSeen, Observer
from ..positions import alibi_bias
from ..transformer import Transformer
from .adapter import Adapter
from .description import Description
from .digest import check_finite, digest_weights


class OwnAdapter(Adapter):
    """A model of ours; queries and keys are taken where its attention receives them."""

    module: Transformer

    def __init__(self, model: Transformer, digest: str | None = None) -> None:
        """Adapt a model.

        Args:
            model: The model.
            digest: Its checkpoint's digest, or ``None`` to take that of the weights alone.

        Raises:
            CheckpointError: If a weight is not a finite number.
        """
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

    def watch(self, observer: Observer) -> Iterator["_Replaced"]:
        """Stand in for each layer's attention, fused or not, and show what it is given."""
        for layer, block in enumerate(self.module.blocks):
            for name, may_replace in (("_attend_fused", True), ("_attend_explicitly", False)):
                yield _Replaced(
                    block.attn, name, _looking(block.attn, name, layer, observer, may_replace)
                )


class _Replaced:
    """A method replaced on one instance until ``remove()``."""

    def __init__(self, owner: Attention, name: str, function: Callable[..., Tensor]) -> None:
        self._owner, self._name = owner, name
        owner.__dict__[name] = function

    def remove(self) -> None:
        """Give the instance its method back."""
        self._owner.__dict__.pop(self._name, None)


def _looking(
    attention: Attention, name: str, layer: int, observer: Observer, may_replace: bool
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    own: Callable[[Tensor, Tensor, Tensor], Tensor] = getattr(attention, name)
    cfg = attention.cfg

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        bias: Any = None
        if cfg.positional_embedding_type == "alibi":
            bias = alibi_bias(cfg.n_heads, query.shape[1], query)[None]
        seen = AttentionSeen(
            layer=layer,
            query=query.transpose(1, 2),
            key=key.transpose(1, 2),
            value=value.transpose(1, 2),
            scale=cfg.score_factor,
            causal=cfg.attention_dir == "causal",
            bias=bias,
            stack="decoder" if cfg.attention_dir == "causal" else "encoder",
        )
        given = observer.attention(seen)
        # Somebody else's hooks on scores and pattern must still fire: then the layer runs itself.
        return own(query, key, value) if given is None or not may_replace else given.transpose(1, 2)

    return attend
