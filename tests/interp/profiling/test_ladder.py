import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resharpen.interp.profiling import Ladder, geometric_ladder, joined_ladder
from resharpen.interp.profiling.ladder import bin_rows


def test_rows_belong_to_the_rung_within_the_tolerance() -> None:
    ladder = Ladder((1, 4, 20, 100))
    assert ladder.windows == ((1, 1), (4, 4), (20, 21), (96, 105))
    found = ladder.index(torch.tensor([0, 1, 2, 4, 5, 19, 20, 21, 22, 95, 96, 105, 106]))
    assert found.tolist() == [4, 0, 4, 1, 4, 4, 2, 2, 4, 4, 3, 3, 4]


@given(st.integers(1, 40_000), st.integers(1, 24))
def test_geometric_ladders_end_at_the_longest_and_never_overlap(longest: int, n_bins: int) -> None:
    ladder = geometric_ladder(longest, n_bins)
    assert ladder.rungs[-1] == longest and len(ladder) <= n_bins
    assert ladder.rungs[0] >= min(4, longest)
    for (_, high), (low, _) in zip(ladder.windows, ladder.windows[1:], strict=False):
        assert high < low


def test_a_long_ladder_has_as_many_rungs_as_asked_for() -> None:
    assert geometric_ladder(8192, 12).rungs == (
        4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192,
    )  # fmt: skip


@given(st.integers(1, 3000))
def test_a_pass_has_a_last_rung_at_its_longest_row(longest: int) -> None:
    ladder = geometric_ladder(2048).up_to(longest)
    assert ladder.rungs[-1] == longest
    assert set(ladder.rungs[:-1]) <= set(geometric_ladder(2048).rungs)


def test_means_and_counts_are_those_of_the_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(2, 3, 60, generator=generator)
    values[0, 1, 17:25] = torch.nan
    n_key = torch.arange(1, 61).expand(2, 1, -1).clone()
    n_key[1, 0, :5] = 0
    ladder = Ladder((2, 19, 50))
    binned = bin_rows(values, n_key, ladder)
    for batch in range(2):
        for head in range(3):
            for rung, (low, high) in enumerate(ladder.windows):
                rows = [
                    (float(values[batch, head, row]), int(n_key[batch, 0, row]))
                    for row in range(60)
                    if low <= int(n_key[batch, 0, row]) <= high
                ]
                good = [(value, n) for value, n in rows if not math.isnan(value)]
                place = (batch, head, rung)
                assert int(binned.n_rows[place]) == len(good)
                assert int(binned.n_undefined[place]) == len(rows) - len(good)
                mean = sum(value for value, _ in good) / len(good) if good else math.nan
                assert float(binned.mean[place]) == pytest.approx(mean, rel=1e-12, nan_ok=True)
                logs = sum(math.log(n) for _, n in good)
                assert float(binned.log_n_key[place]) == pytest.approx(logs, rel=1e-12)
    assert int(binned.n_undefined.sum()) > 0 and int((binned.n_rows == 0).sum()) > 0


def test_bad_ladders_are_refused() -> None:
    with pytest.raises(ValueError, match="whole numbers, 1 or more"):
        Ladder((0, 4))
    with pytest.raises(ValueError, match="whole numbers, 1 or more"):
        Ladder(())
    with pytest.raises(ValueError, match="rung 102 is too close to the one before"):
        Ladder((100, 102))
    with pytest.raises(ValueError, match="rung 4 is too close"):
        Ladder((8, 4))
    with pytest.raises(ValueError, match=r"tolerance must lie in 0..1"):
        Ladder((4,), tolerance=1.0)


def test_asked_lengths_are_joined_by_the_rungs_between_them():
    rungs = joined_ladder([128, 512, 2048, 8192]).rungs
    assert {128, 512, 2048, 8192} <= set(rungs)
    assert len(rungs) >= 12
    dense = joined_ladder(range(1, 65)).rungs
    assert dense[-1] == 64 and dense[:5] == (1, 2, 3, 4, 5)
    assert joined_ladder([7], n_bins=1).rungs == (7,)
