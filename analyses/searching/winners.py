"""The best trials, run again with fresh seeds: what is left of a lead that was found by looking.

The best of many noisy trials is good and lucky. Its value in the search is the smallest of many, so
biased low; the mean over seeds that the search never saw is not (regression to the mean). The
sequences that all runs are evaluated on are the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..record import Record
from ..rows import rows_where
from ..seeds import mean_over_seeds
from .planning import Planned
from .running import Ran
from .space import Space
from .tabulating import objective_of

__all__ = ["Winner", "best_trials", "confirm", "winners_frame"]


@dataclass(frozen=True)
class Winner(Record):
    """One of the best trials.

    Attributes:
        trial: Its index.
        digest: Hash of its configuration.
        searched: Its objective in the search.
        searched_low: Lower end of the 95 % interval of that, over sequences.
        searched_high: Upper end.
        mean: Mean objective over the fresh seeds; NaN without one.
        low: Lower end of its 95 % t-interval over seeds.
        high: Upper end.
        seeds: Fresh seeds in the mean.
        lost: Fresh seeds without a value.
        values: What was drawn for it.
    """

    trial: int
    digest: str
    searched: float
    searched_low: float
    searched_high: float
    mean: float
    low: float
    high: float
    seeds: int
    lost: int
    values: Mapping[str, Any]


def best_trials(space: Space, planned: Sequence[Planned], trials: pd.DataFrame) -> list[Planned]:
    """The `rerun.top` trials with the best objective, the best first; the earlier one if equal."""
    own = rows_where(trials, (trials["status"] == "done") & trials["objective"].notna())
    loss = space.objective.sign * own["objective"].to_numpy(dtype=np.float64)
    order = np.argsort(loss, kind="stable")[: space.rerun.top]
    return [planned[int(own["trial"].iloc[place])] for place in order]


def confirm(
    space: Space,
    best: Sequence[Planned],
    ran: Mapping[int, Ran],
    again: Mapping[tuple[int, int], Ran],
) -> list[Winner]:
    """Set each of the best beside its runs with fresh seeds, in the order of the search.

    Args:
        space: What was searched.
        best: The best trials.
        ran: The runs of the search, by index.
        again: The runs with fresh seeds, by index and seed.
    """
    winners = []
    for one in best:
        index = one.draw.index
        found = [_value(space, run) for (name, _), run in again.items() if name == index]
        values = np.array([value for value in found if math.isfinite(value)])
        mean, _, half = mean_over_seeds(values)
        rows = ran[index].rows
        assert rows is not None
        winners.append(
            Winner(
                index,
                one.digest,
                *objective_of(rows, space.objective),
                mean,
                mean - half,
                mean + half,
                values.size,
                len(found) - values.size,
                {key: one.draw.values[key] for key in space.drawn},
            )
        )
    return winners


def winners_frame(winners: Sequence[Winner]) -> pd.DataFrame:
    """The winners as a table, one row each, with a column a drawn field."""
    return pd.DataFrame(
        [
            {**{key: value for key, value in vars(one).items() if key != "values"}, **one.values}
            for one in winners
        ]
    )


def _value(space: Space, run: Ran) -> float:
    return math.nan if run.rows is None else objective_of(run.rows, space.objective)[0]
