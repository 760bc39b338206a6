"""The explorer without its widgets: a model and what was measured of it, in; arrays, out.

What was measured is an audit's (:mod:`.measuring`). A what-if runs the model again on the same
sequences with the same observer as a profile (:mod:`resharpen.interp.profiling`), which leaves out
what is not drawn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from ...interp.drawing import length_generator
from ...interp.profiling.ladder import Ladder, geometric_ladder, joined_ladder
from ...interp.profiling.observing import ProfileObserver
from ...interp.profiling.outputs import score_output
from ...interp.profiling.places import Positions, find_positions
from ...interp.profiling.result import cut
from ...interp.profiling.totals import Totals
from ...models.adapters import Adapter
from ...models.facts import Facts, layers_by_heads
from ..figures.patterns import MAX_KEYS
from ..fits import fit_slope
from ..head_ladders import HeadLadders
from ..head_records import HeadClass, stack_prefixes
from ..wording import format_number
from .pooling import pool_heads, pool_places
from .views import COLOURED_BY, HeadMap, HeadView, NormCurve
from .watching import HeadSeen, HeadWatch
from .what_if_setting import WhatIfSetting

__all__ = ["OUTPUT", "ExplorerState"]

STATISTICS = ("entropy", "normalised_entropy", "max_weight", "score_spread")
"""What a what-if measures of every row: what is drawn, and nothing else."""

OUTPUT = ("loss", "accuracy")
"""What of the model's output is told."""


_Place = tuple[str, int, int]


@dataclass(frozen=True)
class _Fed:
    """The sequences of one length, and where their positions stand."""

    batch: Any
    positions: Positions


