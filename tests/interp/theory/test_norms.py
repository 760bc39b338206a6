"""Norm and variance laws against simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)


def outputs(
    rng: np.random.Generator,
    probabilities: np.ndarray,
    scores: np.ndarray,
    values: np.ndarray,
    n_key: int,
    sequences: int,
) -> np.ndarray:
    """Attention outputs [sequence] of a fixed query over i.i.d. keys."""
    tokens = rng.choice(probabilities.size, size=(sequences, n_key), p=probabilities)
    weights = np.exp(scores[tokens])
    return (weights * values[tokens]).sum(axis=1) / weights.sum(axis=1)


def test_variance_rate_against_simulation() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(6))
    scores, values = rng.uniform(-1, 1, size=(2, 6))
    n_key, sequences = 2000, 4000
    measured = outputs(rng, probabilities, scores, values, n_key, sequences).var()
    rate = theory.output_variance_rate(probabilities, scores, values)
    assert n_key * measured == pytest.approx(rate, rel=5 * np.sqrt(2 / sequences))


def test_variance_rate_of_uniform_attention_is_the_variance_of_the_values() -> None:
    probabilities, values = np.array([0.2, 0.3, 0.5]), np.array([[1.0, -2.0, 4.0], [0.0, 0.0, 1.0]])
    variance = (probabilities * values**2).sum(-1) - (probabilities * values).sum(-1) ** 2
    rate = theory.output_variance_rate(probabilities, np.zeros(3), values)
    np.testing.assert_allclose(rate, variance)
    shifted = theory.output_variance_rate(probabilities, np.full(3, 900.0), values)
    np.testing.assert_allclose(shifted, variance)


def test_variance_rate_ignores_tokens_that_never_come() -> None:
    rate = theory.output_variance_rate([0.5, 0.5, 0.0], [0.0, 1.0, 3.0], [1.0, 2.0, 50.0])
    assert rate == pytest.approx(theory.output_variance_rate([0.5, 0.5], [0.0, 1.0], [1.0, 2.0]))


@settings(max_examples=40, derandomize=True, deadline=None)
@given(seed=SEEDS, n_key=st.integers(1, 60))
def test_variance_bound_holds(seed: int, n_key: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = int(rng.integers(2, 8))
    limit, value_limit = rng.uniform(0.05, 1.5), rng.uniform(0.1, 3.0)
    scores = rng.uniform(-limit, limit, size=tokens)
    values = rng.uniform(-value_limit, value_limit, size=tokens)
    probabilities = rng.dirichlet(np.ones(tokens))
    measured = outputs(rng, probabilities, scores, values, n_key, 400)
    bound = theory.output_variance_bound(n_key, limit, value_limit)
    assert measured.var() <= bound
    assert theory.output_variance_rate(probabilities, scores, values) / n_key <= bound


@settings(max_examples=60, derandomize=True, deadline=None)
@given(seed=SEEDS, n=st.integers(2, 20), share=st.floats(0.0, 0.99), size=st.floats(0.1, 9.0))
def test_norm_of_an_average_of_equiangular_values(
    seed: int, n: int, share: float, size: float
) -> None:
    rng = np.random.default_rng(seed)
    low = -1 / (n - 1)
    cosine = low + share * (1 - low)
    gram = (1 - cosine) * np.eye(n) + cosine
    root, vectors = np.linalg.eigh(gram)
    values = size * vectors * np.sqrt(np.maximum(root, 0.0))
    weights = rng.dirichlet(np.ones(n))
    predicted = theory.predict_average_norm(1 / (weights**2).sum(), size, cosine)
    assert predicted == pytest.approx(np.linalg.norm(weights @ values), rel=1e-6, abs=1e-6)


def test_norm_of_an_average_closed_cases() -> None:
    np.testing.assert_allclose(theory.predict_average_norm([1, 4, 100], 6.0), [6.0, 3.0, 0.6])
    assert theory.predict_average_norm(10**9, 2.0, 0.25) == pytest.approx(1.0)
    assert theory.predict_average_norm(3, 2.0, 1.0) == 2.0
    assert np.isnan(theory.predict_average_norm(10, 1.0, -0.5))


@pytest.mark.parametrize("centred", [False, True], ids=["RMSNorm", "LayerNorm"])
@pytest.mark.parametrize("seed", range(4))
def test_peri_growth_bound(seed: int, centred: bool) -> None:
    rng = np.random.default_rng(seed)
    width, gains = 12, rng.uniform(-1.5, 1.5, size=12)

    def norm(x: np.ndarray) -> np.ndarray:
        x = x - x.mean() if centred else x
        return x / np.sqrt((x**2).mean() + 1e-5)

    stream = start = rng.normal(size=width)
    for count in range(1, 30):
        stream = stream + gains * norm(rng.normal(size=(width, width)) @ norm(stream))
        bound = theory.peri_norm_bound(np.linalg.norm(start), count, np.abs(gains).max(), width)
        assert np.linalg.norm(stream) <= bound


def test_peri_growth_bound_is_attained_by_aligned_outputs() -> None:
    width, gain = 9, 0.5
    step = gain * np.ones(width)
    stream = 2.0 * np.ones(width) + 7 * step
    bound = theory.peri_norm_bound(2.0 * np.sqrt(width), 7, gain, width)
    assert bound == pytest.approx(np.linalg.norm(stream))
    assert theory.peri_norm_bound(3.0, 0, 1.0, 4) == 3.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.output_variance_rate([0.5, 0.4], [0, 0], [0, 0]), "probabilities must sum"),
        (lambda: theory.output_variance_rate([0.5, 0.5], [0, 0, 0], [0, 0]), "scores must have"),
        (lambda: theory.output_variance_rate([0.5, 0.5], [0, 0], 1.0), "values must have shape"),
        (lambda: theory.output_variance_bound(0, 1.0, 1.0), "n_key"),
        (lambda: theory.output_variance_bound(3, -1.0, 1.0), "score_limit"),
        (lambda: theory.predict_average_norm(0.5, 1.0), "support"),
        (lambda: theory.predict_average_norm(2, 1.0, 1.5), "cosine"),
        (lambda: theory.peri_norm_bound(1.0, -1, 1.0, 4), "n_sublayers"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_variance_bound_in_numbers() -> None:
    np.testing.assert_allclose(
        theory.output_variance_bound([1, 10], 0.5, 3.0), [36 * np.e**2, 3.6 * np.e**2]
    )
    assert theory.output_variance_bound(4, 0.0, 1.0) == 1.0
    assert theory.output_variance_bound(4, 1e3, 1.0) == np.inf
