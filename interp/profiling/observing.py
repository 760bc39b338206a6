"""The observer: every record becomes one number a sequence, head and rung, and is let go."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...models.facts import Facts
from ...models.observed import AttentionSeen, NormSeen, PatternSeen, StreamSeen
from ..attention_statistics import RowStatistics, RowStatus, statistic_unit
from ..measures.norms import residual_norm
from ..measures.precision import widen
from .attention_rows import measure_attention, measure_pattern, most_keys
from .ladder import Binned, Ladder, bin_rows
from .places import REFERENCE, Positions, reference_log_scale
from .reweighed import Weigh, reweighed_attention
from .score_alignment import score_cosine_correlation
from .stream_shapes import ROW_UNITS, SPAN_UNITS, StreamShapes

Change = Callable[[AttentionSeen], AttentionSeen]
"""What a layer would be given if a remedy were applied: a changed copy of the record. The layer's
output is then that of the changed record (what-if, without retraining)."""


@runtime_checkable
class Reweighing(Protocol):
    """A remedy that gives other weights than softmax."""

    def weigh(self, seen: AttentionSeen) -> Weigh | None:
        """How this layer's scores become weights; ``None`` for softmax."""
        ...


Remedy = Change | Reweighing
"""What can be tried on a model while it is looked at."""

_MEDIAN_ROWS = 1024
"""Rows of a stream, evenly spaced, from which the median magnitude is taken."""


@dataclass(frozen=True, repr=False)
class Reading(Facts):
    """One quantity at one place, for the sequences of one batch.

    Attributes:
        site: What was read.
        layer: Its block, or ``None``.
        quantity: Name.
        unit: One of the table's units.
        per_head: Whether the head axis is one of heads (else it has size one).
        binned: The numbers, or ``None`` if the quantity cannot be had here.
        optional: Whether rungs without a value are left out rather than called undefined: not
            every row is asked for it (relevant keys, labels).
    """

    site: str
    layer: int | None
    quantity: str
    unit: str
    per_head: bool
    binned: Binned | None
    optional: bool = False


