"""The scores of a few rows of chosen heads, over a ladder of lengths, in bounded memory.

For each rung of ``n_key`` a few queries are chosen; for one head and one query at a time the scores
of all its keys are formed (batch x n_key numbers), reduced to the statistics of
:mod:`resharpen.interp.score_shapes`, and let go. Works on everything that an adapter shows as
queries and keys, and on finished patterns that come with their scores.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from ..models.observed import AttentionSeen, NormSeen, PatternSeen, StreamSeen
from .arguments import check_counts, check_lengths
from .attention_statistics import AttentionRule
from .drawing import length_generator
from .profiling.attention_rows import attention_rule, most_keys
from .profiling.ladder import Binned, Ladder, bin_rows
from .profiling.observing import Reading
from .profiling.places import Positions, find_positions
from .profiling.result import Observable, Probing, cut
from .profiling.reweighed import score_tile
from .profiling.totals import Totals, add_readings, table_rows
from .progress import Progress, advancing
from .score_shapes import SCORE_STATISTICS, score_statistics
from .tables import concatenate, table

TOLERANCE = 0.05
"""Relative distance from a rung up to which a row belongs to it, where rungs lie apart enough."""

EXACT = 64
"""Rows with fewer keys are read at the rung alone: the whole number that stands for a few of them
would be off by a percent or more."""


def row_scores(
    seen: AttentionSeen, head: int, query: int, rule: AttentionRule | None = None
) -> Float64[Tensor, "batch key"]:
    """Scores of one query of one head, in float64: scaled, soft-capped, biased; hidden is ``-inf``.

    Args:
        seen: What the adapter showed.
        head: Which query head.
        query: Which query.
        rule: How the layer attends; ``None`` reads it off the record.

    Raises:
        ValueError: If there is no such head or query.
    """
    n_heads, n_query = seen.query.shape[1:3]
    if not (0 <= head < n_heads and 0 <= query < n_query):
        raise ValueError(
            f"layer {seen.layer} has {n_heads} heads and {n_query} queries; asked for head {head}, "
            f"query {query}"
        )
    rule = attention_rule(seen) if rule is None else rule
    return score_tile(seen, rule, slice(query, query + 1), slice(head, head + 1))[:, 0, 0]


@dataclass
class ScoreObserver:
    """Looks on while an adapted model runs one batch, and reads rows of the chosen heads.

    Attributes:
        heads: Chosen heads by layer.
        queries: Which queries are read.
        ladder: Rungs of ``n_key``.
        positions: Where each position stands.
        relevant_key: Key that each query needs, negative for none, or ``None``.
        stack: Stack of layers that is read; ``None`` for the first that shows a chosen layer.
        readings: What was found.
    """

    heads: Mapping[int, tuple[int, ...]]
    queries: tuple[int, ...]
    ladder: Ladder
    positions: Positions
    relevant_key: Int[Tensor, "batch query"] | None = None
    stack: str | None = None
    readings: list[Reading] = field(default_factory=list)

    def attention(self, seen: AttentionSeen) -> None:
        """Read the rows of the chosen heads; the layer's own attention runs."""
        if not self._is_chosen(seen):
            return
        rule = attention_rule(seen, self.positions.shown)
        cap, longest = most_keys(seen), self.ladder.rungs[-1]
        ladder = self.ladder if cap is None or cap >= longest else self.ladder.up_to(cap)
        self._read(
            seen,
            seen.query.shape[1],
            seen.query.shape[2],
            ladder,
            lambda head, query: row_scores(seen, head, query, rule),
        )

    def pattern(self, seen: PatternSeen) -> None:
        """Read the rows of the chosen heads of a finished pattern.

        Raises:
            ValueError: If the layer does not show scores: weights alone do not say what they are.
        """
        if not self._is_chosen(seen):
            return
        scores = seen.scores
        if scores is None:
            raise ValueError(
                f"layer {seen.layer} shows finished weights without the scores behind them (its "
                "attention is no softmax of scores, or they cannot be read): its scores cannot be "
                "diagnosed"
            )
        self._read(
            seen,
            scores.shape[1],
            scores.shape[2],
            self.ladder,
            lambda head, query: scores[:, head, query].double(),
        )

    def norm(self, seen: NormSeen) -> None:
        """Let the norm be."""

    def stream(self, seen: StreamSeen) -> None:
        """Let the stream be."""

    def _is_chosen(self, seen: AttentionSeen | PatternSeen) -> bool:
        if seen.layer not in self.heads or self.stack not in (None, seen.stack):
            return False
        self.stack = seen.stack
        return True

    def _read(
        self,
        seen: AttentionSeen | PatternSeen,
        n_heads: int,
        n_query: int,
        ladder: Ladder,
        read: Callable[[int, int], Tensor],
    ) -> None:
        batch = self.positions.shown.shape[0]
        wrong = [head for head in self.heads[seen.layer] if not 0 <= head < n_heads]
        if wrong:
            raise ValueError(
                f"layer {seen.layer} has heads 0 to {n_heads - 1}; asked for {wrong[0]}"
            )
        queries = [query for query in self.queries if query < n_query]
        shape = (batch, n_heads, len(queries))
        n_key = torch.zeros(shape, dtype=torch.int64)
        empty = torch.full(shape, torch.nan, dtype=torch.float64)
        values = {name: empty.clone() for name in self._names}
        for head in self.heads[seen.layer]:
            for column, query in enumerate(queries):
                scores = read(head, query)
                relevant = None if self.relevant_key is None else self.relevant_key[:, query]
                found = score_statistics(scores, relevant)
                count = (scores != -torch.inf).sum(-1).cpu()
                n_key[:, head, column] = torch.where(self.positions.shown[:, query], count, 0)
                for name, value in found.items():
                    values[name][:, head, column] = value.cpu()
        site = f"{seen.stack}.{seen.layer}.attn"
        whole = bin_rows(values["entropy"], n_key, ladder)
        # A rung stands at the same number of keys whether or not each row has the quantity.
        mean_log = torch.where(whole.n_rows > 0, whole.log_n_key / whole.n_rows, 0.0)
        for name, rows in values.items():
            binned = bin_rows(rows, n_key, ladder)
            binned = replace(binned, log_n_key=binned.n_rows * mean_log)
            self._keep(site, seen.layer, name, binned)
            if name == "score_spread":
                index = ladder.index(n_key)
                rungs = [(index == rung) & ~rows.isnan() for rung in range(len(ladder))]
                largest = [torch.where(own, rows, -torch.inf).amax(-1) for own in rungs]
                most = torch.where(binned.n_rows > 0, torch.stack(largest, -1), torch.nan)
                self._keep(site, seen.layer, "largest_score_spread", replace(binned, mean=most))

    def _keep(self, site: str, layer: int, name: str, binned: Binned) -> None:
        unit, optional = SCORE_STATISTICS[name].unit, name == "top_is_relevant"
        self.readings.append(Reading(site, layer, name, unit, True, binned, optional))

    @property
    def _names(self) -> tuple[str, ...]:
        """What is read of one row; which key is asked for only where one is."""
        asked = self.relevant_key is not None
        left_out = {"largest_score_spread"} | (set() if asked else {"top_is_relevant"})
        return tuple(name for name in SCORE_STATISTICS if name not in left_out)


