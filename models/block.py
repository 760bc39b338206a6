"""One block: attention, then an MLP, with the norms where the placement puts them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from .attention import Attention
from .config import TransformerConfig
from .differential import DifferentialAttention
from .ngpt import STEP_INIT, UnitNorm
from .norms import Norm
from .placements import PLACEMENTS

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class MLP(nn.Module):
    """``act(x W_in + b_in) W_out + b_out``, biases only with ``cfg.biases``.

    With nGPT the pre-activations are multiplied by ``s_u sqrt(d_model)``, ``s_u`` ``[d_mlp]``.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        """Create uninitialised weights; ``Transformer`` fills them."""
        super().__init__()
        assert cfg.d_mlp is not None
        self.W_in = nn.Parameter(torch.empty(cfg.d_model, cfg.d_mlp))
        self.W_out = nn.Parameter(torch.empty(cfg.d_mlp, cfg.d_model))
        self.b_in = nn.Parameter(torch.zeros(cfg.d_mlp)) if cfg.biases else None
        self.b_out = nn.Parameter(torch.zeros(cfg.d_model)) if cfg.biases else None
        unit = PLACEMENTS[cfg.norm_placement].unit
        self.s_u = nn.Parameter(torch.ones(cfg.d_mlp)) if unit else None
        self.hook_pre = HookPoint()
        self.hook_post = HookPoint()
        self._activation = _ACTIVATIONS[cfg.act_fn]

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Apply the two layers."""
        before = x @ self.W_in if self.b_in is None else x @ self.W_in + self.b_in
        if self.s_u is not None:
            before = before * (self.s_u * x.shape[-1] ** 0.5)
        after = self.hook_post(self._activation(self.hook_pre(before)))
        return after @ self.W_out if self.b_out is None else after @ self.W_out + self.b_out


class Block(nn.Module):
    """Attention, then (unless ``attn_only``) an MLP, with the norms where the placement says.

    Attributes:
        places: Which norms this block has, :class:`~resharpen.models.placements.Places`.
        ln1, ln1_post, ln1_resid, ln2, ln2_post, ln2_resid: The norms, or ``None``; see
            :mod:`resharpen.models.sites`.
        step1, step2: For nGPT, how far attention and the MLP move the stream, ``[d_model]``.
    """

    def __init__(self, cfg: TransformerConfig, layer: int = 0) -> None:
        """Create the sub-layers and exactly the norms that the placement has at this layer."""
        super().__init__()
        scheme = PLACEMENTS[cfg.norm_placement]
        self.places = place = scheme.at(layer, cfg.n_layers)
        kind = UnitNorm if scheme.unit else Norm
        differential = cfg.normalizer == "differential"
        self.attn = (DifferentialAttention if differential else Attention)(cfg, layer)
        self.ln1 = kind(cfg) if place.before else None
        self.ln1_post = kind(cfg) if place.after else None
        self.ln1_resid = kind(cfg) if place.stream else None
        self.step1 = nn.Parameter(torch.full((cfg.d_model,), STEP_INIT)) if scheme.unit else None
        has_mlp = not cfg.attn_only
        normed = has_mlp and place.mlp
        self.mlp = MLP(cfg) if has_mlp else None
        self.ln2 = kind(cfg) if place.before and normed else None
        self.ln2_post = kind(cfg) if place.after and normed else None
        self.ln2_resid = kind(cfg) if place.stream and normed else None
        stepped = scheme.unit and has_mlp
        self.step2 = nn.Parameter(torch.full((cfg.d_model,), STEP_INIT)) if stepped else None
        self.hook_resid_pre = HookPoint()
        self.hook_attn_out = HookPoint()
        if has_mlp:
            self.hook_resid_mid = HookPoint()
            self.hook_mlp_out = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Run the block; ``hook_attn_out`` and ``hook_mlp_out`` fire with what is added."""
        x = self.hook_resid_pre(x)
        out = apply_norm(self.ln1_post, self.attn(self._input(self.ln1, x)))
        x = self._add(x, self.hook_attn_out(_towards(x, out, self.step1)), self.ln1_resid)
        if self.mlp is not None:
            x = self.hook_resid_mid(x)
            out = apply_norm(self.ln2_post, self.mlp(self._input(self.ln2, x)))
            x = self._add(x, self.hook_mlp_out(_towards(x, out, self.step2)), self.ln2_resid)
        return self.hook_resid_post(x)

    def _input(self, norm: nn.Module | None, x: Tensor) -> Tensor:
        x = apply_norm(norm, x)
        return x if self.places.input_factor == 1.0 else x * self.places.input_factor

    def _add(self, x: Tensor, out: Tensor, norm: nn.Module | None) -> Tensor:
        kept = x if self.places.skip_gain == 1.0 else x * self.places.skip_gain
        return apply_norm(norm, kept + out)


def apply_norm(norm: nn.Module | None, x: Tensor) -> Tensor:
    """The norm of ``x``, or ``x`` where there is no norm."""
    return x if norm is None else norm(x)


def _towards(x: Tensor, out: Tensor, step: Tensor | None) -> Tensor:
    return out if step is None else step.abs() * (out - x)
