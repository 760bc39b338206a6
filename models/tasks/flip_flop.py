"""Flip-flop: the bit that was written last.

Liu et al., *Exposing Attention Glitches with Flip-Flop Language Modeling* (arXiv 2306.00946). The
tokens are ``write 0``, ``write 1``, ``ignore 0``, ``ignore 1`` and ``read``, ids 0 to 4. The first
token writes; ``writes - 1`` more writes stand at uniform places, every other place before the last
holds one of the three other tokens (uniform), and the last token reads. Bits are uniform. The
target at *every* position is the bit of the last write so far, at a write its own.

Worked example: ``write 1, ignore 0, write 0, read, ignore 1, read`` is ``1, 2, 0, 4, 3, 4``; the
targets are on 1, 1, 0, 0, 0, 0.

The number of writes does not grow with the length, so one key carries the answer: a *needle*, told
from the other writes by its place alone.

Degenerate lengths: fewer than ``writes + 1`` tokens cannot hold the writes and the read and are
refused; at ``writes + 1`` the last write is the last but one token.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .drawn import DrawnTask, check_whole, chosen_places, one_hot, whole_numbers
from .task import Batch, TaskKind

READ = 4


@dataclass(frozen=True)
class FlipFlop(DrawnTask):
    """The flip-flop task.

    Attributes:
        writes: Number of writes, at least 1, the first token's included.
    """

    name: ClassVar[str] = "flip-flop"
    kind: ClassVar[TaskKind] = "needle"
    needs_positions: ClassVar[bool] = True
    length_note: ClassVar[str] = "the writes, the read and what lies between"
    writes: int = 2

    def __post_init__(self) -> None:
        """Check the number of writes."""
        check_whole(self.name, "writes", self.writes, 1)

    @property
    def d_vocab(self) -> int:
        """5."""
        return 5

    @property
    def d_vocab_out(self) -> int:
        """2: the bit."""
        return 2

    @property
    def min_length(self) -> int:
        """``writes + 1``."""
        return self.writes + 1

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos 2"]:
        """All mass on the bit written last; a row is NaN before the first write."""
        last = self._last_write(tokens)
        return one_hot(tokens.gather(1, last.clamp(min=0)).where(last >= 0, torch.tensor(2)), 2)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (length - 2, length, length - 2)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        places, bits, fillers = uniforms
        written = whole_numbers(bits, 2)
        written[:, -1] = READ
        # Ids 2 to 4: the two ignores and the read.
        middle = np.where(
            chosen_places(places, self.writes - 1), written[:, 1:-1], 2 + whole_numbers(fillers, 3)
        )
        written[:, 1:-1] = middle
        tokens = torch.from_numpy(written)
        targets = self.exact_targets(tokens)
        relevant = torch.arange(length) == self._last_write(tokens)[:, :, None]
        return Batch(tokens, targets, targets.argmax(-1), relevant, length, bos=False)

    def _last_write(self, tokens: Tensor) -> Tensor:
        """Position of the last write so far, -1 before the first."""
        place = torch.arange(tokens.shape[1]).where(tokens < 2, torch.tensor(-1))
        return place.cummax(1).values
