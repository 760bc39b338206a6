"""Models whose weights are the theory's assumptions, and what theory says of every layer of them.

Query, key and value matrices are the identity, every block is the same, there is no MLP, every
token sees all, and the tokens are orthogonal at the start. With ``R = sqrt(d_model)`` the length
that a norm gives (1 for nGPT), ``h`` the step of a block and ``theta = x / |x|``, block l does

==============  ================================  ==============================  ================
placement       block                             first order of                  time of block l
==============  ================================  ==============================  ================
``post``        ``N(x + h R A(theta))``           post                            ``h l``
``pre``         ``x + h R A(theta)``              pre, from radius 1              ``h l``
``mix``         post in the first quarter         mix                             ``h l``
``peri``        ``x + h N(A(theta))``             peri, from radius 1             ``h l``
``sandwich``    the same                          peri                            ``h l``
``ngpt``        ``U(x + h (U(A(theta)) - x))``    ngpt with alpha 1               ``h l``
``deepnorm``    ``N(a x + h R A(theta))``         post                            ``h l / a``
``ln_scaling``  ``x + h R A(theta) / sqrt(l)``    pre, from radius 1              ``h sum k^-1/2``
==============  ================================  ==============================  ================

with ``a = (2 n_layers)**(1/4)``. So a block is one Euler step, and the layers follow the equation
of :func:`~resharpen.interp.theory.predict_cosine_path` to within a multiple of the step. LN-Scaling
as a model is pre-norm whose clock slows down; the factor ``sqrt(t + 1)`` of the theory's table
belongs to another system, which stays on its sphere (:func:`table_path`).

Source: Karagodin et al., arXiv 2510.22026 [second-hand] (theory 11, 12); the step of each placement
derived here.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ....interp.theory import CosinePath, SpeedScheme, predict_cosine_path
from ....models.config import NormPlacement, TransformerConfig
from ....models.placements import MIX_FRACTION, PLACEMENTS
from ....models.transformer import Transformer
from .config import IDEAL_PLACEMENTS

_SCALED_BY_GAIN = ("peri", "sandwich")
"""Placements whose output norm undoes the size of W_O: its gain is the step."""


@dataclass(frozen=True)
class Ideal:
    """One such model.

    Attributes:
        placement: One of :data:`~.config.IDEAL_PLACEMENTS`.
        n_layers: Number of blocks.
        step: Step ``h`` of a block.
        beta: Inverse temperature.
        width: Width, and number of tokens there are.

    Raises:
        ValueError: If the placement has no exact system.
    """

    placement: NormPlacement
    n_layers: int
    step: float
    beta: float
    width: int

    def __post_init__(self) -> None:
        """Check the placement."""
        if self.placement not in IDEAL_PLACEMENTS:
            raise ValueError(
                f"no system of theory 11 belongs to placement {self.placement!r}; those that have "
                f"one are {', '.join(IDEAL_PLACEMENTS)}"
            )

    @property
    def label(self) -> str:
        """What the table's ``checkpoint`` column says."""
        return f"{self.placement} / ideal weights, {self.n_layers} layers"

    def model(self) -> Transformer:
        """Build the model, in float64."""
        width, scheme = self.width, PLACEMENTS[self.placement]
        by_gain = self.placement in _SCALED_BY_GAIN
        cfg = TransformerConfig(
            d_vocab=width,
            n_layers=self.n_layers,
            d_model=width,
            attention_dir="bidirectional",
            attn_scale=width / self.beta,
            norm_placement=self.placement,
            normalization_type="RMS" if by_gain else "RMSPre",
            eps=0.0,
        )
        model = Transformer(cfg).double()
        identity = torch.eye(width, dtype=torch.float64)
        with torch.no_grad():
            model.embed.W_E.copy_(identity * (1.0 if scheme.unit else width**0.5))
            for number, block in enumerate(model.blocks, start=1):
                attention = block.attn
                for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
                    weight.copy_(identity[None])
                if attention.s_qk is not None:
                    attention.s_qk.fill_((self.beta / width**0.5) ** 0.5)
                if block.step1 is not None:
                    block.step1.fill_(self.step)
                elif by_gain and block.ln1_post is not None and block.ln1_post.w is not None:
                    block.ln1_post.w.fill_(self.step)
                else:
                    attention.W_O.mul_(self.step)
                if scheme.scaled:  # the input over sqrt(l) divides the scores by l
                    attention.W_Q.mul_(float(number))
        return model

    def path(self, n_key: int) -> CosinePath:
        """What theory says of the stream that enters block 0 and leaves every block."""
        blocks = np.arange(1.0, self.n_layers + 1)
        times = self.step * blocks
        scheme: str | SpeedScheme = self.placement
        if self.placement == "mix":
            scheme = SpeedScheme("mix", self.step * math.ceil(MIX_FRACTION * self.n_layers))
        elif self.placement == "sandwich":
            scheme = "peri"
        elif self.placement == "deepnorm":
            gain = PLACEMENTS["deepnorm"].at(0, self.n_layers).skip_gain
            scheme, times = "post", times / gain
        elif self.placement == "ln_scaling":
            scheme, times = "pre", self.step * np.cumsum(blocks**-0.5)
        return predict_cosine_path(scheme, np.concatenate([[0.0], times]), n_key, self.beta)


def table_path(
    placement: NormPlacement,
    n_layers: int,
    n_key: int,
    beta: float,
    radius: float = 1.0,
    alpha: float = 1.0,
) -> CosinePath:
    """The idealised system of a placement, one unit of time a block: theory 11 as tabulated.

    Query, key and value matrices the identity, shared weights, every token sees all, orthogonal
    start. Placements without a row of their own take that of their formula: ``none`` that of pre,
    ``res_post``, ``attn_out`` and ``sandwich`` that of peri (the growth of the scores with the
    stream, where attention has no norm before it, is not in it), ``deepnorm`` that of post with
    time over ``(2 n_layers)**(1/4)``.

    Args:
        placement: Where the norms stand.
        n_layers: Number of blocks.
        n_key: Number of tokens, at least 2.
        beta: Inverse temperature.
        radius: Length of the tokens at the start over what a norm gives.
        alpha: Step of nGPT.
    """
    times: NDArray[np.float64] = np.arange(n_layers + 1, dtype=np.float64)
    rows = {"none": "pre", "res_post": "peri", "attn_out": "peri", "sandwich": "peri"}
    scheme: str | SpeedScheme = rows.get(placement, placement)
    if placement == "mix":
        scheme = SpeedScheme("mix", float(math.ceil(MIX_FRACTION * n_layers)))
    elif placement == "ngpt":
        scheme = SpeedScheme("ngpt", step_size=alpha)
    elif placement == "deepnorm":
        scheme, times = "post", times / PLACEMENTS["deepnorm"].at(0, n_layers).skip_gain
    return predict_cosine_path(scheme, times, n_key, beta, radius=radius)
