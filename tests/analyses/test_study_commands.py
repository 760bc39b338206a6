"""``resharpen study``: what it writes, what it says, and what it refuses before any work."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from resharpen.analyses import StudyResult
from resharpen.analyses import study_commands as commands
from resharpen.analyses.cli import main
from resharpen.analyses.studies.remedies import study
from resharpen.analyses.studies.remedies.config import (
    PRESETS,
    TASK_SETTINGS,
    RemediesConfig,
    TaskSetting,
)
from resharpen.models import TrainingConfig

TINY = RemediesConfig(
    tasks=("set-complement", "first"),
    remedies=("softmax", "ssmax", "qk_norm"),
    remedy_placements=("none", "ngpt"),
    placements=("none", "res_post"),
    placement_tasks=("first",),
    seeds=(0, 1),
    n_sequences=4,
    training=TrainingConfig(length=8, n_steps=3, batch_size=4, targets="exact", ema_decays=()),
    threshold=0.8,
)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.fixture(scope="module", autouse=True)
def tiny_preset() -> Any:
    """The quick preset, smaller still."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(PRESETS, "quick", TINY)  # type: ignore[arg-type]
        first = TaskSetting(model={"d_model": 8}, length=4, multiples=(1, 2, 8))
        patched.setitem(TASK_SETTINGS, "first", first)  # type: ignore[arg-type]
        complement = TaskSetting(
            {"vocabulary": 18}, {"d_model": 8}, length=2, multiples=(1, 2, 8), short=(1,)
        )
        patched.setitem(TASK_SETTINGS, "set-complement", complement)  # type: ignore[arg-type]
        yield


def test_the_remedies_study_is_written_whole_and_resumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, cache = tmp_path / "out", tmp_path / "cache"
    command = ("study", "remedies", "--out", out, "--cache", cache, "--jobs", 1)
    code, said, complaint = run(capsys, *command)
    assert code == 0, complaint
    assert "measured set-complement, softmax / none (1 of 11)" in said
    assert "first (needle, trained at 4)" in said
    assert "cures: error at most 0.8 at the longest input." in said
    assert said.rstrip().endswith(f"report: {out / 'report.html'}")
    files = {"result.json", "table.parquet", "report.html", "map.csv", "claims.md"}
    assert {path.name for path in out.iterdir()} == files
    result = json.loads((out / "result.json").read_text())
    assert set(result["files"]) == files - {"result.json"}
    assert result["provenance"]["asked"] == {"study": "remedies", "preset": "quick"}
    assert result["provenance"]["resolved"]["seeds"] == [0, 1]
    table = pd.read_csv(out / "map.csv")
    assert len(table) == 11
    assert list(table["task"].unique()) == ["set-complement", "first"]
    assert table[["error_1x", "error_2x", "error_8x", "slope"]].notna().to_numpy().all()
    reason = "first, qk_norm / ngpt: norm_placement='ngpt' normalises queries, keys and weights"
    assert "## What could not be run\n\n- set-complement, qk_norm / ngpt: " in (
        out / "claims.md"
    ).read_text(encoding="utf-8")
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "Which remedy cures which dispersion" in report
    assert reason.replace("'", "&#39;") in report

    code, said, _ = run(capsys, *command)  # over the first result, from the cache
    assert code == 0
    assert "found    first, softmax / res_post (11 of 11)" in said
    assert "measured set" not in said
    assert StudyResult.load(out).table.equals(StudyResult.load(out).table)
    assert len(pd.read_csv(out / "map.csv")) == 11


def test_an_interrupt_is_one_line_and_leaves_no_half_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "measure_cell", stop)
    out = tmp_path / "out"
    command = ("study", "remedies", "--out", out, "--cache", tmp_path / "cache", "--jobs", 1)
    code, _, complaint = run(capsys, *command)
    assert code == 130
    assert "Traceback" not in complaint
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("remedies", "--out", "{thesis}"), "is not a resharpen result, so it is not replaced"),
        (("remedies", "--out", "{out}", "--jobs", 0), "jobs must be at least 1; got 0"),
        (
            ("remedies", "--out", "{out}", "--address", "tcp://nowhere"),
            "the local backend takes no address",
        ),
        (
            ("set-complement", "--out", "{out}", "--backend", "dask"),
            "the set-complement study runs in local processes: leave --backend and --address out",
        ),
        (
            ("set-complement", "--out", "{out}", "--address", "tcp://nowhere"),
            "leave --backend and --address out",
        ),
        (("remedy", "--out", "{out}"), "invalid choice"),
        (("remedies", "--out", "{out}", "--preset", "huge"), "invalid choice"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(
    arguments: tuple,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("work was begun")

    monkeypatch.setattr(study, "measure_cell", never)
    monkeypatch.setattr(commands, "run_set_complement", never)
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("precious")
    filled = [str(part).format(thesis=thesis, out=tmp_path / "out") for part in arguments]
    code, _, complaint = run(capsys, "study", *filled, "--cache", tmp_path / "cache")
    assert code == 2
    assert sentence in " ".join(complaint.split())
    assert "Traceback" not in complaint
    assert not (tmp_path / "out").exists()
    assert (thesis / "chapter.tex").read_text() == "precious"


def test_help_names_both_studies_and_where_they_can_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said, _ = run(capsys, "study", "--help")
    assert code == 0
    for word in ("set-complement", "remedies", "quick", "full", "dask", "ray", "--address"):
        assert word in said
