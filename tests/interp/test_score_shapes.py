"""Statistics of score rows against their definitions, written out row by row."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import kurtosis

from resharpen.interp.score_shapes import SCORE_STATISTICS, TIE, score_statistics
from resharpen.interp.tables import table

HIDDEN = -math.inf


def by_definition(row: np.ndarray, first: int) -> dict[str, float]:
    """Every statistic of one row of visible scores without ties, from its definition."""
    n = row.size
    weights = np.exp(row - row.max())
    weights /= weights.sum()
    ordered = np.sort(row)
    standard = ndtr((ordered - row.mean()) / row.std())
    steps = np.arange(1, n + 1) / n
    distance = max(np.abs(steps - standard).max(), np.abs(steps - 1 / n - standard).max())
    gaps = np.sort(row.max() - row)
    scale = max(math.log(k) / gaps[k - 1] for k in range(2, n + 1))
    low, high = 0.0, 1e4
    for _ in range(100):
        beta = (low + high) / 2
        low, high = (beta, high) if 1 / np.exp(-beta * gaps).sum() < 0.5 else (low, beta)
    return {
        "entropy": float(-(weights * np.log(weights)).sum()),
        "max_weight": float(weights.max()),
        "score_max": float(row.max()),
        "score_spread": float(np.ptp(row)),
        "score_reach": float(row.max() - row.mean()),
        "score_deviation": float(row.std()),
        "excess_kurtosis": float(kurtosis(row, bias=False)),
        "normality_distance": float(distance),
        "top_gap": float(ordered[-1] - ordered[-2]),
        "top_multiplicity": 1.0,
        "top_is_first": float(row.argmax() == first),
        "reachable": 1.0,
        "log_accumulation_scale": math.log(scale),
        "log_sharpening_inverse_temperature": math.log(high),
    }


@given(seed=st.integers(0, 2**31 - 1), n=st.integers(4, 40), hidden=st.integers(0, 9))
def test_every_statistic_is_its_definition_whatever_is_hidden(
    seed: int, n: int, hidden: int
) -> None:
    rng = np.random.default_rng(seed)
    row = 2.0 * rng.normal(size=n) + 5.0
    place = np.sort(rng.permutation(n + hidden)[:n])
    scores = np.full(n + hidden, HIDDEN)
    scores[place] = row
    relevant = int(place[row.argmax()])
    found = score_statistics(torch.tensor(scores)[None], torch.tensor([relevant]))
    expected = {**by_definition(row, 0), "top_is_relevant": 1.0}
    assert set(found) == set(expected) == set(SCORE_STATISTICS) - {"largest_score_spread"}
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-9, abs=1e-9), name


def test_leading_axes_and_order_of_keys_do_not_matter() -> None:
    scores = torch.randn(3, 2, 30, generator=torch.Generator().manual_seed(0))
    found = score_statistics(scores)
    shuffled = score_statistics(scores[..., torch.randperm(30)])
    for name in set(found) - {"top_is_first"}:
        assert found[name].shape == (3, 2)
        torch.testing.assert_close(found[name], shuffled[name])
        alone = torch.stack([score_statistics(row)[name] for row in scores[0]])
        torch.testing.assert_close(found[name][0], alone)


def test_a_common_shift_changes_nothing_but_the_maximum() -> None:
    scores = torch.randn(5, 30, dtype=torch.float64)
    found, shifted = score_statistics(scores), score_statistics(scores - 3.0)
    torch.testing.assert_close(shifted.pop("score_max"), found.pop("score_max") - 3.0)
    torch.testing.assert_close(found, shifted)


def test_tied_rows_have_no_scale_and_say_so() -> None:
    tied = torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0 * (1 - TIE / 2)], [3.0, 2.0, 1.0, 0.0, 3.0]])
    found = score_statistics(tied, torch.tensor([1, 1]))
    assert found["top_multiplicity"].tolist() == [3.0, 2.0]
    assert found["reachable"].tolist() == [0.0, 0.0]
    assert found["top_is_first"].tolist() == [0.0, 0.5]
    assert found["top_is_relevant"].tolist() == [pytest.approx(1 / 3), 0.0]
    for name in ("log_accumulation_scale", "log_sharpening_inverse_temperature"):
        assert found[name].isnan().all()
    apart = score_statistics(torch.tensor([[1.0, 3.0, 3.0 * (1 - 3 * TIE), 0.0]]))
    assert float(apart["reachable"]) == 1 and float(apart["log_accumulation_scale"]) > 8


def test_equal_scores_have_no_shape() -> None:
    found = score_statistics(torch.full((1, 6), 0.7))
    assert float(found["score_spread"]) == float(found["score_deviation"]) == 0
    assert float(found["entropy"]) == pytest.approx(math.log(6))
    assert found["excess_kurtosis"].isnan().all() and found["normality_distance"].isnan().all()


def test_few_keys_and_unusable_rows_are_nan_not_numbers() -> None:
    nan = math.nan
    scores = torch.tensor(
        [
            [2.0, HIDDEN, HIDDEN, HIDDEN],
            [2.0, 1.0, HIDDEN, HIDDEN],
            [HIDDEN] * 4,
            [nan, 1.0, 2.0, 3.0],
            [math.inf, 1.0, 2.0, 3.0],
        ]
    )
    found = score_statistics(scores, torch.tensor([0, -1, 0, 0, 0]))
    for name, values in found.items():
        assert values[2:].isnan().all(), name
    assert float(found["entropy"][0]) == 0 and float(found["max_weight"][0]) == 1
    assert found["top_gap"].tolist()[:2] == [pytest.approx(nan, nan_ok=True), 1.0]
    assert found["reachable"][0].isnan() and float(found["reachable"][1]) == 1
    # Of two keys the stronger one holds half at any temperature.
    assert found["log_sharpening_inverse_temperature"][:2].isnan().all()
    assert found["top_is_relevant"].tolist()[:2] == [1.0, pytest.approx(nan, nan_ok=True)]
    single = score_statistics(torch.tensor([[4.0]]))
    assert float(single["entropy"]) == 0 and single["top_gap"].isnan().all()


def test_normal_rows_have_no_excess_kurtosis_on_average() -> None:
    rows = torch.randn(20000, 12, generator=torch.Generator().manual_seed(0))
    values = score_statistics(rows)["excess_kurtosis"]
    assert abs(float(values.mean())) < 5 * float(values.std()) / math.sqrt(len(values))


def test_units_are_those_of_the_table() -> None:
    rows = [
        {"quantity": name, "unit": one.unit, "length": 1, "status": "unavailable"}
        for name, one in SCORE_STATISTICS.items()
    ]
    assert len(table(rows)) == len(SCORE_STATISTICS)
