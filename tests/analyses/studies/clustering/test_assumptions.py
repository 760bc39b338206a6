"""Distances from the assumptions: 0 or 1 where they hold, known values where they do not."""

import numpy as np
import pytest
import torch

from resharpen.analyses.studies.clustering.assumptions import (
    assumption_rows,
    identity_cosine,
    layer_distance,
)
from resharpen.analyses.studies.clustering.ideal import Ideal
from resharpen.interp.drawing import draw
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.tasks import SetComplement

TASK = SetComplement(10)


def value(frame, quantity, layer):
    row = frame[(frame["quantity"] == quantity) & (frame["layer"] == layer)]
    return float(row["mean"].iloc[0])


def test_known_matrices():
    eye = torch.eye(4)
    assert identity_cosine(3 * eye).item() == pytest.approx(1.0)
    assert identity_cosine(-eye).item() == pytest.approx(-1.0)
    rotated = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    assert identity_cosine(rotated).item() == 0.0
    assert layer_distance(eye, eye).item() == 0.0
    assert layer_distance(eye, -eye).item() == pytest.approx(2**0.5)
    assert layer_distance(torch.eye(2), rotated).item() == pytest.approx(1.0)


def test_a_model_that_is_the_theory_departs_from_nothing():
    ideal = Ideal("pre", 3, 0.2, 1.7, 10)
    frame = assumption_rows(ideal.model(), TASK.sample, 6, n_sequences=2)
    for layer in range(3):
        assert value(frame, "identity_cosine_qk", layer) == pytest.approx(1.0)
        assert value(frame, "identity_cosine_ov", layer) == pytest.approx(1.0)
        assert value(frame, "visible_share", layer) == 1.0
        if layer:
            assert value(frame, "layer_distance_qk", layer) == pytest.approx(0.0, abs=1e-9)
            assert value(frame, "layer_distance_ov", layer) == pytest.approx(0.0, abs=1e-9)
    assert not ((frame["quantity"] == "layer_distance_qk") & (frame["layer"] == 0)).any()


def test_the_slope_of_the_scores_is_the_inverse_temperature_of_identity_weights():
    """Tokens of random directions: their cosines differ, the scores are beta times them."""
    ideal = Ideal("pre", 1, 0.2, 1.7, 10)
    model = ideal.model()
    with torch.no_grad():
        model.embed.W_E.copy_(torch.randn(10, 10, generator=torch.Generator().manual_seed(0)))
    frame = assumption_rows(model, TASK.sample, 6, n_sequences=3)
    assert value(frame, "score_slope", 0) == pytest.approx(1.7, rel=1e-9)


def test_a_causal_model_with_random_weights():
    model = Transformer(TransformerConfig(d_vocab=10, n_layers=2, d_model=8, n_heads=2)).double()
    frame = assumption_rows(model, TASK.sample, 5, n_sequences=4)
    assert value(frame, "visible_share", 0) == pytest.approx(15 / 25)
    tokens = draw(TASK.sample, 0, 5, 4).tokens
    _, cache = model.run_with_cache(tokens)
    scores = cache["blocks.1.attn.hook_attn_scores"].detach().numpy().mean(1)
    x = cache["blocks.1.hook_resid_pre"].detach().numpy()
    unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
    lower = np.tril_indices(5, -1)
    slopes = [
        np.polyfit((u @ u.T)[lower], s[lower], 1)[0] for u, s in zip(unit, scores, strict=True)
    ]
    assert value(frame, "score_slope", 1) == pytest.approx(np.mean(slopes), rel=1e-6)
    qk = (model.W_Q @ model.W_K.mT).detach()[1]
    expected = [float(np.trace(m) / (8**0.5 * np.linalg.norm(m))) for m in qk.numpy()]
    assert value(frame, "identity_cosine_qk", 1) == pytest.approx(np.mean(expected), rel=1e-9)
