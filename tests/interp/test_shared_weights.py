import math

import pytest
import torch
from torch import nn

from resharpen.interp.shared_weights import weight_cosine, weight_cosines


def linear(seed: int, shape: tuple[int, int] = (300, 300)) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(*shape)


def test_shared_is_one_opposite_minus_one_and_independent_near_zero() -> None:
    one, same, opposite = linear(0), linear(0), linear(0)
    with torch.no_grad():
        same.weight.mul_(3.0)
        same.bias.add_(100.0)  # biases do not count
        opposite.weight.mul_(-0.5)
    assert weight_cosine(one, same) == pytest.approx(1.0)
    assert weight_cosine(one, opposite) == pytest.approx(-1.0)
    assert abs(weight_cosine(one, linear(1))) < 4 / 300
    assert weight_cosines([one, same, opposite]) == pytest.approx([1.0, -1.0])
    assert weight_cosines([one]) == []


def test_it_is_the_cosine_of_all_that_both_have() -> None:
    one = nn.ModuleDict({"a": linear(0, (3, 4)), "b": linear(1, (5, 2)), "c": linear(2, (2, 2))})
    other = nn.ModuleDict({"a": linear(3, (3, 4)), "b": linear(4, (5, 2)), "c": linear(5, (3, 2))})
    a, b = (torch.cat([m[k].weight.detach().flatten() for k in "ab"]) for m in (one, other))
    assert weight_cosine(one, other) == pytest.approx(
        float(torch.cosine_similarity(a, b, 0)), abs=1e-6
    )


def test_what_has_no_matrices_or_holds_them_elsewhere_is_unknown() -> None:
    assert math.isnan(weight_cosine(nn.LayerNorm(4), nn.LayerNorm(4)))
    with torch.device("meta"):
        away = nn.Linear(3, 3)
    assert math.isnan(weight_cosine(away, away))
    zero = linear(0)
    nn.init.zeros_(zero.weight)
    assert math.isnan(weight_cosine(zero, zero))
