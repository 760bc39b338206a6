"""Where a command reads from and writes to: checked before the work, said when it is replaced."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from resharpen.analyses import audit
from resharpen.analyses.result import StudyResult
from resharpen.models.folders import check_writable

Cli = Callable[..., tuple[int, str, list[str]]]

SPACE = Path(__file__).resolve().parents[2] / "examples" / "search-space.toml"
QUICK = ("--lengths", 1, 2, 4, "--n-sequences", 4)


COMMANDS: list[tuple[object, ...]] = [
    ("audit", "set-complement-post"),
    ("audit", "set-complement-post", "set-complement-none"),
    ("train", "set-complement"),
    ("train", "set-complement", "--seeds", 0, 1),
    ("construct",),
    ("diagnose", "set-complement-post", "--layer", 0, "--head", 0),
    ("limits", "set-complement-post", "--layer", 0, "--head", 0),
    ("study", "clustering"),
    ("search", SPACE),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(map(str, command[:2])))
@pytest.mark.parametrize("place", ["file", "system"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    place: str,
    command: tuple[object, ...],
    run_cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("the work was begun")

    for name in (
        "commands.audit", "commands.train", "commands.construct_set_complement",
        "diagnose_command.diagnose", "limits_command.open_head", "study_commands.run_clustering",
        "search_command.run", "many_audits.run_side_by_side",
    ):  # fmt: skip
        if name != "commands.construct_set_complement":  # instant, and written by itself
            monkeypatch.setattr(f"resharpen.analyses.{name}", work)
    if place == "file":
        (tmp_path / "file").write_text("mine")
        out, reason = tmp_path / "file" / "a" / "b", "is a file, not a folder"
    elif sys.platform != "linux":
        pytest.skip("a folder in which root too can make nothing")
    else:
        out, reason = Path("/proc/foo/bar"), "nothing can be made in /proc"
    code, _, lines = run_cli(*command, "--out", out)
    assert code == 2
    assert len(lines) == 1
    assert "cannot be written" in lines[0]
    assert reason in lines[0]


def test_asking_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_nothing_in_it_is_one_sentence(run_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for sources in (["empty"], ["empty", "empty"]):
        places = [tmp_path / source for source in sources]
        code, said, lines = run_cli("audit", *places, "--out", tmp_path / "out", *QUICK)
        assert code == 2
        assert "has no config.json and no weights" in "".join(lines) + said
        assert (tmp_path / "out" / "trend.html").exists() == ("trend:" in said)


def nanogpt_folder(folder: Path) -> Path:
    """What a run of nanoGPT leaves: ckpt.pt alone."""
    torch.manual_seed(0)
    width, layers, words, positions = 8, 1, 40, 32
    shapes = {
        "transformer.wte.weight": (words, width),
        "transformer.wpe.weight": (positions, width),
    }
    for layer in range(layers):
        block = f"transformer.h.{layer}"
        shapes |= {
            f"{block}.ln_1.weight": (width,),
            f"{block}.attn.c_attn.weight": (3 * width, width),
            f"{block}.attn.c_proj.weight": (width, width),
            f"{block}.ln_2.weight": (width,),
            f"{block}.mlp.c_fc.weight": (4 * width, width),
            f"{block}.mlp.c_proj.weight": (width, 4 * width),
        }
    shapes["transformer.ln_f.weight"] = (width,)
    state = {name: torch.randn(shape) * 0.3 for name, shape in shapes.items()}
    state["lm_head.weight"] = state["transformer.wte.weight"]
    arguments = {"n_layer": layers, "n_head": 2, "n_embd": width, "block_size": positions}
    arguments |= {"vocab_size": words, "bias": False, "dropout": 0.0}
    folder.mkdir()
    torch.save({"model": state, "model_args": arguments}, folder / "ckpt.pt")
    return folder


def test_a_folder_that_holds_one_state_dict_is_audited_as_in_python(
    run_cli: Cli, tmp_path: Path
) -> None:
    folder, out = nanogpt_folder(tmp_path / "nano"), tmp_path / "out"
    command = ("audit", folder, "--out", out, "--lengths", 8, 16, "--n-sequences", 2)
    code, _, _ = run_cli(*command)
    assert code == 0
    here = audit(folder, lengths=[8, 16], n_sequences=2)
    assert StudyResult.load(out).table.equals(here.table)


def test_a_result_of_another_model_is_replaced_with_a_word(run_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _, first, _ = run_cli("audit", "set-complement-none", "--out", out, *QUICK)
    _, again, _ = run_cli("audit", "set-complement-none", "--out", out, *QUICK)
    _, other, _ = run_cli("audit", "set-complement-post", "--out", out, *QUICK)
    assert "replaced" not in first + again
    assert f"replaced the result of set-complement-none in {out}\n" in other


def test_the_version(run_cli: Cli) -> None:
    code, said, _ = run_cli("--version")
    assert code == 0
    assert said.startswith("resharpen 0.")
