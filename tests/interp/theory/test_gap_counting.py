"""Gap counting against brute force and simulation, in the region of each claim and outside it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def count(row: np.ndarray, gap: float) -> int:
    return sum(1 for score in row.tolist() if row.max() - score <= gap)


def scale(row: np.ndarray) -> float:
    """The supremum by brute force: on a fine grid, and at every gap that occurs."""
    gaps = [gap for gap in (row.max() - row).tolist() if gap > 0]
    grid = np.geomspace(min(gaps) / 10, max(gaps) * 10, 2000).tolist()
    return max(np.log(count(row, gap)) / gap for gap in [*grid, *gaps])


def rows(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) if seed % 2 else rng.uniform(size=n)


@given(seed=SEEDS, n=st.integers(2, 60))
def test_count_and_scale_are_those_of_brute_force(seed: int, n: int) -> None:
    row = rows(seed, n)
    gaps = np.array([0.0, 0.1, 1.0, 50.0])
    assert theory.gap_count(row, gaps).tolist() == [count(row, gap) for gap in gaps]
    assert theory.accumulation_scale(row) == pytest.approx(scale(row), rel=1e-12)


@given(seed=SEEDS, n=st.integers(2, 300), factor=st.floats(0.05, 20.0))
def test_both_bounds_hold_on_both_sides_of_the_scale(seed: int, n: int, factor: float) -> None:
    row = rows(seed, n)
    limit = theory.accumulation_scale(row)
    beta = factor * limit
    largest = softmax(beta * row).max()
    assert theory.predict_max_weight(beta, row) == pytest.approx(largest, rel=1e-12)
    assert theory.max_weight_lower_bound(beta, limit) <= largest + 1e-12
    assert largest <= theory.max_weight_upper_bound(beta, row) * (1 + 1e-12)
    assert (theory.max_weight_lower_bound(beta, limit) == 0) == (beta <= limit)


@given(seed=SEEDS, n=st.integers(2, 60), beta=st.floats(0.01, 30.0))
def test_the_partition_sum_is_the_laplace_transform_of_the_count(
    seed: int, n: int, beta: float
) -> None:
    row = rows(seed, n)
    gaps = np.sort(row.max() - row)
    ends = np.append(gaps[1:], np.inf)
    steps = np.exp(-beta * gaps) - np.exp(-beta * ends)
    integral = (theory.gap_count(row, gaps) * steps).sum()
    assert 1 / theory.predict_max_weight(beta, row) == pytest.approx(integral, rel=1e-10)


@given(seed=SEEDS, n=st.integers(3, 300), weight=st.floats(0.05, 0.99))
def test_the_sharpening_temperature_is_the_least_that_reaches_the_weight(
    seed: int, n: int, weight: float
) -> None:
    row = rows(seed, n)
    beta = float(theory.predict_sharpening_temperature(row, weight))
    low, high = theory.sharpening_temperature_bounds(row, weight)
    assert low <= beta * (1 + 1e-12) and beta <= high * (1 + 1e-12)
    spread = np.ptp(row)
    assert theory.sharpening_bound(n, spread, weight) <= beta * (1 + 1e-9)
    if weight * n <= 1:
        assert beta == 0
        return
    assert softmax(beta * row).max() == pytest.approx(weight, rel=1e-9)
    below, above = 0.0, float(high)
    for _ in range(80):
        middle = (below + above) / 2
        if softmax(middle * row).max() < weight:
            below = middle
        else:
            above = middle
    assert beta == pytest.approx(above, rel=1e-7)


def test_rows_are_independent_and_hidden_keys_do_not_count() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, 3, 40))
    hidden = np.concatenate([scores, np.full((4, 3, 7), -np.inf)], axis=-1)
    rng.permuted(hidden, axis=-1, out=hidden)
    beta = rng.uniform(0.0, 5.0, size=(4, 3))
    weight = rng.uniform(0.1, 0.9, size=(4, 3))
    for function in (
        lambda s: theory.gap_count(s, 0.7),
        theory.accumulation_scale,
        lambda s: theory.max_weight_upper_bound(beta, s),
        lambda s: theory.predict_max_weight(beta, s),
        lambda s: theory.predict_max_weight(0.0, s),
        lambda s: theory.predict_sharpening_temperature(s, weight),
        lambda s: theory.sharpening_temperature_bounds(s, weight).lower,
    ):
        found = function(hidden)
        assert found.shape == (4, 3)
        np.testing.assert_allclose(found, function(scores), rtol=1e-12)
    alone = [[float(theory.accumulation_scale(row)) for row in block] for block in scores]
    np.testing.assert_array_equal(theory.accumulation_scale(scores), alone)


def test_ties_at_the_maximum_cap_the_weight_whatever_the_temperature() -> None:
    rng = np.random.default_rng(1)
    others = rng.normal(size=50) - 5.0
    for copies in (2, 3):
        row = np.append(others, [3.0] * copies)
        assert theory.accumulation_scale(row) == np.inf
        assert theory.max_weight_lower_bound(1e6, np.inf) == 0
        assert theory.max_weight_upper_bound(1e6, row) == pytest.approx(1 / copies)
        assert theory.predict_max_weight(1e6, row) == pytest.approx(1 / copies)
        assert theory.predict_sharpening_temperature(row, 1 / copies) == np.inf
        assert theory.predict_sharpening_temperature(row, 0.9 / copies) < 10
        # The bound of the positive gaps alone, as if the maximum were unique, would be wrong.
        gaps = np.sort(row.max() - row)
        positive = gaps > 0
        naive = (np.log(np.arange(1, gaps.size + 1)[positive]) / gaps[positive]).max()
        assert 1 - naive / 100 > theory.predict_max_weight(100.0, row) + 0.3
    near = np.append(others, [3.0, 3.0 - 1e-9])
    assert np.isfinite(theory.predict_sharpening_temperature(near, 0.6))
    assert theory.predict_sharpening_temperature(near, 0.6, tolerance=1e-6) == np.inf
    assert theory.accumulation_scale(near, tolerance=1e-6) == np.inf


def test_below_the_scale_the_row_need_not_be_sharp() -> None:
    """Outside the region of the lower bound: at half the scale a simplex row has dispersed."""
    for n in (10**2, 10**4, 10**6):
        row = np.append(1.0, np.zeros(n - 1))
        limit = theory.accumulation_scale(row)
        assert limit == pytest.approx(np.log(n))
        assert theory.predict_max_weight(2 * limit, row) >= 0.5
        assert theory.predict_max_weight(0.5 * limit, row) < 1.1 / np.sqrt(n)


def test_one_key_and_equal_keys() -> None:
    assert theory.accumulation_scale([7.0]) == 0
    assert theory.predict_sharpening_temperature([7.0], 0.99) == 0
    assert theory.predict_max_weight(3.0, [7.0]) == 1
    assert theory.predict_sharpening_temperature([2.0, 2.0, 2.0], 1 / 3) == 0
    assert theory.predict_sharpening_temperature([2.0, 2.0, 2.0], 0.34) == np.inf
    assert theory.accumulation_bound([1, 2], 0.0).tolist() == [0.0, np.inf]
    assert theory.sharpening_bound([2, 3], 0.0, 0.5).tolist() == [0.0, np.inf]


def test_the_simplex_scale_is_exact_and_gives_the_critical_gamma() -> None:
    for n in (2, 17, 5000):
        for cosine in (0.1, 0.5, 0.9):
            row = np.append(1.0, np.full(n - 1, cosine))
            predicted = theory.predict_simplex_accumulation(n, 1 - cosine)
            assert theory.accumulation_scale(row) == pytest.approx(predicted, rel=1e-12)
            gamma = theory.critical_gamma_threshold(cosine)
            assert predicted == pytest.approx(gamma * np.log(n), rel=1e-12)
            assert theory.accumulation_bound(n, 1 - cosine) == pytest.approx(predicted)
            if n > 2:
                needed = theory.predict_sharpening_temperature(row, 0.7)
                assert theory.sharpening_bound(n, 1 - cosine, 0.7) == pytest.approx(needed)


def test_gaussian_and_sphere_scales_are_of_their_order_but_not_of_each_others() -> None:
    rng = np.random.default_rng(2)
    sizes = (100, 1000, 10000)

    def median(draw, repeats=41):
        return np.array(
            [np.median([theory.accumulation_scale(draw(n)) for _ in range(repeats)]) for n in sizes]
        )

    def on_sphere(n):
        points = rng.normal(size=(n, 4))
        return 3.0 * points[:, 0] / np.linalg.norm(points, axis=1)

    gaussian = median(lambda n: 2.0 * rng.normal(size=n))
    ratio = gaussian / theory.gaussian_accumulation_rate(sizes, 2.0)
    assert ((ratio > 0.7) & (ratio < 1.8)).all(), ratio
    sphere = median(on_sphere)
    ratio = sphere / theory.sphere_accumulation_rate(sizes, 4, 3.0)
    assert ((ratio > 0.3) & (ratio < 3.0)).all(), ratio
    assert ratio.max() / ratio.min() < 1.8
    wrong = sphere / theory.gaussian_accumulation_rate(sizes, 1.0)
    assert wrong[-1] / wrong[0] > 5, "a sphere is no Gaussian: its scale grows as a power of n"


def test_the_gaussian_scale_has_no_mean() -> None:
    """Its tail falls as 1/x: one row in a hundred lies a factor of about a hundred above."""
    rng = np.random.default_rng(3)
    found = theory.accumulation_scale(rng.normal(size=(20000, 50)))
    median = np.median(found)
    tails = [np.mean(found > factor * median) * factor for factor in (10, 100, 1000)]
    assert all(0.2 < tail < 1.0 for tail in tails), tails


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: theory.gap_count([], 0.0), "at least one key"),
        (lambda: theory.accumulation_scale([[0.0, np.nan]]), "finite scores"),
        (lambda: theory.accumulation_scale([-np.inf, -np.inf]), "visible key"),
        (lambda: theory.accumulation_scale([np.inf, 0.0]), "finite scores"),
        (lambda: theory.accumulation_scale([1.0, 0.0], -1.0), "tolerance must be finite and >= 0"),
        (lambda: theory.max_weight_lower_bound(1.0, -1.0), "0 or more"),
        (lambda: theory.max_weight_lower_bound(-1.0, 1.0), "inverse_temperature must be"),
        (lambda: theory.predict_sharpening_temperature([1.0, 0.0], 1.0), "weight must be"),
        (lambda: theory.predict_simplex_accumulation(4, 0.0), "gap must be"),
        (lambda: theory.sphere_accumulation_rate(4, 1), "d_head must be"),
        (lambda: theory.gap_count([1.0], -0.1), "gap must be"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
    with pytest.raises(TypeError, match="must be an array of real numbers"):
        theory.accumulation_scale(["a"])
