"""Weights of one key of score ``m`` beside ``n - 1`` keys of score 0, written out by hand."""

import math
from collections.abc import Callable

import pytest

INVERSE_TEMPERATURE = 2.5


def inverse_temperature(normalizer: str, n: int, m: float) -> float:
    if normalizer == "temperature":
        return INVERSE_TEMPERATURE
    if normalizer == "log_n":
        return math.log(n)
    if normalizer == "sqrt_log_n":
        return math.log(n) ** 0.5
    if normalizer in ("ssmax", "ssmax_bias"):
        return 0.43 * math.log(n)
    if normalizer == "selective":
        return 1 + math.log(n) / (1 + math.exp(4.5))
    if normalizer == "asentmax":
        return 1 + math.log(2)
    if normalizer == "adaptive":
        a = math.exp(m) / (math.exp(m) + n - 1)
        h = -a * math.log(a)
        if n > 1:
            h -= (1 - a) * math.log((1 - a) / (n - 1))
        polynomial = -0.037 * h**4 + 0.481 * h**3 - 2.3 * h**2 + 4.917 * h - 1.791
        return max(polynomial, 1) if h > 0.5 else 1
    return 1


def weights(normalizer: str, n: int, m: float) -> tuple[float, float]:
    score = inverse_temperature(normalizer, n, m) * m
    if normalizer == "hardmax":
        return 1, 0
    if normalizer == "sigmoid":
        return 1 / (1 + n * math.exp(-score)), 1 / (1 + n)
    if normalizer in ("entmax", "asentmax"):
        # With alpha = 1.5 the weights are (s/2 - tau)^2 and sum to one, or the needle is alone.
        z = score / 2
        if z >= 1:
            return 1, 0
        t = (-z + math.sqrt(z * z - n * (z * z - 1))) / n
        return (z + t) ** 2, t * t
    total = math.exp(score) + n - 1 + (normalizer == "softmax1")
    return math.exp(score) / total, 1 / total


@pytest.fixture
def needle_row() -> Callable[[str, int, float], tuple[float, float]]:
    """Weight of the needle, and of each other key, by normalizer, number of keys and margin."""
    return weights


@pytest.fixture(
    params=[
        "softmax",
        "temperature",
        "sqrt_log_n",
        "log_n",
        "ssmax",
        "ssmax_bias",
        "adaptive",
        "selective",
        "entmax",
        "asentmax",
        "softmax1",
        "sigmoid",
        "hardmax",
    ]
)
def normalizer(request: pytest.FixtureRequest) -> str:
    return request.param
