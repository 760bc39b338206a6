"""A batch is run in parts that fit, and no number depends on it."""

import pandas as pd
import pytest
import torch

from resharpen.interp import batching
from resharpen.interp.batching import PASS_ELEMENTS, fitting_batch
from resharpen.interp.stream_sweeping import stream_rows
from resharpen.interp.sweeping import sweep
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.tasks import Copy, SetComplement


def make(**change) -> Transformer:
    config = {"d_vocab": 9, "n_layers": 1, "n_heads": 2, "d_model": 16, "norm_placement": "pre"}
    return Transformer(TransformerConfig(**{**config, **change}), seed=1).double()


def test_the_largest_array_of_a_pass_is_bounded() -> None:
    model = make()
    assert fitting_batch(model, 256, 2048) * 2 * 2048**2 <= PASS_ELEMENTS
    assert fitting_batch(model, 256, 65) == 256
    assert fitting_batch(model, 256, 10**6) == 1
    wide = make(d_vocab=50_000)
    assert fitting_batch(wide, 256, 100) * 100 * 50_000 <= PASS_ELEMENTS
    assert fitting_batch(object(), 8, 1024) == 8


@pytest.mark.parametrize("placement", ["pre", "res_post"])
def test_a_sweep_in_parts_is_the_sweep_in_one(monkeypatch, placement) -> None:
    model, task = make(norm_placement=placement, d_vocab=8), SetComplement(8)
    whole = sweep(model, task.sample, [2, 6], batch=10, n_batches=2)
    shapes: list[int] = []
    model.hook_dict["blocks.0.attn.hook_pattern"].register_forward_hook(
        lambda module, args, output: shapes.append(len(output))
    )
    monkeypatch.setattr(batching, "PASS_ELEMENTS", 3 * 6 * 16)  # d_model is the largest
    said: list[tuple[int, int, int]] = []
    parts = sweep(
        model,
        task.sample,
        [2, 6],
        batch=10,
        n_batches=2,
        verify=False,
        progress=lambda *at: said.append(at),
    )
    assert max(shapes[-8:]) == 3 and min(shapes[-8:]) == 1  # 10 is 3 + 3 + 3 + 1
    assert said == [(1, 4, 2), (2, 4, 2), (3, 4, 6), (4, 4, 6)]
    pd.testing.assert_frame_equal(parts, whole, rtol=1e-12, atol=1e-14)


def test_streams_in_parts_are_the_streams_in_one(monkeypatch) -> None:
    model, task = make(positional_embedding_type="alibi", normalizer="ssmax"), Copy(8)
    whole = stream_rows(model, task.sample, [2, 4], n_sequences=10, batch=5)
    monkeypatch.setattr(batching, "PASS_ELEMENTS", 1)
    parts = stream_rows(model, task.sample, [2, 4], n_sequences=10, batch=5)
    pd.testing.assert_frame_equal(parts, whole, rtol=1e-12, atol=1e-14)


def test_no_pass_of_a_long_sweep_holds_more(monkeypatch) -> None:
    model, task = make(positional_embedding_type="alibi", normalizer="ssmax"), Copy(8)
    largest = 0

    def look(module, args, output) -> None:
        nonlocal largest
        largest = max(largest, output.numel())

    for name in ("hook_attn_scores", "hook_pattern"):
        model.hook_dict[f"blocks.0.attn.{name}"].register_forward_hook(look)
    monkeypatch.setattr(batching, "PASS_ELEMENTS", 2**16)
    with torch.no_grad():
        sweep(model, task.sample, [64], ["entropy"], batch=16, verify=False)
    assert 2**15 < largest <= 2**16
