"""Distance, separability and slope of a row: closed forms, brute force, and their bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory
from resharpen.interp.measures.limits import (
    jacobian_entry,
    jacobian_norm,
    selected_keys,
    selection_distance,
    separable_share,
)

SEEDS = st.integers(0, 2**31 - 1)


def rows(seed: int, n_key: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(3, n_key, generator=generator, dtype=torch.float64)
    values = torch.randn(3, n_key, 5, generator=generator, dtype=torch.float64)
    return scores.softmax(-1), values


@pytest.mark.parametrize(
    ("row", "norm", "entry"),
    [
        pytest.param([0.5, 0.5, 0.0], 0.5, 0.25, id="the extremal row"),
        pytest.param([1.0, 0.0, 0.0], 0.0, 0.0, id="one-hot: no slope"),
        pytest.param([1.0], 0.0, 0.0, id="one key"),
        pytest.param([1 / 8] * 8, 1 / 8, 7 / 64, id="uniform"),
        pytest.param([0.9, 0.1], 0.18, 0.09, id="two keys: 2 p (1 - p)"),
        pytest.param([0.3, 0.3, 0.3, 0.1], 0.3, 0.21, id="a multiple maximum"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slope_in_closed_form(row, norm, entry, dtype):
    given_ = torch.tensor(row, dtype=dtype)
    close = {"rel": 1e-6, "abs": 1e-7} if dtype == torch.float32 else {"rel": 1e-12, "abs": 1e-14}
    assert float(jacobian_norm(given_)) == pytest.approx(norm, **close)
    assert float(jacobian_entry(given_)) == pytest.approx(entry, **close)
    assert float(jacobian_norm(given_, temperature=0.25)) == pytest.approx(4 * norm, **close)
    assert float(jacobian_entry(given_, temperature=0.25)) == pytest.approx(4 * entry, **close)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, n_key=st.integers(1, 40), spread=st.floats(0.0, 20.0))
def test_slope_is_that_of_the_matrix_and_keeps_to_its_bounds(seed, n_key, spread):
    weights, _ = rows(seed, n_key, spread)
    matrix = theory.predict_softmax_jacobian(weights.numpy())
    norm, entry = jacobian_norm(weights), jacobian_entry(weights)
    np.testing.assert_allclose(
        norm, np.linalg.norm(matrix, 2, axis=(-2, -1)), rtol=1e-7, atol=1e-14
    )
    np.testing.assert_allclose(entry, np.abs(matrix).max((-2, -1)), rtol=1e-9, atol=1e-15)
    slack = 1.0 + 1e-9
    assert bool((norm <= theory.jacobian_norm_bound() * slack).all())
    assert bool((entry <= theory.jacobian_entry_bound() * slack).all())
    largest = weights.amax(-1).clamp(max=1.0)
    assert bool((norm.numpy() <= theory.dispersed_jacobian_bound(largest.numpy()) * slack).all())


def test_the_relayed_bound_of_the_spectral_norm_fails_and_that_of_an_entry_does_not():
    """1/4 holds of every entry and not of the norm."""
    weights, _ = rows(0, 6, 1.5)
    weights = torch.cat([weights, torch.tensor([[0.5, 0.5, 0, 0, 0, 0]], dtype=torch.float64)])
    assert float(jacobian_norm(weights).amax()) == 0.5
    assert float(jacobian_entry(weights).amax()) == 0.25


def test_slope_is_that_of_finite_differences():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(9, generator=generator, dtype=torch.float64)
    matrix = torch.autograd.functional.jacobian(lambda s: (s / 0.7).softmax(-1), scores)
    weights = (scores / 0.7).softmax(-1)
    norm = torch.linalg.matrix_norm(matrix, 2)
    assert float(jacobian_norm(weights, temperature=0.7)) == pytest.approx(float(norm), rel=1e-10)


def by_hand(weights: np.ndarray, values: np.ndarray, k: int) -> tuple[float, float]:
    """Distance and separable share of one row by loops over the definition."""
    chosen = sorted(range(len(weights)), key=lambda i: (-weights[i], i))[:k]
    inside = sum((weights[i] * values[i] for i in chosen), np.zeros(values.shape[1]))
    rest = [i for i in range(len(weights)) if i not in chosen]
    outside = sum((weights[i] * values[i] for i in rest), np.zeros(values.shape[1]))
    output = inside + outside
    radius = min((np.linalg.norm(values[i] - output) for i in rest), default=math.inf)
    near = [i for i in chosen if np.linalg.norm(values[i] - output) < radius]
    return float(np.linalg.norm(outside - inside)), len(near) / len(chosen)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    seed=SEEDS, n_key=st.integers(1, 20), k=st.integers(1, 24), spread=st.floats(0.0, 5.0),
    hidden=st.integers(0, 5),
)  # fmt: skip
def test_distance_and_share_are_those_of_the_definition(seed, n_key, k, spread, hidden):
    weights, values = rows(seed, n_key, spread)
    # Keys that are not visible hold anything, NaN too, and are not read.
    filler = torch.full((3, hidden, 5), torch.nan, dtype=torch.float64)
    longer = torch.cat([weights, filler[..., 0]], -1)
    visible = torch.arange(n_key + hidden) < n_key
    further = torch.cat([values, filler], 1)
    distance = selection_distance(longer, further, visible, k)
    share = separable_share(longer, further, visible, k)
    for row in range(3):
        expected = by_hand(weights[row].numpy(), values[row].numpy(), k)
        assert float(distance[row]) == pytest.approx(expected[0], rel=1e-9, abs=1e-12)
        assert float(share[row]) == expected[1]
    assert bool((distance <= values.norm(dim=-1).amax(-1) * (1 + 1e-12)).all())
    assert bool(((share >= 0) & (share <= 1)).all())


def test_distance_in_closed_form():
    """n orthonormal values of equal weight: 1/sqrt(n), however many are selected."""
    for n_key in (1, 4, 64):
        weights = torch.full((n_key,), 1 / n_key)
        values = torch.eye(n_key)
        for k in (1, n_key):
            found = float(selection_distance(weights, values, k=k))
            assert found == pytest.approx(n_key**-0.5, rel=1e-6)
    # The same value everywhere: what is selected less what is not; a balance at half.
    same = torch.ones(8, 3)
    even = torch.full((8,), 1 / 8)
    assert float(selection_distance(even, same, k=2)) == pytest.approx(0.5 * math.sqrt(3))
    assert float(selection_distance(even, same, k=4)) == 0.0


def test_share_in_closed_form():
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    sharp = torch.tensor([0.97, 0.01, 0.01, 0.01])
    assert float(separable_share(sharp, values, k=1)) == 1.0
    # The second key is no nearer to the output than those at the other sides.
    assert float(separable_share(sharp, values, k=2)) == 0.5
    assert float(separable_share(sharp, values, k=4)) == 1.0
    # An unselected copy of the same vector: nobody can tell the two apart.
    copies = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert float(separable_share(torch.tensor([0.9, 0.05, 0.05]), copies, k=1)) == 0.0
    # Evenly spread over a circle the output is the centre, and every key as far as every other.
    assert float(separable_share(torch.full((4,), 0.25), values, k=2)) == 0.0


def test_selection_is_the_largest_weights_and_of_equals_the_earlier():
    weights = torch.tensor([0.2, 0.3, 0.3, 0.2])
    assert selected_keys(weights, k=1).tolist() == [False, True, False, False]
    assert selected_keys(weights, k=3).tolist() == [True, True, True, False]
    hidden = torch.tensor([True, False, True, True])
    assert selected_keys(weights, hidden, k=9).tolist() == hidden.tolist()


def test_rows_without_a_key_and_rows_that_are_not_finite_are_nan():
    weights = torch.tensor([[0.5, 0.5], [torch.nan, 1.0]])
    values = torch.ones(2, 2, 3)
    nothing = torch.zeros(2, 2, dtype=torch.bool)
    for measure in (jacobian_norm, jacobian_entry):
        assert bool(measure(weights, nothing).isnan().all())
        assert measure(weights).isnan().tolist() == [False, True]
    for measure in (selection_distance, separable_share):
        assert bool(measure(weights, values, nothing).isnan().all())
        assert measure(weights, values).isnan().tolist() == [False, True]


def test_half_precision_is_widened_and_broadcast_values_are_shared():
    weights, values = rows(3, 9, 1.0)
    half = selection_distance(weights.bfloat16(), values.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(
        half.double(), selection_distance(weights, values), rtol=0.05, atol=0.02
    )
    shared = selection_distance(weights, values[:1])
    torch.testing.assert_close(shared, selection_distance(weights, values[:1].expand(3, -1, -1)))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda w, v: selection_distance(w, v, k=0), "k must be a whole number"),
        (lambda w, v: separable_share(w, v, k=True), "k must be a whole number"),
        (lambda w, v: selection_distance(w, v[:, :-1]), "values must be"),
        (lambda w, v: separable_share(w, v[..., 0]), "values must be"),
        (lambda w, v: jacobian_norm(w, temperature=0.0), "temperature must be above 0"),
        (lambda w, v: jacobian_entry(w, temperature=-1.0), "temperature must be above 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(*rows(0, 4, 1.0))
