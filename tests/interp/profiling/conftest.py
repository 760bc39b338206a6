"""Tiny models built offline, and probes that pad or pack others."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from resharpen.models import Transformer, TransformerConfig
from resharpen.models.adapters import Adapter, adapt
from resharpen.models.probes import NO_KEY, NO_LABEL, Probe, ProbeBatch

_SIZES = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=32,
    vocab_size=64,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_GROUPED = dict(num_key_value_heads=2, head_dim=8, **_SIZES)
_GPT2 = dict(n_embd=16, n_layer=2, n_head=4, vocab_size=64, n_positions=64)
_MIXED = dict(sliding_window=6, layer_types=["sliding_attention", "full_attention"])

ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**_GROUPED, **_MIXED}),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        dict(
            num_local_experts=2,
            num_experts_per_tok=1,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
            **_GROUPED,
            **_MIXED,
        ),
    ),
    "bert": ("BertForMaskedLM", "BertConfig", _SIZES),
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        dict(hidden_size=16, n_layer=2, n_head=4, vocab_size=64, pad_token_id=0),
    ),
}

_made: dict[str, Any] = {}


def tiny_model(name: str, **changes: Any) -> Any:
    """A Hugging Face model, the same weights each time, far from uniform attention."""
    key = repr((name, changes))
    if key not in _made:
        import transformers

        model_class, config_class, config = ARCHITECTURES[name]
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = getattr(transformers, model_class)(
                getattr(transformers, config_class)(**{**config, **changes})
            )
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.mul_(8.0)
                else:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        _made[key] = model.eval()
    return copy.deepcopy(_made[key])


@pytest.fixture(scope="session")
def build() -> Callable[..., Any]:
    return tiny_model


@pytest.fixture(scope="session")
def adapted() -> Callable[..., Adapter]:
    """An adapter of a tiny model; built once."""
    found: dict[str, Adapter] = {}

    def make(name: str, **changes: Any) -> Adapter:
        key = repr((name, changes))
        if key not in found:
            found[key] = adapt(tiny_model(name, **changes))
        return found[key]

    return make


@pytest.fixture
def own() -> Callable[..., Transformer]:
    """One of our own models, small."""

    def make(**changes: Any) -> Transformer:
        torch.manual_seed(1)
        sizes = dict(n_layers=2, n_heads=2, d_model=16, d_head=8, d_mlp=32, d_vocab=64, n_ctx=256)
        return Transformer(TransformerConfig(**{**sizes, **changes}))

    return make


class Padded:
    """Another probe's sequences with padding before the even ones and after the odd ones."""

    name, nested = "padded", False

    def __init__(self, probe: Probe, extra: int) -> None:
        self.probe, self.extra = probe, extra

    def sample(self, generator: Any, batch: int, length: int) -> ProbeBatch:
        inner = self.probe.sample(generator, batch, length)
        pos = length + self.extra
        tokens = torch.zeros(batch, pos, dtype=torch.int64)
        relevant, labels = torch.full_like(tokens, NO_KEY), torch.full_like(tokens, NO_LABEL)
        mask = torch.zeros_like(tokens, dtype=torch.bool)
        for row in range(batch):
            start = 0 if row % 2 else self.extra
            part = slice(start, start + length)
            tokens[row, part], labels[row, part] = inner.tokens[row], inner.labels[row]
            key = inner.relevant_key[row]
            relevant[row, part] = torch.where(key >= 0, key + start, key)
            mask[row, part] = True
        return ProbeBatch(tokens, relevant, labels, length, attention_mask=mask)


class Packed:
    """Each sequence of another probe twice, as two documents in one sequence."""

    name, nested = "packed", False

    def __init__(self, probe: Probe) -> None:
        self.probe = probe

    def sample(self, generator: Any, batch: int, length: int) -> ProbeBatch:
        """The means over rows stay what they were."""
        inner = self.probe.sample(generator, batch, length)
        again = torch.where(inner.relevant_key >= 0, inner.relevant_key + length, NO_KEY)
        documents = torch.arange(2).repeat_interleave(length).expand(batch, -1)
        return ProbeBatch(
            torch.cat([inner.tokens] * 2, 1),
            torch.cat([inner.relevant_key, again], 1),
            torch.cat([inner.labels] * 2, 1),
            length,
            documents=documents + 3,
        )


@pytest.fixture
def padded() -> type[Padded]:
    return Padded


@pytest.fixture
def packed() -> type[Packed]:
    return Packed
