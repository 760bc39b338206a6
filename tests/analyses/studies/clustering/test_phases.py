"""The sweep of a length-scaled temperature: exact on equiangular tokens, elsewhere measured."""

import numpy as np
import pytest
import torch

from resharpen.analyses.studies.clustering.phases import (
    attention_step,
    half_way,
    sweep_phases,
)
from resharpen.interp.theory import predict_equiangular_tokens


@pytest.mark.parametrize("cosine", [0.2, 0.7])
@pytest.mark.parametrize("n", [5, 40])
def test_equiangular_tokens_give_the_exact_cosine(cosine, n):
    tokens = torch.from_numpy(predict_equiangular_tokens(n, cosine, n))
    lengths = torch.linspace(0.5, 4.0, n, dtype=torch.float64)[:, None]
    swept = sweep_phases((lengths * tokens)[None].repeat(2, 1, 1), 31, 2.5)
    assert swept is not None and swept.n_key == n
    assert swept.cosine == pytest.approx(cosine) and swept.spread == pytest.approx(0, abs=1e-6)
    assert swept.critical == pytest.approx(1 / (1 - cosine))
    np.testing.assert_allclose(swept.measured, swept.predicted, rtol=1e-9)
    assert swept.turn == pytest.approx(swept.predicted_turn)
    assert swept.measured[0] == pytest.approx(1.0)


def test_the_turn_of_equiangular_tokens_nears_the_critical_gamma_as_they_become_more():
    turns = []
    for n in (8, 32, 128):
        tokens = torch.from_numpy(predict_equiangular_tokens(n, 0.5, n))
        swept = sweep_phases(tokens[None], 101, 2.0)
        assert swept is not None
        turns.append(abs(swept.turn - 1.0))
    assert turns[0] > turns[1] > turns[2] and turns[2] < 0.2


def test_tokens_that_are_not_equiangular_turn_elsewhere():
    generator = torch.Generator().manual_seed(0)
    apart = torch.randn(1, 60, 5, generator=generator) + torch.randn(1, 1, 5, generator=generator)
    swept = sweep_phases(apart)
    assert swept is not None
    assert swept.spread > 0.2 and abs(swept.turn / swept.predicted_turn - 1) > 0.05


def test_streams_without_a_critical_gamma_have_no_sweep():
    assert sweep_phases(torch.ones(1, 4, 3)) is None
    assert sweep_phases((torch.eye(4) - 0.25)[None]) is None
    assert sweep_phases(torch.eye(4)[None, :1]) is None


def test_half_way_is_interpolated():
    share = np.array([0.0, 1.0, 2.0])
    assert half_way(share, np.array([1.0, 0.8, 0.4]), 0.2) == pytest.approx(1.5)
    assert np.isnan(half_way(share, np.array([1.0, 0.9, 0.8]), 0.2))
    assert half_way(share, np.array([0.1, 0.1, 0.1]), 0.2) == 0.0


def test_an_attention_step_is_the_mean_of_what_is_seen():
    unit = torch.nn.functional.normalize(torch.randn(2, 5, 4, dtype=torch.float64), dim=-1)
    np.testing.assert_allclose(
        attention_step(unit, 0.0), unit.mean(1, keepdim=True).expand(2, 5, 4), rtol=1e-12
    )
    np.testing.assert_allclose(attention_step(unit, 1e6), unit, atol=1e-12)
