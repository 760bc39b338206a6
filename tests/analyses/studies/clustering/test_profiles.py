"""From rows to lines over blocks and lengths, and what is read off them."""

import math

import numpy as np
import pytest

from resharpen.analyses.seeds import mean_over_seeds
from resharpen.analyses.studies.clustering.collapse import find_collapse, first_to_collapse
from resharpen.analyses.studies.clustering.config import Case, ClusteringConfig
from resharpen.analyses.studies.clustering.profiles import (
    Estimate,
    first_reach,
    over_depth,
    over_length,
)
from resharpen.interp.tables import table

CONFIG = ClusteringConfig(
    lengths=(8, 32), profile_length=8, phase_length=32, seeds=(0, 1), collapsed=0.5
)


def rows(case, cosines):
    """Mean cosines by (seed, length): one number a boundary."""
    found = []
    for (seed, length), line in cosines.items():
        for depth, cosine in enumerate(line):
            name = f"blocks.{depth - 1}.hook_resid_post" if depth else "blocks.0.hook_resid_pre"
            found.append(
                {
                    "checkpoint": case.label,
                    "seed": seed,
                    "length": length,
                    "layer": max(depth - 1, 0),
                    "site": name,
                    "quantity": "mean_cosine",
                    "unit": "1",
                    "mean": cosine,
                    "min": cosine,
                    "max": cosine,
                    "n_obs": 2,
                }
            )
    return found


FAST, SLOW, NEVER = (Case(name, 2, False, False) for name in ("post", "pre", "ngpt"))
TABLE = table(
    [
        *rows(
            FAST,
            {
                (0, 8): [0.0, 0.4, 0.6],
                (1, 8): [0.1, 0.2, 0.8],
                (0, 32): [0.0, 0.6, 0.9],
                (1, 32): [0.2, 0.5, 0.9],
            },
        ),
        *rows(
            SLOW,
            {
                (0, 8): [0.0, 0.1, 0.6],
                (1, 8): [0.0, 0.3, 0.4],
                (0, 32): [0.0, 0.2, 0.5],
                (1, 32): [0.0, 0.3, 0.7],
            },
        ),
        *rows(NEVER, {(seed, n): [0.0, 0.1, 0.2] for seed in (0, 1) for n in (8, 32)}),
    ]
)


def test_a_line_over_blocks_starts_before_the_first():
    profile = over_depth(TABLE, FAST.label, "mean_cosine", 8)
    np.testing.assert_array_equal(profile.x, [0, 1, 2])
    np.testing.assert_allclose(profile.seeds, [[0.0, 0.4, 0.6], [0.1, 0.2, 0.8]])
    mean, _, half = mean_over_seeds(np.array([0.6, 0.8]))
    assert profile.mean[2] == pytest.approx(mean)
    assert (profile.low[2], profile.high[2]) == pytest.approx((mean - half, mean + half))


def test_a_line_over_lengths_is_of_what_leaves_the_block():
    profile = over_length(TABLE, FAST.label, "mean_cosine", 1)
    np.testing.assert_array_equal(profile.x, [8, 32])
    np.testing.assert_allclose(profile.seeds, [[0.4, 0.6], [0.2, 0.5]])


def test_a_level_is_reached_where_the_line_first_crosses_it():
    x = np.array([0.0, 1.0, 3.0])
    assert first_reach(x, np.array([0.0, 0.4, 0.8]), 0.6) == pytest.approx(2.0)
    assert first_reach(x, np.array([0.7, 0.4, 0.8]), 0.6) == 0.0
    assert first_reach(x, np.array([0.0, 0.1, 0.2]), 0.6) == math.inf


def test_collapse_seed_by_seed():
    fast, slow, never = (find_collapse(CONFIG, case, TABLE) for case in (FAST, SLOW, NEVER))
    # Blocks until 0.5: 1.5 and 1.5 at 8 tokens; 5/6 and 1 at 32.
    np.testing.assert_allclose(fast.depth.seeds, [[1.5, 5 / 6], [1.5, 1.0]])
    assert fast.reached == (1.0, 1.0) and slow.reached == (0.5, 1.0) and never.reached == (0, 0)
    assert fast.change.mean == pytest.approx((0.3 + 0.1) / 2)
    assert fast.n_reaching == 2 and fast.length.mean == 8
    assert slow.n_reaching == 2
    assert slow.length.mean == pytest.approx((8 + 8 + 24 / 3) / 2)
    assert never.n_reaching == 0 and math.isnan(never.length.mean)
    ordered = first_to_collapse([never, slow, fast], -1)
    assert [one.case.placement for one in ordered] == ["post", "pre", "ngpt"]
    early = first_to_collapse([never, slow, fast], 0)
    assert early[0].case.placement == "post" and early[1].case.placement == "pre"


def test_an_estimate_leaves_out_what_is_not_known():
    estimate = Estimate.of(np.array([0.2, np.nan, 0.4]))
    assert estimate.n_seeds == 2 and estimate.mean == pytest.approx(0.3)
    assert math.isnan(Estimate.of(np.array([np.nan])).mean)


def test_bad_configurations_are_refused():
    for change, message in (
        ({"placements": ("post", "elsewhere")}, "placements must be among none"),
        ({"seeds": ()}, "seeds must hold at least one"),
        ({"profile_length": 9}, "profile_length must be one of the lengths"),
        ({"ideal_length": 64}, "ideal_length must be from 2 to ideal_width"),
        ({"collapsed": 1.0}, "collapsed must be a cosine"),
        ({"n_sequences": 1}, "n_sequences must be at least 2"),
        ({"ideal_time": 0.0}, "ideal_time must be a positive number"),
        ({"untrained_depths": (), "trained_depths": ()}, "must not both be empty"),
    ):
        with pytest.raises(ValueError, match=message):
            ClusteringConfig(**change)
