"""Argmax retrieval: the class of the item whose priority is highest.

Veličković et al., *softmax is not enough* (arXiv 2410.01104), and Li, Boduljak and Zhou, *On
Vanishing Variance in Transformer Length Generalization* (arXiv 2504.02827); theory sections 2 and
10. With ``P`` priorities and ``C`` classes, an item of priority ``p`` and class ``c`` is the token
``p C + c``. One item of each sequence has the priority ``m``, uniform in ``1 .. P-1``, at a uniform
place; the others have priorities uniform in ``0 .. m-1``. Classes are uniform. The target at every
position is the share of each class among the items of highest priority *so far*; at the last
position that is one item, so all mass is on its class.

Worked example, ``C = 4``: the items (priority, class) ``(1, 2), (1, 0), (3, 3), (0, 1)`` are the
tokens ``6, 4, 15, 1``; the targets put 1 on class 2, then 1/2 on each of 2 and 0, then 1 on class 3
twice.

One key carries the answer: a *needle*, the more drowned the more items there are.

Degenerate lengths: at ``n = 1`` there is only the needle.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .drawn import DrawnTask, check_whole, next_draws, whole_numbers
from .task import Batch, TaskKind


@dataclass(frozen=True)
class ArgmaxRetrieval(DrawnTask):
    """The argmax retrieval task.

    Attributes:
        priorities: Number ``P`` of priorities, at least 2.
        classes: Number ``C`` of classes, at least 2.
    """

    name: ClassVar[str] = "argmax-retrieval"
    kind: ClassVar[TaskKind] = "needle"
    needs_positions: ClassVar[bool] = False
    length_note: ClassVar[str] = "the number of items"
    priorities: int = 8
    classes: int = 4

    def __post_init__(self) -> None:
        """Check the sizes."""
        check_whole(self.name, "priorities", self.priorities, 2)
        check_whole(self.name, "classes", self.classes, 2)

    @property
    def d_vocab(self) -> int:
        """``P C``."""
        return self.priorities * self.classes

    @property
    def d_vocab_out(self) -> int:
        """``C``."""
        return self.classes

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos class"]:
        """Share of each class among the items of highest priority so far."""
        batch, pos = tokens.shape
        items = torch.nn.functional.one_hot(tokens, self.d_vocab).to(torch.int32)
        counts = items.cumsum(1, dtype=torch.int32)
        counts = counts.view(batch, pos, self.priorities, self.classes)
        highest = self._highest(tokens)[:, :, None, None].expand(-1, -1, 1, self.classes)
        shares = counts.gather(2, highest)[:, :, 0].float()
        return shares / shares.sum(-1, keepdim=True)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (1, 1, length, length, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        highest, place, others, classes, following = uniforms
        top = 1 + whole_numbers(highest, self.priorities - 1)
        priority = whole_numbers(others, top)
        np.put_along_axis(priority, whole_numbers(place, length), top, axis=1)
        tokens = torch.from_numpy(priority * self.classes + whole_numbers(classes, self.classes))
        targets = self.exact_targets(tokens)
        priorities = tokens // self.classes
        relevant = priorities[:, None, :] == self._highest(tokens)[:, :, None]
        return Batch(tokens, targets, next_draws(targets, following), relevant, length, bos=False)

    def _highest(self, tokens: Tensor) -> Tensor:
        return (tokens // self.classes).cummax(1).values
