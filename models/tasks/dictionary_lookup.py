"""Dictionary lookup: the value that was given for this key.

Key-value recall as in Li, Boduljak and Zhou, *On Vanishing Variance in Transformer Length
Generalization* (arXiv 2504.02827); theory section 10. With ``K`` keys and ``V`` values, the pair of
key ``k`` and value ``v`` is the token ``k V + v``, and the query for key ``k`` is the token
``K V + k``. A sequence of length ``n`` is ``n - 1`` pairs and then one query. The key asked for is
uniform and occurs in one pair, at a uniform place; the other pairs have other keys, uniform and
with repetitions; values are uniform. The target at *every* position is the share of each value
among those given so far for that position's own key (a pair asks about its own key); at the query
all mass is on one value.

Worked example, ``K = 3, V = 2``: the pairs ``(0: 1), (2: 0), (0: 0)`` and the query for 2 are the
tokens ``1, 4, 0, 8``; the targets are ``(0, 1)``, ``(1, 0)``, ``(1/2, 1/2)``, ``(1, 0)``.

One key carries the answer: a *needle*.

Degenerate lengths: ``n = 1`` would be a query without a pair and is refused; at ``n = 2`` there is
only the needle beside the query itself.
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
class DictionaryLookup(DrawnTask):
    """The dictionary lookup task.

    Attributes:
        keys: Number ``K`` of keys, at least 2.
        values: Number ``V`` of values, at least 2.
    """

    name: ClassVar[str] = "dictionary-lookup"
    kind: ClassVar[TaskKind] = "needle"
    needs_positions: ClassVar[bool] = False
    length_note: ClassVar[str] = "the number of pairs and the query"
    keys: int = 16
    values: int = 8

    def __post_init__(self) -> None:
        """Check the sizes."""
        check_whole(self.name, "keys", self.keys, 2)
        check_whole(self.name, "values", self.values, 2)

    @property
    def d_vocab(self) -> int:
        """``K V + K``: the pairs and the queries."""
        return self.keys * self.values + self.keys

    @property
    def d_vocab_out(self) -> int:
        """``V``."""
        return self.values

    @property
    def min_length(self) -> int:
        """2: one pair and the query."""
        return 2

    def exact_targets(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos value"]:
        """Share of each value among those given so far for the position's own key.

        A row is NaN where a query comes before any pair of its key.
        """
        batch, pos = tokens.shape
        pairs = torch.nn.functional.one_hot(tokens, self.d_vocab)[..., : self.keys * self.values]
        counts = pairs.to(torch.int32).cumsum(1, dtype=torch.int32)
        counts = counts.view(batch, pos, self.keys, self.values)
        key = self._key(tokens)[:, :, None, None].expand(-1, -1, 1, self.values)
        shares = counts.gather(2, key)[:, :, 0].float()
        return shares / shares.sum(-1, keepdim=True)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (1, 1, length - 1, length - 1, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        asked, place, others, values, following = uniforms
        wanted = whole_numbers(asked, self.keys)
        keys = whole_numbers(others, self.keys - 1)
        keys += keys >= wanted
        np.put_along_axis(keys, whole_numbers(place, length - 1), wanted, axis=1)
        pairs = keys * self.values + whole_numbers(values, self.values)
        query = self.keys * self.values + wanted
        tokens = torch.from_numpy(np.concatenate([pairs, query], axis=1))
        targets = self.exact_targets(tokens)
        key, is_pair = self._key(tokens), tokens < self.keys * self.values
        relevant = (key[:, None, :] == key[:, :, None]) & is_pair[:, None, :]
        return Batch(tokens, targets, next_draws(targets, following), relevant, length, bos=False)

    def _key(self, tokens: Tensor) -> Tensor:
        n_pairs = self.keys * self.values
        return torch.where(tokens < n_pairs, tokens // self.values, tokens - n_pairs)
