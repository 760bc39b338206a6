"""Constructed models against theory section 1.1, written out here once more by hand."""

import numpy as np
import pytest
import torch

from resharpen.models import (
    Checkpoint,
    construct_set_complement,
    construct_tight_set_complement,
    seeded_generator,
    task_from_dict,
)
from resharpen.models.constructed.assembling import CLOSED_FORM_PLACEMENTS

V = 12


def displacements(checkpoint: Checkpoint, length: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Tokens, displacement of each, and the largest spread among absent tokens (float64)."""
    assert checkpoint.task is not None
    task = task_from_dict(checkpoint.task)
    batch = task.sample(seeded_generator(0, length), 16, length)
    with torch.no_grad():
        logits = checkpoint.model()(batch.tokens)[:, -1].double()
    present = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, batch.tokens, True)
    absent = logits.masked_fill(present, torch.nan)
    base = absent.nanmean(1, keepdim=True)
    oscillation = float(np.nanmax(absent.numpy(), 1).max() - np.nanmin(absent.numpy(), 1).min())
    assert (np.nanmax(absent.numpy(), 1) - np.nanmin(absent.numpy(), 1)).max() < 1e-4
    return batch.tokens, (base - logits).gather(1, batch.tokens), oscillation


def gap(placement: str, norm: str, s: int, p: float, b: float, final: bool, eps: float) -> float:
    """Closed form for uniform attention and equal p (theory 1.1, width 3v)."""
    width = 3 * V
    centred = norm.startswith("LN")
    if placement == "post" or final:
        square, total = b * b + p * p / s, -p
    elif placement in ("res_post", "peri"):
        square, total = p * p / s, -p
    else:
        return p / s
    variance = square / width - (total / width) ** 2 * centred
    return p / s / (variance + eps) ** 0.5


@pytest.mark.parametrize("norm", ["LN", "LNPre", "RMS", "RMSPre"])
@pytest.mark.parametrize(
    ("placement", "final"),
    [(name, False) for name in CLOSED_FORM_PLACEMENTS] + [("none", True), ("pre", True)],
)
def test_gap_of_every_placement(placement: str, final: bool, norm: str) -> None:
    p, b, eps = 7.0, 2.0, 1e-4
    gain = 1.5 if norm in ("LN", "RMS") and placement not in ("none", "pre") else 1.0
    checkpoint = construct_set_complement(
        V,
        norm_placement=placement,  # type: ignore[arg-type]
        normalization_type=norm,  # type: ignore[arg-type]
        final_norm=final,
        p=p,
        residual=b,
        gain=gain,
        eps=eps,
    )
    for length in (1, 2, 5, V - 1):
        _, measured, _ = displacements(checkpoint, length)
        expected = gain * gap(placement, norm, length, p, b, final, eps)
        np.testing.assert_allclose(measured, expected, rtol=1e-5)


@pytest.mark.parametrize("norm", ["LN", "RMS"])
@pytest.mark.parametrize("placement", ["none", "pre"])
def test_general_solution_with_arbitrary_attention(placement: str, norm: str) -> None:
    rng = np.random.default_rng(0)
    p, delta = np.exp(rng.normal(size=(2, V)))
    log_weights = rng.normal(size=(V, V))
    checkpoint = construct_set_complement(
        V,
        norm_placement=placement,  # type: ignore[arg-type]
        normalization_type=norm,  # type: ignore[arg-type]
        p=p.tolist(),
        delta=delta.tolist(),
        log_weights=log_weights,
    )
    for length in (1, 2, 6, V - 1):
        tokens, measured, _ = displacements(checkpoint, length)
        for row, values in zip(tokens.numpy(), measured.numpy(), strict=True):
            last = row[-1]
            weights = np.exp(log_weights[last, row])
            weights /= weights.sum()
            expected = weights * p[row]
            expected[-1] = delta[last] - (1 - weights[-1]) * p[last]
            np.testing.assert_allclose(values, expected, atol=2e-5)


@pytest.mark.parametrize("placement", ["post", "res_post", "peri"])
def test_normed_solution_with_arbitrary_attention_and_p(placement: str) -> None:
    rng = np.random.default_rng(1)
    p, b, eps = np.exp(rng.normal(size=V)), 1.3, 1e-3
    log_weights = rng.normal(size=(V, V))
    checkpoint = construct_set_complement(
        V,
        norm_placement=placement,  # type: ignore[arg-type]
        p=p.tolist(),
        residual=b,
        log_weights=log_weights,
        eps=eps,
    )
    for length in (1, 4, V - 1):
        tokens, measured, _ = displacements(checkpoint, length)
        for row, values in zip(tokens.numpy(), measured.numpy(), strict=True):
            weights = np.exp(log_weights[row[-1], row])
            raw = weights / weights.sum() * p[row]
            square = (raw**2).sum() + b * b * (placement == "post")
            np.testing.assert_allclose(values, raw / (square / (3 * V) + eps) ** 0.5, rtol=2e-5)


def test_tight_solution_is_exact_at_width_v_minus_1() -> None:
    p = np.exp(np.random.default_rng(2).normal(size=V) * 0.3)
    checkpoint = construct_tight_set_complement(V, p=p.tolist(), ratio=0.7)
    assert checkpoint.config.d_model == checkpoint.config.d_head == V - 1
    for length in (1, 2, 5, V - 1):
        tokens, measured, _ = displacements(checkpoint, length)
        expected = p[tokens.numpy()] / length
        expected[:, -1] += 0.7 * p[tokens.numpy()[:, -1]]
        np.testing.assert_allclose(measured, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": -1.0}, "p must be one positive number or 12 of them"),
        ({"p": [1.0, 2.0]}, "p must be one positive number or 12"),
        (
            {"norm_placement": "ngpt"},
            "norm_placement must be one of none, pre, post, res_post, peri",
        ),
        ({"residual": 0.0}, "residual must be a positive number"),
        ({"delta": 3.0, "norm_placement": "post"}, "delta must be left out"),
        ({"final_norm": True, "norm_placement": "post"}, "final_norm has a closed form"),
        ({"log_weights": np.zeros((3, 3))}, "log_weights must be finite, of shape"),
        ({"gain": 2.0}, "gain must be 1 where no norm"),
    ],
)
def test_impossible_constructions_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        construct_set_complement(V, **arguments)


def test_tight_bad_input() -> None:
    with pytest.raises(ValueError, match="ratio must be a positive number"):
        construct_tight_set_complement(V, ratio=0.0)
    with pytest.raises(ValueError, match="vocabulary must be at least 3"):
        construct_tight_set_complement(2)
