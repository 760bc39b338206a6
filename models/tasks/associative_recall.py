"""Associative recall of many tokens: the values of the keys that are asked for.

Multi-query multi-token associative recall, after Vasylenko et al., *Long-Context Generalization
with Sparse Attention* (arXiv 2506.16640); theory section 7. A key is a string of ``key_tokens``
tokens, a value one of ``value_tokens``, over disjoint alphabets of ``A`` and ``B``. A sequence of
length ``n`` is ``n`` pairs of different keys (every ordered choice equally likely) and uniform
values, a separator, and ``queries`` of the keys, no two the same (every ordered choice equally
likely), each followed by its value; keys and values are given token by token once they have been
predicted. The input ends before the last token of the last value, so the last query predicts it:
``(n + queries) (key_tokens + value_tokens)`` positions. Key tokens are ``0 .. A-1``, value tokens
``A .. A+B-1``, the separator ``A + B``.

The targets are the exact conditional distribution of the next token. With ``s`` the part of a key
that has been given and ``|s|`` its tokens:

    key of a pair     a  proportional to  A^(key_tokens - |s| - 1) - (earlier keys beginning s a)
    value of a pair   uniform over the B value tokens
    after the pairs   the separator (the length is given)
    key asked for     a  proportional to  (keys beginning s a that were not asked for yet)
    its value         the next token of its value

Worked example, ``A = B = 2``, keys and values of one token, one query: the pairs ``1: 3`` and
``0: 2`` with the query for 1 are ``1, 3, 0, 2, 4, 1``; the targets are (1/2, 1/2) on the values 2
and 3; on 0 (the key 1 is taken); on the values again; on 4; (1/2, 1/2) on the keys 0 and 1; on 3.

*Mixed*: an answer needs one pair (a needle) found by several tokens, which different keys share.

Degenerate lengths: fewer pairs than ``queries`` are refused, more than ``A^key_tokens`` keys do not
exist; at that length the last key is what is left over.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .drawn import DrawnTask, check_whole, one_hot, whole_numbers
from .task import Batch, TaskKind

MAX_KEYS = 2**16
"""Most different keys: a sequence takes one uniform for each."""


@dataclass(frozen=True)
class AssociativeRecall(DrawnTask):
    """The associative recall task.

    Attributes:
        key_alphabet: Number ``A`` of key tokens, at least 2.
        value_alphabet: Number ``B`` of value tokens, at least 2.
        key_tokens: Tokens of a key, at least 1.
        value_tokens: Tokens of a value, at least 1.
        queries: Number of keys asked for, at least 1.
    """

    name: ClassVar[str] = "associative-recall"
    kind: ClassVar[TaskKind] = "mixed"
    needs_positions: ClassVar[bool] = True
    length_note: ClassVar[str] = (
        "the number of pairs, of different keys, each asked for once at most"
    )
    key_alphabet: int = 16
    value_alphabet: int = 16
    key_tokens: int = 2
    value_tokens: int = 2
    queries: int = 2

    def __post_init__(self) -> None:
        """Check the sizes."""
        check_whole(self.name, "key_alphabet", self.key_alphabet, 2)
        check_whole(self.name, "value_alphabet", self.value_alphabet, 2)
        for name in ("key_tokens", "value_tokens", "queries"):
            check_whole(self.name, name, getattr(self, name), 1)
        if self.n_keys > MAX_KEYS or self.n_keys < self.queries:
            raise ValueError(
                f"{self.name}: key_alphabet ** key_tokens, the number of keys, must be at least "
                f"queries and at most {MAX_KEYS}; got {self.n_keys} for {self.queries} queries"
            )

    @property
    def n_keys(self) -> int:
        """Number of different keys, ``A^key_tokens``."""
        return self.key_alphabet**self.key_tokens

    @property
    def d_vocab(self) -> int:
        """``A + B + 1``: key tokens, value tokens, and the separator."""
        return self.key_alphabet + self.value_alphabet + 1

    @property
    def d_vocab_out(self) -> int:
        """``A + B + 1``: every token can follow."""
        return self.d_vocab

    @property
    def min_length(self) -> int:
        """``queries``."""
        return self.queries

    @property
    def max_length(self) -> int | None:
        """``A^key_tokens``: one pair of each key."""
        return self.n_keys

    def _widths(self, length: int) -> tuple[int, ...]:
        return (self.n_keys, length * self.value_tokens, length)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        key_order, value_places, asked_order = uniforms
        codes = np.argsort(key_order, axis=1, kind="stable")[:, :length, None]
        powers = self.key_alphabet ** np.arange(self.key_tokens - 1, -1, -1)
        keys = torch.from_numpy(codes // powers % self.key_alphabet)
        values = torch.from_numpy(whole_numbers(value_places, self.value_alphabet))
        values = values.view(len(keys), length, self.value_tokens) + self.key_alphabet
        asked = np.argsort(asked_order, axis=1, kind="stable")[:, : self.queries]
        return self._assemble(length, torch.cat([keys, values], dim=2), torch.from_numpy(asked))

    def _assemble(self, length: int, pairs: Tensor, asked: Tensor) -> Batch:
        """Sequences of the pairs ``[batch, pair, token]`` and of those asked for."""
        batch, _, width = pairs.shape
        answered = pairs.gather(1, asked[:, :, None].expand(-1, -1, width))
        separator = torch.full((batch, 1), self.d_vocab - 1)
        whole = torch.cat([pairs.flatten(1), separator, answered.flatten(1)], dim=1)
        # Of every token of `whole` given those before it; the first has no query.
        targets = one_hot(whole, self.d_vocab)
        given = targets[:, : length * width].view(batch, length, width, -1)
        recalled = targets[:, length * width + 1 :].view(batch, self.queries, width, -1)
        given.zero_()
        given[:, :, self.key_tokens :, self.key_alphabet : -1] = 1 / self.value_alphabet
        recalled[:, :, : self.key_tokens] = 0
        free, left = self._key_targets(pairs[..., : self.key_tokens], asked)
        given[:, :, : self.key_tokens, : self.key_alphabet] = free
        recalled[:, :, : self.key_tokens, : self.key_alphabet] = left
        # The pair asked for, at the queries that predict its value.
        pair = one_hot(asked, length).bool().repeat_interleave(width, dim=2)
        relevant = torch.zeros(batch, *(2 * (whole.shape[1] - 1,)), dtype=torch.bool)
        answers = relevant[:, length * width :].view(batch, self.queries, width, -1)
        answers[:, :, self.key_tokens :, : length * width] = pair[:, :, None]
        return Batch(
            whole[:, :-1].contiguous(),
            targets[:, 1:].contiguous(),
            whole[:, 1:].contiguous(),
            relevant,
            length,
            bos=False,
        )

    def _key_targets(self, keys: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
        """Of every key token, given what is before it: in the pairs, and in the queries.

        Args:
            keys: ``[batch, pair, key token]``.
            asked: Pairs asked for, ``[batch, query]``.

        Returns:
            ``[batch, pair, key token, A]`` and ``[batch, query, key token, A]``.
        """
        batch, length, _ = keys.shape
        wanted = keys.gather(1, asked[:, :, None].expand(-1, -1, self.key_tokens))
        # Which pairs begin like a pair, among those before it, and like a query, among those not
        # asked for yet.
        alike = torch.ones(length, length).tril(-1).repeat(batch, 1, 1)
        asked_before = one_hot(asked, length).cumsum(1) - one_hot(asked, length)
        alike_asked = 1 - asked_before
        free, left = [], []
        for index in range(self.key_tokens):
            token = keys[:, :, index]
            choice = one_hot(token, self.key_alphabet)
            room = self.key_alphabet ** (self.key_tokens - index - 1)
            free.append(room - alike @ choice)
            left.append(alike_asked @ choice)
            alike = alike * (token[:, :, None] == token[:, None, :])
            alike_asked = alike_asked * (wanted[:, :, index, None] == token[:, None, :])
        counts = torch.stack(free, dim=2), torch.stack(left, dim=2)
        given, recalled = (count / count.sum(-1, keepdim=True) for count in counts)
        return given, recalled
