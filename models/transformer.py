"""The whole model, readable from top to bottom, with HookedTransformer's hook points in place."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import FactoredMatrix, HookedRootModule
from transformer_lens.hook_points import HookPoint

from .block import Block, apply_norm
from .cache import TransformerCache
from .config import TransformerConfig
from .facts import facts_table, layers_by_heads
from .ngpt import UnitNorm, normalise_weights
from .norms import Norm
from .placements import PLACEMENTS
from .sigma_reparam import reparametrise
from .sites import check_hook_names

LAMBDA_INIT_STD = 0.1
"""Standard deviation of the initial ``lambda_*`` of differential attention (arXiv 2410.05258)."""

UNIT_LOGITS = 10.0
"""Initial ``s_z`` of nGPT: cosines between -1 and 1 become logits between -10 and 10."""


class Embed(nn.Module):
    """Token embedding, ``W_E`` of shape ``[d_vocab, d_model]``."""

    def __init__(self, cfg: TransformerConfig) -> None:
        """Create the table."""
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(cfg.d_vocab, cfg.d_model))

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """Look the tokens up."""
        return F.embedding(tokens, self.W_E)


class PosEmbed(nn.Module):
    """Learned absolute positions, ``W_pos`` of shape ``[n_ctx, d_model]``."""

    def __init__(self, cfg: TransformerConfig) -> None:
        """Create the table."""
        super().__init__()
        self.W_pos = nn.Parameter(torch.empty(cfg.n_ctx, cfg.d_model))

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """Return one row a position, repeated over the batch."""
        return self.W_pos[: tokens.shape[1]].expand(tokens.shape[0], -1, -1)


class Unembed(nn.Module):
    """Residual stream to logits: ``W_U [d_model, d_vocab_out]``, ``b_U [d_vocab_out]`` or None.

    With nGPT the logits are multiplied by a learned ``s_z``, ``[d_vocab_out]``.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        """Create the matrix (none when tied) and the bias (none without ``cfg.biases``)."""
        super().__init__()
        unit = PLACEMENTS[cfg.norm_placement].unit
        self.s_z = nn.Parameter(torch.full((cfg.output_size,), UNIT_LOGITS)) if unit else None
        shape = (cfg.d_model, cfg.output_size)
        self.W_U = None if cfg.tied_unembed else nn.Parameter(torch.empty(shape))
        self.b_U = nn.Parameter(torch.zeros(cfg.output_size)) if cfg.biases else None


