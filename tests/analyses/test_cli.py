"""The command line in this process: statuses, files, and one sentence for every error."""

import json
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from resharpen.analyses.cli import main
from resharpen.analyses.thresholds import HeadThresholds
from resharpen.interp.output_errors import SEQUENCE_ERRORS
from resharpen.models import load_checkpoint


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


QUICK = ("--lengths", 1, 2, 4, 8, 16, 31, "--n-sequences", 16)


@pytest.mark.parametrize(
    ("name", "fail_on", "status"),
    [
        ("set-complement-none", "fail", 1),
        ("set-complement-post", "fail", 0),
        ("set-complement-post", "warn", 1),
        ("set-complement-res_post", "warn", 0),
    ],
)
def test_audit_statuses(
    name: str, fail_on: str, status: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, said, _ = run(capsys, "audit", name, "--out", out, "--fail-on", fail_on, *QUICK)
    assert code == status
    assert f"report: {out / 'report.html'}" in said
    result = json.loads((out / "result.json").read_text())
    assert result["provenance"]["checkpoints"] == {name: load_checkpoint(name).digest}
    assert result["provenance"]["resolved"]["thresholds"]["error_warn"] == 0.1
    assert (out / "table.parquet").exists()


@pytest.mark.parametrize("probe", [(), ("--probe", "task")])
@pytest.mark.parametrize("remedy", [(), ("--what-if", "temperature:2")])
def test_a_checkpoint_of_ours_is_audited_on_its_task_with_and_without_a_remedy(
    probe: tuple, remedy: tuple, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ("audit", "set-complement-post", "--out", out, *probe, *remedy, *QUICK)
    code, said, _ = run(capsys, *command)
    assert code == 0
    assert ("What if temperature 2" in said) == bool(remedy)
    result = json.loads((out / "result.json").read_text())
    task = result["provenance"]["resolved"]["probe" if remedy else "task"]
    assert (task["task"] if remedy else task) == load_checkpoint("set-complement-post").task
    assert result["verdicts"][-1]["subject"] == "set-complement-post"
    assert result["provenance"]["asked"]["source"] == "set-complement-post"


def test_thresholds_are_flags_and_are_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("audit", "set-complement-none", "--out", out, *QUICK)
    code, _, _ = run(capsys, *arguments, "--error-warn", 0.95, "--error-fail", 0.99)
    assert code == 0
    model = json.loads((out / "result.json").read_text())["verdicts"][-1]
    assert (model["verdict"], model["threshold"]) == ("PASS", 0.95)


def test_every_threshold_is_a_flag(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    moved = {name: value * 1.01 for name, value in asdict(HeadThresholds()).items()}
    flags = [
        part for name, value in moved.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    out = tmp_path / "out"
    command = ("audit", "set-complement-post", "--out", out, "--probe", "random", *flags)
    run(capsys, *command, "--lengths", 4, 8, 16, "--n-sequences", 2)
    result = json.loads((out / "result.json").read_text())
    assert result["provenance"]["resolved"]["thresholds"] == moved
    code, _, complaint = run(capsys, *command[:4], "--error-warn", 0.9, "--error-fail", 0.1)
    assert code == 2
    assert "resharpen: error thresholds must satisfy" in complaint


def test_train_then_audit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "mine"
    code, said, _ = run(
        capsys,
        *(
            "train",
            "set-complement",
            "--out",
            out,
            "--task-parameters",
            "vocabulary=8",
            "--d-model",
            16,
        ),
        *("--norm-placement", "post", "--n-layers", 2, "--n-steps", 20, "--batch-size", 8),
        *("--length", 3, "--ema-decays", 0.5, 0.9, "--seeds", 3, 4),
    )
    assert code == 0
    for seed in (3, 4):
        checkpoint = load_checkpoint(out / f"seed-{seed}")
        assert checkpoint.seed == seed
        assert checkpoint.config.n_layers == 2
        assert set(checkpoint.weights) == {"raw", "ema-0.5", "ema-0.9"}
        assert str(out / f"seed-{seed}") in said
        errors = pd.read_csv(out / f"seed-{seed}" / "evaluation.csv")
        assert set(errors["weights"]) == {"raw", "ema-0.5", "ema-0.9"}
        assert set(errors["quantity"]) == set(SEQUENCE_ERRORS)
        assert sorted(errors["length"].unique()) == list(range(1, 8))
        assert (errors["sem"] >= 0).all()
    assert {path.name for path in tmp_path.iterdir()} == {"mine"}
    code, _, _ = run(
        capsys,
        *("audit", out / "seed-3", "--out", tmp_path / "audit", "--weights", "ema-0.9"),
        *("--n-sequences", 8),
    )
    assert code in (0, 1)


def test_train_refuses_a_length_that_the_task_does_not_have_before_training(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ("train", "language", "--out", tmp_path / "a", "--n-steps", 2, "--length", 4)
    code, _, error = run(
        capsys, *asked, "--task-parameters", "language=tomita-2", "--lengths", 4, 5
    )
    assert code == 2
    assert "no string of length 5" in error
    assert not list(tmp_path.iterdir())


def test_construct(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "made"
    code, _, _ = run(
        capsys, "construct", "--out", out, "--norm-placement", "post", "--gain", 2, "--p", 30
    )
    assert code == 0
    constructed = load_checkpoint(out).constructed
    assert constructed is not None
    assert constructed["gain"] == 2


def test_checkpoints_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = run(capsys, "checkpoints")
    assert code == 0
    assert "set-complement-post" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("audit", "nowhere", "--out", "{out}"),
            "'nowhere' is no folder, no file and no shipped checkpoint",
        ),
        (
            ("audit", "set-complement-post", "--out", "{out}", "--lengths", 1, 99),
            "at most 31; got 99",
        ),
        (("audit", "set-complement-post", "--out", "{thesis}"), "is not a resharpen result"),
        (("train", "set-complement", "--out", "{out}", "--d-model", -1), "d_model must be"),
        (("train", "set-complement", "--out", "{out}", "--n-steps", 0), "n_steps must be"),
        (("construct", "--out", "{thesis}"), "is not something this tool wrote"),
        (("construct", "--out", "{out}", "--gain", 3), "gain must be 1 where no norm"),
    ],
)
def test_errors_are_one_sentence_and_status_2(
    arguments: tuple, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("precious")
    places = {"out": tmp_path / "out", "thesis": thesis}
    filled = [str(argument).format(**places) for argument in arguments]
    code, _, complaint = run(capsys, *filled)
    assert code == 2
    assert sentence in complaint
    assert "Traceback" not in complaint
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]
    assert (thesis / "chapter.tex").read_text() == "precious"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError("one sequence of 31 positions does not fit"), "one sequence of 31 positions"),
        (MemoryError(), "resharpen: not enough memory"),
    ],
)
def test_what_does_not_fit_into_memory_is_one_sentence_too(
    error: MemoryError,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("resharpen.analyses.adapted.profile", fail)
    command = ("audit", "set-complement-post", "--out", tmp_path / "out", "--probe", "random")
    code, _, complaint = run(capsys, *command, "--lengths", 31)
    assert code == 2
    assert sentence in complaint
    assert "Traceback" not in complaint


def test_switches_are_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, complaint = run(capsys, "audit", "a", "b", "--out", tmp_path / "out", "--watch")
    assert code == 2
    assert "--watch takes one folder; got 2 sources" in complaint
    code, _, _ = run(
        capsys,
        *("construct", "--out", tmp_path / "made", "--norm-placement", "pre", "--final-norm"),
    )
    assert code == 0
    assert load_checkpoint(tmp_path / "made").config.final_norm
