"""The statistics of an attention row: their names, units, ranges and formulas.

A row is one query with its ``n_key`` visible keys, scores ``s_j`` (after scale, soft-cap and
bias) and weights ``a_j = exp(s_j) / sum_i exp(s_i)`` **over the visible keys**. Where the model
also has a learned sink logit, the weights are what remains after the sink has taken its share,
renormalised; the share itself is ``learned_sink_mass``, and ``(1 - learned_sink_mass) * mass`` is
the weight the model applied.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...models.facts import Facts

_NUMBERED = re.compile(r"(top|window)_([1-9][0-9]*)_mass")


@dataclass(frozen=True, repr=False)
class Statistic(Facts):
    """What one number of a row means.

    ``unit`` is one of the table's units, ``range`` the interval of values, ``formula`` the
    definition, ``base`` the quantity the pass over the keys has to produce for it.
    """

    unit: str
    range: str
    formula: str
    base: str


STATISTICS: dict[str, Statistic] = {
    "entropy": Statistic("nats", "[0, log n_key]", "-sum_j a_j log a_j", "entropy"),
    "normalised_entropy": Statistic(
        "ratio", "[0, 1]; undefined at n_key = 1", "entropy / log n_key", "entropy"
    ),
    "entropy_support": Statistic("1", "[1, n_key]", "exp(entropy)", "entropy"),
    "effective_support": Statistic("1", "[1, n_key]", "1 / sum_j a_j^2", "effective_support"),
    "max_weight": Statistic("ratio", "[1/n_key, 1]", "max_j a_j", "max_weight"),
    "score_spread": Statistic("1", "[0, inf)", "max_j s_j - min_j s_j", "score_spread"),
    "score_deviation": Statistic(
        "1", "[0, inf)", "sqrt(mean_j (s_j - mean_j s_j)^2)", "score_deviation"
    ),
    "log_partition": Statistic("nats", "(-inf, inf)", "log sum_j exp(s_j)", "log_partition"),
    "sink_mass": Statistic("ratio", "[0, 1]", "a_j at the first visible key", "sink_mass"),
    "learned_sink_mass": Statistic(
        "ratio", "[0, 1]", "exp(sink) / (exp(sink) + sum_j exp(s_j))", "log_partition"
    ),
}
"""The statistics with fixed names. Two more families carry their number in the name:

``top_{k}_mass``
    [ratio] sum of the k largest weights of the row (all of them where n_key <= k).
``window_{w}_mass``
    [ratio] sum of the weights at distance less than w from the query's own position.
"""

DEFAULT_STATISTICS: tuple[str, ...] = ("entropy", "effective_support")
"""What is measured when nothing is asked for."""

ALL_STATISTICS: tuple[str, ...] = (
    *(name for name in STATISTICS if name != "learned_sink_mass"),
    "top_4_mass",
    "window_16_mass",
)
"""Every statistic that needs no learned sink, with one member of each numbered family."""


@dataclass(frozen=True)
class Request:
    """The statistics asked for, sorted by what the pass over the keys must keep for them."""

    names: tuple[str, ...]
    base: frozenset[str]
    top: tuple[int, ...]
    windows: tuple[int, ...]


def parse_statistics(names: Iterable[str], *, has_sinks: bool) -> Request:
    """Sort the names asked for.

    Raises ``ValueError`` on an empty set, an unknown name, or ``learned_sink_mass`` without sinks,
    and ``TypeError`` on a bare string.
    """
    if isinstance(names, str):
        raise TypeError(f"expected a collection of statistic names, got the string {names!r}")
    unique = tuple(dict.fromkeys(names))
    if not unique:
        raise ValueError("expected at least one statistic, got none")
    numbered: dict[str, set[int]] = {"top": set(), "window": set()}
    base: set[str] = set()
    for name in unique:
        if match := _NUMBERED.fullmatch(name):
            numbered[match[1]].add(int(match[2]))
            base.add(name)
        elif name in STATISTICS:
            base.add(STATISTICS[name].base)
        else:
            known = ", ".join([*STATISTICS, "top_{k}_mass", "window_{w}_mass"])
            raise ValueError(f"unknown statistic {name!r}: expected one of {known}")
    if "learned_sink_mass" in unique and not has_sinks:
        raise ValueError("learned_sink_mass needs the rule's sinks [head], got none")
    return Request(
        names=unique,
        base=frozenset(base),
        top=tuple(sorted(numbered["top"])),
        windows=tuple(sorted(numbered["window"])),
    )


def statistic_unit(name: str) -> str:
    """The unit of a statistic: ``"nats"``, ``"ratio"`` or ``"1"``. Masses are ratios."""
    return STATISTICS[name].unit if name in STATISTICS else "ratio"