class Transformer(HookedRootModule):
    """A transformer whose norm placement is a parameter, compatible with HookedTransformer.

    ``run_with_hooks``, ``run_with_cache``, ``ActivationCache`` and ``transformer_lens.patching``
    work on it; hook names, weight names and shapes are HookedTransformer's (see
    :mod:`resharpen.models.sites` for what it adds). Weights are drawn from
    ``N(0, cfg.init_range**2)`` with the given seed, biases are zero, gains are one.

    Example:
        >>> model = Transformer(TransformerConfig(d_vocab=32, norm_placement="post"))
        >>> logits, cache = model.run_with_cache(torch.tensor([[3, 1, 4]]))
        >>> cache["blocks.0.ln1_resid.hook_scale"].shape
        torch.Size([1, 3, 1])
    """

    blocks: Sequence[Block]
    ln_embed: Norm | None
    ln_final: Norm | UnitNorm | None

    def __init__(self, cfg: TransformerConfig, *, seed: int = 0) -> None:
        """Build the model and draw its weights.

        Args:
            cfg: The configuration.
            seed: Seed of the initial weights.
        """
        super().__init__()
        if not isinstance(cfg, TransformerConfig):
            raise TypeError(f"cfg must be a TransformerConfig; got {type(cfg).__name__}")
        self.cfg = cfg
        self.embed = Embed(cfg)
        self.hook_embed = HookPoint()
        if cfg.positional_embedding_type == "standard":
            self.pos_embed = PosEmbed(cfg)
            self.hook_pos_embed = HookPoint()
        scheme = PLACEMENTS[cfg.norm_placement]
        self.ln_embed = Norm(cfg) if scheme.embedding else None
        blocks = (Block(cfg, layer) for layer in range(cfg.n_layers))
        self.blocks = nn.ModuleList(blocks)  # type: ignore[assignment]
        kind = UnitNorm if scheme.unit else Norm
        self.ln_final = kind(cfg) if cfg.final_norm else None
        self.unembed = Unembed(cfg)
        self._draw_weights(seed)
        if cfg.sigma_reparam:
            reparametrise(self)
        self.setup()

    def _draw_weights(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        assert self.cfg.init_range is not None
        scheme = PLACEMENTS[self.cfg.norm_placement]
        gain = scheme.init_gain(self.cfg.n_layers)
        for name, parameter in self.named_parameters():
            weight = name.rsplit(".", 1)[-1]
            if weight.startswith("W_"):
                std = self.cfg.init_range
                if weight in ("W_V", "W_O", "W_in", "W_out"):
                    std *= gain
                nn.init.normal_(parameter, std=std, generator=generator)
            elif weight.startswith("lambda_"):
                nn.init.normal_(parameter, std=LAMBDA_INIT_STD, generator=generator)
        if scheme.unit:
            normalise_weights(self.named_parameters())

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        return_type: Literal["logits", "loss", "both"] | None = "logits",
    ) -> Any:
        """Compute logits ``[batch, pos, d_vocab_out]``.

        Args:
            tokens: Token ids, ``[batch, pos]`` (a single sequence ``[pos]`` gets a batch axis).
            return_type: ``"logits"``; ``"loss"``, the mean cross entropy in nats of each token
                given those before it; ``"both"`` as a tuple; or ``None`` to run for the hooks only.

        Raises:
            TypeError: If the tokens are not an integer tensor.
            ValueError: If the shape is wrong, the input is longer than learned positions reach, or
                a token id is outside the vocabulary.
        """
        if return_type not in ("logits", "loss", "both", None):
            raise ValueError(
                f"return_type must be 'logits', 'loss', 'both' or None; got {return_type!r}"
            )
        x = self._embed(_check_tokens(tokens, self.cfg))
        for block in self.blocks:
            x = block(x)
        if return_type is None:
            return None
        logits = self._unembed(apply_norm(self.ln_final, x))
        if return_type == "logits":
            return logits
        predicted = logits[:, :-1].flatten(0, 1)
        loss = F.cross_entropy(predicted, tokens.reshape(-1, tokens.shape[-1])[:, 1:].flatten())
        return loss if return_type == "loss" else (logits, loss)

    def _embed(self, tokens: Tensor) -> Tensor:
        try:
            x = self.hook_embed(apply_norm(self.ln_embed, self.embed(tokens)))
        except IndexError as error:
            raise ValueError(
                f"token ids must lie in 0..{self.cfg.d_vocab - 1} (d_vocab={self.cfg.d_vocab}); "
                f"got values from {int(tokens.min())} to {int(tokens.max())}"
            ) from error
        if self.cfg.positional_embedding_type == "standard":
            x = x + self.hook_pos_embed(self.pos_embed(tokens))
        return x

    def _unembed(self, x: Tensor) -> Tensor:
        logits = x @ self.W_U
        return logits if self.unembed.b_U is None else logits + self.unembed.b_U

    def run_with_cache(
        self,
        *model_args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        names_filter: str | Sequence[str] | Callable[[str], bool] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Run and return ``(output, cache)``; the cache knows which decompositions are valid here.

        Args:
            *model_args: As for :meth:`forward`.
            return_cache_object: Whether to wrap the activations in a
                :class:`~resharpen.models.cache.TransformerCache`, else a plain dict.
            remove_batch_dim: Drop a batch axis of size one.
            names_filter: Names to keep: one, several, or a predicate.
            **kwargs: Passed on to TransformerLens.

        Raises:
            ValueError: If a name in ``names_filter`` is not a hook point of this model.
        """
        named = [names_filter] if isinstance(names_filter, str) else names_filter
        if isinstance(named, list | tuple):
            check_hook_names(self, named)
        output, cache = super().run_with_cache(
            *model_args, remove_batch_dim=remove_batch_dim, names_filter=names_filter, **kwargs
        )
        if not return_cache_object:
            return output, cache
        return output, TransformerCache(cache, self, has_batch_dim=not remove_batch_dim)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """Token embedding."""
        return self.embed.W_E

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        """Unembedding; with ``tied_unembed`` the transpose of the embedding's first rows.

        With nGPT, the scale of the logits is folded in.
        """
        weight = self.unembed.W_U
        if weight is None:
            weight = self.embed.W_E[: self.cfg.output_size].T
        return weight if self.unembed.s_z is None else weight * self.unembed.s_z

    @property
    def b_U(self) -> Float[Tensor, "d_vocab_out"]:
        """Unembedding bias, zeros when the model has none."""
        if self.unembed.b_U is None:
            return self.W_U.new_zeros(self.cfg.output_size)
        return self.unembed.b_U

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """Learned positions.

        Raises:
            AttributeError: If the model has none.
        """
        return self.pos_embed.W_pos

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Query weights of every layer."""
        return torch.stack([block.attn.W_Q for block in self.blocks])

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Key weights of every layer."""
        return torch.stack([block.attn.W_K for block in self.blocks])

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Value weights of every layer."""
        return torch.stack([block.attn.W_V for block in self.blocks])

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        """Output weights of every layer."""
        return torch.stack([block.attn.W_O for block in self.blocks])

    @property
    def QK(self) -> FactoredMatrix:
        """``W_Q W_K^T`` of every head, factored, ``[layer, head, d_model, d_model]``."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        """``W_V W_O`` of every head, factored, ``[layer, head, d_model, d_model]``."""
        return FactoredMatrix(self.W_V, self.W_O)

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, "d_model"]:
        """Sum of ``b_O`` (and ``b_out``) of the sub-layers before ``layer``.

        As HookedTransformer's method of the same name, for ``ActivationCache``.
        """
        total = self.W_E.new_zeros(self.cfg.d_model)
        for index, block in enumerate(self.blocks[: layer + int(mlp_input)]):
            if block.attn.b_O is not None:
                total = total + block.attn.b_O
            mlp = block.mlp if include_mlp_biases and index < layer else None
            if mlp is not None and mlp.b_out is not None:
                total = total + mlp.b_out
        return total

    def tokens_to_residual_directions(
        self, tokens: int | Int[Tensor, "*token"]
    ) -> Float[Tensor, "*token d_model"]:
        """Directions in the normalised stream whose inner product is the token's logit.

        The final norm's gain is folded in (HookedTransformer expects you to have done so), so that
        ``ActivationCache.logit_attrs`` adds up to the logits minus the constant biases.
        """
        directions = self.W_U.T[torch.as_tensor(tokens)]
        gain = None if self.ln_final is None else self.ln_final.w
        return directions if gain is None else directions * gain

    def to_single_token(self, string: str) -> int:
        """Refuse: these models have no tokenizer.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"this model has no tokenizer: give token ids, not the string {string!r}")

    def _repr_html_(self) -> str:
        """The configuration and the number of weights, as a table for a notebook."""
        n_parameters = sum(parameter.numel() for parameter in self.parameters())
        return facts_table("Transformer", [*self.cfg._facts(), ("parameters", f"{n_parameters:,}")])

    def __repr__(self) -> str:
        """Say what the model is in one line."""
        cfg = self.cfg
        kind = "attention only" if cfg.attn_only else "attention and MLP"
        final = "with" if cfg.final_norm else "without"
        n_parameters = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"Transformer({layers_by_heads(cfg.n_layers, cfg.n_heads)}, d_model={cfg.d_model}, "
            f"{kind}, {cfg.normalizer} attention, norms: {cfg.norm_placement} "
            f"({cfg.normalization_type}), {final} final norm, "
            f"positions: {cfg.positional_embedding_type}, {n_parameters:,} parameters)"
        )


def _check_tokens(tokens: Any, cfg: TransformerConfig) -> Tensor:
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"tokens must be an integer tensor [batch, pos]; got {got}")
    if tokens.ndim == 1:
        tokens = tokens[None]
    if tokens.ndim != 2 or tokens.shape[1] == 0:
        raise ValueError(
            f"tokens must have shape [batch, pos] with pos >= 1; got {tuple(tokens.shape)}"
        )
    if cfg.longest_input is not None and tokens.shape[1] > cfg.longest_input:
        raise ValueError(
            f"the input has {tokens.shape[1]} positions, but this model learned {cfg.n_ctx} "
            "(n_ctx): give a shorter input or a model without learned positions"
        )
    return tokens
