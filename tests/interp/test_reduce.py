"""Accumulators: against NumPy, whatever the split and the order of merging."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp.measures import output_variance
from resharpen.interp.reduce import Moments, VectorVariance


def check(summary, values, rtol=1e-12):
    n = len(values)
    expected = {
        "mean": values.mean(0),
        "sem": values.std(0, ddof=1) / math.sqrt(n) if n > 1 else np.full(values.shape[1:], np.nan),
        "min": values.min(0),
        "max": values.max(0),
    }
    scale = np.abs(values).max()
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(summary, name), value, rtol=rtol, atol=rtol * scale)
        assert getattr(summary, name).dtype == torch.float64
    assert summary.n_obs.dtype == torch.int64
    assert (summary.n_obs == n).all()


def parts_of(values, cuts):
    edges = [0, *sorted(cut % (len(values) + 1) for cut in cuts), len(values)]
    return [values[a:b] for a, b in pairwise(edges)]


@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    st.lists(st.integers(0, 100), max_size=5),
    st.randoms(use_true_random=False),
)
def test_split_and_merge_order_do_not_matter(numbers, cuts, random):
    values = np.array(numbers)
    parts = [Moments().update(torch.from_numpy(part)) for part in parts_of(values, cuts)]
    whole = Moments().update(torch.from_numpy(values)).result()
    check(whole, values)
    while len(parts) > 1:  # merge neighbours or strangers, in any order
        one = parts.pop(random.randrange(len(parts)))
        other = parts[random.randrange(len(parts))]
        other.merge(one)
    check(parts[0].result(), values)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.lists(st.lists(st.floats(-1e3, 1e3), max_size=8), min_size=3, max_size=3))
def test_merging_is_associative(groups):
    def part(index):
        return Moments().update(torch.tensor(groups[index], dtype=torch.float64))

    left = part(0).merge(part(1)).merge(part(2)).result()
    right = part(0).merge(part(1).merge(part(2))).result()
    for name in ("mean", "sem", "min", "max", "n_obs"):
        torch.testing.assert_close(
            getattr(left, name), getattr(right, name), rtol=1e-12, atol=1e-12, equal_nan=True
        )


def test_a_large_offset_costs_no_precision():
    values = 1e9 + np.random.default_rng(0).standard_normal(3000)
    total = Moments()
    for part in np.array_split(values, 100):
        total.update(torch.from_numpy(part))
    sem = values.std(ddof=1) / math.sqrt(3000)
    assert float(total.result().sem) == pytest.approx(sem, rel=1e-6)


def test_places_are_kept_apart_and_half_precision_is_summed_in_float64():
    values = torch.randn(5000, 2, 3, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    total = Moments()
    for part in values.split(700):
        total.update(part)
    assert total.shape == (2, 3)
    check(total.result(), values.double().numpy())


def test_nan_observations_are_counted_apart():
    values = torch.tensor([[1.0, math.nan], [math.nan, math.nan], [3.0, math.nan]])
    summary = Moments().update(values[:1]).update(values[1:]).result()
    assert summary.mean[0] == 2
    assert summary.sem[0] == pytest.approx(1.0)
    assert summary.n_obs.tolist() == [2, 0]
    assert summary.undefined.tolist() == [1, 3]
    assert all(math.isnan(getattr(summary, name)[1]) for name in ("mean", "sem", "min", "max"))


@pytest.mark.parametrize(
    ("values", "mean"),
    [([1.0, math.inf], math.inf), ([-math.inf, 1.0], -math.inf), ([-math.inf, math.inf], math.nan)],
)
def test_an_infinite_observation_makes_the_mean_infinite(values, mean):
    for split in (1, 2):
        total = Moments()
        for part in torch.tensor([*values, 5.0]).split(split):
            total.update(part)
        summary = total.result()
        assert float(summary.mean) == pytest.approx(mean, nan_ok=True)
        assert math.isnan(float(summary.sem))
        assert summary.n_obs == 3
        assert summary.min == min(values)


def test_an_empty_batch_and_an_empty_accumulator_add_nothing():
    total = Moments().update(torch.zeros(0, 2)).update(torch.ones(3, 2)).update(torch.zeros(0, 2))
    total.merge(Moments())
    assert total.result().n_obs.tolist() == [3, 3]
    assert total.result().mean.tolist() == [1, 1]
    fresh = Moments().merge(total)
    total.update(torch.full((3, 2), 7.0))
    assert fresh.result().mean.tolist() == [1, 1]  # merging copied


def test_nothing_keeps_the_graph():
    values = torch.ones(4, 2, requires_grad=True)
    assert not Moments().update(values * 2).result().mean.requires_grad
    assert not VectorVariance().update(values * 2).result().mean.requires_grad


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="leading batch axis"):
        Moments().update(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"shape \[batch, 2\] of those before; got \[3, 4\]"):
        Moments().update(torch.ones(3, 2)).update(torch.ones(3, 4))
    with pytest.raises(ValueError, match="same places"):
        Moments().update(torch.ones(3, 2)).merge(Moments().update(torch.ones(3)))
    with pytest.raises(TypeError, match="real numbers"):
        Moments().update(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match="nothing was accumulated"):
        Moments().result()
    with pytest.raises(ValueError, match="nothing was accumulated"):
        VectorVariance().result()
    with pytest.raises(ValueError, match="vectors must be"):
        VectorVariance().update(torch.ones(3))
    with pytest.raises(ValueError, match="of those before"):
        VectorVariance().update(torch.ones(3, 2)).update(torch.ones(3, 4))


@pytest.mark.parametrize("split", [1, 7, 40])
def test_vector_variance_equals_the_measure_whatever_the_split(split):
    vectors = torch.randn(40, 3, 5, generator=torch.Generator().manual_seed(1)).double()
    total, other = VectorVariance(), VectorVariance()
    for index, part in enumerate(vectors.split(split)):
        (total if index % 2 else other).update(part)
    summary = total.merge(other).result()
    torch.testing.assert_close(summary.mean, output_variance(vectors), rtol=1e-12, atol=0)
    assert summary.n_obs.tolist() == [40, 40, 40]


def test_standard_error_of_the_vector_variance_is_that_of_repeated_samples():
    # 300 samples of 50 vectors: the spread of their variances against the error each one states.
    vectors = torch.randn(300, 50, 4, generator=torch.Generator().manual_seed(2)).double()
    vectors *= torch.tensor([1.0, 2.0, 0.5, 1.0])
    summaries = [VectorVariance().update(sample).result() for sample in vectors]
    spread = np.std([float(summary.mean) for summary in summaries], ddof=1)
    stated = np.mean([float(summary.sem) for summary in summaries])
    assert stated == pytest.approx(spread, rel=0.15)


def test_vector_variance_skips_nan_vectors_and_needs_two():
    vectors = torch.tensor([[1.0, 2.0], [math.nan, 0.0], [3.0, 6.0]])
    summary = VectorVariance().update(vectors).result()
    assert float(summary.mean) == pytest.approx((2 + 8) / 2)
    assert (int(summary.n_obs), int(summary.undefined)) == (2, 1)
    alone = VectorVariance().update(vectors[:1]).result()
    assert math.isnan(float(alone.mean))
