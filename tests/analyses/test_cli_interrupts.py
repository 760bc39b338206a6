"""An interrupted command: status 130, one true sentence, and a complete result is never lost."""

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from resharpen.analyses import command_options, commands
from resharpen.analyses.cli import main
from resharpen.analyses.saving import Interrupted, save_unless_worse
from resharpen.analyses.storage import find_document

Cli = Callable[..., tuple[int, str, list[str]]]

OWN = ("audit", "set-complement-post", "--lengths", "1", "2", "4", "--n-sequences", "8")


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def completed(folder: Path) -> bool:
    return json.loads((folder / "result.json").read_text())["provenance"]["completed"]


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The streams, which come last, are interrupted: the rest is finished."""
    monkeypatch.setattr("resharpen.analyses.auditing.measure_streams", interrupted)


@pytest.mark.usefixtures("cut")
def test_a_partial_result_is_written_where_there_is_none(run_cli: Cli, tmp_path: Path) -> None:
    code, said, lines = run_cli(*OWN, "--out", tmp_path / "out")
    assert code == 130
    assert "NOT COMPLETED" in said
    assert lines == [
        "resharpen: interrupted: the streams of the model were not measured",
        f"resharpen: interrupted: what was finished is in {tmp_path / 'out'}, marked as not "
        "completed; the same command measures everything anew",
    ]
    assert not completed(tmp_path / "out")
    code, _, _ = run_cli(*OWN, "--out", tmp_path / "out")
    assert code == 130
    assert not completed(tmp_path / "out")


def test_a_partial_result_never_replaces_a_complete_one(
    run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    code, _, _ = run_cli(*OWN, "--out", out)
    assert code == 0
    before = (out / "result.json").read_bytes()
    monkeypatch.setattr("resharpen.analyses.auditing.measure_streams", interrupted)
    code, said, lines = run_cli(*OWN, "--out", out)
    assert code == 130
    assert "NOT COMPLETED" in said
    assert f"{out} holds a complete result and is left as it was" in lines[-1]
    assert (out / "result.json").read_bytes() == before
    assert completed(out)


def test_the_same_holds_of_each_of_many(
    run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, two = tmp_path / "out", ("set-complement-none", "set-complement-post")
    command = ("audit", *two, *OWN[2:-1])
    run_cli(*command, 8, "--out", out)
    monkeypatch.setattr("resharpen.analyses.auditing.measure_streams", interrupted)
    code, _, lines = run_cli(*command, 9, "--out", out)
    assert code == 130
    assert lines[-1] == "resharpen: interrupted: no audit was finished"
    assert completed(out / two[0])


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("diagnose", "interrupted before anything was written"),
        ("study", "the parts that are finished are in the cache"),
        ("search", "the parts that are finished are in the cache"),
        ("train", "no state was saved in"),
        ("audit", "interrupted before anything was written"),
    ],
)
def test_each_command_says_what_it_kept(
    command: str,
    sentence: str,
    run_cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    space = tmp_path / "space.toml"
    example = Path(__file__).resolve().parents[2] / "examples" / "search-space.toml"
    space.write_text(example.read_text())
    arguments = {
        "diagnose": ("set-complement-post", "--layer", 0, "--head", 0),
        "study": ("clustering", "--out", out),
        "search": (space, "--out", out),
        "train": ("set-complement", "--out", out, "--n-steps", 9),
        "audit": (*OWN[1:], "--out", out),
    }
    for name in (
        "diagnose_command.diagnose", "study_commands.run_clustering", "search_command.run",
        "auditing.sweep",
    ):  # fmt: skip
        monkeypatch.setattr(f"resharpen.analyses.{name}", interrupted)
    monkeypatch.setattr("resharpen.models.training.loop._seed_losses", interrupted)
    code, _, lines = run_cli(command, *arguments[command])
    assert code == 130
    assert len(lines) == 1
    assert sentence in lines[0]
    assert not out.exists()


def test_an_interrupted_evaluation_keeps_what_was_trained(
    run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "evaluate", interrupted)
    shape = ("--d-model", 16, "--n-steps", 2, "--batch-size", 4, "--length", 3)
    out = tmp_path / "out"
    code, _, lines = run_cli("train", "set-complement", "--out", out, *shape)
    assert (code, len(lines)) == (130, 1)
    assert f"what was trained is in {out}" in lines[0]
    assert (out / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_sentence_begins_its_own_line_behind_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: Any, say: Any) -> int:
        sys.stderr.write("\rtraining: 10%")
        warnings.warn("a word of another package", FutureWarning, stacklevel=1)
        sys.stderr.write("\rtraining: 20%")
        raise ValueError("it broke")

    monkeypatch.setattr(commands, "run_checkpoints", fail)
    with pytest.warns(FutureWarning), pytest.raises(SystemExit) as stop:
        main(["checkpoints"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith("\rtraining: 20%\nresharpen: it broke\n")


def test_an_interrupt_during_the_imports_is_quiet(tmp_path: Path) -> None:
    code = (
        "import builtins, os, signal\n"
        "real = builtins.__import__\n"
        "def slow(name, *more):\n"
        "    if name == NAME: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *more)\n"
        "from resharpen.analyses.cli import main\n"
        "builtins.__import__ = slow\n"
        "main(['checkpoints'])\n"
    )
    for name in ("tyro", "torch"):
        done = subprocess.run(
            [sys.executable, "-c", f"NAME = {name!r}\n{code}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, env=dict(os.environ),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        assert done.returncode == 130, done.stderr
        assert done.stderr == "resharpen: interrupted before anything was begun\n"


def test_what_is_partial_is_written_over_what_is_partial(tmp_path: Path) -> None:
    from resharpen.analyses import audit

    result = audit("set-complement-post", lengths=[1, 2, 4], n_sequences=4)
    partial = replace(result, provenance=replace(result.provenance, completed=False))
    assert find_document(tmp_path / "out") is None
    assert save_unless_worse(partial, tmp_path / "out") is not None
    assert save_unless_worse(partial, tmp_path / "out") is not None
    assert save_unless_worse(result, tmp_path / "out") is not None
    assert save_unless_worse(partial, tmp_path / "out") is None
    assert issubclass(Interrupted, KeyboardInterrupt)


def test_probes_are_named_in_the_order_of_the_alphabet(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        main(["audit", "a", "--out", str(tmp_path), "--probe", "nedle"])
    words = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "one of ('needle', 'random', 'repeated', 'task', 'text')" in words
    assert command_options.parse(["audit", "a", "--out", "b"]).probe is None


def test_a_reader_who_leaves_is_no_error(tmp_path: Path) -> None:
    """As `resharpen checkpoints | head` does."""
    running = subprocess.Popen(
        [sys.executable, "-m", "resharpen", "checkpoints"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert running.stdout is not None and running.stderr is not None
    running.stdout.close()
    assert running.stderr.read() == b"" and running.wait(120) == 141
    running.stderr.close()
