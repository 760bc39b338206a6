"""A space so small that a trial takes a few hundredths of a second."""

import copy
from typing import Any

import pytest

from resharpen.analyses.searching.space import Space, parse_space

DOCUMENT: dict[str, Any] = {
    "seed": 3,
    "trials": 6,
    "lengths": [2, 4],
    "n_sequences": 8,
    "task": {"name": "set-complement", "vocabulary": 6},
    "model": {
        "norm_placement": {"choice": ["pre", "post"]},
        "d_model": {"int_log_uniform": [4, 16]},
        "d_mlp": {"same_as": "model.d_model"},
        "attn_only": False,
    },
    "training": {
        "length": 3,
        "n_steps": 4,
        "batch_size": 4,
        "learning_rate": {"log_uniform": [1e-3, 1e-1]},
        "ema_decays": [0.9],
    },
    "rerun": {"top": 2, "seeds": 3},
}


@pytest.fixture
def document() -> dict[str, Any]:
    """The tables of the small space, to be changed at will."""
    return copy.deepcopy(DOCUMENT)


@pytest.fixture
def space(document: dict[str, Any]) -> Space:
    """The small space."""
    return parse_space(document)