@dataclass(repr=False)
class ProfileObserver(Facts):
    """Looks on while an adapted model runs one batch; a :mod:`resharpen.models.observed` Observer.

    Attributes:
        statistics: Names of the row statistics.
        ladder: Rungs of ``n_key``; :meth:`Ladder.up_to` the longest row of the run.
        positions: Where each position stands.
        relevant_key: Key that each query needs, negative for none, or ``None``.
        stand_in: Whether the attention output that comes with the statistics replaces the model's
            own (cheaper; outputs then agree to rounding). Otherwise the model's own kernel runs
            too, and its outputs do not change by a bit.
        remedy: Changes what each attention layer is given, or how it weighs; or ``None``.
        references: Mean log scale of each norm on the first tokens run alone, by name and layer,
            ``[batch, head]``; for models that are not causal.
        shapes: Looks at the streams, how far their tokens have drawn together; or ``None``.
        readings: What was found, in the order in which it was seen.
        statuses: Rows by site and :class:`RowStatus`.
    """

    statistics: tuple[str, ...]
    ladder: Ladder
    positions: Positions
    relevant_key: Int[Tensor, "batch query"] | None = None
    stand_in: bool = True
    remedy: Remedy | None = None
    references: Mapping[tuple[str, int | None], Tensor] | None = None
    shapes: StreamShapes | None = None
    readings: list[Reading] = field(default_factory=list)
    statuses: dict[str, Counter[str]] = field(default_factory=dict)

    def attention(self, seen: AttentionSeen) -> Float[Tensor, "batch head query d_value"] | None:
        """Measure one layer; its output where this observer stands in for the layer."""
        self._align(seen)
        weigh = self.remedy.weigh(seen) if isinstance(self.remedy, Reweighing) else None
        if callable(self.remedy):
            seen = self.remedy(seen)
        places: Any = {"query_mask": self.positions.shown, "relevant_key": self.relevant_key}
        if weigh is not None:
            output, rows = reweighed_attention(seen, weigh, self.statistics, **places)
        else:
            with_output = self.stand_in or self.remedy is not None
            output, rows = measure_attention(
                seen, self.statistics, **places, with_output=with_output
            )
        cap, longest = most_keys(seen), self.ladder.rungs[-1]
        ladder = self.ladder if cap is None or cap >= longest else self.ladder.up_to(cap)
        self._take_rows(seen.stack, seen.layer, rows, ladder)
        return output

    def pattern(self, seen: PatternSeen) -> None:
        """Measure one finished pattern.

        Raises:
            ValueError: If there is a remedy: a finished pattern cannot be changed.
        """
        if self.remedy is not None:
            raise ValueError(
                "a remedy changes what attention is given, but this model only shows finished "
                "weights: run it without one"
            )
        rows, missing = measure_pattern(
            seen,
            self.statistics,
            query_mask=self.positions.shown,
            relevant_key=self.relevant_key,
        )
        self._take_rows(seen.stack, seen.layer, rows, self.ladder)
        site = _attention_site(seen.stack, seen.layer)
        for name in missing:
            unit = statistic_unit(name)
            self.readings.append(Reading(site, seen.layer, name, unit, False, None))

    def norm(self, seen: NormSeen) -> None:
        """Measure what one norm divides by, and how that changes from the first rows on."""
        log_scale = norm_log_scale(seen)
        if log_scale.shape[2] != self.positions.n_key.shape[1]:
            return
        per_head = seen.input.ndim == 4
        self._take(seen.name, seen.layer, "norm_scale", "1", log_scale.exp(), per_head)
        if self.references is None:
            reference = reference_log_scale(log_scale, self.positions)
        else:
            found = self.references.get((seen.name, seen.layer))
            if found is None:
                return
            reference = found[..., None]
        gain = (reference - log_scale).exp()
        self._take(seen.name, seen.layer, "rescale_gain", "ratio", gain, per_head)

    def stream(self, seen: StreamSeen) -> None:
        """Measure the stream's norm, its largest coordinate against the median one, its shape."""
        layer = None if seen.name == "final" else seen.layer
        length = residual_norm(seen.stream)[:, None]
        if length.shape[2] != self.positions.n_key.shape[1]:
            return
        if self.shapes is not None:
            self._take_shapes(seen, layer, self.shapes)
        self._take(seen.name, layer, "residual_norm", "l2", length, False)
        ratio = massive_activation(seen.stream, self.positions.shown)[:, None, None]
        # One number for the whole stream: it stands at the longest row of the run.
        longest = torch.full_like(ratio, self.ladder.rungs[-1], dtype=torch.int64)
        binned = bin_rows(ratio, longest, self.ladder)
        self.readings.append(
            Reading(seen.name, layer, "massive_activation", "ratio", False, binned)
        )

    def _take_shapes(self, seen: StreamSeen, layer: int | None, shapes: StreamShapes) -> None:
        for name, rows in (shapes.across_block(seen) or {}).items():
            block = seen.layer - 1
            self._take(f"blocks.{block}", block, name, ROW_UNITS[name], rows[:, None], False)
        for name, (values, n_key) in shapes.of_boundary(seen.stream).items():
            binned = bin_rows(values[:, None], n_key[:, None], shapes.ladder)
            self.readings.append(Reading(seen.name, layer, name, SPAN_UNITS[name], False, binned))

    def _align(self, seen: AttentionSeen) -> None:
        """Measure how far the scores are products of the tokens' directions."""
        if self.shapes is None:
            return
        stream = self.shapes.entering(seen.layer)
        if stream is None or not stream.shape[1] == seen.query.shape[2] == seen.key.shape[2]:
            return
        found = score_cosine_correlation(seen, stream, self.positions, self.shapes.causal)
        found = found[:, None, None]
        # One number for the whole stream: it stands at the longest row of the run.
        longest = torch.full_like(found, self.ladder.rungs[-1], dtype=torch.int64)
        binned = bin_rows(found, longest, self.ladder)
        site = f"blocks.{seen.layer}"
        self.readings.append(
            Reading(site, seen.layer, "score_cosine_correlation", "1", False, binned)
        )

    def output(self, quantity: str, unit: str, rows: Float[Tensor, "batch pos"]) -> None:
        """Take one number a position at the model's output; NaN where nothing is scored."""
        self._take("logits", None, quantity, unit, rows[:, None], False, optional=True)

    def _take(
        self,
        site: str,
        layer: int | None,
        quantity: str,
        unit: str,
        rows: Tensor,
        per_head: bool,
        *,
        optional: bool = False,
    ) -> None:
        """Bin one number a position by the number of keys that the position can see."""
        n_key = self.positions.n_key.to(rows.device)[:, None]
        binned = bin_rows(rows, n_key, self.ladder)
        self.readings.append(Reading(site, layer, quantity, unit, per_head, binned, optional))

    def _take_rows(self, stack: str, layer: int, rows: RowStatistics, ladder: Ladder) -> None:
        site = _attention_site(stack, layer)
        counts = self.statuses.setdefault(site, Counter())
        counts.update({name: number for name, number in rows.counts().items() if number})
        # Rows that are not finite have keys but no value; they count as undefined in their rung.
        keys = rows.n_key.masked_fill(rows.status == RowStatus.PADDING, 0)
        for name in rows:
            relevant = name == "relevant_mass"
            unit = "ratio" if relevant else statistic_unit(name)
            binned = bin_rows(rows[name], keys, ladder)
            self.readings.append(Reading(site, layer, name, unit, True, binned, relevant))


