"""Each way in which a Hugging Face folder or a GGUF file can be broken ends in one sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from resharpen.models.adapters import adapt
from resharpen.models.checkpoint import CheckpointError


@pytest.fixture
def folder(tiny_model, tmp_path) -> Path:
    tiny_model("llama").save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def change(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refused(source: Any, match: str) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        adapt(source)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500, message


@pytest.mark.parametrize(
    "name", ["gpt2", "llama", "gemma3", "gpt_oss", "bloom", "bert", "modernbert", "t5_encoder"]
)
def test_a_sound_folder(name, tiny_model, tmp_path, tokens) -> None:
    model = tiny_model(name)
    model.save_pretrained(tmp_path / name)
    adapter = adapt(tmp_path / name, device_map="cpu")
    torch.testing.assert_close(adapter.run_plain(tokens), adapt(model).run_plain(tokens))
    assert adapter.description.digest == adapt(model).description.digest
    assert adapt(tmp_path / name, dtype="bfloat16").description.dtype == "bfloat16"


def test_sharded_weights(tiny_model, tmp_path, tokens) -> None:
    model = tiny_model("llama")
    model.save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    torch.testing.assert_close(adapt(tmp_path).run_plain(tokens), model(tokens).logits)
    sorted(tmp_path.glob("*.safetensors"))[1].unlink()
    refused(tmp_path, "cannot be loaded|lacks tensor")


def test_folders_that_are_nothing(tmp_path) -> None:
    refused(tmp_path / "absent" / "deep" / "er", "no file or folder")
    refused(tmp_path, "no config.json and no weights")
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path / "notes.txt", "is no checkpoint")
    (tmp_path / "config.json").write_text("{")
    refused(tmp_path, "not readable JSON")
    (tmp_path / "config.json").write_text("[]")
    refused(tmp_path, "names no model_type")


def test_a_name_that_cannot_be_had(monkeypatch) -> None:
    # The environment variable of this name is read when the hub's library is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused("nobody/no-such-model", "as a name on the Hugging Face hub it cannot be had")


def test_unknown_architectures_and_remote_code(folder) -> None:
    change(folder, model_type="quantum_llama")
    refused(folder, "does not know the architecture 'quantum_llama'")
    (folder / "modeling_mine.py").write_text("raise SystemExit('code was run')")
    change(folder, auto_map={"AutoConfig": "modeling_mine.C", "AutoModel": "modeling_mine.M"})
    refused(folder, "code of its own")
    # A known architecture with code beside it: transformers' own class is used.
    change(folder, model_type="llama")
    assert adapt(folder).description.architecture == "LlamaForCausalLM"


def test_configurations_that_lie(folder) -> None:
    for lie, match in (
        (dict(num_hidden_layers=3), "lacks tensor"),
        (dict(num_hidden_layers=1), "has a tensor that the configuration has no place for"),
        (dict(hidden_size=32), "cannot be loaded|wrong shape"),
        (dict(num_key_value_heads=4), "cannot be loaded|wrong shape"),
        (dict(vocab_size=60), "cannot be loaded|wrong shape"),
        (dict(attention_bias=True), "lacks tensor"),
        (dict(architectures=["GPT2LMHeadModel"]), "names the class 'GPT2LMHeadModel'"),
        (dict(architectures=["logging"]), "names the class 'logging'"),
        (dict(num_attention_heads="many"), "cannot be read|cannot be loaded"),
    ):
        whole = (folder / "config.json").read_text()
        change(folder, **lie)
        refused(folder, match)
        (folder / "config.json").write_text(whole)
    adapt(folder)


def test_damaged_weights(folder) -> None:
    path = folder / "model.safetensors"
    whole, state = path.read_bytes(), load_file(path)
    for kept in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        refused(folder, "truncated or not a safetensors file")
    broken = {**state, "model.norm.weight": state["model.norm.weight"] * torch.nan}
    save_file(broken, path, metadata={"format": "pt"})
    refused(folder, "'model.norm.weight' holds NaN or infinity")
    del broken["model.norm.weight"]
    save_file(broken, path, metadata={"format": "pt"})
    refused(folder, "lacks tensor 'model.norm.weight'")
    save_file({**state, "extra.weight": torch.ones(2)}, path, metadata={"format": "pt"})
    refused(folder, "no place for, 'extra.weight'")
    path.unlink()
    refused(folder, "no safetensors: no weights")
    torch.save(state, folder / "pytorch_model.bin")
    refused(folder, "only pickled weights")


def test_damaged_gguf(tmp_path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a gguf file at all")
    refused(path, "truncated or not a GGUF file")
    writer = gguf.GGUFWriter(str(path), "quantum")
    writer.add_tensor("w", torch.ones(64, 64).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    refused(path, "cannot be read")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "truncated")


def test_two_weight_files_and_no_configuration(tmp_path, folder) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name in ("a.safetensors", "b.safetensors"):
        shutil.copy(folder / "model.safetensors", mixed / name)
    refused(mixed, "2 weight files")
