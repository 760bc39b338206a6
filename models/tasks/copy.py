"""Copy: the input once more, symbol by symbol.

As in Vasylenko et al., *Long-Context Generalization with Sparse Attention* (arXiv 2506.16640), and
Huang et al. (arXiv 2410.02140); theory sections 7 and 15. ``n`` symbols, uniform over an alphabet
of ``A``; a separator, id ``A``; then the same symbols, each given once it has been predicted. The
input ends before the last symbol of the copy, so the last query predicts it: ``2 n`` positions.

The targets are exact: uniform over the symbols before each symbol of the input, all mass on the
separator after the last one (the length is given), then all mass on the next symbol of the copy.

Worked example, ``A = 3``, input ``2, 0``: the tokens are ``2, 0, 3, 2``; the targets are uniform
over ``0, 1, 2``, then on 3, on 2, on 0.

*Mixed*: each step needs one key (a needle), told by its place alone, and a repeated symbol has
several that look like it.

Degenerate lengths: at ``n = 1`` the copy is the symbol before the separator.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from .drawn import DrawnTask, check_whole, one_hot, whole_numbers
from .task import Batch, TaskKind


@dataclass(frozen=True)
class Copy(DrawnTask):
    """The copy task.

    Attributes:
        alphabet: Number ``A`` of symbols, at least 2.
    """

    name: ClassVar[str] = "copy"
    kind: ClassVar[TaskKind] = "mixed"
    needs_positions: ClassVar[bool] = True
    length_note: ClassVar[str] = "the number of symbols to copy"
    alphabet: int = 16

    def __post_init__(self) -> None:
        """Check the alphabet."""
        check_whole(self.name, "alphabet", self.alphabet, 2)

    @property
    def d_vocab(self) -> int:
        """``A + 1``: the symbols and the separator."""
        return self.alphabet + 1

    @property
    def d_vocab_out(self) -> int:
        """``A + 1``: the separator follows the last symbol."""
        return self.alphabet + 1

    def _widths(self, length: int) -> tuple[int, ...]:
        return (length,)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        symbols = torch.from_numpy(whole_numbers(uniforms[0], self.alphabet))
        separator = torch.full_like(symbols[:, :1], self.alphabet)
        whole = torch.cat([symbols, separator, symbols], dim=1)
        tokens, following = whole[:, :-1], whole[:, 1:]
        targets = one_hot(following, self.d_vocab_out)
        targets[:, : length - 1] = 1 / self.alphabet
        targets[:, : length - 1, self.alphabet] = 0
        place = torch.arange(2 * length)
        relevant = (place[None, :] + length == place[:, None])[None]
        return Batch(
            tokens.contiguous(), targets, following.contiguous(), relevant, length, bos=False
        )
