"""Every normalizer and every placement learns a short task from a fixed seed."""

import math

import pytest

from resharpen.models import TransformerConfig
from resharpen.models.normalizers import NORMALIZERS
from resharpen.models.placements import PLACEMENTS
from resharpen.models.tasks import SetComplement
from resharpen.models.training import train
from resharpen.models.training.config import TrainingConfig

TASK = SetComplement(8)
RECIPE = TrainingConfig(length=3, n_steps=200, batch_size=32, targets="exact", ema_decays=())
FLOOR = sum(math.log(8 - length) for length in (1, 2, 3)) / 3
"""Entropy of the exact targets: no model does better."""

REMEDIES = [
    *({"normalizer": name} for name, entry in NORMALIZERS.items() if entry.has_gradient),
    *({"norm_placement": name} for name in PLACEMENTS),
    {"qk_norm": "fixed"},
    {"qk_norm": "learned"},
    {"sigma_reparam": True},
    {"entmax_alpha": 2.0, "normalizer": "entmax"},
    {"normalizer": "differential", "norm_placement": "ngpt"},
]


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: "-".join(map(str, remedy.values())))
def test_every_remedy_learns_the_short_task(remedy) -> None:
    cfg = TransformerConfig(**{"d_vocab": 8, "d_model": 16, "norm_placement": "none", **remedy})
    (checkpoint,) = train(cfg, TASK, RECIPE, (0,))
    # Knowing nothing costs log 8, which is 0.43 nats above the floor.
    assert checkpoint.losses[0] > FLOOR + 0.1
    assert checkpoint.losses[-1] < FLOOR + 0.02


def test_what_has_no_gradient_is_refused() -> None:
    cfg = TransformerConfig(d_vocab=8, d_model=16, normalizer="hardmax")
    with pytest.raises(ValueError, match="normalizer='hardmax' has no gradient: train with"):
        train(cfg, TASK, RECIPE, (0,))
