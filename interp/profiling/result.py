"""What a profile takes and what it returns."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd
from torch import Tensor

from ...models.facts import Facts
from ...models.observed import Observer


class Observable(Protocol):
    """What a profile needs of an adapted model (:class:`resharpen.models.adapters.Adapter` has it).

    ``description`` tells ``causal``, ``positions_fixed``, ``d_vocab``, ``d_model`` and
    ``architecture``.
    """

    description: Any

    @property
    def max_length(self) -> int | None:
        """Longest input that the model was made for, or ``None``."""
        ...

    def observe(
        self,
        tokens: Tensor,
        observer: Observer,
        attention_mask: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        past_positions: bool = False,
        last_only: bool = False,
    ) -> Tensor:
        """Run the tokens and show the observer what happens."""
        ...


class Probing(Protocol):
    """What a profile needs of a probe (those of :mod:`resharpen.models.probes` have it).

    ``sample`` returns an object with ``tokens`` and, where there are any, ``relevant_key``,
    ``labels``, ``attention_mask`` and ``documents``.
    """

    name: ClassVar[str]
    nested: ClassVar[bool]

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> Any:
        """Draw sequences of one length."""
        ...


@dataclass(frozen=True, repr=False)
class Profile(Facts):
    """A table, and what has to be known to read it.

    Attributes:
        table: The tidy table (:mod:`resharpen.interp.tables`).
        rows: Rows of attention by status: columns ``length, site, status, n_rows``. Rows that are
            ``padding``, ``no_key`` or ``non_finite`` enter no mean.
        lengths: Lengths that were finished.
        asked: Lengths that were to be run.
        past_positions: Finished lengths beyond what the model was made for.
        max_length: What the model was made for, or ``None``.
        batch: Sequences in one forward pass, the smallest that was needed, by length.
        notes: What a reader should know, one sentence each.
        interrupted: Whether an interrupt ended the run; the table holds what was finished.
    """

    table: pd.DataFrame
    rows: pd.DataFrame
    lengths: tuple[int, ...]
    asked: tuple[int, ...]
    past_positions: tuple[int, ...] = ()
    max_length: int | None = None
    batch: dict[int, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether every sequence of every length was run."""
        return self.lengths == self.asked and not self.interrupted


def status_frame(counts: Iterable[tuple[int, str, str, int]]) -> pd.DataFrame:
    """The frame of :attr:`Profile.rows`."""
    frame = pd.DataFrame(list(counts), columns=["length", "site", "status", "n_rows"])
    return frame.astype(
        {"length": "Int64", "site": "string", "status": "string", "n_rows": "Int64"}
    )


def cut(batch: Any, start: int, stop: int) -> dict[str, Tensor | None]:
    """Sequences ``start`` to ``stop`` of a probe's batch, by name of the array."""

    def arrays() -> Iterator[tuple[str, Tensor | None]]:
        for name in ("tokens", "relevant_key", "labels", "attention_mask", "documents"):
            array = getattr(batch, name, None)
            yield name, None if array is None else array[start:stop]

    return dict(arrays())
