"""The two-body identity and the structured solution against explicit matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)


class Model:
    """f(t) = B[k] + softmax(scores[k, t]) @ D[t], with everything explicit."""

    def __init__(self, bias: np.ndarray, value: np.ndarray, scores: np.ndarray) -> None:
        self.bias, self.value, self.scores = bias, value, scores

    def weights(self, tokens: np.ndarray) -> np.ndarray:
        scores = self.scores[tokens[-1], tokens]
        exponentials = np.exp(scores - scores.max())
        return exponentials / exponentials.sum()

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        return self.bias[tokens[-1]] + self.weights(tokens) @ self.value[tokens]


def random_model(rng: np.random.Generator, vocabulary: int, width: int) -> Model:
    return Model(
        rng.normal(size=(vocabulary, width)),
        rng.normal(size=(vocabulary, width)),
        3.0 * rng.normal(size=(vocabulary, vocabulary)),
    )


def structured_model(
    rng: np.random.Generator, p: np.ndarray, delta: np.ndarray, uniform: bool = False
) -> Model:
    n = p.size
    common, shift, other = rng.normal(size=(3, n))
    value = common[None, :] + shift[:, None] - np.diag(p)
    bias = -common[None, :] + other[:, None] + np.diag(p - delta)
    return Model(bias, value, np.zeros((n, n)) if uniform else rng.normal(size=(n, n)))


def measured_displacements(model: Model, tokens: np.ndarray) -> tuple[np.ndarray, float]:
    """Displacement of each present token, and the oscillation over the absent ones."""
    logits = model(tokens)
    absent = np.setdiff1d(np.arange(logits.size), tokens)
    return logits[absent].mean() - logits[tokens], float(np.ptp(logits[absent]))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(2, 14))
def test_two_body_identity_at_every_length(seed: int, vocabulary: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, vocabulary, int(rng.integers(1, 6)))
    for length in range(1, vocabulary + 1):
        tokens = rng.permutation(vocabulary)[:length]
        f1 = model(tokens[-1:])
        f2 = np.array([model(np.array([token, tokens[-1]])) for token in tokens[:-1]])
        predicted = theory.predict_two_body(
            f1, f2.reshape(length - 1, f1.size), model.weights(tokens)
        )
        np.testing.assert_allclose(predicted, model(tokens), atol=1e-10)


def test_two_body_identity_batched_over_leading_axes() -> None:
    rng = np.random.default_rng(0)
    model = random_model(rng, 12, 5)
    rows = np.array([[rng.permutation(12)[:6] for _ in range(3)] for _ in range(2)])
    f1 = np.array([[model(row[-1:]) for row in block] for block in rows])
    f2 = np.array([[[model(row[[i, -1]]) for i in range(5)] for row in block] for block in rows])
    weights = np.array([[model.weights(row) for row in block] for block in rows])
    exact = np.array([[model(row) for row in block] for block in rows])
    predicted = theory.predict_two_body(f1, f2, weights)
    assert predicted.shape == (2, 3, 5)
    np.testing.assert_allclose(predicted, exact, atol=1e-10)
    one_row = theory.predict_two_body(f1[0], f2[0], weights[0])
    np.testing.assert_array_equal(one_row, predicted[0])


def test_two_body_is_wrong_when_a_weight_depends_on_the_length() -> None:
    """The hypothesis matters: with positions in the scores the prediction misses."""
    rng = np.random.default_rng(1)
    model = random_model(rng, 9, 9)
    tokens = rng.permutation(9)[:6]
    far = np.exp(-0.5 * np.arange(6)[::-1])
    row = model.weights(tokens) * far
    row = row / row.sum()
    exact = model.bias[tokens[-1]] + row @ model.value[tokens]
    f2 = np.array([model(np.array([token, tokens[-1]])) for token in tokens[:-1]])
    assert np.abs(theory.predict_two_body(model(tokens[-1:]), f2, row) - exact).max() > 1e-2


@pytest.mark.parametrize(
    ("f1", "f2", "weights"),
    [
        ((4,), (3, 4), (3,)),
        ((4,), (2, 5), (3,)),
        ((), (2, 4), (3,)),
        ((4,), (4,), (3,)),
    ],
)
def test_two_body_shapes_that_do_not_fit(
    f1: tuple[int, ...], f2: tuple[int, ...], weights: tuple[int, ...]
) -> None:
    row = np.full(weights, 1.0 / weights[-1])
    with pytest.raises(ValueError, match=r"shapes \[\*row, d\], \[\*row, s - 1, d\]"):
        theory.predict_two_body(np.zeros(f1), np.zeros(f2), row)


def test_two_body_refuses_scores_for_weights_and_carries_nan() -> None:
    with pytest.raises(ValueError, match="sum to one"):
        theory.predict_two_body(np.zeros(4), np.zeros((2, 4)), [0.3, 2.0, 1.1])
    unknown = theory.predict_two_body([1.0, np.nan], np.ones((1, 2)), [0.5, 0.5])
    assert np.isnan(unknown).tolist() == [False, True]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(4, 14))
def test_displacement_of_the_structured_solution(seed: int, vocabulary: int) -> None:
    rng = np.random.default_rng(seed)
    p, delta = np.exp(rng.normal(size=(2, vocabulary)))
    model = structured_model(rng, p, delta)
    for length in range(1, vocabulary):
        tokens = rng.permutation(vocabulary)[:length]
        measured, oscillation = measured_displacements(model, tokens)
        predicted = theory.predict_displacement(p[tokens], delta[tokens[-1]], model.weights(tokens))
        assert oscillation < 1e-10
        np.testing.assert_allclose(predicted, measured, atol=1e-10)


def test_displacement_broadcasts_rows_and_refuses_other_token_counts() -> None:
    out = theory.predict_displacement(np.ones(3), [1.0, 2.0], np.full((2, 3), 1 / 3))
    np.testing.assert_allclose(out, [[1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 4 / 3]])
    with pytest.raises(ValueError, match="same last axis"):
        theory.predict_displacement(np.ones(4), 1.0, np.full(3, 1 / 3))


def test_balanced_law_from_length_2_and_from_length_1() -> None:
    rng = np.random.default_rng(2)
    p = np.full(10, 7.0)
    model = structured_model(rng, p, p, uniform=True)
    for length in range(1, 10):
        measured, _ = measured_displacements(model, rng.permutation(10)[:length])
        np.testing.assert_allclose(measured, theory.predict_balanced_displacement(length, 3.5))
        np.testing.assert_allclose(measured, theory.predict_balanced_displacement(length, 7.0, 1))
    np.testing.assert_allclose(theory.predict_balanced_displacement([1, 2, 4], 3.0), [6, 3, 1.5])
    with pytest.raises(ValueError, match="length"):
        theory.predict_balanced_displacement(0, 1.0)


def test_last_token_fails_exactly_below_its_threshold() -> None:
    p, delta = 6.0, 2.0
    threshold = float(theory.last_token_threshold(p, delta))
    for own in (threshold - 1e-6, threshold + 1e-6):
        row = [1.0 - own, own]
        last = theory.predict_displacement([p, p], delta, row)[-1]
        assert (last > 0) == (own > threshold)
    assert theory.last_token_threshold(2.0, 3.0) < 0.0
    assert theory.last_token_threshold(2.0, -1.0) > 1.0
    with pytest.raises(ValueError, match="p must be finite and > 0"):
        theory.last_token_threshold(0.0, 1.0)


def test_last_token_under_uniform_attention_fails_from_the_stated_length() -> None:
    p, delta = 6.0, 4.6
    edge = p / (p - delta)
    for length in range(2, 9):
        last = theory.predict_displacement(np.full(length, p), delta, np.full(length, 1 / length))
        assert (last[-1] > 0) == (length < edge)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(4, 14))
def test_oscillation_bound_holds(seed: int, vocabulary: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, vocabulary, vocabulary)
    for length in range(1, vocabulary - 1):
        tokens = rng.permutation(vocabulary)[:length]
        absent = np.setdiff1d(np.arange(vocabulary), tokens)
        first = np.ptp(model(tokens[-1:])[absent])
        pairs = [np.ptp(model(tokens[[i, -1]])[absent]) for i in range(length - 1)]
        bound = theory.oscillation_bound(
            length, model.weights(tokens)[-1], first, max(pairs, default=0.0)
        )
        assert np.ptp(model(tokens)[absent]) <= bound + 1e-10


def test_oscillation_bound_is_exact_at_lengths_1_and_2_and_tends_to_its_limit() -> None:
    np.testing.assert_allclose(theory.oscillation_bound([1, 2], [1.0, 0.3], 5.0, 2.0), [5.0, 2.0])
    length = np.arange(2, 5000)
    bound = theory.oscillation_bound(length, 1.0 / length, 5.0, 2.0)
    assert (bound <= 2 * 2.0 + 5.0).all()
    assert bound[-1] == pytest.approx(9.0, abs=0.01)
    with pytest.raises(ValueError, match="own_weight"):
        theory.oscillation_bound(3, 1.5, 1.0, 1.0)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, length=st.integers(1, 40))
def test_minimum_displacement_bound_for_any_attention(seed: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    p = np.exp(rng.normal(size=length))
    bound = theory.minimum_displacement_bound(p)
    assert bound <= p.max() / length + 1e-12
    for concentration in (0.05, 1.0, 20.0):
        row = rng.dirichlet(np.full(length, concentration))
        assert (row * p).min() <= bound + 1e-12
    attained = (1 / p) / (1 / p).sum()
    np.testing.assert_allclose(attained * p, bound)


def test_minimum_displacement_bound_rows_and_bad_input() -> None:
    np.testing.assert_allclose(
        theory.minimum_displacement_bound([[2.0, 2.0], [1.0, 3.0]]), [1, 0.75]
    )
    with pytest.raises(ValueError, match="> 0"):
        theory.minimum_displacement_bound([1.0, 0.0])
    with pytest.raises(ValueError, match="s >= 1"):
        theory.minimum_displacement_bound([])


def test_width_bound_is_the_rank_of_the_structured_solution() -> None:
    rng = np.random.default_rng(3)
    for vocabulary in (4, 7, 11):
        p = np.exp(rng.normal(size=vocabulary))
        model = structured_model(rng, p, 1.7 * p)
        ranks = [np.linalg.matrix_rank(m, 1e-9) for m in (model.value, model.bias + model.value)]
        assert min(ranks) >= theory.minimum_width_bound(vocabulary) == vocabulary - 1
        tight = (p / vocabulary)[:, None] - np.diag(p)
        assert np.linalg.matrix_rank(tight, 1e-9) == theory.minimum_value_width_bound(vocabulary)
        balanced = structured_model(rng, p, p)
        rank = int(np.linalg.matrix_rank(balanced.bias, 1e-9))
        assert rank == 2
        assert theory.minimum_width_bound(vocabulary, True, rank) == 2 * vocabulary - 4


def test_width_bound_refuses_small_vocabularies_and_impossible_ranks() -> None:
    np.testing.assert_array_equal(theory.minimum_width_bound([4, 32], balanced=True), [4, 60])
    with pytest.raises(ValueError, match="d_vocab"):
        theory.minimum_width_bound(3)
    with pytest.raises(ValueError, match="bias_rank"):
        theory.minimum_width_bound(8, balanced=True, bias_rank=3)
