"""The speed factor of every placement, from measured radius and output, against its own block."""

import math

import numpy as np
import pytest
import torch

from resharpen.analyses.studies.clustering.turning import (
    TURNING_UNITS,
    block_turning,
    turning_rows,
)
from resharpen.interp.drawing import draw
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.placements import PLACEMENTS
from resharpen.models.tasks import SetComplement

TASK = SetComplement(14)


def make(placement, scale=1.0, **change):
    sizes = {"d_vocab": 14, "n_layers": 4, "d_model": 10, "normalization_type": "RMSPre"}
    model = Transformer(
        TransformerConfig(**{**sizes, "norm_placement": placement, "eps": 1e-12, **change}), seed=2
    ).double()
    with torch.no_grad():
        for block in model.blocks:
            if block.step1 is not None:
                block.step1.fill_(0.05 * scale)
            else:
                block.attn.W_O.mul_(scale)
    return model


def seen(model, layer, length=7):
    tokens = draw(TASK.sample, 0, length, 3).tokens
    _, cache = model.run_with_cache(tokens)
    block = f"blocks.{layer}"
    output = torch.einsum(
        "bphk,hkd->bpd", cache[f"{block}.attn.hook_z"], model.blocks[layer].attn.W_O
    )
    after = cache[f"{block}.hook_resid_{'post' if model.cfg.attn_only else 'mid'}"]
    return (x.detach() for x in (cache[f"{block}.hook_resid_pre"], after, output))


def exact_turn(model, layer, before, output):
    """The angle between a token and what its placement makes of it, from the formula alone."""
    x, a = before.numpy(), output.numpy()
    norm = np.linalg.norm
    size = lambda v: norm(v, axis=-1, keepdims=True)  # noqa: E731
    place = PLACEMENTS[model.cfg.norm_placement].at(layer, model.cfg.n_layers)
    length = 1.0 if model.cfg.norm_placement == "ngpt" else math.sqrt(model.cfg.d_model)
    added = length * a / size(a) if place.after else a
    if model.blocks[layer].step1 is not None:
        added = model.blocks[layer].step1.detach().numpy() * (added - x)
    new = place.skip_gain * x + added
    cosine = (x * new).sum(-1) / (norm(x, axis=-1) * norm(new, axis=-1))
    return np.arccos(np.clip(cosine, -1, 1))


@pytest.mark.parametrize("placement", list(PLACEMENTS))
@pytest.mark.parametrize("layer", [0, 2])
def test_the_measured_turn_is_that_of_the_formula(placement, layer):
    model = make(placement)
    before, after, output = seen(model, layer)
    turning = block_turning(model, layer, before, after, output)
    np.testing.assert_allclose(
        turning.turn, exact_turn(model, layer, before, output), rtol=1e-5, atol=1e-6
    )


SMALL = [name for name in PLACEMENTS if name not in ("res_post", "peri", "sandwich", "attn_out")]


@pytest.mark.parametrize("placement", SMALL)
def test_turning_times_the_factor_is_the_tangent_and_the_deviation_shrinks_with_the_step(placement):
    deviations = []
    for scale in (1e-2, 1e-3):
        model = make(placement, scale)
        turning = block_turning(model, 2, *seen(model, 2))
        ratio = turning.turn * turning.factor / turning.tangent
        deviations.append(float((ratio[:, 1:] - 1).abs().max()))
    assert deviations[0] < 0.05
    assert deviations[1] < 0.2 * deviations[0] + 1e-5


@pytest.mark.parametrize("placement", ["res_post", "peri", "sandwich", "attn_out"])
def test_where_the_output_is_normalised_the_step_shrinks_as_the_stream_grows(placement):
    model = make(placement)
    x, _, output = seen(model, 2)
    deviations = []
    for growth in (1e2, 1e3):
        grown = growth * x
        size = output.norm(dim=-1, keepdim=True)
        after = grown + model.cfg.d_model**0.5 * output / size
        turning = block_turning(model, 2, grown, after, output)
        ratio = turning.turn * turning.factor / turning.tangent
        deviations.append(float((ratio - 1).abs().max()))
    assert deviations[0] < 0.05 and deviations[1] < 0.2 * deviations[0]


@pytest.mark.parametrize("placement", ["pre", "peri", "ngpt"])
@pytest.mark.parametrize("mlp", [False, True])
def test_rows_are_the_means_of_the_blocks(placement, mlp):
    model = make(placement, attn_only=not mlp)
    frame = turning_rows(model, TASK.sample, 7, n_sequences=3, labels={"seed": 5})
    names = set(TURNING_UNITS) if mlp else set(TURNING_UNITS) - {"mlp_turn"}
    assert set(frame["quantity"]) == names and len(frame) == 4 * len(names)
    assert (frame["seed"] == 5).all() and (frame["status"] == "ok").all()
    before, after, output = seen(model, 1)
    values = block_turning(model, 1, before, after, output).values()
    for name, value in values.items():
        row = frame[(frame["quantity"] == name) & (frame["layer"] == 1)]
        assert row["mean"].tolist() == [pytest.approx(float(value.mean()), rel=1e-6)], name
