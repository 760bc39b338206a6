"""Which placement collapses first, and what the length has to do with it.

Of one case at one length: the mean cosine behind the last block, and after how many blocks the
mean cosine first reaches the level from which a stream counts as collapsed. Both seed by seed, so
that what changes with the length is a difference within a seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .config import Case, ClusteringConfig
from .profiles import Estimate, Profile, first_reach, over_depth, over_length


@dataclass(frozen=True, eq=False)
class Collapse:
    """How one case collapses.

    Attributes:
        case: The case.
        final: Mean cosine behind the last block, over the lengths.
        depth: Blocks until the level is reached, over the lengths; NaN for a seed that never does.
        reached: Share of the seeds that reach it, at each length.
        change: Cosine behind the last block at the longest length less that at the shortest.
        length: Shortest length at which the cosine behind the last block reaches the level,
            interpolated; the shortest measured if it is there from the start.
        n_reaching: Seeds that reach it at some length.
    """

    case: Case
    final: Profile
    depth: Profile
    reached: tuple[float, ...]
    change: Estimate
    length: Estimate
    n_reaching: int


def find_collapse(config: ClusteringConfig, case: Case, table: pd.DataFrame) -> Collapse:
    """Read a case's collapse off the table of the study."""
    final = over_length(table, case.label, "mean_cosine", case.n_layers)
    level = config.collapsed
    columns = []
    for length in final.x.tolist():
        profile = over_depth(table, case.label, "mean_cosine", int(length))
        found = [first_reach(profile.x, line, level) for line in profile.seeds]
        columns.append([value if np.isfinite(value) else np.nan for value in found])
    depth = Profile(final.x, np.array(columns, dtype=np.float64).T)
    lengths = np.array([first_reach(final.x, line, level) for line in final.seeds])
    lengths[~np.isfinite(lengths)] = np.nan
    return Collapse(
        case,
        final,
        depth,
        tuple(np.isfinite(depth.seeds).mean(0).tolist()),
        final.each_seed(lambda line: float(line[-1] - line[0])),
        Estimate.of(lengths),
        int(np.isfinite(lengths).sum()),
    )


def first_to_collapse(found: Sequence[Collapse], index: int) -> list[Collapse]:
    """The cases in the order in which they collapse at one length (its number among them).

    Fewest blocks first, then the highest cosine behind the last block; cases of which not every
    seed collapses come after those of which every one does.
    """

    def order(one: Collapse) -> tuple[bool, float, float]:
        every = one.reached[index] == 1.0
        return (
            not every,
            float(one.depth.mean[index]) if every else 0.0,
            -float(one.final.mean[index]),
        )

    return sorted(found, key=order)