@dataclass
class ReferenceObserver:
    """Keeps the mean log scale of every norm on a short run: the reference of a rescale gain.

    For models that are not causal, whose first rows see the whole input: the first tokens of the
    same sequences are run alone instead.
    """

    references: dict[tuple[str, int | None], Tensor] = field(default_factory=dict)

    def attention(self, seen: AttentionSeen) -> None:
        """Let the layer be."""

    def pattern(self, seen: PatternSeen) -> None:
        """Let the layer be."""

    def stream(self, seen: StreamSeen) -> None:
        """Let the stream be."""

    def norm(self, seen: NormSeen) -> None:
        """Keep the mean over the rows after the first, as for causal models."""
        log_scale = norm_log_scale(seen)[..., REFERENCE[0] - 1 :]
        self.references[(seen.name, seen.layer)] = log_scale.mean(-1)


def norm_log_scale(seen: NormSeen) -> Float[Tensor, "batch head pos"]:
    """``log sqrt(mean_c x_c**2 + eps)`` of each row (of the centred ``x`` where the norm centres).

    The head axis has size one unless heads are normalised one by one. An unknown epsilon is 0.
    """
    wide = widen(seen.input)
    if seen.centred:
        wide = wide - wide.mean(-1, keepdim=True)
    eps = 0.0 if seen.eps != seen.eps else seen.eps
    square = torch.linalg.vector_norm(wide, dim=-1).square() / wide.shape[-1]
    log_scale = 0.5 * (square + eps).log()
    return log_scale.transpose(1, 2) if log_scale.ndim == 3 else log_scale[:, None]


def massive_activation(
    stream: Float[Tensor, "batch pos d_model"], shown: Tensor
) -> Float[Tensor, "batch"]:
    """``max |x| / median |x|`` of each sequence's stream, a ratio in ``[1, inf)``.

    Over all positions with a token and all coordinates (the median over at most 1024 positions,
    evenly spaced). Sun et al., *Massive Activations in Large Language Models* (arXiv 2402.17762),
    call an activation massive from 1000 times the median (and 100 in size) on.
    """
    ratios = []
    for sequence, mask in zip(stream, shown.to(stream.device), strict=True):
        size = widen(sequence[mask]).abs()
        step = max(1, -(-len(size) // _MEDIAN_ROWS))
        ratios.append(size.max() / size[::step].flatten().median())
    return torch.stack(ratios)


def _attention_site(stack: str, layer: int) -> str:
    return f"{stack}.{layer}.attn"
