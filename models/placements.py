"""Where the norms of a block stand: one table.

With ``F`` a sub-layer (attention, or the MLP) and ``N`` a norm, a block does, for each of its
sub-layers (theory section 12):

============  ============================  =======================================================
placement     forward                       known as
============  ============================  =======================================================
``none``      ``x + F(x)``                  no norm
``pre``       ``x + F(N(x))``               Pre-LN (Xiong et al. 2020, arXiv 2002.04745)
``post``      ``N(x + F(x))``               Post-LN (Vaswani et al. 2017)
``res_post``  ``x + N(F(x))``               res-post-norm (Swin V2, 2111.09883), OLMo 2
``peri``      ``x + N(F(N(x)))``            Peri-LN (Kim et al., 2502.02732), sandwich (Gemma 2, 3)
============  ============================  =======================================================

Whether one more norm stands before the unembedding is ``TransformerConfig.final_norm``, a switch of
its own: Pre-LN and Peri-LN are published with it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """Which of the three places around a sub-layer carries a norm.

    Attributes:
        before: On the input of the sub-layer (``ln1``, ``ln2``).
        after: On the output of the sub-layer, before the addition (``ln1_post``, ``ln2_post``).
        stream: On the residual stream, after the addition (``ln1_resid``, ``ln2_resid``).
        source: Where the scheme was published.
    """

    before: bool
    after: bool
    stream: bool
    source: str

    @property
    def additive(self) -> bool:
        """Whether the stream is a plain sum of contributions (no norm acts on the sum itself)."""
        return not self.stream


PLACEMENTS: dict[str, Placement] = {
    "none": Placement(False, False, False, "no norm"),
    "pre": Placement(True, False, False, "Xiong et al. 2020, arXiv 2002.04745"),
    "post": Placement(False, False, True, "Vaswani et al. 2017, arXiv 1706.03762"),
    "res_post": Placement(False, True, False, "Liu et al. 2022 (Swin V2), arXiv 2111.09883"),
    "peri": Placement(True, True, False, "Kim et al. 2025, arXiv 2502.02732"),
}
"""Placement by the name that ``TransformerConfig.norm_placement`` takes."""
