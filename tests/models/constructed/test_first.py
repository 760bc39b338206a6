"""The constructed solution of FIRST against its closed forms, written out here once more."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from resharpen.models import construct_first, seeded_generator, task_from_dict
from resharpen.models.constructed.assembling import CLOSED_FORM_PLACEMENTS

Row = Callable[[str, int, float], tuple[float, float]]
D = 10


def gaps(length: int, **options: Any) -> torch.Tensor:
    """Right less wrong logit at every position, ``[batch, pos]``."""
    checkpoint = construct_first(**options)
    assert checkpoint.task is not None
    batch = task_from_dict(checkpoint.task).sample(seeded_generator(0, length), 12, length)
    with torch.no_grad():
        logits = checkpoint.model()(batch.tokens).double()
    return ((2 * batch.targets - 1) * logits).sum(-1)


def expected(a: float, p: float, b: float, g: float, eps: float, norm: str) -> float:
    square = (a * p) ** 2 / 2
    if norm == "none":
        return a * p
    return g * a * p / math.sqrt((square + b * b * (norm == "stream")) / D + eps)


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
def test_gap_at_every_position_of_every_placement(
    placement: str, final: bool, norm: str, kind: str, needle_row: Row
) -> None:
    p, b, m, eps = 7.0, 1.7, 2.0, 1e-3
    g = 1.5 if norm != "none" and kind in ("LN", "RMS") else 1.0
    options = {"norm_placement": placement, "normalization_type": kind, "final_norm": final}
    measured = gaps(60, **options, margin=m, p=p, residual=b, gain=g, eps=eps)
    for n in range(1, 61):
        a, _ = needle_row("softmax", n, m)
        wanted = torch.full((12,), expected(a, p, b, g, eps, norm), dtype=torch.float64)
        torch.testing.assert_close(measured[:, n - 1], wanted, rtol=2e-5, atol=0)


def test_every_normalizer(normalizer: str, needle_row: Row) -> None:
    m, p = 1.3, 4.0
    options: dict[str, Any] = {"normalizer": normalizer, "inverse_temperature": 2.5}
    for n in (1, 2, 30, 500):
        a, _ = needle_row(normalizer, n, m)
        measured = gaps(n, margin=m, p=p, **options)[:, -1]
        torch.testing.assert_close(measured, torch.full_like(measured, a * p), rtol=5e-5, atol=1e-6)


def test_a_norm_restores_the_needle_whole_and_log_n_keeps_it() -> None:
    """The three remedies of Chiang and Cholak's model: none, layer norm, log n."""
    lengths = (8, 64, 512)
    plain = [float(gaps(n, margin=3.0, p=1.0)[:, -1].mean()) for n in lengths]
    normed = [
        float(gaps(n, margin=3.0, p=1.0, norm_placement="res_post", eps=0.0)[:, -1].mean())
        for n in lengths
    ]
    scaled = [float(gaps(n, margin=1.0, p=1.0, normalizer="log_n")[:, -1].min()) for n in lengths]
    assert plain[0] > 0.7 and plain[2] < 0.05
    assert normed == pytest.approx([math.sqrt(2 * D)] * 3, rel=1e-5)
    assert scaled == pytest.approx([n / (2 * n - 1) for n in lengths], rel=1e-5)
    assert min(scaled) > 0.5


def test_the_checkpoint_says_what_it_is() -> None:
    checkpoint = construct_first(norm_placement="post", margin=2.0, gain=3.0)
    assert checkpoint.name == "constructed-first-post"
    assert checkpoint.task == {"name": "first"}
    assert checkpoint.constructed == {
        "kind": "first",
        "margin": 2.0,
        "p": 10.0,
        "residual": 1.0,
        "gain": 3.0,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 0.0}, "margin must be a positive number; got 0.0"),
        ({"p": -1.0}, "p must be a positive number"),
        ({"residual": math.inf}, "residual must be a positive number"),
        ({"gain": 2.0}, "gain must be 1 where no norm"),
        ({"norm_placement": "deepnorm"}, "norm_placement must be one of none, pre, post"),
        ({"norm_placement": "post", "final_norm": True}, "final_norm has a closed form here only"),
        ({"normalizer": "linear"}, "normalizer='linear' has no closed form here"),
        ({"normalizer": "differential"}, "normalizer='differential' has no closed form here"),
    ],
)
def test_impossible_constructions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        construct_first(**options)
    assert set(CLOSED_FORM_PLACEMENTS) == {"none", "pre", "post", "res_post", "peri"}
