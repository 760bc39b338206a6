"""The limits of a head's selection over a ladder of lengths: distance, separability, slope.

The row functions of :mod:`.measures.limits` on whole rows of one head (:mod:`.head_rows`): one row
a sequence at each number of keys.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from .arguments import check_lengths
from .head_rows import HeadRows, read_head_rows
from .measures.dispersion import max_weight, score_spread
from .measures.limits import jacobian_entry, jacobian_norm, selection_distance, separable_share
from .profiling.result import Observable, Probing
from .progress import Progress, advancing
from .reduce import Moments
from .tables import table

LIMITS: dict[str, str] = {
    "selection_distance": "l2",
    "separable_share": "ratio",
    "jacobian_norm": "1",
    "jacobian_entry": "1",
    "max_weight": "ratio",
    "score_spread": "1",
    "largest_value_norm": "l2",
    "selected_keys": "1",
}
"""Quantities and their units. ``largest_value_norm`` is the length of the longest value that the
row averages, ``selected_keys`` the number N that was selected."""


def selection_size(selected: int | float, n_key: int) -> int:
    """N: ``selected`` itself if it is a whole number of keys; that share of ``n_key``, 1 or more.

    Raises:
        ValueError: If it is neither a whole number from 1 on nor a share between 0 and 1.
    """
    whole = isinstance(selected, int) and not isinstance(selected, bool)
    if whole and selected >= 1:
        return int(selected)
    if not whole and isinstance(selected, float) and 0.0 < selected < 1.0:
        return max(1, round(selected * n_key))
    raise ValueError(
        "selected must be a whole number of keys from 1 on, or a share of them between 0 and 1; "
        f"got {selected!r}"
    )


def profile_limits(
    adapter: Observable,
    probe: Probing,
    lengths: Iterable[int],
    layer: int,
    head: int,
    *,
    selected: int | float = 4,
    n_sequences: int = 16,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
    batch_tokens: int = 16384,
    past_positions: bool = False,
    stack: str | None = None,
    progress: bool | Progress | None = None,
) -> pd.DataFrame:
    """Measure what one head of an adapted model can select, at each length.

    A causal model on a nested probe is run once, at the longest length; otherwise the last query
    of each length is read. A row that sees no more keys than one before it (a window) is left out.

    An interrupt (ctrl-C) returns what the finished batches gave, with a warning (``n_obs`` says of
    how many sequences); with none finished it goes through.

    Args:
        adapter: The model.
        probe: What it is fed.
        lengths: Lengths, each 1 or more.
        layer: Which layer.
        head: Which head.
        selected: N, a whole number of keys, or a share of those of each row.
        n_sequences: Sequences a length.
        seed: Seed of what is drawn.
        labels: Values of the columns ``study``, ``checkpoint``, ``task`` and ``seed``.
        batch_tokens: Most positions in one forward pass (but one sequence at least).
        past_positions: Run lengths that the model was not made for, where it can.
        stack: ``"decoder"``, ``"encoder"`` or ``"cross"``; ``None`` for the first that is shown.
        progress: ``True`` for a bar, or called after each batch as ``progress(done, total,
            length)``, in sequences.

    Returns:
        The tidy table: the quantities of :data:`LIMITS`, over sequences; those of the values are
        unavailable where the adapter shows none.

    Raises:
        ValueError: If a length, head or argument is impossible, or the layer shows no scores.
    """
    asked = sorted(set(check_lengths(lengths, distinct=False)))
    selection_size(selected, 1)
    one_pass = adapter.description.causal is not False and probe.nested
    runs = [(asked[-1], tuple(asked))] if one_pass else [(length, ()) for length in asked]
    finished: dict[int, list[list[_Rung]]] = {}
    done, total = 0, n_sequences * len(runs)
    try:
        with advancing(progress, "limits", "sequence") as advance:
            for length, n_key in runs:
                for part in read_head_rows(
                    adapter, probe, length, n_key, layer, head, n_sequences=n_sequences, seed=seed,
                    batch_tokens=batch_tokens, past_positions=past_positions, stack=stack,
                ):  # fmt: skip
                    rungs = [_Rung(part, column, selected) for column in range(len(n_key or (0,)))]
                    finished.setdefault(length, []).append(rungs)
                    done += len(part.scores)
                    advance(done, total, length)
    except KeyboardInterrupt:
        if not finished:
            raise
        warnings.warn(
            f"interrupted: the table holds the {done} finished of {total} sequences", stacklevel=2
        )
    rows: list[dict[str, Any]] = []
    known: set[int] = set()
    for length, batches in finished.items():
        given = {"task": probe.name, **(labels or {}), "length": length, "layer": layer}
        for rungs in zip(*batches, strict=True):
            n_key = max(rung.n_key for rung in rungs)
            if n_key not in known:
                known.add(n_key)
                rows += _rows(rungs, {**given, "head": head, "n_key": n_key or None})
    return table(rows)


class _Rung:
    """What the rows of one number of keys gave in one batch."""

    def __init__(self, part: HeadRows, column: int, selected: int | float) -> None:
        scores, visible = part.scores[:, column], part.visible[:, column]
        weights, values = part.weights[:, column], part.values
        count = visible.sum(-1)
        self.site, self.n_key = part.site, int(count.max())
        sizes = [selection_size(selected, max(1, n)) for n in count.tolist()]
        self.values: dict[str, Tensor] = {
            "jacobian_norm": jacobian_norm(weights, visible),
            "jacobian_entry": jacobian_entry(weights, visible),
            "max_weight": max_weight(weights, visible),
            "score_spread": score_spread(torch.where(visible, scores, 0.0), visible),
            "selected_keys": torch.where(
                count > 0, torch.tensor(sizes).minimum(count).double(), torch.nan
            ),
        }
        if values is not None:
            lengths = torch.where(visible, values.norm(dim=-1), 0.0).amax(-1)
            self.values["largest_value_norm"] = torch.where(count > 0, lengths, torch.nan)
            for name, measure in (
                ("selection_distance", selection_distance),
                ("separable_share", separable_share),
            ):
                self.values[name] = _by_size(measure, weights, values, visible, sizes)


def _rows(rungs: Sequence[_Rung], given: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Rows of the table for one number of keys, over all batches."""
    for name, unit in LIMITS.items():
        row = {**given, "site": rungs[0].site, "quantity": name, "unit": unit}
        moments = Moments()
        for rung in rungs:
            if name in rung.values:
                moments.update(rung.values[name])
        if moments.shape is None:
            yield {**row, "status": "unavailable"}
            continue
        summary = moments.result()
        n_obs = int(summary.n_obs)
        numbers = ("mean", "sem", "min", "max")
        yield {
            **row,
            "status": "ok" if n_obs else "undefined",
            "n_obs": n_obs,
            **{key: float(getattr(summary, key)) for key in numbers},
        }


def _by_size(
    measure: Callable[..., Tensor],
    weights: Tensor,
    values: Tensor,
    visible: Tensor,
    sizes: list[int],
) -> Tensor:
    """A measure of the selection, each row with its own number of selected keys."""
    found = torch.full((len(sizes),), torch.nan, dtype=torch.float64)
    for size in sorted(set(sizes)):
        rows = torch.tensor([own == size for own in sizes])
        found[rows] = measure(weights[rows], values[rows], visible[rows], k=size)
    return found
