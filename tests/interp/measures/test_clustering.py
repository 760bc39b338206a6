"""Measures of clustering: brute force on small inputs, and what they must not depend on."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components

from resharpen.interp.measures import (
    angular_speed,
    cluster_count,
    cluster_labels,
    cluster_sizes,
    clustering,
    cosine_histogram,
    directions,
    effective_rank,
    mean_cosine,
    mean_square_cosine,
    norm_growth,
    stable_rank,
)
from resharpen.interp.reduce import Moments

OF_STREAM = {
    "mean_cosine": mean_cosine,
    "mean_square_cosine": mean_square_cosine,
    "effective_rank": effective_rank,
    "stable_rank": stable_rank,
    "cosine_histogram": lambda stream: cosine_histogram(stream, 50),
    "cluster_sizes": lambda stream: cluster_sizes(cluster_labels(stream, 0.6)),
}
each = pytest.mark.parametrize("measure", OF_STREAM.values(), ids=list(OF_STREAM))


def some_stream(batch=3, pos=11, d_model=5, seed=0, shift=0.4):
    x = np.random.default_rng(seed).standard_normal((batch, pos, d_model)) + shift
    return torch.from_numpy(x)


def pair_cosines(x: np.ndarray) -> np.ndarray:
    """Of every pair i < j of one sequence, by a loop."""
    return np.array(
        [
            x[i] @ x[j] / math.sqrt((x[i] @ x[i]) * (x[j] @ x[j]))
            for i in range(len(x))
            for j in range(i + 1, len(x))
        ]
    )


@pytest.mark.parametrize(("pos", "d_model"), [(11, 5), (4, 9), (2, 1)])
def test_moments_of_the_cosines_equal_brute_force(pos, d_model):
    stream = some_stream(pos=pos, d_model=d_model)
    pairs = np.stack([pair_cosines(x) for x in stream.numpy()])
    np.testing.assert_allclose(mean_cosine(stream), pairs.mean(1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(mean_square_cosine(stream), (pairs**2).mean(1), rtol=1e-12)


def test_moments_of_known_tokens():
    same = torch.ones(1, 6, 3) * torch.arange(1, 7)[:, None]
    assert mean_cosine(same).item() == pytest.approx(1.0)
    assert mean_square_cosine(same).item() == pytest.approx(1.0)
    basis = torch.eye(5)[None]
    assert mean_cosine(basis).item() == mean_square_cosine(basis).item() == 0.0
    # A simplex around the origin has the least mean cosine there is.
    around = torch.eye(5, dtype=torch.float64) - 0.2
    assert mean_cosine(around[None]).item() == pytest.approx(-1 / 4)
    generator = torch.Generator().manual_seed(0)
    uniform = torch.randn(1, 3000, 16, generator=generator)
    assert mean_cosine(uniform).item() == pytest.approx(0.0, abs=3e-3)
    assert mean_square_cosine(uniform).item() == pytest.approx(1 / 16, rel=0.02)


@pytest.mark.parametrize("block", [1, 30, 2**22])
def test_histogram_equals_numpy(block, monkeypatch):
    monkeypatch.setattr(clustering, "BLOCK_PAIRS", block)
    stream = some_stream(pos=17)
    for n_bins in (1, 7, 200):
        counts = cosine_histogram(stream, n_bins)
        assert counts.dtype == torch.int64
        for row, x in zip(counts, stream.numpy(), strict=True):
            expected, _ = np.histogram(pair_cosines(x), n_bins, (-1, 1))
            np.testing.assert_array_equal(row, expected)


def test_histogram_holds_its_ends():
    line = torch.tensor([[[1.0], [2.0], [-3.0]]])
    assert cosine_histogram(line, 4).tolist() == [[2, 0, 0, 1]]
    assert cosine_histogram(line[:, :1], 4).sum() == 0


@pytest.mark.parametrize(("pos", "d_model"), [(11, 5), (4, 9), (6, 6)])
def test_ranks_equal_those_of_the_singular_values(pos, d_model):
    stream = some_stream(pos=pos, d_model=d_model)
    sigma = np.linalg.svd(stream.numpy(), compute_uv=False)
    share = sigma / sigma.sum(1, keepdims=True)
    expected = np.exp(-(share * np.log(share)).sum(1))
    np.testing.assert_allclose(effective_rank(stream), expected, rtol=1e-10)
    expected = (sigma**2).sum(1) / sigma.max(1) ** 2
    np.testing.assert_allclose(stable_rank(stream), expected, rtol=1e-10)
    np.testing.assert_allclose(effective_rank(1e200 * stream), effective_rank(stream))


def test_ranks_of_known_streams():
    one = torch.randn(1, 300, 1) * torch.randn(1, 1, 200)
    assert effective_rank(one).item() == pytest.approx(1.0, abs=1e-3)  # of float32 rounding
    x = some_stream(1, 300, 201)
    exact = x[:, :, :1] * x[:, :1, 1:]  # of one column and one row: the rest is rounding
    assert effective_rank(exact).item() == pytest.approx(1.0, abs=1e-9)
    assert stable_rank(one).item() == pytest.approx(1.0, abs=1e-6)
    full = torch.linalg.qr(torch.randn(1, 40, 12, generator=torch.Generator().manual_seed(1)))[0]
    assert effective_rank(full).item() == pytest.approx(12, rel=1e-5)
    assert stable_rank(full).item() == pytest.approx(12, rel=1e-4)
    stream = some_stream(batch=20, pos=30, d_model=8)
    assert (effective_rank(stream) >= 1).all() and (effective_rank(stream) <= 8).all()
    assert (stable_rank(stream) <= effective_rank(stream) + 8).all()


def brute_components(x: np.ndarray, threshold: float) -> np.ndarray:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return connected_components(unit @ unit.T >= threshold, directed=False)[1]


@pytest.mark.parametrize("block", [1, 150, 2**22])
@pytest.mark.parametrize("threshold", [-0.5, 0.5, 0.8, 0.95, 0.999])
def test_clusters_equal_those_of_the_whole_graph(block, threshold, monkeypatch):
    monkeypatch.setattr(clustering, "BLOCK_PAIRS", block)
    stream = some_stream(batch=4, pos=50, d_model=3, shift=0.0)
    labels = cluster_labels(stream, threshold)
    for found, x in zip(labels.numpy(), stream.numpy(), strict=True):
        known = brute_components(x, threshold)
        together = found[:, None] == found[None]
        np.testing.assert_array_equal(together, known[:, None] == known[None])
        for name in np.unique(found):
            assert np.flatnonzero(found == name)[0] == name  # named by its first position
        sizes = np.sort(np.bincount(known))[::-1]
        row = cluster_sizes(torch.from_numpy(found)[None])[0].numpy()
        np.testing.assert_array_equal(row[: len(sizes)], sizes)
        assert (row[len(sizes) :] == 0).all()
    np.testing.assert_array_equal(
        cluster_count(labels), [brute_components(x, threshold).max() + 1 for x in stream.numpy()]
    )


@pytest.mark.parametrize("block", [1, 200, 2**22])
def test_a_long_chain_in_any_order_is_one_cluster(block, monkeypatch):
    monkeypatch.setattr(clustering, "BLOCK_PAIRS", block)
    angle = torch.linspace(0, 3, 61, dtype=torch.float64)
    chain = torch.stack([angle.cos(), angle.sin()], -1)
    order = torch.randperm(61, generator=torch.Generator().manual_seed(3))
    assert (cluster_labels(chain[order][None], math.cos(0.06)) == 0).all()
    cut = chain[order[order != 30]]
    assert cluster_sizes(cluster_labels(cut[None], math.cos(0.06)))[0, :3].tolist() == [30, 30, 0]


@each
def test_batch_split_and_order_of_positions_do_not_matter(measure):
    stream = some_stream(batch=6, pos=20)
    whole = measure(stream)
    parts = torch.cat([measure(part) for part in stream.split([1, 3, 2])])
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(measure(stream[:, order]), whole, rtol=1e-12, atol=1e-14)
    turn = torch.linalg.qr(some_stream(1, 5, 5, seed=9)[0])[0]
    torch.testing.assert_close(measure(stream @ turn), whole, rtol=1e-9, atol=1e-12)


def test_a_mean_over_sequences_streams():
    stream = some_stream(batch=8)
    total = Moments()
    for part in stream.split(3):
        total.update(torch.stack([mean_cosine(part), stable_rank(part)], -1))
    whole = torch.stack([mean_cosine(stream), stable_rank(stream)], -1).mean(0)
    torch.testing.assert_close(total.result().mean, whole)


@each
def test_half_precision_is_widened(measure):
    # Its squares are past float16 above and below, and so are those of float32 after it.
    stream = (some_stream() * 1e4).half()
    got = measure(stream)
    assert got.dtype in (torch.float32, torch.int64)
    torch.testing.assert_close(
        got.double(), measure(stream.double()).double(), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(got, measure(stream.float() * 1e30), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got, measure(stream.float() * 1e-38), rtol=1e-4, atol=1e-5)


def test_what_has_no_direction_is_nan_or_apart():
    stream = some_stream(batch=3, pos=6)
    stream[0, 2] = 0.0
    stream[1, 4, 1] = math.inf
    for measure in (mean_cosine, mean_square_cosine):
        assert measure(stream).isnan().tolist() == [True, True, False]
    for measure in (effective_rank, stable_rank):
        assert measure(stream).isnan().tolist() == [False, True, False]
        assert measure(0 * stream[:1]).isnan().all()
    assert cosine_histogram(stream, 9).sum(1).tolist() == [10, 10, 15]
    assert cosine_histogram(0 * stream[:1], 9).sum() == 0
    labels = cluster_labels(stream, -0.99)
    assert cluster_sizes(labels)[:, :2].tolist() == [[5, 1], [5, 1], [6, 0]]
    assert labels[0, 2] == 2 and labels[1, 4] == 4
    assert directions(stream)[0, 2].isnan().all() and directions(stream)[1, 4].isnan().all()
    for measure in (mean_cosine, mean_square_cosine):  # one position has no pair
        assert measure(stream[:, :1]).isnan().all()
    assert effective_rank(stream[2:, :1]).item() == pytest.approx(1.0)


@each
def test_no_batch_gives_no_numbers(measure):
    assert measure(some_stream()[:0]).shape[0] == 0


@each
def test_bad_streams_are_refused(measure):
    for shape in [(4, 5), (2, 0, 5), (2, 5, 0), (1, 2, 3, 4)]:
        with pytest.raises(ValueError, match=r"stream must have axes \[batch, pos, d_model\]"):
            measure(torch.ones(shape))
    with pytest.raises(TypeError, match="stream must hold real floating-point numbers"):
        measure(torch.ones(1, 2, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match="stream must hold real floating-point numbers"):
        measure(torch.ones(1, 2, 3, dtype=torch.complex64))


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="n_bins must be at least 1"):
        cosine_histogram(some_stream(), 0)
    for threshold in (-1.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="threshold must be a cosine between"):
            cluster_labels(some_stream(), threshold)
    for labels in (torch.zeros(3, dtype=torch.long), torch.zeros(2, 3)):
        with pytest.raises(ValueError, match="labels must be whole numbers"):
            cluster_sizes(labels)
    for labels in (torch.tensor([[0, 2]]), torch.tensor([[-1, 0]])):
        with pytest.raises(ValueError, match="labels must be positions from 0 to 1"):
            cluster_count(labels)


@pytest.mark.parametrize("angle", [0.0, 1e-6, 1e-3, 1.0, math.pi / 2, 3.0, math.pi])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_angle_is_that_of_a_rotation(angle, dtype):
    turn = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=dtype
    )
    before = some_stream(d_model=2).to(dtype)
    got = angular_speed(before, 3.5 * before @ turn.mT)
    assert got.shape == (3, 11) and got.dtype == dtype
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(got, torch.full_like(got, angle), rtol=1e-5, atol=tolerance)


def test_angle_does_not_depend_on_the_lengths():
    before, after = some_stream().float(), some_stream(seed=1).float()
    angle = angular_speed(before, after)
    torch.testing.assert_close(angular_speed(before * 1e30, after * 1e-37), angle)
    torch.testing.assert_close(angular_speed(before * 1e-37, after * 1e30), angle)


def test_growth_is_the_ratio_of_norms():
    before, after = some_stream(), some_stream(seed=1)
    expected = np.linalg.norm(after.numpy(), axis=-1) / np.linalg.norm(before.numpy(), axis=-1)
    np.testing.assert_allclose(norm_growth(before, after), expected, rtol=1e-12)
    assert norm_growth(before.half(), before.half()).dtype == torch.float32
    zero = torch.zeros(1, 4)
    assert norm_growth(zero, zero + 1).item() == math.inf
    assert norm_growth(zero, zero).isnan().all() and angular_speed(zero, zero + 1).isnan().all()


@pytest.mark.parametrize("measure", [angular_speed, norm_growth])
def test_pairs_of_streams_must_fit(measure):
    with pytest.raises(ValueError, match="must have the same shape"):
        measure(torch.ones(2, 3), torch.ones(3, 3))
    with pytest.raises(ValueError, match="must have the same shape"):
        measure(torch.tensor(1.0), torch.tensor(1.0))
    with pytest.raises(TypeError, match="real numbers"):
        measure(torch.ones(2, 3) * 1j, torch.ones(2, 3) * 1j)
