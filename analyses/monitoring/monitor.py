"""The monitor: every so many steps, how far does each head of the model in training disperse?

At a measured step a fixed probe (the same sequences every time, so that what changes is the model)
is run once without gradients, and of every head is kept

========================  =====  =================================================================
``entropy``               nats   of the rows that see the most keys, mean over sequences
``normalised_entropy``    ratio  the same over ``log n``: 1 is fully dispersed
``effective_support``     1      ``1 / sum a^2`` of the same rows
``dispersion_slope``      nats   ``dH / d log n`` fitted over all rows: 1 is a head that spreads
                                 over whatever it is given, 0 one that holds its support
========================  =====  =================================================================

(theory section 0). The model is left as it was: mode, gradients, hooks, attention implementation
and the global random state.
"""

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...interp.arguments import check_counts, check_lengths, check_seed, check_step
from ...interp.drawing import length_generator
from ...interp.entropy_curves import EntropyCurve, entropy_curves
from ...models.adapters import Adapter, adapt
from ...models.facts import brief, facts_table, layers_by_heads
from ...models.probes import Probe
from ..adapted import make_probe
from ..arguments import check_probe
from ..figures.trend import plot_trend
from ..fits import fit_slope
from ..trend import TREND_COLUMNS
from ..wording import plural
from .log_targets import find_log

__all__ = ["HISTORY_COLUMNS", "DispersionMonitor"]

HISTORY_COLUMNS = ("step", "layer", "head", "site", "n_key", "quantity", "unit", "value")
"""Columns of :attr:`DispersionMonitor.history`: one row a step, head and quantity."""

_UNITS = {
    "entropy": "nats",
    "normalised_entropy": "ratio",
    "effective_support": "1",
    "dispersion_slope": "nats",
}
_LONGEST = 128
_SHORTEST = 8


