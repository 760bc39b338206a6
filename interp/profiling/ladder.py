"""Rungs of ``n_key``: which rows are averaged together, and what their mean is called.

A causal model shows every ``n_key`` from 1 to the length in one pass. Rows within a factor
``1 + tolerance`` of a rung are averaged (first over the rows of a sequence, then over sequences);
rows between the rungs are left out. The mean stands in the table at the **rounded geometric mean of
the n_key of the rows that were averaged**, not at the rung: entropies are close to linear in
``log n_key``, and at the last rung all rows lie below it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from ...models.facts import Facts


@dataclass(frozen=True, repr=False)
class Ladder(Facts):
    """Rungs of ``n_key`` and how far from them a row may be.

    Attributes:
        rungs: Numbers of keys, each 1 or more, increasing.
        tolerance: Relative half width, from 0 (the rung alone).
    """

    rungs: tuple[int, ...]
    tolerance: float = 0.05

    def __post_init__(self) -> None:
        """Check the rungs.

        Raises:
            ValueError: If there is none, one is below 1, they do not increase, or two are so close
                that a row would count twice.
        """
        if not 0.0 <= self.tolerance < 1.0:
            raise ValueError(f"the tolerance must lie in 0..1; got {self.tolerance}")
        if not self.rungs or any(int(rung) != rung or rung < 1 for rung in self.rungs):
            raise ValueError(
                f"a ladder needs rungs that are whole numbers, 1 or more; got {self.rungs}"
            )
        for (_, high), (low, _), rung in zip(
            self.windows, self.windows[1:], self.rungs[1:], strict=False
        ):
            if low <= high:
                raise ValueError(
                    f"rung {rung} is too close to the one before it for a tolerance of "
                    f"{self.tolerance}: give rungs that increase by more, or a smaller tolerance"
                )

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """Smallest and largest ``n_key`` of each rung."""
        reach = 1.0 + self.tolerance
        return tuple((math.ceil(r / reach), math.floor(r * reach)) for r in self.rungs)

    def __len__(self) -> int:
        """How many rungs."""
        return len(self.rungs)

    def up_to(self, longest: int) -> "Ladder":
        """The rungs that rows of at most ``longest`` keys can reach, the last at ``longest``."""
        first = Ladder((longest,), self.tolerance).windows[0][0]
        below = (
            rung for rung, (_, high) in zip(self.rungs, self.windows, strict=True) if high < first
        )
        return replace(self, rungs=(*below, longest))

    def index(self, n_key: Int[Tensor, "*row"]) -> Int64[Tensor, "*row"]:
        """The number of the rung that a row belongs to; ``len(ladder)`` for none."""
        lows, highs = torch.tensor(self.windows, device=n_key.device).unbind(1)
        found = torch.searchsorted(lows.contiguous(), n_key.contiguous(), right=True) - 1
        inside = (found >= 0) & (n_key <= highs[found.clamp(min=0)])
        return torch.where(inside, found, len(self))


def geometric_ladder(longest: int, n_bins: int = 12, tolerance: float = 0.05) -> Ladder:
    """About ``n_bins`` rungs in geometric progression from 4 to ``longest``.

    Fewer where they would come closer than the tolerance allows.

    Raises:
        ValueError: If ``longest`` or ``n_bins`` is less than 1.
    """
    if longest < 1 or n_bins < 1:
        raise ValueError(f"longest and n_bins must be 1 or more; got {longest} and {n_bins}")
    first = longest if n_bins == 1 else min(4, longest)
    ratio = (longest / first) ** (1.0 / max(1, n_bins - 1))
    kept: list[int] = []
    for step in reversed(range(n_bins)):
        rung = round(first * ratio**step)
        if not kept or Ladder((rung,), tolerance).windows[0][1] < math.ceil(
            kept[-1] / (1.0 + tolerance)
        ):
            kept.append(rung)
    return Ladder(tuple(reversed(kept)), tolerance)


def joined_ladder(asked: Iterable[int], n_bins: int = 12, tolerance: float = 0.05) -> Ladder:
    """The lengths that were asked for, and the geometric rungs between them.

    A few lengths are too few points for a slope with an interval; one pass over the longest has the
    rows of every other rung anyway. What would come closer than the tolerance allows is left out,
    geometric rungs before lengths that were asked for, short ones before long ones.
    """
    lengths = sorted(set(asked), reverse=True)
    between = geometric_ladder(lengths[0], n_bins, tolerance).rungs
    kept: list[tuple[int, int, int]] = []
    for rung in (*lengths, *reversed(between)):
        ((low, high),) = Ladder((rung,), tolerance).windows
        if all(high < other_low or low > other_high for _, other_low, other_high in kept):
            kept.append((rung, low, high))
    return Ladder(tuple(sorted(rung for rung, _, _ in kept)), tolerance)


def checked_ladder(rungs: Ladder | Iterable[int] | None, longest: int, n_bins: int) -> Ladder:
    """The ladder that was asked for: explicit rungs, or a geometric one."""
    if rungs is None:
        return geometric_ladder(longest, n_bins)
    return rungs if isinstance(rungs, Ladder) else Ladder(tuple(sorted(set(rungs))))


@dataclass(frozen=True)
class Binned:
    """One number a sequence, head and rung.

    Attributes:
        mean: Mean over the rows of the rung that have a value; NaN where none has. On the CPU.
        n_rows: How many rows that was.
        log_n_key: Sum of ``log n_key`` over them.
        n_undefined: Rows of the rung without a value.
    """

    mean: Float64[Tensor, "batch head rung"]
    n_rows: Int64[Tensor, "batch head rung"]
    log_n_key: Float64[Tensor, "batch head rung"]
    n_undefined: Int64[Tensor, "batch head rung"]


def bin_rows(
    values: Float[Tensor, "batch head row"],
    n_key: Int[Tensor, "batch #head row"],
    ladder: Ladder,
) -> Binned:
    """Average the rows of each sequence and head by rung; NaN rows are counted apart.

    Rows with ``n_key`` 0 (no visible key, padding) belong to no rung.
    """
    wide = values.double()
    index = ladder.index(n_key)
    index = index.expand(wide.shape)
    defined = ~wide.isnan()
    shape = (*wide.shape[:2], len(ladder) + 1)

    def total(rows: Tensor) -> Tensor:
        empty = torch.zeros(shape, dtype=rows.dtype, device=rows.device)
        return empty.scatter_add_(2, index, rows)[..., :-1].cpu()

    n_rows = total(defined.long())
    log_n = n_key.clamp(min=1).double().log().expand(wide.shape)
    sums = total(torch.where(defined, wide, 0.0))
    return Binned(
        torch.where(n_rows > 0, sums / n_rows, torch.nan),
        n_rows,
        total(torch.where(defined, log_n, 0.0)),
        total((~defined).long()),
    )
