"""FIRST: what was the first symbol?

Chiang and Cholak, *Overcoming a Theoretical Limitation of Self-Attention* (arXiv 2202.12172);
theory section 14. Bits ``w_1 .. w_n``; at every position the answer is ``w_1``. The paper's
position encoding carries ``1[i = 1]``; here the mark is part of the token: ``0`` and ``1`` are the
plain bits, ``2`` and ``3`` the marked bits 0 and 1.

Worked example: ``3, 0, 0, 1`` (the bits 1, 0, 0, 1) has the target ``(0, 1)`` at each position.

One key carries the answer and is drowned by the others: a *needle*. A head that scores the mark
``m`` above the rest gives it ``e^m / (e^m + n - 1)``. What the rest say is nothing, not noise, so a
norm after the aggregation restores the size of the answer whole, down to its epsilon.

Degenerate lengths: at ``n = 1`` there is only the needle.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .drawn import DrawnTask, one_hot, whole_numbers
from .task import Batch, TaskKind


@dataclass(frozen=True)
class First(DrawnTask):
    """The FIRST task; it has no parameters."""

    name: ClassVar[str] = "first"
    kind: ClassVar[TaskKind] = "needle"
    needs_positions: ClassVar[bool] = False
    length_note: ClassVar[str] = "the number of bits"

    @property
    def d_vocab(self) -> int:
        """4: two plain and two marked bits."""
        return 4

    @property
    def d_vocab_out(self) -> int:
        """2: the bit."""
        return 2

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos 2"]:
        """All mass on the bit of the first token."""
        return one_hot(tokens[:, :1] % 2, 2).repeat(1, tokens.shape[1], 1)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (length,)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        bits = whole_numbers(uniforms[0], 2)
        bits[:, 0] += 2
        tokens = torch.from_numpy(bits)
        relevant = (torch.arange(length) == 0)[None, None]
        targets = self.exact_targets(tokens)
        return Batch(tokens, targets, targets.argmax(-1), relevant, length, bos=False)
