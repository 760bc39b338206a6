from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from resharpen.analyses import trials
from resharpen.analyses.cached_rows import cached_rows
from resharpen.analyses.trials import Trial, run_trial, run_trials
from resharpen.interp.output_errors import sequence_errors
from resharpen.models import SetComplement, TrainingConfig, TransformerConfig, train

TRIAL = Trial(
    model=TransformerConfig(d_vocab=6, d_model=8),
    task=SetComplement(6),
    training=TrainingConfig(length=3, n_steps=6, batch_size=4, ema_decays=(0.5,)),
    seeds=(3, 5),
    lengths=(2, 4),
    n_sequences=32,
)


def test_rows_are_those_of_a_run_by_hand(tmp_path: Path) -> None:
    frame, found = run_trial(TRIAL, tmp_path)
    assert not found
    _, checkpoint = train(TRIAL.model, TRIAL.task, TRIAL.training, TRIAL.seeds)
    for weights in ("raw", "ema-0.5"):
        by_hand = sequence_errors(
            checkpoint.model(weights), TRIAL.task.sample, TRIAL.lengths, n_sequences=32
        )
        own = frame[(frame["checkpoint"] == weights) & (frame["seed"] == 5)]
        pd.testing.assert_frame_equal(
            own[["length", "quantity", "mean", "sem"]].reset_index(drop=True),
            by_hand[["length", "quantity", "mean", "sem"]],
        )
    assert set(frame["checkpoint"]) == {"raw", "ema-0.5"}
    assert set(frame["seed"]) == {3, 5}


def test_a_finished_trial_is_read_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, _ = run_trial(TRIAL, tmp_path)

    def refuse(*asked: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(trials, "cached_train", refuse)
    again, found = run_trial(TRIAL, tmp_path)
    assert found
    pd.testing.assert_frame_equal(frame, again)


def test_an_evaluation_that_was_cut_off_does_not_train_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*asked: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(trials, "sequence_errors", cut_off)
        with pytest.raises(KeyboardInterrupt):
            run_trial(TRIAL, tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("*.tmp"))
    weights = list(tmp_path.rglob("model.safetensors"))
    before = [path.stat().st_mtime_ns for path in weights]
    run_trial(TRIAL, tmp_path)
    assert len(weights) == 2
    assert [path.stat().st_mtime_ns for path in weights] == before


def test_the_key_depends_on_all_that_gives_other_rows() -> None:
    others = [
        TRIAL,
        replace(TRIAL, seeds=(3,)),
        replace(TRIAL, lengths=(2,)),
        replace(TRIAL, n_sequences=16),
        replace(TRIAL, training=replace(TRIAL.training, learning_rate=0.5)),
        replace(TRIAL, task=SetComplement(6, replacement=True)),
        replace(TRIAL, model=replace(TRIAL.model, norm_placement="post")),
    ]
    assert len({trial.key for trial in others}) == len(others)
    assert len({trial.digest for trial in others}) == len(others)


def test_the_digest_does_not_depend_on_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    key, digest = TRIAL.key, TRIAL.digest
    monkeypatch.setattr(trials, "code_digest", lambda room: "another")
    assert TRIAL.key != key
    assert TRIAL.digest == digest


def test_one_that_fails_leaves_the_others_their_rows(tmp_path: Path) -> None:
    said: list[str] = []
    wrong = replace(TRIAL, model=replace(TRIAL.model, d_vocab=7))
    runs = run_trials({"wrong": wrong, "right": TRIAL}, cache=tmp_path, jobs=1, say=said.append)
    assert list(runs.frames) == ["right"]
    assert list(runs.failures) == ["wrong"]
    assert "vocabulary" in runs.failures["wrong"]
    assert [line.split()[0] for line in said] == ["failed", "trained"]
    run_trials({"right": TRIAL}, cache=tmp_path, jobs=1, say=said.append)
    assert said[-1].startswith("found")


def test_rows_that_are_kept_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, _ = run_trial(TRIAL, tmp_path)
    place = tmp_path / "rows" / "one.parquet"

    def half(self: pd.DataFrame, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(pd.DataFrame, "to_parquet", half)
        with pytest.raises(OSError, match="full"):
            cached_rows(place, lambda: frame)
    assert not place.exists()
    kept, found = cached_rows(place, lambda: frame)
    assert not found
    again, found = cached_rows(place, lambda: frame.head(1))
    assert found
    pd.testing.assert_frame_equal(kept, again)
