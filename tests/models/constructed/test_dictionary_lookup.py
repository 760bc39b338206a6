"""The constructed solution of dictionary lookup against its closed forms, written out by hand."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from resharpen.models import construct_dictionary_lookup, seeded_generator, task_from_dict

Row = Callable[[str, int, float], tuple[float, float]]
K, V = 5, 3
D = 4 * K + 3 * V


def last_logits(
    length: int, batch: int, sizes: tuple[int, int] = (K, V), **options: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of the last query, the answer, and how many other pairs have each value."""
    checkpoint = construct_dictionary_lookup(*sizes, **options)
    assert checkpoint.task is not None
    drawn = task_from_dict(checkpoint.task).sample(seeded_generator(0, length), batch, length)
    with torch.no_grad():
        logits = checkpoint.model()(drawn.tokens)[:, -1].double().numpy()
    answer = drawn.targets[:, -1].argmax(-1).numpy()
    counts = np.zeros_like(logits)
    for row, tokens in enumerate(drawn.tokens.tolist()):
        asked = tokens[-1] - sizes[0] * sizes[1]
        for token in tokens[:-1]:
            if token // sizes[1] != asked:
                counts[row, token % sizes[1]] += 1
    return logits, answer, counts


def raw(a: float, a0: float, p: float, answer: np.ndarray, counts: np.ndarray) -> np.ndarray:
    n_values = counts.shape[1]
    there = np.eye(n_values)[answer]
    return p * (a * there + a0 * counts - (a + a0 * counts.sum(1, keepdims=True)) / n_values)


@pytest.mark.parametrize("kind", ["LN", "LNPre", "RMS", "RMSPre"])
@pytest.mark.parametrize(
    ("placement", "final", "norm"),
    [
        ("none", False, "none"),
        ("pre", False, "none"),
        ("res_post", False, "output"),
        ("peri", False, "output"),
        ("post", False, "stream"),
        ("none", True, "stream"),
        ("pre", True, "stream"),
    ],
)
def test_logits_of_every_placement(
    placement: str, final: bool, norm: str, kind: str, needle_row: Row
) -> None:
    p, b, m, eps = 7.0, 1.7, 2.0, 1e-3
    g = 1.5 if norm != "none" and kind in ("LN", "RMS") else 1.0
    options = {"norm_placement": placement, "normalization_type": kind, "final_norm": final}
    for n in (2, 3, 9, 70):
        logits, answer, counts = last_logits(
            n, 30, **options, margin=m, p=p, residual=b, gain=g, eps=eps
        )
        expected = raw(*needle_row("softmax", n, m), p, answer, counts)
        if norm != "none":
            square = (expected**2).sum(1, keepdims=True) + b * b * (norm == "stream")
            expected = g * expected / np.sqrt(square / D + eps)
        np.testing.assert_allclose(logits, expected, atol=3e-5)


def test_every_normalizer(normalizer: str, needle_row: Row) -> None:
    m, p = 1.3, 4.0
    options: dict[str, Any] = {"normalizer": normalizer, "inverse_temperature": 2.5}
    for n in (2, 9, 300):
        logits, answer, counts = last_logits(n, 10, margin=m, p=p, **options)
        expected = raw(*needle_row(normalizer, n, m), p, answer, counts)
        np.testing.assert_allclose(logits, expected, atol=3e-5)


@pytest.mark.parametrize("n", [4, 40])
def test_means_over_the_sequences(n: int, needle_row: Row) -> None:
    m, p, batch = 2.0, 7.0, 4000
    logits, answer, _ = last_logits(n, batch, margin=m, p=p)
    a, a0 = needle_row("softmax", n, m)
    right = np.take_along_axis(logits, answer[:, None], 1)[:, 0]
    gap = right - (logits.sum(1) - right) / (V - 1)
    square = (logits**2).sum(1)
    for values, mean in (
        (gap, p * a),
        (square, p * p * (1 - 1 / V) * (a * a + (n - 2) * a0 * a0)),
    ):
        assert abs(values.mean() - mean) < 4 * values.std() / math.sqrt(batch)


@pytest.mark.parametrize(("placement", "critical"), [("none", 1.0), ("res_post", 0.5)])
@pytest.mark.parametrize("more", [-0.3, 0.3])
def test_the_critical_exponent_is_1_without_and_a_half_with_a_norm(
    placement: Any, critical: float, more: float
) -> None:
    """With the margin ``c log n``: above the exponent the gap stays as ``n`` grows, below it goes.

    Many values, so that the other pairs are nearly orthogonal.
    """
    exponent, n_values, batch = critical + more, 32, 200
    options = {"norm_placement": placement, "normalizer": "log_n", "eps": 1e-12, "p": 1.0}
    gaps = []
    for n in (32, 512):
        logits, answer, _ = last_logits(n, batch, (4, n_values), margin=exponent, **options)
        right = np.take_along_axis(logits, answer[:, None], 1)[:, 0]
        gap = right - (logits.sum(1) - right) / (n_values - 1)
        law = n**exponent / (n**exponent + n - 1)
        if placement == "res_post":
            width = 4 * 4 + 3 * n_values
            law = n**exponent / math.sqrt(n ** (2 * exponent) + n - 2)
            law *= math.sqrt(width / (1 - 1 / n_values))
        assert abs(gap.mean() - law) < 4 * gap.std() / math.sqrt(batch) + 0.05 * law
        gaps.append(gap.mean())
    assert gaps[1] > gaps[0] if more > 0 else gaps[1] < 0.7 * gaps[0]


def test_the_checkpoint_says_what_it_is() -> None:
    checkpoint = construct_dictionary_lookup(K, V, norm_placement="pre", p=2.0)
    assert (checkpoint.config.d_model, checkpoint.config.d_head) == (D, 5)
    assert checkpoint.name == "constructed-dictionary-lookup-pre"
    assert checkpoint.task == {"name": "dictionary-lookup", "keys": K, "values": V}
    assert checkpoint.constructed == {
        "kind": "dictionary-lookup",
        "margin": 5.0,
        "p": 2.0,
        "residual": 1.0,
        "gain": 1.0,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": 1}, "keys must be a whole number, 2 or more; got 1"),
        ({"margin": -1.0}, "margin must be a positive number; got -1.0"),
        ({"p": math.nan}, "p must be a positive number"),
        ({"residual": 0.0}, "residual must be a positive number"),
        ({"gain": 2.0, "norm_placement": "pre"}, "gain must be 1 where no norm"),
        ({"norm_placement": "sandwich"}, "norm_placement must be one of none, pre, post"),
        ({"normalizer": "linear"}, "normalizer='linear' has no closed form here"),
    ],
)
def test_impossible_constructions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        construct_dictionary_lookup(**options)
