"""Streaming capture: what it keeps, what it refuses, and the state it leaves the model in."""

import gc
import weakref

import pytest
import torch
from torch import nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from resharpen.interp.capturing import capture, evaluating
from resharpen.interp.measures import entropy
from resharpen.models import Transformer, TransformerConfig

PATTERN = "blocks.0.attn.hook_pattern"
TOKENS = torch.tensor([[3, 1, 4, 0], [2, 0, 1, 3]])


@pytest.fixture
def model():
    return Transformer(
        TransformerConfig(d_vocab=5, n_layers=2, n_heads=2, d_model=8, norm_placement="post"),
        seed=3,
    )


def n_hooks(model):
    return sum(len(point._forward_hooks) for point in model.hook_dict.values())


def test_readers_get_what_run_with_cache_gets(model):
    _, cache = model.run_with_cache(TOKENS)
    names = [PATTERN, "blocks.1.ln1_resid.hook_scale", "blocks.1.hook_resid_post"]
    found = capture(model, TOKENS, {name: torch.Tensor.clone for name in names})
    for name in names:
        torch.testing.assert_close(found.values[name], cache[name])
    torch.testing.assert_close(found.logits, model(TOKENS))


def test_no_gradient_and_no_graph_is_kept(model):
    found = capture(model, TOKENS, {PATTERN: entropy})
    assert not found.logits.requires_grad
    assert not found.values[PATTERN].requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_activations_are_gone_when_it_returns(model):
    seen = []

    def read(activation):
        seen.append(weakref.ref(activation))
        return float(activation.mean())

    capture(model, TOKENS, dict.fromkeys([PATTERN, "blocks.1.attn.hook_pattern"], read))
    gc.collect()
    assert len(seen) == 2
    assert all(reference() is None for reference in seen)


@pytest.mark.parametrize("failure", [None, RuntimeError, KeyboardInterrupt])
def test_the_model_is_left_as_it_was(model, failure):
    model.train()
    model.blocks[1].eval()  # a mixture of modes must come back as the same mixture
    model.add_hook("blocks.0.hook_attn_out", lambda x, hook: x)
    modes = [module.training for module in model.modules()]
    during = []

    def read(activation):
        during.extend([model.training, torch.is_grad_enabled()])
        if failure:
            raise failure("stop")

    if failure:
        with pytest.raises(failure):
            capture(model, TOKENS, {PATTERN: read})
    else:
        capture(model, TOKENS, {PATTERN: read})
    assert during == [False, False]
    assert [module.training for module in model.modules()] == modes
    assert torch.is_grad_enabled()
    assert n_hooks(model) == 1


class Caches(HookedRootModule):
    """Fills a table during its first forward pass, as rotary embeddings often do."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3, 3))
        self.dropout = nn.Dropout(0.5)
        self.hook_embed = HookPoint()
        self.table = None
        self.setup()

    def forward(self, tokens):
        if self.table is None:
            self.table = torch.arange(3.0) + self.w.detach()[0]
        return self.hook_embed(self.dropout(torch.ones(*tokens.shape, 3))) @ (self.w * self.table)


def test_a_model_that_fills_a_cache_can_be_trained_afterwards():
    model = Caches()
    capture(model, TOKENS, {})
    model(TOKENS).sum().backward()
    assert model.w.grad is not None


def test_dropout_is_off():
    model = Caches().train()
    found = capture(model, TOKENS, {"hook_embed": lambda x: float(x.min())})
    assert found.values["hook_embed"] == 1.0


def test_edits_run_before_readers(model):
    found = capture(
        model,
        TOKENS,
        {PATTERN: lambda x: float(x.sum())},
        edits=[(PATTERN, lambda x, hook: torch.zeros_like(x))],
    )
    assert found.values[PATTERN] == 0.0
    assert not torch.allclose(found.logits, model(TOKENS))


def test_an_unknown_name_is_refused_with_the_closest(model):
    with pytest.raises(ValueError, match=r"no hook point 'blocks.0.hook_pattern'.*attn.hook_patt"):
        capture(model, TOKENS, {"blocks.0.hook_pattern": float})
    with pytest.raises(ValueError, match=r"no hook point 'blocks.7.hook_attn_out'"):
        capture(model, TOKENS, {}, edits=[("blocks.7.hook_attn_out", lambda x, hook: x)])


class Odd(HookedRootModule):
    """Fires one hook twice and another never; may return something else than logits."""

    def __init__(self, output):
        super().__init__()
        self.hook_embed = HookPoint()
        self.hook_silent = HookPoint()
        self.output = output
        self.setup()

    def forward(self, tokens):
        self.hook_embed(self.hook_embed(tokens.float()))
        return self.output


def test_a_hook_that_never_fires_or_fires_twice_is_refused():
    model = Odd(torch.zeros(1, 1, 1))
    with pytest.raises(ValueError, match="'hook_silent' is declared but never fired"):
        capture(model, TOKENS, {"hook_silent": float})
    with pytest.raises(ValueError, match="'hook_silent' is declared but never fired"):
        capture(model, TOKENS, {}, edits=[("hook_silent", lambda x, hook: x)])
    with pytest.raises(ValueError, match="'hook_embed' fired more than once"):
        capture(model, TOKENS, {"hook_embed": lambda x: float(x.sum())})


def test_an_output_that_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match=r"logits as one tensor .* got dict"):
        capture(Odd({"logits": 1}), TOKENS, {})


def test_evaluating_restores_after_an_exception(model):
    model.train()
    with pytest.raises(RuntimeError), evaluating(model):
        assert not any(module.training for module in model.modules())
        raise RuntimeError
    assert all(module.training for module in model.modules())
