"""From the rows of all cells to the map: error and slope of each cell, and what theory had said."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from ....models.tasks import TASKS
from ...fits import fit_slope
from ...rows import distinct, over, pick, rows_where
from ...seeds import Interval
from .config import TASK_SETTINGS, Cell, RemediesConfig
from .predictions import Prediction, predict_cell

Outcome = Literal["cures", "shifts", "no help", "hurts", "not needed", "not learned", "undecided"]

SHIFT = 1.25
"""How much later the error must come than under softmax without norms to count as a shift."""


@dataclass(frozen=True)
class MapCell:
    """One cell of the map.

    Attributes:
        cell: Which model and task.
        seed_errors: Total variation of each seed, by evaluation length over training length.
        crossing: Length at which the error first exceeds the threshold, the median over seeds;
            infinite where it does not within the ladder.
        slope: Dispersion slope ``dH/dlog n`` (nats) of the head that sees the relevant keys best.
        relevant: Relevant mass of that head, by evaluation length over training length.
        outcome: What was measured, in the words of the predictions.
        prediction: What theory had said.
        agrees: Whether the two agree; ``None`` where theory is silent or nothing can be said.
    """

    cell: Cell
    seed_errors: dict[int, tuple[float, ...]]
    crossing: float
    slope: Interval
    relevant: dict[int, Interval]
    outcome: Outcome
    prediction: Prediction
    agrees: bool | None

    @property
    def errors(self) -> dict[int, Interval]:
        """Total variation over seeds, by evaluation length over training length."""
        return {multiple: Interval.of(values) for multiple, values in self.seed_errors.items()}

    @property
    def last(self) -> int:
        """Longest evaluation length over the training length."""
        return max(self.seed_errors)

    @property
    def kind(self) -> str:
        """Kind of the task: aggregation, needle or mixed."""
        return TASKS[self.cell.task].kind


def build_map(config: RemediesConfig, table: pd.DataFrame, cells: Sequence[Cell]) -> list[MapCell]:
    """Summarise every cell that the table has rows of, in the order given."""
    measured = {(cell.label, cell.task): _Measured(config, table, cell) for cell in cells}
    found = []
    for cell in cells:
        own = measured[(cell.label, cell.task)]
        if not own.seeds:
            continue
        base = measured.get((_baseline(cell).label, cell.task))
        prediction = predict_cell(cell)
        outcome = _outcome(config, own, base)
        found.append(
            MapCell(
                cell,
                own.errors,
                own.crossing,
                own.slope,
                {multiple: Interval.of(values) for multiple, values in own.relevant().items()},
                outcome,
                prediction,
                _agrees(prediction, outcome),
            )
        )
    return found


def _baseline(cell: Cell) -> Cell:
    """Softmax without norms, of the same depth and shape."""
    return Cell("softmax", "none", cell.task, n_layers=cell.n_layers, mlp=cell.mlp)


class _Measured:
    """The rows of one cell, seed by seed."""

    def __init__(self, config: RemediesConfig, table: pd.DataFrame, cell: Cell) -> None:
        self.config = config
        # Lengths below the training length are there for theorems that predict from them.
        rows = rows_where(
            table,
            (table["checkpoint"] == cell.label)
            & (table["task"] == cell.task)
            & (table["length"] >= TASK_SETTINGS[cell.task].length),
        )
        self.length = TASK_SETTINGS[cell.task].length
        self.lengths = TASK_SETTINGS[cell.task].lengths
        self.seeds = {
            seed: rows_where(rows, rows["seed"] == seed) for seed in distinct(rows, "seed")
        }
        self.heads = {seed: _best_head(own, self.length) for seed, own in self.seeds.items()}
        self.errors = self._by_multiple({s: _errors(own) for s, own in self.seeds.items()})
        crossings = [crossing_length(_errors(own), config.threshold) for own in self.seeds.values()]
        self.crossing = float(np.median(crossings)) if crossings else math.nan
        self.slope = Interval.of([self._slope(seed) for seed in self.seeds])

    def relevant(self) -> dict[int, tuple[float, ...]]:
        """Relevant mass of the best head, by multiple of the training length."""
        return self._by_multiple({s: self._of_head(s, "relevant_mass") for s in self.seeds})

    def error_at(self, multiple: int) -> Interval:
        """Total variation over seeds at a multiple of the training length."""
        return Interval.of(self.errors[multiple])

    def _by_multiple(self, series: dict[Any, pd.Series]) -> dict[int, tuple[float, ...]]:
        return {
            length // self.length: tuple(
                dict(values.items()).get(float(length), math.nan) for values in series.values()
            )
            for length in self.lengths
        }

    def _slope(self, seed: Any) -> float:
        entropy = self._of_head(seed, "entropy", axis="n_key")
        return fit_slope(entropy.index.to_numpy(), entropy.to_numpy()).value

    def _of_head(self, seed: Any, quantity: str, axis: str = "length") -> pd.Series:
        head = self.heads[seed]
        if head is None:
            return pd.Series(dtype=np.float64)
        rows = pick(self.seeds[seed], quantity=quantity, layer=head[0], head=head[1])
        return over(rows, axis)


def crossing_length(errors: pd.Series, threshold: float) -> float:
    """Length at which an error first exceeds the threshold, between two lengths on a log scale.

    Args:
        errors: Error by length, increasing lengths.
        threshold: The level.

    Returns:
        The length; that of the first row if it exceeds the level already, infinity if none does,
        NaN if no error is known.
    """
    known = errors.dropna()
    if known.empty:
        return math.nan
    lengths, values = known.index.to_numpy(), known.to_numpy()
    above = np.flatnonzero(values > threshold)
    if not len(above):
        return math.inf
    at = int(above[0])
    if at == 0:
        return float(lengths[0])
    part = (threshold - values[at - 1]) / (values[at] - values[at - 1])
    low, high = math.log(lengths[at - 1]), math.log(lengths[at])
    return math.exp(low + part * (high - low))


def _errors(own: pd.DataFrame) -> pd.Series:
    return over(pick(own, quantity="total_variation"), "length")


def _best_head(own: pd.DataFrame, length: int) -> tuple[int, int] | None:
    """Layer and head with the most relevant mass at the training length; the first of equals."""
    rows = pick(own, quantity="relevant_mass", length=length)
    if rows.empty:
        return None
    best = int(rows["mean"].to_numpy().argmax())
    return int(rows["layer"].iloc[best]), int(rows["head"].iloc[best])


def _outcome(config: RemediesConfig, own: _Measured, base: _Measured | None) -> Outcome:
    if not own.error_at(1).mean <= config.learned:
        return "not learned"
    if base is None or not base.seeds:
        return "undecided"  # Nobody knows whether anything was to be cured.
    final = own.error_at(max(own.errors))
    if base.error_at(1).mean <= config.learned and base.crossing == math.inf:
        if final.mean <= config.threshold:
            return "not needed"
        return "no help" if own is base else "hurts"
    if final.mean <= config.threshold:
        certain = final.n_seeds == 1 or final.high <= config.threshold
        return "cures" if certain else "undecided"
    if own is base:
        return "no help"
    if base.error_at(1).mean > config.learned:
        return "undecided"  # There is no length at which softmax begins to fail.
    ratio = own.crossing / base.crossing
    if ratio >= SHIFT:
        return "shifts"
    return "hurts" if ratio <= 1 / SHIFT else "no help"


def _agrees(prediction: Prediction, outcome: Outcome) -> bool | None:
    if prediction.answer == "open" or outcome in ("not learned", "undecided"):
        return None
    if outcome == "not needed":
        # Softmax without norms does not fail within the ladder either: nothing was put to the test.
        return True if prediction.answer == "not needed" else None
    expected: dict[str, tuple[Outcome, ...]] = {
        "cures": ("cures",),
        "shifts": ("shifts", "cures"),
        "cannot": ("no help", "hurts"),
        "not needed": (),
    }
    return outcome in expected[prediction.answer]


def map_frame(cells: Sequence[MapCell]) -> pd.DataFrame:
    """The map as a table, one row a cell: errors with their intervals, slope, theory, outcome."""
    rows = []
    for found in cells:
        cell = found.cell
        row: dict[str, Any] = {
            "kind": found.kind,
            "task": cell.task,
            "remedy": cell.remedy,
            "placement": cell.placement,
            "model": cell.label,
            "n_seeds": found.errors[1].n_seeds,
        }
        for multiple in sorted({1, 2, 8, 32} & set(found.errors) | {found.last}):
            interval = found.errors[multiple]
            row[f"error_{multiple}x"] = interval.mean
            row[f"error_{multiple}x_low"] = interval.low
            row[f"error_{multiple}x_high"] = interval.high
        row |= {
            "crossing": found.crossing,
            "slope": found.slope.mean,
            "slope_low": found.slope.low,
            "slope_high": found.slope.high,
            "relevant_mass_1x": found.relevant[1].mean,
            "relevant_mass_last": found.relevant[found.last].mean,
            "predicted": found.prediction.answer,
            "measured": found.outcome,
            "agrees": {True: "yes", False: "no", None: ""}[found.agrees],
            "reason": found.prediction.reason,
            "source": f"theory {found.prediction.source}",
        }
        rows.append(row)
    return pd.DataFrame(rows)
