"""How fast attention turns the tokens of a model, beside what the placement's speed factor says.

Of attention in one block: ``x`` the stream that enters, ``theta = x / |x|``, ``R`` the length that
a norm gives (``sqrt(d_model)``; 1 for nGPT), ``r = |x| / R``, ``a`` the output of attention before
any norm and ``A = a / R``. To first order the token turns by ``|P A| / s``, ``P = I - theta
theta^T``, with the speed factor of the placement at the measured radius and output,

==========================================  =========================================
placement                                   s
==========================================  =========================================
``none``, ``pre``, ``mix`` (later blocks)   ``r``
``post``, ``mix`` (first blocks)            ``r``, which is 1 once a norm has set it
``deepnorm``                                ``r (2 n_layers)**(1/4)``
``ln_scaling``                              ``r sqrt(l)``, ``A`` times ``sqrt(l)``
``res_post``, ``attn_out``, ``peri``,       ``r |A|``
``sandwich``
``ngpt``                                    ``|A| / alpha``, alpha the mean step
==========================================  =========================================

so that measured turning times s equals ``|P A|`` but for the finite step. That deviation is the
ratio ``turn_ratio``. Sources: Karagodin et al., arXiv 2510.22026 [second-hand]; post, deepnorm and
ln_scaling off their sphere derived here (theory 11, 12).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from ....interp.capturing import capture
from ....interp.drawing import Sample, draw
from ....interp.measures import angular_speed, directions, residual_norm
from ....interp.reduce import Moments
from ....interp.tables import table
from ....interp.theory import predict_speed_factor
from ....models.placements import PLACEMENTS
from ....models.transformer import Transformer

TURNING_UNITS: Mapping[str, str] = {
    "attention_turn": "1",
    "first_order_turn": "1",
    "turn_ratio": "ratio",
    "speed_factor": "1",
    "stream_radius": "1",
    "output_norm": "l2",
    "tangent_norm": "l2",
    "mlp_turn": "1",
}
"""Quantities of :func:`turning_rows`, with their units; turns in radians."""


@dataclass(frozen=True)
class Turning:
    """Attention at work in one block, a number a token: ``[batch, pos]`` each.

    Attributes:
        turn: By what angle the token turned, radians.
        tangent: ``|P A|``.
        factor: Speed factor s of the placement, from the measured radius and output.
        radius: ``r``.
        output: ``|A|``.
    """

    turn: Tensor
    tangent: Tensor
    factor: Tensor
    radius: Tensor
    output: Tensor

    @property
    def first_order(self) -> Tensor:
        """``|P A| / s``: the turn that theory predicts; 0 where attention gives nothing."""
        return torch.where(self.tangent > 0, self.tangent / self.factor, 0.0)

    def values(self) -> dict[str, Tensor]:
        """By quantity, one number a sequence: means over the positions that attention can turn.

        A token that sees itself alone is turned by no placement of the norm in theory 11 with
        V = I, by every one here: it counts.
        """
        ratio = self.turn.mean(1) / self.first_order.mean(1)
        return {
            "attention_turn": self.turn.mean(1),
            "first_order_turn": self.first_order.mean(1),
            "turn_ratio": ratio,
            "speed_factor": self.factor.mean(1),
            "stream_radius": self.radius.mean(1),
            "output_norm": self.output.mean(1),
            "tangent_norm": self.tangent.mean(1),
        }


def block_turning(
    model: Transformer, layer: int, before: Tensor, after: Tensor, output: Tensor
) -> Turning:
    """Set the turning of one block's attention beside the placement's speed factor.

    Args:
        model: The model that the block belongs to.
        layer: The block, from 0.
        before: Stream that enters it, ``[batch, pos, d_model]``.
        after: Stream behind its attention, a norm on the stream included.
        output: Output of attention before any norm, the same shape.
    """
    cfg, scheme = model.cfg, PLACEMENTS[model.cfg.norm_placement]
    place = scheme.at(layer, cfg.n_layers)
    length = 1.0 if scheme.unit else cfg.d_model**0.5
    wide, moved = before.double(), output.double() / length / place.input_factor
    theta = directions(wide)
    radius, size = residual_norm(wide) / length, residual_norm(moved)
    tangent = residual_norm(moved - (theta * moved).sum(-1, keepdim=True) * theta)
    alpha = 1.0
    step = model.blocks[layer].step1
    if step is not None:
        alpha = float(step.detach().abs().mean())
    kind = "ngpt" if scheme.unit else "peri" if place.after else "pre"
    if kind == "ngpt":
        factor = size / alpha
    else:
        known = predict_speed_factor(kind, radius.numpy(), size.numpy())
        factor = torch.from_numpy(known) * place.skip_gain / place.input_factor
    return Turning(angular_speed(wide, after.double()), tangent, factor, radius, size)


def turning_rows(
    model: Transformer,
    sample: Sample,
    length: int,
    *,
    n_sequences: int,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Turning of every block at one length, as rows of the tidy table, one observation a sequence.

    Args:
        model: One of our own models, attention with or without MLP.
        sample: What it is fed.
        length: Length to ask of the task.
        n_sequences: Sequences, in one batch.
        seed: Seed of what is drawn.
        labels: Columns ``study``, ``checkpoint``, ``task`` and ``seed``.

    Returns:
        One row a block and quantity of :data:`TURNING_UNITS` (``mlp_turn``, the angle by which the
        MLP turns a token, only where there is one), ``site`` the hook point of attention's output.
    """
    tokens = draw(sample, seed, length, n_sequences).tokens
    attn_only = model.cfg.attn_only
    names = []
    for layer in range(model.cfg.n_layers):
        block = f"blocks.{layer}"
        names += [f"{block}.hook_resid_pre", f"{block}.hook_resid_post", f"{block}.hook_attn_out"]
        if not attn_only:
            names.append(f"{block}.hook_resid_mid")
        if model.blocks[layer].ln1_post is not None:
            names += [f"{block}.ln1_post.hook_scale", f"{block}.ln1_post.hook_normalized"]
    keep: Callable[[Tensor], Tensor] = torch.clone
    seen = capture(model, tokens, dict.fromkeys(names, keep)).values
    rows = []
    for layer in range(model.cfg.n_layers):
        block = f"blocks.{layer}"
        after = seen[f"{block}.hook_resid_post" if attn_only else f"{block}.hook_resid_mid"]
        normalized = seen.get(f"{block}.ln1_post.hook_normalized")
        output = seen[f"{block}.hook_attn_out"]
        if normalized is not None:
            output = normalized * seen[f"{block}.ln1_post.hook_scale"]
        found = block_turning(model, layer, seen[f"{block}.hook_resid_pre"], after, output).values()
        if not attn_only:
            found["mlp_turn"] = angular_speed(after, seen[f"{block}.hook_resid_post"]).mean(1)
        place = {
            **(labels or {}),
            "length": length,
            "n_key": tokens.shape[1],
            "layer": layer,
            "site": f"{block}.hook_attn_out",
        }
        rows += [
            {
                **place,
                "quantity": name,
                "unit": TURNING_UNITS[name],
                **Moments().update(values).result().cells(),
            }
            for name, values in found.items()
        ]
    return table(rows)
