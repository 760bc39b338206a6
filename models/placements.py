"""Where the norms of a block stand: one table.

With ``F`` a sub-layer (attention, or the MLP), ``N`` a norm, ``ℓ`` the block from 1 and ``L`` their
number, a block does, for each of its sub-layers (theory section 12):

==============  =============================  ====================================================
placement       forward                        known as
==============  =============================  ====================================================
``none``        ``x + F(x)``                   no norm
``pre``         ``x + F(N(x))``                Pre-LN (Xiong et al. 2020, arXiv 2002.04745)
``post``        ``N(x + F(x))``                Post-LN (Vaswani et al. 2017)
``res_post``    ``x + N(F(x))``                res-post-norm (Swin V2, 2111.09883), OLMo 2
``attn_out``    the same for attention alone,  LayerNorm after the attention output (Li, Boduljak
                ``x + F(x)`` for the MLP       and Zhou 2025, 2504.02827)
``peri``        ``x + N(F(N(x)))``             Peri-LN (Kim et al., 2502.02732), Gemma 2, 3
``sandwich``    the same, and a norm on the    Sandwich-LN (Ding et al. 2021, 2105.13290) with its
                embedding                      embedding norm
``mix``         ``post`` in the first quarter  Mix-LN (Li, Yin and Liu 2024, 2412.13795)
                of the blocks, then ``pre``
``ln_scaling``  ``x + F(N(x) / √ℓ)``           LN-Scaling (Sun et al. 2025, 2502.05795)
``deepnorm``    ``N(α x + F(x))``              DeepNorm (Wang et al. 2022, 2203.00555), decoder:
                                               ``α = (2L)^¼``
``ngpt``        ``U(x + a (U(F(x)) - x))``     nGPT (Loshchilov et al. 2024, 2410.01131), ``U`` to
                                               length 1, ``a`` learned: :mod:`.ngpt`
==============  =============================  ====================================================

Whether one more norm stands before the unembedding is ``TransformerConfig.final_norm``, a switch of
its own: Pre-LN and Peri-LN are published with it. QK-norm (``TransformerConfig.qk_norm``) combines
with every placement.
"""

import math
from dataclasses import dataclass

from .facts import Facts, Registry

MIX_FRACTION = 0.25
"""Share of the blocks that are post-norm in Mix-LN; rounded up, so that one block is."""


@dataclass(frozen=True)
class Places:
    """What one block has.

    Attributes:
        before: Norm on the input of a sub-layer (``ln1``, ``ln2``).
        after: Norm on the output of a sub-layer, before the addition (``ln1_post``, ``ln2_post``).
        stream: Norm on the residual stream, after the addition (``ln1_resid``, ``ln2_resid``).
        mlp: Whether the MLP has these norms, too.
        input_factor: What the output of the norm before a sub-layer is multiplied by.
        skip_gain: What the stream is multiplied by before the addition.
    """

    before: bool
    after: bool
    stream: bool
    mlp: bool = True
    input_factor: float = 1.0
    skip_gain: float = 1.0


@dataclass(frozen=True)
class Placement(Facts):
    """A scheme: which of the three places around a sub-layer carry a norm, block by block.

    Attributes:
        before, after, stream: Whether any block has a norm there; see :class:`Places`.
        source: Where the scheme was published.
        mlp: Whether the MLP has these norms, too.
        embedding: Whether a norm stands on the embedding (``ln_embed``).
        mixed: Whether the first blocks are post-norm and the others pre-norm.
        scaled: Whether a block divides its normalised input by the root of its number.
        amplified: Whether the stream is amplified before the addition (DeepNorm).
        unit: Whether norms set the length to one (nGPT).
    """

    before: bool
    after: bool
    stream: bool
    source: str
    mlp: bool = True
    embedding: bool = False
    mixed: bool = False
    scaled: bool = False
    amplified: bool = False
    unit: bool = False

    @property
    def additive(self) -> bool:
        """Whether the stream is a plain sum of contributions (no norm acts on the sum itself)."""
        return not self.stream

    def at(self, layer: int, n_layers: int) -> Places:
        """What the block ``layer`` (from 0) of ``n_layers`` has."""
        if self.mixed:
            early = layer < math.ceil(MIX_FRACTION * n_layers)
            return Places(before=not early, after=False, stream=early)
        return Places(
            self.before,
            self.after,
            self.stream,
            self.mlp,
            input_factor=(layer + 1) ** -0.5 if self.scaled else 1.0,
            skip_gain=(2 * n_layers) ** 0.25 if self.amplified else 1.0,
        )

    def init_gain(self, n_layers: int) -> float:
        """What the initial W_V, W_O, W_in and W_out are multiplied by: DeepNorm's ``(8L)^-¼``."""
        return (8 * n_layers) ** -0.25 if self.amplified else 1.0


_ENTRIES: dict[str, Placement] = {
    "none": Placement(False, False, False, "no norm"),
    "pre": Placement(True, False, False, "Xiong et al. 2020, arXiv 2002.04745"),
    "post": Placement(False, False, True, "Vaswani et al. 2017, arXiv 1706.03762"),
    "res_post": Placement(False, True, False, "Liu et al. 2022 (Swin V2), arXiv 2111.09883"),
    "peri": Placement(True, True, False, "Kim et al. 2025, arXiv 2502.02732"),
    "attn_out": Placement(
        False, True, False, "Li, Boduljak and Zhou 2025, arXiv 2504.02827", mlp=False
    ),
    "sandwich": Placement(
        True, True, False, "Ding et al. 2021 (CogView), arXiv 2105.13290", embedding=True
    ),
    "mix": Placement(True, False, True, "Li, Yin and Liu 2024, arXiv 2412.13795", mixed=True),
    "ln_scaling": Placement(True, False, False, "Sun et al. 2025, arXiv 2502.05795", scaled=True),
    "deepnorm": Placement(False, False, True, "Wang et al. 2022, arXiv 2203.00555", amplified=True),
    "ngpt": Placement(False, True, True, "Loshchilov et al. 2024, arXiv 2410.01131", unit=True),
}

PLACEMENTS: Registry[Placement] = Registry(
    _ENTRIES, {name: scheme.source for name, scheme in _ENTRIES.items()}
)
"""Placement by the name that ``TransformerConfig.norm_placement`` takes."""
