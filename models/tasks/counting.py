"""Counting: how many symbols have there been?

The input is blanks (0) and symbols (1); each sequence holds ``c`` symbols, ``c`` uniform in
``0 .. min(C, n)``, at uniform places. The target at every position puts all mass on the number of
symbols so far, one of ``0 .. C``: the count as a distribution.

Worked example, ``C = 4``: after ``0, 1, 1, 0`` the targets are on 0, 1, 2, 2. With the opening
token (id 2), whose own target is on 0, the input is ``2, 0, 1, 1, 0``.

Every symbol matters and each has a share of at most ``1/n``: *aggregation*. Uniform attention sees
the share ``c / n``, which falls as the input grows for one and the same answer.

Why the opening token: without positions, attention whose weights sum to one cannot tell ``1`` from
``1, 1`` (repeating every token of an input changes no weighted mean), so the count is not a
function of what it sees. With one opening token the ratio of the two shares, ``c / (n + 1)`` and
``1 / (n + 1)``, is the count at every length. ``bos=False`` leaves it out, for models with
positions or with weights that do not sum to one.

Degenerate lengths: below ``C`` the largest counts do not occur.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .drawn import DrawnTask, check_whole, chosen_places, one_hot, whole_numbers
from .task import Batch, TaskKind

SYMBOL, START = 1, 2


@dataclass(frozen=True)
class Counting(DrawnTask):
    """The counting task.

    Attributes:
        largest: Largest count ``C``, at least 1.
        bos: Whether a beginning-of-sequence token, id 2, opens every input. It is not a relevant
            key.
    """

    name: ClassVar[str] = "counting"
    kind: ClassVar[TaskKind] = "aggregation"
    needs_positions: ClassVar[bool] = False
    length_note: ClassVar[str] = "the number of blanks and symbols"
    largest: int = 4
    bos: bool = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_whole(self.name, "largest", self.largest, 1)
        if not isinstance(self.bos, bool):
            raise ValueError(f"{self.name}: bos must be True or False; got {self.bos!r}")

    @property
    def d_vocab(self) -> int:
        """2, plus one with a beginning-of-sequence token."""
        return 2 + int(self.bos)

    @property
    def d_vocab_out(self) -> int:
        """``C + 1``: the counts."""
        return self.largest + 1

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos count"]:
        """All mass on the number of symbols so far; a row is NaN beyond the largest count."""
        return one_hot((tokens == SYMBOL).cumsum(1), self.d_vocab_out)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (1, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        count, places = uniforms
        counts = whole_numbers(count, min(self.largest, length) + 1)
        body = chosen_places(places, counts).astype(np.int64)
        if self.bos:
            body = np.concatenate([np.full((len(body), 1), START), body], axis=1)
        tokens = torch.from_numpy(body)
        targets = self.exact_targets(tokens)
        relevant = (tokens == SYMBOL)[:, None, :]
        return Batch(tokens, targets, targets.argmax(-1), relevant, length, bos=self.bos)
