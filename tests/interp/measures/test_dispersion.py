"""Row statistics against closed forms, a float64 loop, half precision, and their own bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp.measures import (
    effective_support,
    entropy,
    entropy_support,
    irrelevant_mass,
    key_count,
    max_weight,
    normalised_entropy,
    relevant_mass,
    score_deviation,
    score_spread,
    sink_mass,
    top_k_mass,
)

OF_WEIGHTS = {
    "entropy": entropy,
    "normalised_entropy": normalised_entropy,
    "effective_support": effective_support,
    "entropy_support": entropy_support,
    "max_weight": max_weight,
    "top_k_mass": top_k_mass,
    "sink_mass": sink_mass,
}
P = 0.3
H = -(P * math.log(P) + (1 - P) * math.log(1 - P))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(
            [0.125] * 8, [math.log(8), 1.0, 8.0, 8.0, 0.125, 0.5, 0.125], id="uniform over 8"
        ),
        pytest.param([0.0, 0.0, 1.0, 0.0, 0.0], [0, 0, 1, 1, 1, 1, 0], id="one-hot"),
        pytest.param(
            [P, 1 - P],
            [H, H / math.log(2), 1 / (P**2 + (1 - P) ** 2), math.exp(H), 1 - P, 1.0, P],
            id="two-point",
        ),
        pytest.param([1.0], [0, math.nan, 1, 1, 1, 1, 1], id="one key"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_closed_forms(row, expected, dtype):
    got = [float(measure(torch.tensor(row, dtype=dtype))) for measure in OF_WEIGHTS.values()]
    assert got == pytest.approx(
        expected, rel=1e-6 if dtype == torch.float32 else 1e-14, nan_ok=True
    )


def test_gaussian_scores_follow_the_random_energy_picture():
    # theory section 0: H -> log n - sigma^2/2 and sum a^2 -> e^{sigma^2}/n, sigma well below
    # sqrt(2 log n) = 4.8.
    n, sigma = 100_000, 1.0
    generator = torch.Generator().manual_seed(3)
    scores = sigma * torch.randn(32, n, generator=generator, dtype=torch.float64)
    weights = scores.softmax(-1)
    assert float(entropy(weights).mean()) == pytest.approx(math.log(n) - sigma**2 / 2, abs=5e-3)
    assert float(effective_support(weights).mean()) == pytest.approx(
        n * math.exp(-(sigma**2)), rel=0.02
    )
    assert float(score_deviation(scores).mean()) == pytest.approx(sigma, rel=2e-3)


def reference(weights, scores, visible, relevant):
    """One row at a time, in Python, float64."""
    keys = [j for j in range(len(weights)) if visible[j]]
    a = [float(weights[j]) for j in keys]
    s = [float(scores[j]) for j in keys]
    n = len(keys)
    if n == 0:
        return dict.fromkeys(
            [*OF_WEIGHTS, "relevant", "irrelevant", "spread", "deviation"], math.nan
        )
    shannon = -sum(x * math.log(x) for x in a if x > 0)
    mean = sum(s) / n
    return {
        "entropy": shannon,
        "normalised_entropy": shannon / math.log(n) if n > 1 else math.nan,
        "effective_support": 1 / sum(x * x for x in a),
        "entropy_support": math.exp(shannon),
        "max_weight": max(a),
        "top_k_mass": sum(sorted(a)[-4:]),
        "sink_mass": a[0],
        "relevant": sum(x for x, j in zip(a, keys, strict=True) if relevant[j]),
        "irrelevant": sum(x for x, j in zip(a, keys, strict=True) if not relevant[j]),
        "spread": max(s) - min(s),
        "deviation": math.sqrt(sum((x - mean) ** 2 for x in s) / n),
    }


def random_rows(seed, shape=(3, 2, 5, 9)):
    rng = np.random.default_rng(seed)
    visible = rng.random(shape) < 0.6
    visible[0, 0, 0] = False  # no key at all
    visible[0, 0, 1] = np.arange(shape[-1]) == 3  # one key
    relevant = rng.random(shape) < 0.5
    scores = 2 * rng.standard_normal(shape)
    exponentials = np.where(visible, np.exp(scores), 0.0)
    total = exponentials.sum(-1, keepdims=True)
    weights = np.divide(exponentials, total, out=np.zeros(shape), where=total > 0)
    return weights, scores, visible, relevant


def test_rows_of_any_leading_axes_equal_a_float64_loop():
    weights, scores, visible, relevant = random_rows(0)
    w, s, v, r = (torch.from_numpy(array) for array in (weights, scores, visible, relevant))
    got = {name: measure(w, v) for name, measure in OF_WEIGHTS.items()}
    got["relevant"] = relevant_mass(w, r, v)
    got["irrelevant"] = irrelevant_mass(w, r, v)
    got["spread"] = score_spread(s, v)
    got["deviation"] = score_deviation(s, v)
    for index in np.ndindex(weights.shape[:-1]):
        expected = reference(weights[index], scores[index], visible[index], relevant[index])
        for name, value in expected.items():
            assert float(got[name][index]) == pytest.approx(value, rel=1e-12, nan_ok=True), name


def test_masked_keys_are_never_read():
    weights, scores, visible, relevant = (torch.from_numpy(a) for a in random_rows(1))
    spoiled_weights = torch.where(visible, weights, torch.nan)
    spoiled_scores = torch.where(visible, scores, torch.nan)
    for measure in OF_WEIGHTS.values():
        torch.testing.assert_close(
            measure(spoiled_weights, visible), measure(weights, visible), equal_nan=True
        )
    for measure in (score_spread, score_deviation):
        torch.testing.assert_close(
            measure(spoiled_scores, visible), measure(scores, visible), equal_nan=True
        )
    for measure in (relevant_mass, irrelevant_mass):
        torch.testing.assert_close(
            measure(spoiled_weights, relevant, visible),
            measure(weights, relevant, visible),
            equal_nan=True,
        )
    torch.testing.assert_close(key_count(visible), torch.as_tensor(visible.numpy().sum(-1)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [1, 7, 3000])
def test_half_precision_equals_float64_of_the_same_numbers(dtype, n):
    generator = torch.Generator().manual_seed(n)
    scores = (3 * torch.randn(16, n, generator=generator)).to(dtype)
    weights = scores.double().softmax(-1).to(dtype)
    for name, measure in OF_WEIGHTS.items():
        got, exact = measure(weights), measure(weights.double())
        assert got.dtype == torch.float32
        torch.testing.assert_close(
            got.double(), exact, rtol=2e-5, atol=1e-6, equal_nan=True, msg=name
        )
    assert bool((entropy(weights) >= 0).all())
    for measure in (score_spread, score_deviation):
        torch.testing.assert_close(
            measure(scores).double(), measure(scores.double()), rtol=2e-5, atol=1e-6
        )


def test_scores_of_ten_thousand():
    scores = torch.tensor([[1e4, -1e4, 1e4]], dtype=torch.float16).float()
    assert score_spread(scores).item() == pytest.approx(2e4, rel=1e-3)
    weights = scores.softmax(-1)
    assert entropy(weights).item() == pytest.approx(math.log(2), rel=1e-6)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_bounds(scores, random):
    row = torch.tensor(scores, dtype=torch.float64)
    visible = torch.tensor([random.random() < 0.7 for _ in scores])
    visible[random.randrange(len(scores))] = True
    relevant = torch.tensor([random.random() < 0.5 for _ in scores])
    weights = torch.where(visible, row, -torch.inf).softmax(-1)
    n = int(key_count(visible))
    slack = 1e-9
    shannon, support = float(entropy(weights, visible)), float(effective_support(weights, visible))
    assert -slack <= shannon <= math.log(n) + slack
    assert 1 - slack <= support <= float(entropy_support(weights, visible)) * (1 + slack)
    assert float(entropy_support(weights, visible)) <= n * (1 + slack)
    heaviest = float(max_weight(weights, visible))
    assert 1 / n - slack <= heaviest <= 1 + slack
    assert heaviest - slack <= float(top_k_mass(weights, visible)) <= 1 + slack
    assert 1 / heaviest <= support * (1 + slack)  # sum a^2 <= max a
    both = relevant_mass(weights, relevant, visible) + irrelevant_mass(weights, relevant, visible)
    assert float(both) == pytest.approx(1)
    spread = float(score_spread(row, visible))
    assert 0 <= float(score_deviation(row, visible)) <= spread / 2 + slack  # Popoviciu
    # Veličković et al., Lemma 2.1: every weight lies within e^{-+spread}/n.
    assert math.exp(-spread) / n - slack <= heaviest <= math.exp(spread) / n + slack


def test_nothing_is_clamped():
    assert entropy(torch.tensor([1.5, -0.5])).item() == -math.inf
    assert math.isnan(entropy(torch.tensor([0.5, math.nan])).item())
    assert math.isnan(max_weight(torch.tensor([0.5, math.nan])).item())
    assert score_spread(torch.tensor([0.0, -math.inf])).item() == math.inf
    # Not renormalised: half of the mass went to a sink.
    assert effective_support(torch.tensor([0.25, 0.25])).item() == pytest.approx(8)


def test_no_visible_key_is_nan_for_every_measure():
    nothing = torch.zeros(4, dtype=torch.bool)
    weights = torch.full((4,), 0.25)
    values = [measure(weights, nothing) for measure in OF_WEIGHTS.values()]
    values += [m(weights, ~nothing, nothing) for m in (relevant_mass, irrelevant_mass)]
    values += [m(weights, nothing) for m in (score_spread, score_deviation)]
    assert all(math.isnan(value.item()) for value in values)


def test_top_k_beyond_the_row_is_the_whole_mass():
    weights = torch.tensor([[0.5, 0.3, 0.2]])
    assert top_k_mass(weights, k=10).item() == pytest.approx(1.0)
    assert top_k_mass(weights, k=2).item() == pytest.approx(0.8)
    assert top_k_mass(weights, torch.tensor([False, True, True]), k=1).item() == pytest.approx(0.3)


def test_bad_input_is_refused():
    weights = torch.full((2, 3), 1 / 3)
    with pytest.raises(TypeError, match="visible must be a boolean"):
        entropy(weights, torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"visible must broadcast to the shape \(2, 3\)"):
        entropy(weights, torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="relevant must broadcast"):
        relevant_mass(weights, torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="k, the number of largest weights"):
        top_k_mass(weights, k=0)
    with pytest.raises(ValueError, match="at least one axis"):
        entropy(torch.tensor(1.0))
    with pytest.raises(TypeError, match="real numbers"):
        entropy(torch.ones(3, dtype=torch.complex64))  # type: ignore[arg-type]
