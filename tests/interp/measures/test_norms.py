"""Norms, norm scales and the variance over sequences."""

import math

import numpy as np
import pytest
import torch

from resharpen.interp.measures import (
    contribution_norm,
    norm_scale,
    output_variance,
    rescale_gain,
    residual_norm,
)


@pytest.mark.parametrize("norm", [residual_norm, contribution_norm])
def test_norm_equals_numpy(norm):
    x = np.random.default_rng(0).standard_normal((2, 3, 7))
    np.testing.assert_allclose(norm(torch.from_numpy(x)), np.sqrt((x**2).sum(-1)), rtol=1e-14)


@pytest.mark.parametrize("norm", [residual_norm, contribution_norm])
def test_norm_of_a_large_half_vector_does_not_overflow(norm):
    x = torch.full((4, 100), 60000.0, dtype=torch.float16)  # its square is past float16
    torch.testing.assert_close(norm(x), torch.full((4,), 60000.0 * 10), rtol=1e-3, atol=0)


def test_norm_scale_drops_the_last_axis():
    scale = torch.tensor([[[2.0], [3.0]]], dtype=torch.bfloat16)
    got = norm_scale(scale)
    assert got.dtype == torch.float32
    assert got.tolist() == [[2.0, 3.0]]
    with pytest.raises(ValueError, match=r"scale must have one number a row.*\(2, 4\)"):
        norm_scale(torch.ones(2, 4))


def test_rescale_gain_is_the_ratio_of_scales():
    alone, here = torch.tensor([[3.0], [1.0]]), torch.tensor([[1.5], [4.0]])
    assert rescale_gain(alone, here).tolist() == [2.0, 0.25]
    assert rescale_gain(torch.ones(1, 1), torch.zeros(1, 1)).item() == math.inf
    assert math.isnan(rescale_gain(torch.zeros(1, 1), torch.zeros(1, 1)).item())
    with pytest.raises(ValueError, match="scale_alone must have one number a row"):
        rescale_gain(torch.ones(2, 2), here)


def test_output_variance_equals_numpy():
    x = np.random.default_rng(1).standard_normal((50, 3, 4)) * np.array([1.0, 2.0, 3.0, 4.0])
    expected = x.var(axis=0, ddof=1).mean(-1)
    np.testing.assert_allclose(output_variance(torch.from_numpy(x)), expected, rtol=1e-13)


def test_output_variance_of_a_known_distribution():
    # Coordinates of variance 1, 4 and 9: mean 14/3, standard error sqrt(2 * (1+16+81) / n) / 3.
    x = np.random.default_rng(2).standard_normal((20_000, 3)) * np.array([1.0, 2.0, 3.0])
    error = math.sqrt(2 * 98 / 20_000) / 3
    assert output_variance(torch.from_numpy(x)).item() == pytest.approx(14 / 3, abs=4 * error)


def test_output_variance_of_one_sequence_is_nan_and_of_a_vector_refused():
    assert math.isnan(output_variance(torch.ones(1, 5)).item())
    with pytest.raises(ValueError, match="outputs must have axes"):
        output_variance(torch.ones(5))
