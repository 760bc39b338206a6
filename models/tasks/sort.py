"""Sort: the input once more, in ascending order.

As in Vasylenko et al., *Long-Context Generalization with Sparse Attention* (arXiv 2506.16640), and
Huang et al. (arXiv 2410.02140); theory sections 7 and 15. ``n`` symbols, a separator, then the same
symbols in ascending order, each given once it has been predicted. The input ends before the last
one, so the last query predicts the largest: ``2 n`` positions.

The symbols are ``0 .. A-1`` and the separator is ``A``. Each sequence draws a ceiling ``T`` uniform
in ``1 .. A`` and its symbols uniformly below it. Were they uniform over the whole alphabet, the
largest of a long input would be ``A - 1`` in all but a share ``(1 - 1/A)^n`` of the sequences, and
the last answer would need no input.

The targets are exact. After ``k`` symbols of the input, the largest being ``M - 1``, the ceiling is
``T >= M`` with probability proportional to ``T^-k``, so the next symbol is ``x`` with probability

    sum_{T >= max(M, x + 1)} T^{-k-1} / sum_{T >= M} T^-k;

after the last one all mass is on the separator (the length is given), then on the next in order.

Worked example, ``A = 3``, input ``2, 0``: the tokens are ``2, 0, 3, 0``. The first symbol tells
that the ceiling is 3, so the targets are uniform over ``0, 1, 2``, then on 3, on 0, on 2.

*Mixed*: each step needs the copies of one symbol, a needle among the others in a short input and a
share of the keys in a long one. Order does not matter, so no positions are needed, but which tokens
come after the separator does: that takes two layers.

Degenerate lengths: at ``n = 1`` the answer is the symbol before the separator. Far beyond ``A`` the
answers repeat, and the largest symbol alone still differs from sequence to sequence.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .drawn import DrawnTask, check_whole, one_hot, whole_numbers
from .task import Batch, TaskKind


@dataclass(frozen=True)
class Sort(DrawnTask):
    """The sort task.

    Attributes:
        alphabet: Number ``A`` of symbols, at least 2.
    """

    name: ClassVar[str] = "sort"
    kind: ClassVar[TaskKind] = "mixed"
    needs_positions: ClassVar[bool] = False
    length_note: ClassVar[str] = "the number of symbols to sort"
    alphabet: int = 32

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
        return (1, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        ceiling, places = uniforms
        symbols = whole_numbers(places, 1 + whole_numbers(ceiling, self.alphabet))
        separator = np.full_like(symbols[:, :1], self.alphabet)
        whole = torch.from_numpy(
            np.concatenate([symbols, separator, np.sort(symbols, axis=1)], axis=1)
        )
        tokens, following = whole[:, :-1].contiguous(), whole[:, 1:].contiguous()
        targets = one_hot(following, self.d_vocab_out)
        targets[:, : length - 1, : self.alphabet] = self._input_targets(tokens[:, : length - 1])
        targets[:, : length - 1, self.alphabet] = 0
        relevant = tokens[:, None, :] == following[:, :, None]
        relevant[:, :length] = False
        relevant[:, :, length:] = False
        return Batch(tokens, targets, following, relevant, length, bos=False)

    def _input_targets(
        self, symbols: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos alphabet"]:
        """Distribution of the next input symbol after each one."""
        ceiling = torch.arange(1, self.alphabet + 1, dtype=torch.float64)
        below = (ceiling[None, :] <= ceiling[:, None]).double() / ceiling[:, None]
        count = torch.arange(1, symbols.shape[1] + 1, dtype=torch.float64)
        # Relative to T = M, so that no power underflows: [count, M, T].
        posterior = (ceiling[:, None] / ceiling[None, :]).triu() ** count[:, None, None]
        posterior = posterior / posterior.sum(-1, keepdim=True)
        after = (posterior @ below).float()
        largest = symbols.cummax(1).values
        return after[torch.arange(symbols.shape[1]), largest]
