"""Mean: the share of each token so far.

The control among the tasks. Each sequence draws a distribution over the ``A`` tokens of the
alphabet, uniformly on the simplex, and then its tokens independently from it. The target at every
position is the share of each token so far, which uniform attention gives exactly at every length:
no remedy is needed, and one that sharpens can only hurt.

Worked example, ``A = 3``: after ``2, 0, 2`` the targets are ``(0, 0, 1)``, ``(1/2, 0, 1/2)``,
``(1/3, 0, 2/3)``.

Every key matters equally: *aggregation*.

Degenerate lengths: at ``n = 1`` all mass is on the token itself.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .drawn import DrawnTask, check_whole, choices, next_draws
from .task import Batch, TaskKind


@dataclass(frozen=True)
class Mean(DrawnTask):
    """The mean task.

    Attributes:
        alphabet: Number ``A`` of tokens, at least 2.
    """

    name: ClassVar[str] = "mean"
    kind: ClassVar[TaskKind] = "aggregation"
    needs_positions: ClassVar[bool] = False
    length_note: ClassVar[str] = "the number of tokens"
    alphabet: int = 8

    def __post_init__(self) -> None:
        """Check the alphabet."""
        check_whole(self.name, "alphabet", self.alphabet, 2)

    @property
    def d_vocab(self) -> int:
        """``A``."""
        return self.alphabet

    @property
    def d_vocab_out(self) -> int:
        """``A``."""
        return self.alphabet

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos token"]:
        """Share of each token so far."""
        counts = torch.nn.functional.one_hot(tokens, self.alphabet).cumsum(1).float()
        return counts / counts.sum(-1, keepdim=True)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (self.alphabet, length, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        simplex, places, following = uniforms
        # Independent exponentials, divided by their sum, are uniform on the simplex.
        weights = -np.log1p(-simplex)[:, None, :].repeat(length, axis=1)
        tokens = torch.from_numpy(choices(weights, places))
        targets = self.exact_targets(tokens)
        relevant = torch.ones(1, 1, length, dtype=torch.bool)
        return Batch(tokens, targets, next_draws(targets, following), relevant, length, bos=False)
