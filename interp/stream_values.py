"""The shape of a stream, one number a sequence: at one boundary of a block, and across a block.

Of a stream ``[batch, pos, d_model]``: how far its tokens have drawn together, what space they
span, how long they are. Of two consecutive boundaries: by what angle the tokens turned, and how
they grew. For any model: the arrays may come from a hook point
(:mod:`resharpen.interp.stream_sweeping`) or from an observer of an adapted model.

==========================  ======  ==============================================================
quantity                    unit    what it is
==========================  ======  ==============================================================
``mean_cosine``             1       mean cosine of two different positions, exact, without pairs
``mean_square_cosine``      1       mean of their squares
``effective_rank``          1       ``e**H`` of the singular values
``stable_rank``             1       ``|X|_F**2 / |X|_2**2``
``cluster_count``           1       clusters at a cosine threshold (single linkage)
``largest_cluster_share``   ratio   share of the positions in the largest one
``residual_norm``           l2      mean length over positions
``angular_speed``           1       mean angle over positions, radians a block
``norm_growth``             ratio   geometric mean over positions of ``|x_after| / |x_before|``, so
                                    that the growth of several blocks is the product
==========================  ======  ==============================================================

Formulas and sources: :mod:`resharpen.interp.measures.clustering` (theory 11).
"""

from collections.abc import Callable, Iterable, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .measures import (
    angular_speed,
    cluster_labels,
    cluster_sizes,
    mean_cosine,
    mean_square_cosine,
    norm_growth,
    ranks,
    residual_norm,
)

BOUNDARY_UNITS: Mapping[str, str] = {
    "mean_cosine": "1",
    "mean_square_cosine": "1",
    "effective_rank": "1",
    "stable_rank": "1",
    "cluster_count": "1",
    "largest_cluster_share": "ratio",
    "residual_norm": "l2",
}
"""Quantities of one boundary, with their units."""

STEP_UNITS: Mapping[str, str] = {"angular_speed": "1", "norm_growth": "ratio"}
"""Quantities of two consecutive boundaries, with their units."""

_CLUSTERS = ("cluster_count", "largest_cluster_share")

_OF_STREAM: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean_cosine": mean_cosine,
    "mean_square_cosine": mean_square_cosine,
    "residual_norm": lambda stream: residual_norm(stream).mean(1),
}

_RANKS = ("effective_rank", "stable_rank")
"""From one decomposition."""


def boundary_values(
    stream: Float[Tensor, "batch pos d_model"],
    *,
    threshold: float = 0.9,
    quantities: Iterable[str] | None = None,
    shown: Bool[Tensor, "batch pos"] | None = None,
) -> dict[str, Float[Tensor, "batch"]]:
    """Measure the stream at one boundary, sequence by sequence.

    Args:
        stream: What stands at the boundary.
        threshold: Cosine from which two positions belong to one cluster.
        quantities: Which of :data:`BOUNDARY_UNITS`; ``None`` for all. The clusters are the only
            ones that look at pairs (``pos**2 d_model`` operations, in blocks).
        shown: Positions that count; ``None`` for all. Padding and the like is left out.

    Returns:
        By quantity, one number a sequence; NaN where it has none (one position alone has no
        cosine; nothing has any value where no position counts).

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate, a
            quantity is unknown, the threshold is no cosine, or ``shown`` has another shape.
    """
    wanted = check_quantities(quantities, BOUNDARY_UNITS)

    def measure(rows: Tensor) -> dict[str, Tensor]:
        found = {name: _OF_STREAM[name](rows) for name in wanted if name in _OF_STREAM}
        if any(name in wanted for name in _RANKS):
            found |= zip(_RANKS, ranks(rows), strict=True)
        if any(name in wanted for name in _CLUSTERS):
            sizes = cluster_sizes(cluster_labels(rows, threshold)).to(rows)
            found["cluster_count"] = (sizes > 0).sum(1).to(rows)
            found["largest_cluster_share"] = sizes[:, 0] / rows.shape[1]
        return {name: found[name] for name in wanted}

    return _over_shown(measure, (stream,), shown)


def step_values(
    before: Float[Tensor, "batch pos d_model"],
    after: Float[Tensor, "batch pos d_model"],
    *,
    quantities: Iterable[str] | None = None,
    shown: Bool[Tensor, "batch pos"] | None = None,
) -> dict[str, Float[Tensor, "batch"]]:
    """Measure how the stream moved between two consecutive boundaries, sequence by sequence.

    Args:
        before: The stream at the first boundary.
        after: The stream at the second.
        quantities: Which of :data:`STEP_UNITS`; ``None`` for both.
        shown: Positions that count; ``None`` for all.

    Returns:
        By quantity, one number a sequence, NaN where a position that counts has no direction.

    Raises:
        TypeError: If a stream is complex.
        ValueError: If the streams differ in shape or are not ``[batch, pos, d_model]``, a quantity
            is unknown, or ``shown`` has another shape.
    """
    wanted = check_quantities(quantities, STEP_UNITS)
    if before.shape != after.shape:
        raise ValueError(
            "the streams before and after must have the same shape [batch, pos, d_model]; got "
            f"{tuple(before.shape)} and {tuple(after.shape)}"
        )

    def measure(first: Tensor, second: Tensor) -> dict[str, Tensor]:
        found = {}
        if "angular_speed" in wanted:
            found["angular_speed"] = angular_speed(first, second).mean(1)
        if "norm_growth" in wanted:
            found["norm_growth"] = norm_growth(first, second).log().mean(1).exp()
        return found

    return _over_shown(measure, (before, after), shown)


def check_quantities(quantities: Iterable[str] | None, known: Mapping[str, str]) -> tuple[str, ...]:
    """The quantities asked for, each once; all that are known for ``None``.

    Raises:
        ValueError: If one is unknown.
    """
    wanted = tuple(known) if quantities is None else tuple(dict.fromkeys(quantities))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"quantities must be among {', '.join(known)}; got {unknown[0]!r}")
    return wanted


def _over_shown(
    measure: Callable[..., dict[str, Tensor]],
    streams: tuple[Tensor, ...],
    shown: Tensor | None,
) -> dict[str, Tensor]:
    """All sequences at once where every position counts, else each with its own positions."""
    first = streams[0]
    if first.ndim != 3:
        raise ValueError(f"a stream must be [batch, pos, d_model]; got shape {tuple(first.shape)}")
    if shown is None:
        return measure(*streams)
    if shown.shape != first.shape[:2]:
        raise ValueError(
            f"shown must be [batch, pos], here {tuple(first.shape[:2])}; got {tuple(shown.shape)}"
        )
    if bool(shown.all()):
        return measure(*streams)
    found: list[dict[str, Tensor]] = []
    for index, kept in enumerate(shown.to(first.device)):
        some = bool(kept.any())
        values = measure(*(stream[index, kept if some else slice(1)][None] for stream in streams))
        found.append(
            values if some else {name: value * torch.nan for name, value in values.items()}
        )
    return {name: torch.cat([values[name] for values in found]) for name in found[0]}
