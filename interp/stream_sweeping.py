"""The shape of the residual stream over layers and lengths, streamed over batches, as table rows.

One row a length, boundary and quantity of :mod:`resharpen.interp.stream_values`; one observation a
sequence. The boundaries are what enters the first block and what leaves every block:

* ``blocks.0.hook_resid_pre``: quantities of a boundary;
* ``blocks.{l}.hook_resid_post``: the same, and ``angular_speed`` and ``norm_growth`` of block
  ``l``, from the boundary before.

Where a model does not show what leaves a block, what enters the next one stands for it, and the
embedding for what enters the first. The stream of one boundary is held until the next has fired.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor

from ..models.sites import Site, list_sites
from .arguments import check_counts, check_labels, check_lengths
from .batching import fitting_batch
from .capturing import HookedModel, capture
from .drawing import Sample, draw
from .reduce import Moments
from .stream_values import (
    BOUNDARY_UNITS,
    STEP_UNITS,
    boundary_values,
    check_quantities,
    step_values,
)
from .sweeping import check_positions
from .tables import concatenate, table
from .verify import verify_taps

STREAM_UNITS: Mapping[str, str] = {**BOUNDARY_UNITS, **STEP_UNITS}
"""Every quantity of the rows, with its unit."""

_N_VERIFIED = 2


@dataclass(frozen=True)
class Boundary:
    """A place between two blocks.

    Attributes:
        site: Where its stream is read.
        depth: How many blocks stand before it.
    """

    site: Site
    depth: int

    @property
    def layer(self) -> int:
        """The block that it belongs to: the one that it leaves, the first for what enters it."""
        return max(self.depth - 1, 0)


def list_boundaries(model: HookedModel) -> tuple[Boundary, ...]:
    """The places between blocks whose stream the model shows, from the first to the last.

    Raises:
        ValueError: If the model shows no stream, or not what leaves every block.
    """
    streams = {site.name: site for site in list_sites(model, "stream")}
    depths = [site.layer + 1 for site in streams.values() if site.layer is not None]
    if not depths:
        raise ValueError(
            "the model does not show the stream of any block: it needs hook points "
            "blocks.{l}.hook_resid_post"
        )
    names = {0: ("blocks.0.hook_resid_pre", "hook_embed")}
    for depth in range(1, max(depths) + 1):
        names[depth] = f"blocks.{depth - 1}.hook_resid_post", f"blocks.{depth}.hook_resid_pre"
    found = []
    for depth, choices in names.items():
        name = next((name for name in choices if name in streams), None)
        if name is not None:
            found.append(Boundary(streams[name], depth))
        elif depth:
            raise ValueError(
                f"the model does not show what leaves block {depth - 1}: it needs the hook point "
                f"{choices[0]} (or {choices[1]})"
            )
    return tuple(found)


def stream_rows(
    model: HookedModel,
    sample: Sample,
    lengths: Iterable[int],
    *,
    n_sequences: int = 64,
    batch: int = 16,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
    threshold: float = 0.9,
    quantities: Iterable[str] | None = None,
    verify: bool = True,
) -> pd.DataFrame:
    """Measure the shape of the stream at every boundary and length; returns the tidy table.

    Sequences are drawn as by :func:`~resharpen.interp.sweeping.sweep`: the same for the same seed
    and length, however they are split into batches.

    Args:
        model: Anything with HookedTransformer-compatible hook points; left as it was.
        sample: ``sample(generator, batch, length)``, such as a task's ``sample`` method.
        lengths: Lengths to ask of the task, each 1 or more, all different.
        n_sequences: Sequences a length.
        batch: Sequences in one forward pass, at most; fewer where they would not fit
            (:func:`~resharpen.interp.batching.fitting_batch`).
        seed: Seed of what is drawn (not a column of the table).
        labels: Values of the columns ``study``, ``checkpoint``, ``task`` and ``seed``.
        threshold: Cosine from which two positions belong to one cluster, in (-1, 1).
        quantities: Which of :data:`STREAM_UNITS`; ``None`` for all. Without the two of the clusters
            no pair of positions is looked at.
        verify: Check every boundary on two short sequences before it is read.

    Returns:
        The table of :mod:`resharpen.interp.tables`: ``site`` is the hook name, ``layer`` the block
        that the boundary belongs to, ``n_key`` the number of positions.

    Raises:
        ValueError: If a length is impossible for the task or longer than the positions the model
            has learned, a quantity or label is unknown, a number is out of range, the model shows
            no stream, or a boundary fails its check.
    """
    asked = check_lengths(lengths)
    check_counts(n_sequences=n_sequences, batch=batch)
    if not -1.0 < threshold < 1.0:
        raise ValueError(f"threshold must be a cosine between -1 and 1; got {threshold}")
    given = check_labels(labels)
    wanted = check_quantities(quantities, STREAM_UNITS)
    boundaries = list_boundaries(model)
    for length in asked:
        check_positions(model, draw(sample, seed, length, 1), length)
    if verify:
        short = min((length for length in asked if length > 1), default=asked[0])
        tokens = draw(sample, seed, short, _N_VERIFIED).tokens
        taps = verify_taps(model, tokens, [boundary.site for boundary in boundaries])
        broken = [tap for tap in taps.values() if tap.status != "ok"]
        if broken:
            raise ValueError(f"the stream cannot be read: {broken[0].reason}")
    frames = []
    for length in asked:
        drawn = draw(sample, seed, length, n_sequences)
        totals: dict[tuple[Boundary, str], Moments] = {}
        step = fitting_batch(model, batch, drawn.tokens.shape[1])
        for tokens in drawn.tokens.split(step):
            for key, values in _measured(model, tokens, boundaries, wanted, threshold).items():
                totals.setdefault(key, Moments()).update(values)
        place = {**given, "length": length, "n_key": drawn.tokens.shape[1]}
        frames.append(table(_row(place, *key, totals[key]) for key in totals))
    return concatenate(frames)


def _measured(
    model: HookedModel,
    tokens: Tensor,
    boundaries: Sequence[Boundary],
    wanted: Sequence[str],
    threshold: float,
) -> dict[tuple[Boundary, str], Tensor]:
    """By boundary and quantity, one number a sequence of one batch."""
    at = [name for name in wanted if name in BOUNDARY_UNITS]
    across = [name for name in wanted if name in STEP_UNITS]
    before: list[Tensor] = []

    def read(stream: Tensor) -> dict[str, Tensor]:
        values = boundary_values(stream, threshold=threshold, quantities=at)
        if across:
            if before:
                values |= step_values(before.pop(), stream, quantities=across)
            before.append(stream.clone())  # later blocks may work in place
        return values

    found = capture(model, tokens, {boundary.site.name: read for boundary in boundaries})
    return {
        (boundary, name): value
        for boundary in boundaries
        for name, value in found.values[boundary.site.name].items()
    }


def _row(
    place: Mapping[str, Any], boundary: Boundary, quantity: str, total: Moments
) -> dict[str, Any]:
    return {
        **place,
        "layer": boundary.layer,
        "site": boundary.site.name,
        "quantity": quantity,
        "unit": STREAM_UNITS[quantity],
        **total.result().cells(),
    }
