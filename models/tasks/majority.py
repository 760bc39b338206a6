"""Majority: which bit occurs more often?

As in Huang et al., *A Formal Framework for Understanding Length Generalization in Transformers*
(arXiv 2410.02140); theory section 15. Asked at every position: all mass on the bit that occurs more
often so far, one half on each at a tie. Each sequence draws its share of ones uniformly on
``[0, 1]`` and then its bits independently, so that the margin, as a share of the input, does not
vanish as it grows.

Worked example: ``1, 0, 0, 1, 1`` has the targets ``(0, 1)``, ``(1/2, 1/2)``, ``(1, 0)``,
``(1/2, 1/2)``, ``(0, 1)``.

Every key matters and each has a share of ``1/n``: *aggregation*. The answer is a sign, which
uniform attention and a large enough readout give at every length but near ties.

Degenerate lengths: at ``n = 1`` the answer is the token itself.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .drawn import DrawnTask, next_draws
from .task import Batch, TaskKind


@dataclass(frozen=True)
class Majority(DrawnTask):
    """The majority task; it has no parameters."""

    name: ClassVar[str] = "majority"
    kind: ClassVar[TaskKind] = "aggregation"
    needs_positions: ClassVar[bool] = False
    length_note: ClassVar[str] = "the number of bits"

    @property
    def d_vocab(self) -> int:
        """2."""
        return 2

    @property
    def d_vocab_out(self) -> int:
        """2."""
        return 2

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos 2"]:
        """All mass on the more frequent bit so far, one half on each at a tie."""
        # Ones less zeros, so far.
        lead = (2 * tokens - 1).cumsum(1)
        one = 0.5 * (1 + lead.sign().float())
        return torch.stack([1 - one, one], dim=-1)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (1, length, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        share, bits, following = uniforms
        tokens = torch.from_numpy((bits < share).astype(np.int64))
        targets = self.exact_targets(tokens)
        relevant = torch.ones(1, 1, length, dtype=torch.bool)
        return Batch(tokens, targets, next_draws(targets, following), relevant, length, bos=False)