class DispersionMonitor:
    """Records the dispersion of a model in training.

    ::

        monitor = DispersionMonitor(model, every=500)
        for batch in loader:
            ...
            optimizer.step()
            monitor.step()
        monitor.plot()

    A measurement that fails warns and is left out, and so do numbers that could not be logged: a
    training run is never ended. Of a model that has diverged, and of a log that stays out of reach,
    that is said once, not at every step.
    """

    def __init__(
        self,
        model: Any,
        *,
        every: int = 500,
        probe: str | Probe = "random",
        lengths: Iterable[int] | None = None,
        n_sequences: int = 4,
        seed: int = 0,
        log: Any = None,
    ) -> None:
        """Adapt the model; nothing is measured yet.

        Args:
            model: what :func:`resharpen.models.adapters.adapt` takes; a model wrapped by
                ``torch.compile`` or data parallelism is looked into.
            every: steps between two measurements.
            probe: name of a probe (:data:`resharpen.models.probes.PROBES`, but for ``text`` and
                ``task``, which are given as objects), or one of your own.
            lengths: numbers of tokens; by default 128, or the most that the model takes, whose
                rows see every smaller number of keys too; where attention is not causal, 8 to
                that, doubling.
            n_sequences: sequences of a measurement.
            seed: of the sequences.
            log: a TensorBoard ``SummaryWriter``, a Weights & Biases run, a function
                ``log(step, numbers)``, or a list of these.

        Raises:
            ValueError: if the model cannot be captured exactly, the probe is unknown, or a number
                is out of range (a length must be 2 or more: one key cannot be dispersed over).
            TypeError: if ``log`` is nothing that can be logged to, ``probe`` no probe, or
                ``lengths`` no numbers.
        """
        check_counts(every=every, n_sequences=n_sequences)
        check_seed(seed)
        asked = None if lengths is None else check_lengths(lengths)
        if asked is not None and min(asked) < 2:
            raise ValueError(
                "lengths must be 2 or more, as a head with one key has nothing to disperse over; "
                f"got {list(asked)}"
            )
        targets = log if isinstance(log, Sequence) else [] if log is None else [log]
        self._logs = [find_log(target) for target in targets]
        self._adapter: Adapter = adapt(model)
        check_probe(probe)
        self._probe: Any = (
            make_probe(probe, self._adapter, None, None) if isinstance(probe, str) else probe
        )
        self._lengths = _lengths(self._adapter) if asked is None else asked
        self._n_sequences, self._seed = n_sequences, seed
        self.every = every
        self.seconds = 0.0
        self._done = 0
        self._rows: list[tuple[Any, ...]] = []
        self._unlogged: set[int] = set()
        self._diverged = False

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that were measured, in order."""
        return tuple(dict.fromkeys(row[0] for row in self._rows))

    @property
    def history(self) -> pd.DataFrame:
        """Everything that was measured: one row a step, head and quantity."""
        frame = pd.DataFrame(self._rows, columns=list(HISTORY_COLUMNS))
        return frame.astype(
            {
                **dict.fromkeys(("step", "layer", "head", "n_key"), "int64"),
                **dict.fromkeys(("site", "quantity", "unit"), "string"),
                "value": "float64",
            }
        )

    def step(self, step: int | None = None) -> bool:
        """Tell the monitor that a step is done; measures at every ``every``-th.

        Args:
            step: number of steps done; counted here if not given.

        Returns:
            Whether this step was measured.

        Raises:
            ValueError: if ``step`` is no whole number, 0 or more.
        """
        self._done = self._done + 1 if step is None else check_step(step)
        if self._done % self.every:
            return False
        return self.measure(self._done)

    def measure(self, step: int) -> bool:
        """Measure now, and call it this step; a step that was measured before is replaced.

        Returns:
            Whether it could be measured: not if that fails, and not if no head's weights are
            finite, as of a model that has diverged.

        Raises:
            ValueError: if ``step`` is no whole number, 0 or more.
        """
        step = check_step(step)
        begun = time.perf_counter()
        try:
            curves = self._measured()
        except Exception as error:
            warnings.warn(
                f"dispersion was not measured at step {step}: {type(error).__name__}: {error}",
                stacklevel=2,
            )
            return False
        finally:
            self.seconds += time.perf_counter() - begun
        self._look_for_divergence(step, curves)
        rows = [row for curve in curves for row in _head_rows(step, curve)]
        if not rows:
            return False
        self._rows = [row for row in self._rows if row[0] != step] + rows
        self._log(step, _numbers(rows))
        return True

    def _look_for_divergence(self, step: int, curves: Sequence[EntropyCurve]) -> None:
        """Say which heads have no finite weights, unless it was said and they had none since."""
        lost = sum(not curve.n_key.size for curve in curves)
        if lost and not self._diverged:
            what = "was not measured" if lost == len(curves) else "was measured in part"
            warnings.warn(
                f"dispersion {what} at step {step}: {lost} of {plural(len(curves), 'head')} have "
                "no finite attention weights (NaN or infinity), as when a model has diverged; "
                "later steps are tried without saying so again",
                stacklevel=4,
            )
        self._diverged = lost > 0

    def _log(self, step: int, numbers: dict[str, float]) -> None:
        """Tell every target; of one that fails, warn, and again only if it has worked since."""
        for index, log in enumerate(self._logs):
            try:
                log(step, numbers)
            except Exception as error:
                if index not in self._unlogged:
                    warnings.warn(
                        f"dispersion of step {step} could not be logged "
                        f"({type(error).__name__}: {error}); it is kept in the monitor's history, "
                        "and later steps are tried again",
                        stacklevel=4,
                    )
                self._unlogged.add(index)
            else:
                self._unlogged.discard(index)

    def trend(self) -> pd.DataFrame:
        """Dispersion slopes by layer over the steps, as `resharpen.analyses.trend` has them."""
        slopes: dict[int, dict[str, list[float]]] = {step: {} for step in self.steps}
        longest: dict[int, int] = {}
        for step, layer, _, _, n_key, quantity, _, value in self._rows:
            if quantity == "dispersion_slope":
                longest[step] = max(n_key, longest.get(step, 0))
                for place in ("model", f"layer {layer}"):
                    slopes[step].setdefault(place, []).append(value)
        rows = [
            {
                "checkpoint": f"step {step}",
                "order": order,
                "step": step,
                "place": place,
                "quantity": "dispersion_slope",
                "label": "",
                "length": longest[step],
                "unit": "nats",
                "value": float(np.mean(values)),
                "low": min(values),
                "high": max(values),
                "count": len(values),
            }
            for order, (step, places) in enumerate(slopes.items())
            for place, values in places.items()
        ]
        return pd.DataFrame(rows, columns=list(TREND_COLUMNS))

    def plot(self) -> Any:
        """The dispersion slope of each layer over the steps, as a plotly figure.

        Raises:
            ValueError: if nothing was measured yet.
        """
        return plot_trend(self.trend(), title="Dispersion while training")

    def _repr_html_(self) -> str:
        """The same as a table for a notebook, with the slopes of the last step measured."""
        trend = self.trend()
        last = trend[trend["order"] == trend["order"].max()]
        slopes = [
            (str(place), f"{value:.3g} nats (heads {low:.3g} to {high:.3g})")
            for place, value, low, high in zip(
                *(last[name] for name in ("place", "value", "low", "high")), strict=True
            )
        ]
        step = f"{self.steps[-1]}: dH/dlog n, mean" if self.steps else "none yet"
        return facts_table(
            type(self).__name__,
            [
                ("model", self._model_words()),
                ("sequences", f"{self._n_sequences} of {self._probe.name}, lengths "
                              f"{brief(self._lengths)}, seed {self._seed}"),
                ("measured", f"{len(self.steps)} steps, every {self.every}, in "
                             f"{self.seconds:.2g} s"),
                ("last step", step),
                *slopes,
            ],
        )  # fmt: skip

    def __repr__(self) -> str:
        """What is watched, how often, and what there is so far."""
        return (
            f"DispersionMonitor({self._model_words()}; every {self.every} steps; "
            f"{len(self.steps)} measured in {self.seconds:.2g} s)"
        )

    def _model_words(self) -> str:
        facts = self._adapter.description
        return f"{facts.architecture}, {layers_by_heads(facts.n_layers, facts.n_heads)}"

    def _measured(self) -> tuple[EntropyCurve, ...]:
        random_state = torch.get_rng_state()
        try:
            with torch.no_grad():
                return entropy_curves(self._adapter, self._batches())
        finally:
            torch.set_rng_state(random_state)

    def _batches(self) -> Iterator[Tensor]:
        for length in self._lengths:
            drawn = self._probe.sample(
                length_generator(self._seed, length), self._n_sequences, length
            )
            yield drawn.tokens


def _head_rows(step: int, curve: EntropyCurve) -> list[tuple[Any, ...]]:
    """What is kept of one head at one step; a number that is not known is left out."""
    if not curve.n_key.size:
        return []
    n_key = int(curve.n_key[-1])
    values = {
        "entropy": float(curve.entropy[-1]),
        "normalised_entropy": float(curve.entropy[-1]) / math.log(n_key),
        "effective_support": float(curve.effective_support[-1]),
        "dispersion_slope": fit_slope(curve.n_key, curve.entropy).value,
    }
    place = (step, curve.layer, curve.head, curve.site, n_key)
    return [
        (*place, quantity, _UNITS[quantity], value)
        for quantity, value in values.items()
        if math.isfinite(value)
    ]


def _numbers(rows: Iterable[tuple[Any, ...]]) -> dict[str, float]:
    """What is logged of a step: each quantity's mean over the heads of a layer, and over all."""
    found: dict[str, list[float]] = {}
    for _, layer, _, _, _, quantity, _, value in rows:
        for place in (f"layer {layer}", "model"):
            found.setdefault(f"dispersion/{place}/{quantity}", []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _lengths(adapter: Adapter) -> tuple[int, ...]:
    """The longest alone where its rows see every smaller number of keys; else 8 and doubling."""
    limit = adapter.max_length
    longest = _LONGEST if limit is None else min(limit, _LONGEST)
    if adapter.description.causal is not False:
        return (longest,)
    lengths = [_SHORTEST * 2**power for power in range(5) if _SHORTEST * 2**power <= longest]
    return tuple(lengths) or (longest,)