@dataclass(frozen=True, eq=False)
class ExplorerState(Facts):
    """A model that was measured, and what is needed to measure it again with a change.

    Attributes:
        label: Name of the model.
        adapter: The model.
        probe: What it is fed.
        lengths: Lengths that were run, increasing.
        n_sequences: Sequences a length.
        seed: Seed of the sequences.
        table: The audit's tidy table.
        classes: What each head does.
        heads: Every head's ladders, in the order of `classes`.
        output: Loss (nats) and accuracy (ratio) at the most keys; empty where it is not scored.
        norms: The scale of every norm over tokens, by its layer; ``None`` for those of none.
        batch_tokens: Most positions in one forward pass.
        past_positions: Whether lengths are run that the model was not made for.
    """

    label: str
    adapter: Adapter
    probe: Any
    lengths: tuple[int, ...]
    n_sequences: int
    seed: int
    table: pd.DataFrame
    classes: tuple[HeadClass, ...]
    heads: tuple[HeadLadders, ...]
    output: Mapping[str, float]
    norms: Mapping[int | None, tuple[NormCurve, ...]]
    batch_tokens: int = 16384
    past_positions: bool = False
    _fed: dict[int, _Fed] = field(default_factory=dict, repr=False)
    _looked: dict[tuple[int, int], HeadSeen] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the rows of the map: ``L0``, or ``encoder L0`` where there are two stacks."""
        prefix = stack_prefixes(item.place[:3] for item in self.classes)
        return tuple(f"{prefix[place[:3]]}L{place[3]}" for place in self._places)

    @property
    def columns(self) -> int:
        """Heads of a layer."""
        return 1 + max(item.head for item in self.classes)

    @property
    def steepest(self) -> tuple[int, int]:
        """Row and head of the largest slope, dispersing heads before others."""
        slopes = np.array([item.slope.value for item in self.classes])
        ranks = [
            (item.label == "dispersing", -np.inf if np.isnan(slope) else slope)
            for item, slope in zip(self.classes, slopes, strict=True)
        ]
        best = max(range(len(ranks)), key=lambda index: ranks[index])
        return self.row_of(best), self.classes[best].head

    def row_of(self, index: int) -> int:
        """The row of the map in which a head of `classes` stands."""
        return self._places.index(self.classes[index].place[:4])

    def __repr__(self) -> str:
        """What it holds: model, heads, probe, lengths, sequences, seed."""
        return (
            f"ExplorerState({self.label}: {layers_by_heads(len(self.rows), self.columns)} on "
            f"{self.probe.name}, lengths {self.lengths[0]} to {self.lengths[-1]}, "
            f"{self.n_sequences} sequences a length, seed {self.seed})"
        )

    def head_map(
        self,
        by: str = "slope",
        length: int | None = None,
        changed: Sequence[HeadLadders] | None = None,
        what_if: str = "",
    ) -> HeadMap:
        """Dispersion of every head, of the audit or with a change.

        Args:
            by: ``"slope"`` (dH/dlog n in nats) or ``"normalised_entropy"`` (ratio, at the longest
                row of the chosen length).
            length: The chosen length; the longest by default.
            changed: The heads with a change, from :meth:`view`'s run; the audit's by default.
            what_if: What was changed, in words.

        Raises:
            ValueError: Another quantity, or a length that was not run.
        """
        if by not in COLOURED_BY:
            raise ValueError(f"the map is coloured by {' or '.join(COLOURED_BY)}; got {by!r}")
        chosen = self._length(length)
        values = np.full((len(self.rows), self.columns), np.nan)
        words = [["" for _ in range(self.columns)] for _ in self.rows]
        told = {(item.site, item.head): item for item in self.classes}
        places = {item.site: self._places.index(item.place[:4]) for item in self.classes}
        for head in self.heads if changed is None else changed:
            item = told.get((head.site, head.head))
            if item is None:
                continue
            row = places[head.site]
            value, unit = self._dispersion(head, by, chosen)
            values[row, head.head] = value
            name = f"{self.rows[row]} H{head.head}"
            said = f"{name}: {item.label}" if changed is None else f"{name} with the change"
            words[row][head.head] = f"{said}, {by.replace('_', ' ')} {format_number(value, unit)}"
        return HeadMap(by, self.rows, values, tuple(map(tuple, words)), chosen, what_if)

    def view(
        self,
        row: int,
        head: int,
        length: int | None = None,
        what_if: WhatIfSetting | None = None,
        by: str = "slope",
    ) -> tuple[HeadView, HeadMap]:
        """One head at one length, as measured and with a change, and the map to go with it.

        Args:
            row: Row of the map; the layer, where there is one stack.
            head: Which head.
            length: The chosen length; the longest by default.
            what_if: What is changed; nothing by default.
            by: What the map shows.

        Raises:
            ValueError: There is no such layer, head or length, or the change is not possible.
        """
        chosen, setting = self._length(length), what_if or WhatIfSetting()
        index = self._index(row, head)
        item = self.classes[index]
        if (index, chosen) not in self._looked:
            self._looked[index, chosen] = self._look(item, chosen)
        plain = self.plain_view(index, chosen, self._looked[index, chosen])
        if setting.plain:
            return plain, self.head_map(by, chosen)
        runs, seen = self._run((item,), self._runs, chosen, setting)
        heads = pool_heads(runs, self.probe.name)
        own = next(h for h in heads if (h.site, h.head) == (item.site, item.head))
        scales = pool_places(runs, "norm_scale")
        view = replace(
            plain,
            what_if=setting,
            changed=own,
            changed_seen=_only(seen, item, self.label, chosen),
            changed_norms=tuple(NormCurve(name, *curve) for (name, _), curve in scales.items()),
            changed_output={
                name: float(mean[-1])
                for name in OUTPUT
                for _, mean in pool_places(runs, name).values()
            },
        )
        return view, self.head_map(by, chosen, heads, view.words)

    def plain_view(self, index: int, length: int, seen: HeadSeen) -> HeadView:
        """A head of `classes` as it was measured, with what was seen of it at a length."""
        item, measured = self.classes[index], self.heads[index]
        keys = measured["entropy"].n_key
        row = self.row_of(index)
        return HeadView(
            name=f"{self.rows[row]} H{item.head}",
            row=row,
            head=item.head,
            length=length,
            length_range=(float(keys[0]), float(keys[-1])),
            described=item,
            measured=measured,
            seen=seen,
            norms=(*self.norms.get(item.layer, ()), *self.norms.get(None, ())),
            output=self.output,
        )

    def look(self, length: int, limit: int) -> dict[int, HeadSeen]:
        """Every head's weights and scores at one length in one pass, by its number in `classes`.

        Args:
            length: Which length.
            limit: Most rows and columns of weights that are kept of each.
        """
        chosen = self._length(length)
        _, seen = self._run(self.classes, (), chosen, WhatIfSetting(), limit)
        return {
            index: _only(seen, item, self.label, chosen) for index, item in enumerate(self.classes)
        }

    def weights(self, row: int, head: int, length: int | None = None) -> tuple[Any, Any]:
        """Token ids ``[pos]`` and attention weights ``[query, key]`` of the first sequence, whole.

        Args:
            row: Row of the map; the layer, where there is one stack.
            head: Which head.
            length: Which length; the longest by default.
        """
        chosen, item = self._length(length), self.classes[self._index(row, head)]
        return self._sequences(chosen).batch.tokens[0], self._look(item, chosen, None).weights

    def _look(self, item: HeadClass, length: int, limit: int | None = MAX_KEYS) -> HeadSeen:
        _, seen = self._run((item,), (), length, WhatIfSetting(), limit)
        return _only(seen, item, self.label, length)

    @property
    def _places(self) -> list[Any]:
        return list(dict.fromkeys(item.place[:4] for item in self.classes))

    @property
    def _runs(self) -> tuple[int, ...]:
        """Lengths that a profile runs: the longest alone where its rows give all the others."""
        return self.lengths[-1:] if self._nested else self.lengths

    @property
    def _nested(self) -> bool:
        causal = self.adapter.description.causal is not False
        return causal and self.probe.nested and len(self.lengths) > 1

    @property
    def _ladder(self) -> Ladder:
        """The rungs of the audit."""
        return joined_ladder(self.lengths) if self._nested else geometric_ladder(self.lengths[-1])

    def _length(self, length: int | None) -> int:
        chosen = self.lengths[-1] if length is None else length
        if chosen not in self.lengths:
            raise ValueError(
                f"length must be one that was run ({', '.join(map(str, self.lengths))}); "
                f"got {length!r}"
            )
        return int(chosen)

    def _index(self, row: int, head: int) -> int:
        """The number of a head among `classes`."""
        for what, value, count in (("layer", row, len(self.rows)), ("head", head, self.columns)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise ValueError(f"{what} must be a whole number; got {value!r}")
            if not 0 <= value < count:
                raise ValueError(
                    f"{what} must be a number from 0 to {count - 1} for {self.label}; got {value}"
                )
        place = (*self._places[row], head)
        found = [index for index, item in enumerate(self.classes) if item.place == place]
        if not found:
            raise ValueError(f"{self.rows[row]} of {self.label} has no head {head} that was seen")
        return found[0]

    def _dispersion(self, head: HeadLadders, by: str, length: int) -> tuple[float, str]:
        if by == "slope":
            ladder = head["entropy"]
            return fit_slope(ladder.n_key, ladder.mean).value, "nats"
        ladder = head["normalised_entropy"]
        if not ladder.n_key.size:
            return float("nan"), "ratio"
        most = int(self._sequences(length).positions.n_key.max())
        nearest = int(np.abs(np.log(ladder.n_key / most)).argmin())
        return float(ladder.mean[nearest]), "ratio"

    def _sequences(self, length: int) -> _Fed:
        if length not in self._fed:
            drawn = self.probe.sample(length_generator(self.seed, length), self.n_sequences, length)
            causal = self.adapter.description.causal is not False
            self._fed[length] = _Fed(drawn, find_positions(drawn, causal))
        return self._fed[length]

    def _run(
        self,
        items: Sequence[HeadClass],
        runs: Iterable[int],
        chosen: int,
        setting: WhatIfSetting,
        limit: int | None = MAX_KEYS,
    ) -> tuple[list[Totals], dict[_Place, HeadSeen]]:
        """Run the lengths for every row, and the chosen one for the heads' weights and scores.

        What is changed, and the norms that are measured, are those of the first head.
        """
        first, places = items[0], frozenset(_place(item) for item in items)
        remedy = setting.remedy(first.layer, first.head)
        found: list[Totals] = []
        seen: dict[_Place, HeadSeen] = {}
        wanted = list(runs)
        with setting.applied(self.adapter, first.layer):
            for length in dict.fromkeys([*wanted, chosen]):
                totals = Totals()
                for start, arrays, positions in self._batches(length):
                    rows = ProfileObserver(
                        STATISTICS if length in wanted else ("max_weight",),
                        self._ladder.up_to(int(self._sequences(length).positions.n_key.max())),
                        positions,
                    )
                    looked = places if length == chosen and start == 0 else frozenset()
                    watch = HeadWatch(first.layer, looked, rows, remedy, limit)
                    scored = bool(self.output) and length in wanted
                    logits = self.adapter.observe(
                        arrays["tokens"],
                        watch,
                        arrays["attention_mask"],
                        documents=arrays["documents"],
                        past_positions=self.past_positions,
                        last_only=not scored,
                    )
                    if scored:
                        loss, accuracy = score_output(logits, arrays["labels"])
                        rows.output("loss", "nats", loss)
                        rows.output("accuracy", "ratio", accuracy)
                    totals.take(rows)
                    seen |= watch.seen
                    if length not in wanted:
                        break
                if length in wanted:
                    found.append(totals)
        return found, seen

    def _batches(self, length: int) -> Iterable[tuple[int, dict[str, Any], Positions]]:
        fed = self._sequences(length)
        batch = min(self.n_sequences, max(1, self.batch_tokens // fed.batch.tokens.shape[1]))
        for start in range(0, self.n_sequences, batch):
            stop = start + batch
            yield start, cut(fed.batch, start, stop), fed.positions.part(start, stop)


def _place(item: HeadClass) -> _Place:
    """Stack, layer and head, as an adapter shows them."""
    return item.site.split(".", 1)[0], item.layer, item.head


def _only(seen: Mapping[_Place, HeadSeen], item: HeadClass, label: str, length: int) -> HeadSeen:
    """What was seen of one head (``ValueError`` if nothing was)."""
    found = seen.get(_place(item))
    if found is None:
        raise ValueError(
            f"layer {item.layer} of {label} showed no attention pattern at length {length}"
        )
    return found