def profile_score_rows(
    adapter: Observable,
    probe: Probing,
    lengths: Iterable[int],
    heads: Collection[tuple[int, int]],
    *,
    n_sequences: int = 16,
    rows_per_rung: int = 8,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
    batch_tokens: int = 16384,
    past_positions: bool = False,
    stack: str | None = None,
    progress: bool | Progress | None = None,
) -> pd.DataFrame:
    """Measure the scores of some heads of an adapted model over a ladder of lengths.

    A causal model on a nested probe is run once, at the longest length, whose rows have every
    smaller number of keys too. Otherwise each length is run, and rows near its full number of keys
    are read. Where the probe says which key a query needs, only such queries are read.

    An interrupt (ctrl-C) returns what the finished batches gave, with a warning (``n_obs`` says of
    how many sequences); with none finished it goes through.

    Args:
        adapter: The model.
        probe: What it is fed.
        lengths: Lengths, each 1 or more.
        heads: ``(layer, head)`` pairs.
        n_sequences: Sequences a length.
        rows_per_rung: Most queries of a sequence that are read at each number of keys.
        seed: Seed of what is drawn.
        labels: Values of the columns ``study``, ``checkpoint``, ``task`` and ``seed``.
        batch_tokens: Most positions in one forward pass (but one sequence at least).
        past_positions: Run lengths that the model was not made for, where it can.
        stack: ``"decoder"``, ``"encoder"`` or ``"cross"``; ``None`` for the first that is shown.
        progress: ``True`` for a bar, or called after each batch as ``progress(done, total,
            length)``, in sequences.

    Returns:
        The tidy table: per head the quantities of :data:`SCORE_STATISTICS`, mean, sem and extremes
        over sequences of the mean over a sequence's rows.

    Raises:
        ValueError: If a length or head is impossible, an argument is out of range, or a layer does
            not show its scores.
    """
    asked = sorted(set(check_lengths(lengths, distinct=False)))
    check_counts(n_sequences=n_sequences, rows_per_rung=rows_per_rung, batch_tokens=batch_tokens)
    if not heads:
        raise ValueError("heads must hold at least one (layer, head); got none")
    by_layer = {layer: tuple(sorted(h for at, h in heads if at == layer)) for layer, _ in heads}
    causal = adapter.description.causal is not False
    one_pass = causal and probe.nested
    chosen = _Choice(_tolerance(asked), tuple(asked) if one_pass else None, rows_per_rung)
    runs = asked[-1:] if one_pass else asked
    finished: dict[int, list[list[Reading]]] = {}
    done, total = 0, n_sequences * len(runs)
    try:
        with advancing(progress, "scores", "sequence") as advance:
            for length, n_read, readings in _read_batches(
                adapter, probe, runs, by_layer, chosen, n_sequences=n_sequences, seed=seed,
                batch_tokens=batch_tokens, past_positions=past_positions, stack=stack,
            ):  # fmt: skip
                finished.setdefault(length, []).append(readings)
                done += n_read
                advance(done, total, length)
    except KeyboardInterrupt:
        if not finished:
            raise
        warnings.warn(
            f"interrupted: the table holds the {done} finished of {total} sequences", stacklevel=2
        )
    given = {"task": probe.name, **(labels or {})}
    return concatenate(
        [table(table_rows(_total(batches), length, given)) for length, batches in finished.items()]
    )


