"""Distances to the exact next-token distribution."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp.measures import illegal_mass, kl_divergence, total_variation


def target_of(present):
    absent = (~present).double()
    return absent / absent.sum(-1, keepdim=True)


def test_equal_displacements_have_the_closed_form_of_theory():
    # Theory 1.1: TV = S / (S + v - s), S = s e^-D; then KL = -log(1 - TV), illegal mass = TV.
    v, s, gap = 12, 5, 2.0
    present = torch.arange(v) < s
    logits = torch.where(present, -gap, 0.0).double()
    total = s * math.exp(-gap)
    expected = total / (total + v - s)
    target = target_of(present)
    assert total_variation(logits, target).item() == pytest.approx(expected, rel=1e-7)
    assert illegal_mass(logits, target).item() == pytest.approx(expected, rel=1e-7)
    assert kl_divergence(logits, target).item() == pytest.approx(-math.log1p(-expected), rel=1e-6)


def test_rows_equal_numpy():
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal((3, 4, 8))
    target = rng.dirichlet(np.ones(8), (3, 4)) * (rng.random((3, 4, 8)) < 0.6)
    target[..., 0] += 1e-3
    target /= target.sum(-1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    kl = np.where(target > 0, target * (np.log(np.where(target > 0, target, 1)) - np.log(p)), 0)
    arrays = torch.from_numpy(logits), torch.from_numpy(target)
    np.testing.assert_allclose(total_variation(*arrays), np.abs(p - target).sum(-1) / 2, rtol=1e-12)
    np.testing.assert_allclose(kl_divergence(*arrays), kl.sum(-1), rtol=1e-11)
    np.testing.assert_allclose(
        illegal_mass(*arrays), np.where(target == 0, p, 0).sum(-1), rtol=1e-12
    )


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    st.lists(st.floats(-40, 40, width=32), min_size=2, max_size=30),
    st.randoms(use_true_random=False),
)
def test_bounds(logits, random):
    row = torch.tensor(logits)
    present = torch.tensor([random.random() < 0.5 for _ in logits])
    present[random.randrange(len(logits))] = False
    target = target_of(present)
    variation = total_variation(row, target).item()
    divergence = kl_divergence(row, target).item()
    illegal = illegal_mass(row, target).item()
    assert 0 <= illegal <= variation + 1e-6 <= 1 + 2e-6
    assert divergence >= 0
    assert 2 * variation**2 <= divergence + 1e-5  # Pinsker


def test_a_model_at_its_optimum_has_no_negative_divergence():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 50, generator=generator)
    target = logits.double().softmax(-1).float()
    divergence = kl_divergence(logits, target)
    assert bool((divergence >= 0).all())
    assert float(divergence.max()) < 1e-6
    near = kl_divergence(logits + 1e-3 * torch.randn(4000, 50, generator=generator), target)
    assert bool((near > 0).all())
    # Second order: KL ~ Var_t(u) / 2 for a small change u of the logits.
    assert float(near.mean()) == pytest.approx(0.5e-6, rel=0.1)


def test_a_probability_of_zero_on_a_legal_token_is_a_large_divergence():
    logits = torch.tensor([0.0, -1000.0])
    target = torch.tensor([0.5, 0.5])
    assert kl_divergence(logits, target).item() == pytest.approx(500 + math.log(0.5), rel=1e-6)


@pytest.mark.parametrize(
    "target", [[0.0, 0.0, 0.0], [math.nan] * 3, [0.5, 0.1, 0.1], [1.5, -0.5, 0.0]]
)
def test_a_target_that_is_no_distribution_is_nan(target):
    row = torch.tensor(target)
    for measure in (total_variation, kl_divergence, illegal_mass):
        assert math.isnan(measure(torch.zeros(3), row).item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_equals_float64_of_the_same_numbers(dtype):
    generator = torch.Generator().manual_seed(1)
    logits = (3 * torch.randn(20, 40, generator=generator)).to(dtype)
    target = target_of(torch.rand(20, 40, generator=generator) < 0.5)
    for measure in (total_variation, kl_divergence, illegal_mass):
        got = measure(logits, target)
        assert got.dtype == torch.float32
        torch.testing.assert_close(
            got.double(), measure(logits.double(), target.double()), rtol=1e-5, atol=1e-6
        )


def test_another_number_of_tokens_is_refused():
    with pytest.raises(ValueError, match="as many output tokens"):
        total_variation(torch.zeros(2, 5), torch.zeros(2, 4))
