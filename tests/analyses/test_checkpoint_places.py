import json
import os
from pathlib import Path

import pytest

from resharpen.analyses.checkpoint_places import find_checkpoints, fingerprint, step_of
from resharpen.models import construct_set_complement, save_checkpoint


def hugging_face(folder: Path, shards: int = 0, missing: int = 0, index: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    if not shards:
        (folder / "model.safetensors").write_bytes(b"weights")
        return folder
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
    for name in names[: shards - missing]:
        (folder / name).write_bytes(b"weights")
    if index:
        weight_map = {f"tensor.{number}": name for number, name in enumerate(names)}
        text = json.dumps({"weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(text)
    return folder


def find(folder: Path) -> list[str]:
    found = find_checkpoints(folder, sleep=lambda seconds: None)
    return [path.relative_to(folder).as_posix() for path in found]


def test_every_kind_is_found_in_the_order_of_its_step(tmp_path: Path) -> None:
    hugging_face(tmp_path / "checkpoint-1000")
    hugging_face(tmp_path / "checkpoint-500", shards=3)
    hugging_face(tmp_path / "checkpoint-20")
    save_checkpoint(construct_set_complement(5), tmp_path / "ours" / "step-64")
    (tmp_path / "final.gguf").write_bytes(b"GGUF")
    (tmp_path / "README.md").write_text("a run")
    assert find(tmp_path) == [
        "checkpoint-20",
        "ours/step-64",
        "checkpoint-500",
        "checkpoint-1000",
        "final.gguf",
    ]


def test_the_folder_itself_is_one_too_and_names_sort_by_their_numbers(tmp_path: Path) -> None:
    for name in ("b10x", "b9x", "a"):
        hugging_face(tmp_path / "run" / name)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "run" / name).write_bytes((tmp_path / "run" / "a" / name).read_bytes())
    assert find(tmp_path / "run") == [".", "a", "b9x", "b10x"]


def test_what_is_half_written_is_left_out(tmp_path: Path) -> None:
    hugging_face(tmp_path / ".checkpoint-1.partial-4242")
    hugging_face(tmp_path / "checkpoint-1.partial-4242")
    hugging_face(tmp_path / "tmp-checkpoint-2")
    hugging_face(tmp_path / "checkpoint-3" / ".cache")
    hugging_face(tmp_path / "checkpoint-4", shards=3, missing=1)
    hugging_face(tmp_path / "checkpoint-5", shards=3, index=False)
    hugging_face(tmp_path / "checkpoint-6", shards=3, missing=1, index=False)
    (hugging_face(tmp_path / "checkpoint-7") / "model.safetensors").write_bytes(b"")
    (hugging_face(tmp_path / "checkpoint-8") / "config.json").unlink()
    (hugging_face(tmp_path / "checkpoint-9") / "model.safetensors").unlink()
    (tmp_path / "model-10.gguf").touch()
    ours = save_checkpoint(construct_set_complement(5), tmp_path / "step-11")
    (ours / "model.safetensors").rename(ours / "model.ema-0.99.safetensors")
    assert find(tmp_path) == []
    hugging_face(tmp_path / "checkpoint-12")
    assert find(tmp_path) == ["checkpoint-12"]


def test_what_changes_between_two_looks_is_left_out(tmp_path: Path) -> None:
    hugging_face(tmp_path / "checkpoint-1")
    growing = hugging_face(tmp_path / "checkpoint-2") / "model.safetensors"
    (tmp_path / "model-3.gguf").write_bytes(b"GGUF")
    pauses = []

    def meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        growing.write_bytes(growing.read_bytes() + b"more")
        (tmp_path / "model-3.gguf").unlink()

    found = find_checkpoints(tmp_path, pause=0.25, sleep=meanwhile)
    assert found == [tmp_path / "checkpoint-1"]
    assert pauses == [0.25]
    assert find_checkpoints(tmp_path / "checkpoint-1", sleep=lambda seconds: None)


def test_no_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        find_checkpoints(tmp_path / "none")
    assert find(tmp_path) == []


def test_a_fingerprint_tells_content_of_equal_size_apart_by_its_time(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "checkpoint-1")
    before = fingerprint(folder)
    assert set(before) == {"config.json", "model.safetensors"}
    assert before["model.safetensors"][0] == len(b"weights")
    assert fingerprint(folder) == before
    (folder / "model.safetensors").write_bytes(b"WEIGHTS")
    os.utime(folder / "model.safetensors", ns=(0, before["model.safetensors"][1] + 1))
    assert fingerprint(folder) != before
    assert fingerprint(tmp_path / "none") == {}
    assert json.loads(json.dumps(before)) == before


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500),
        ("step00500", 500),
        ("global_step1000-hf", 1000),
        ("epoch=2-step=300", 300),
        ("run-7", 7),
        ("model-250.gguf", 250),
        ("SmolLM2-135M-Instruct", None),
        ("final", None),
    ],
)
def test_the_step_that_a_name_says(name: str, step: int | None) -> None:
    assert step_of(f"runs/2/{name}") == step
