"""Drawing what a model is fed at one length: in one stream, so that no split of it matters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..models.facts import Facts
from .arguments import check_seed

Sample = Callable[[np.random.Generator, int, int], Any]
"""``sample(generator, batch, length)``: token ids ``[batch, pos]``, or an object with ``tokens``
and optionally ``targets [batch, pos, d_vocab_out]``, ``relevant`` (broadcastable to
``[batch, query, key]``) and ``bos`` (whether a beginning-of-sequence token opens every sequence),
as a task's ``sample`` gives. Where ``bos`` is not said, one token more than the length asked for,
the same in every sequence, is taken for one."""


def length_generator(seed: int, length: int) -> np.random.Generator:
    """Generator of one length: Philox keyed by ``(seed, length)``.

    The draw at one length does not depend on which other lengths are asked for.

    Raises:
        ValueError: If seed or length is no whole number, or negative.
    """
    if length < 0:
        raise ValueError(f"a length must be zero or more; got {length}")
    key = np.array([check_seed(seed), length], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


@dataclass(frozen=True, repr=False)
class Drawn(Facts):
    """Sequences of one length, and what the task says about their last query.

    Attributes:
        tokens: Token ids ``[batch, pos]``, int64.
        bos: The beginning-of-sequence token when the task prepends one, else ``None``.
        target: Exact next-token distribution ``[batch, d_vocab_out]``, or ``None``.
        present: Where exactly the tokens that the input does not hold may follow (set complement):
            those that it holds; else ``None``.
        absent: Those that it does not hold, likewise.
        relevant: Keys that the last query needs, ``[batch, key]``, or ``None``.
    """

    tokens: Int[Tensor, "batch pos"]
    bos: int | None = None
    target: Float[Tensor, "batch d_vocab_out"] | None = None
    present: Bool[Tensor, "batch d_vocab_out"] | None = None
    absent: Bool[Tensor, "batch d_vocab_out"] | None = None
    relevant: Bool[Tensor, "batch key"] | None = None

    def part(self, start: int, stop: int) -> "Drawn":
        """Sequences ``start`` to ``stop``."""

        def cut(array: Tensor | None) -> Tensor | None:
            return None if array is None else array[start:stop]

        return Drawn(
            self.tokens[start:stop],
            self.bos,
            cut(self.target),
            cut(self.present),
            cut(self.absent),
            cut(self.relevant),
        )


def draw(sample: Sample, seed: int, length: int, batch: int) -> Drawn:
    """Draw ``batch`` sequences of one length and keep what concerns the last query.

    Args:
        sample: The sampler; see :data:`Sample`.
        seed: Seed of the stream.
        length: Length asked of the task.
        batch: Number of sequences.

    Raises:
        ValueError: If the task refuses the length, or what it returns has the wrong shape.
    """
    generator = length_generator(seed, length)
    try:
        drawn = sample(generator, batch, length)
    except ValueError as error:
        raise ValueError(f"the task cannot draw sequences of length {length}: {error}") from error
    tokens = drawn if isinstance(drawn, Tensor) else getattr(drawn, "tokens", None)
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or tokens.shape[0] != batch:
        got = list(tokens.shape) if isinstance(tokens, Tensor) else type(drawn).__name__
        raise ValueError(
            f"a sample must be token ids [batch={batch}, pos], or have them as .tokens; got {got}"
        )
    pos = tokens.shape[1]
    bos = _bos(tokens, length, getattr(drawn, "bos", None))
    relevant = getattr(drawn, "relevant", None)
    if relevant is not None:
        try:
            relevant = relevant.broadcast_to(batch, pos, pos)[:, -1]
        except RuntimeError:
            raise ValueError(
                f"relevant must broadcast to [batch, query, key], here {[batch, pos, pos]}; got "
                f"{list(relevant.shape)}"
            ) from None
    targets = getattr(drawn, "targets", None)
    if targets is None:
        return Drawn(tokens, bos, relevant=relevant)
    if targets.ndim != 3 or targets.shape[:2] != tokens.shape:
        raise ValueError(
            f"targets must be [batch, pos, d_vocab_out], here [{batch}, {pos}, ...]; got "
            f"{list(targets.shape)}"
        )
    target = targets[:, -1].clone()
    present, absent = _seen(tokens, bos, target.shape[-1]), target > 0
    if not torch.equal(present.to(absent.device), ~absent):
        return Drawn(tokens, bos, target, relevant=relevant)
    return Drawn(tokens, bos, target, present, absent, relevant)


def _bos(tokens: Tensor, length: int, told: Any) -> int | None:
    """The token that opens every sequence: as the sample says, by the shape where it is silent."""
    if told is not None and not isinstance(told, bool):
        raise ValueError(
            "bos of a sample says whether a beginning-of-sequence token opens every sequence, as "
            f"True, False or None; got {told!r}"
        )
    first = tokens[:, 0] if tokens.shape[1] else tokens.flatten()
    shared = first.numel() > 0 and bool((first == first[0]).all())
    if told and not shared:
        raise ValueError(
            "the sample says that a beginning-of-sequence token opens every sequence, but their "
            "first tokens differ: set bos=False, or put the token in front"
        )
    opens = shared and tokens.shape[1] == length + 1 if told is None else told
    return int(first[0]) if opens else None


def _seen(tokens: Tensor, bos: int | None, d_vocab_out: int) -> Tensor:
    """Which output tokens occur in each sequence, the beginning-of-sequence token left out."""
    n_ids = max(d_vocab_out, int(tokens.max()) + 1)
    seen = torch.zeros(tokens.shape[0], n_ids, dtype=torch.bool)
    seen.scatter_(1, tokens.to("cpu", torch.int64), True)
    if bos is not None:
        seen[:, bos] = False
    return seen[:, :d_vocab_out]