def _read_batches(
    adapter: Observable,
    probe: Probing,
    lengths: Iterable[int],
    heads: Mapping[int, tuple[int, ...]],
    chosen: "_Choice",
    *,
    n_sequences: int,
    seed: int,
    batch_tokens: int,
    past_positions: bool,
    stack: str | None,
) -> Iterator[tuple[int, int, list[Reading]]]:
    """Of each batch its length, how many sequences it had, and what was read."""
    causal = adapter.description.causal is not False
    for length in lengths:
        drawn = probe.sample(length_generator(seed, length), n_sequences, length)
        positions = find_positions(drawn, causal)
        ladder = chosen.ladder(int(positions.n_key.max()))
        batch = min(n_sequences, max(1, batch_tokens // drawn.tokens.shape[1]))
        for start in range(0, n_sequences, batch):
            arrays = cut(drawn, start, start + batch)
            tokens, part = arrays["tokens"], positions.part(start, start + batch)
            assert tokens is not None
            relevant = arrays["relevant_key"]
            if relevant is not None and not bool((relevant >= 0).any()):
                relevant = None
            queries = chosen.queries(part, ladder, relevant)
            observer = ScoreObserver(heads, queries, ladder, part, relevant, stack)
            adapter.observe(
                tokens,
                observer,
                arrays["attention_mask"],
                documents=arrays["documents"],
                past_positions=past_positions,
                last_only=True,
            )
            missing = sorted(set(heads) - {reading.layer for reading in observer.readings})
            if missing:
                raise ValueError(
                    f"layer {missing[0]} showed no attention; the model has "
                    f"{adapter.description.n_layers} layers, counted from 0"
                )
            yield length, len(tokens), observer.readings


def _total(batches: Iterable[Iterable[Reading]]) -> Totals:
    """What the batches of one length gave together."""
    totals = Totals()
    for readings in batches:
        totals.places = add_readings(totals.places, readings)
    return totals


def _tolerance(lengths: list[int]) -> float:
    """The usual tolerance, or none where rungs lie too close for it."""
    reach = (1.0 + TOLERANCE) ** 2
    apart = all(high > reach * low + 1 for low, high in pairwise(lengths))
    return TOLERANCE if apart else 0.0


@dataclass(frozen=True)
class _Choice:
    """Which rows of a run are read.

    ``rungs`` are those of one pass that stands for every length; ``None`` where each length has a
    pass of its own.
    """

    tolerance: float
    rungs: tuple[int, ...] | None
    rows: int

    def ladder(self, longest: int) -> Ladder:
        if self.rungs is None:
            return Ladder((longest,), self.tolerance)
        return Ladder(self.rungs, self.tolerance).up_to(longest)

    def queries(
        self, positions: Positions, ladder: Ladder, relevant: Tensor | None
    ) -> tuple[int, ...]:
        index = ladder.index(positions.n_key)
        rungs = torch.tensor((*ladder.rungs, -1), device=index.device)
        wanted = (index < len(ladder)) & (
            (positions.n_key >= EXACT) | (positions.n_key == rungs[index])
        )
        if relevant is not None:
            wanted = wanted & (relevant >= 0)
        found: list[int] = []
        for rung in range(len(ladder)):
            columns = ((index == rung) & wanted).any(0).nonzero().squeeze(-1)
            if len(columns) > self.rows:
                step = torch.linspace(0, len(columns) - 1, self.rows).round().long()
                columns = columns[step]
            found += columns.tolist()
        return tuple(sorted(set(found)))
