"""Patterns whose rows need not sum to one: what a sweep says of them, and what it refuses."""

import numpy as np
import pytest

from resharpen.interp.sweeping import sweep
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.tasks import SetComplement


def test_rows_that_need_not_sum_to_one_say_what_they_sum_to() -> None:
    task = SetComplement(8)
    for normalizer in ("sigmoid", "softmax1"):
        cfg = TransformerConfig(d_vocab=8, d_model=8, normalizer=normalizer)  # type: ignore
        model = Transformer(cfg, seed=3)
        frame = sweep(model, task.sample, [1, 5], batch=16)
        rows = frame[frame["site"] == "blocks.0.attn.hook_pattern"]
        assert set(rows["status"]) <= {"ok", "undefined"}
        five = rows[rows["length"] == 5].set_index("quantity")["mean"]
        assert 0 < five["total_mass"] < (1 if normalizer == "softmax1" else 5)
        # The other measures are of the distribution over the keys.
        assert five["entropy"] <= np.log(5) and five["relevant_mass"] == pytest.approx(1.0)


def test_signed_weights_have_a_sum_and_nothing_else() -> None:
    task = SetComplement(8)
    cfg = TransformerConfig(d_vocab=8, d_model=8, normalizer="differential")
    model = Transformer(cfg, seed=3)
    frame = sweep(model, task.sample, [5], batch=16)
    rows = frame[frame["site"] == "blocks.0.attn.hook_pattern"]
    assert set(rows["quantity"]) == {"total_mass"}
    _, cache = model.run_with_cache(task.sample(np.random.default_rng(0), 1, 5).tokens)
    lam = float(cache["blocks.0.attn.hook_lambda"])
    assert float(rows["mean"].iloc[0]) == pytest.approx(1 - lam, abs=1e-5)
    asked = sweep(model, task.sample, [5], ["entropy"], batch=16)
    assert set(asked["status"]) == {"unavailable"}
