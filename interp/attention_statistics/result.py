"""The result: one number a row and statistic, with the status of every row."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from jaxtyping import Bool, Float64, Int64, UInt8
from torch import Tensor

from ...models.facts import Facts, brief
from .catalogue import statistic_unit


class RowStatus(IntEnum):
    """Why a row has the numbers it has.

    Rows that are ``OK`` or ``SINGLE_KEY`` have every number, except that the normalised entropy of
    a single key is undefined (0/0) and NaN. All other rows have NaN in every statistic.
    """

    OK = 0
    SINGLE_KEY = 1
    """One visible key: entropy 0, supports 1, maximum weight 1, exactly."""
    NO_KEY = 2
    """Every key is hidden from this query."""
    PADDING = 3
    """The caller's ``query_mask`` says that this query is no row."""
    NON_FINITE = 4
    """Query, key or bias hold NaN or infinity, so that the weights are not a distribution."""


@dataclass(frozen=True, eq=False)
class RowStatistics(Facts, Mapping[str, Tensor]):
    """Statistics of every row, by name: ``rows["entropy"]`` is ``[batch, head, query]``.

    ``n_key``
        [1] the number of keys the row sees; 0 where the status is ``NO_KEY`` or ``PADDING``.
    ``status``
        a :class:`RowStatus` a row.
    ``method``
        ``"blockwise"`` or ``"fused"``: which path produced the numbers.
    """

    values_by_name: dict[str, Float64[Tensor, "batch head query"]]
    n_key: Int64[Tensor, "batch head query"]
    status: UInt8[Tensor, "batch head query"]
    method: str

    def __getitem__(self, name: str) -> Float64[Tensor, "batch head query"]:
        """The statistic ``name``; ``KeyError`` names those that were measured."""
        if name not in self.values_by_name:
            measured = ", ".join(self.values_by_name)
            raise KeyError(f"{name!r} was not measured: this result holds {measured}")
        return self.values_by_name[name]

    def __contains__(self, name: object) -> bool:
        """Whether the statistic ``name`` was measured."""
        return name in self.values_by_name

    def __iter__(self) -> Iterator[str]:
        """The names, in the order they were asked for."""
        return iter(self.values_by_name)

    def __len__(self) -> int:
        """How many statistics were measured."""
        return len(self.values_by_name)

    def defined(self, name: str) -> Bool[Tensor, "batch head query"]:
        """The rows where the statistic ``name`` has a value: exactly where it is not NaN."""
        return ~self[name].isnan()

    def counts(self) -> dict[str, int]:
        """How many rows have each status, by its name in lower case, zeros included."""
        return {kind.name.lower(): int((self.status == kind).sum()) for kind in RowStatus}

    def unit(self, name: str) -> str:
        """The unit of the statistic ``name``."""
        _ = self[name]
        return statistic_unit(name)

    def _facts(self) -> list[tuple[str, str]]:
        """Each statistic with its unit, the rows by status, and the path that was taken."""
        seen = {name: count for name, count in self.counts().items() if count}
        rows = brief(self.n_key, type(self).__annotations__["n_key"])
        return [
            *((name, f"{self.unit(name)}, {brief(self[name])}") for name in self),
            ("n_key", rows),
            ("status", brief(seen)),
            ("method", self.method),
        ]

    def __repr__(self) -> str:
        """Names, shape and the count of every status that occurs."""
        seen = {name: count for name, count in self.counts().items() if count}
        shape = "x".join(str(size) for size in self.n_key.shape)
        return f"RowStatistics({', '.join(self)}; rows {shape}; {seen}; {self.method})"
