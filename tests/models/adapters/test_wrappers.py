"""Compiled and data-parallel models are looked into; weights that are not there are refused."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from resharpen.analyses import audit
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.adapters import adapt
from resharpen.models.adapters.wrappers import unwrapped

_CONFIG = GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=50, n_positions=64)


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[return-value]


@pytest.mark.parametrize("wrap", [compiled, nn.DataParallel])
def test_a_wrapped_model_is_looked_into(wrap) -> None:
    model = GPT2LMHeadModel(_CONFIG).eval()
    wrapped = wrap(model)
    assert unwrapped(wrapped) is model
    assert adapt(wrapped).description == adapt(model).description
    result = audit(wrapped, probe="random", lengths=[8, 16], n_sequences=2)
    assert result.sentences[0].startswith("GPT2LMHeadModel (")


def test_wrappers_in_wrappers_and_other_things() -> None:
    model = Transformer(TransformerConfig(d_vocab=8, n_layers=1, n_heads=1, d_model=8), seed=0)
    assert unwrapped(nn.DataParallel(compiled(model))) is model
    assert unwrapped("gpt2") == "gpt2"
    assert unwrapped(nn.Linear(2, 2)).__class__ is nn.Linear


def test_a_model_without_numbers_is_refused() -> None:
    with torch.device("meta"):
        model = GPT2LMHeadModel(_CONFIG)
        own = Transformer(TransformerConfig(d_vocab=8, n_layers=1, n_heads=1, d_model=8))
    for empty in (model, own):
        with pytest.raises(ValueError, match=r"on the meta device, where .* no numbers: load"):
            adapt(empty)
