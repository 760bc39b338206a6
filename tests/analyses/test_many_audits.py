import functools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from resharpen.analyses import audit
from resharpen.analyses.audit_ledger import LEDGER_FILE, AuditRecord, Ledger
from resharpen.analyses.many_audits import audit_many, watch
from resharpen.analyses.result import StudyResult
from resharpen.analyses.storage import ResultError
from resharpen.models import construct_set_complement, save_checkpoint


def write(folder: Path, p: float = 20.0) -> Path:
    return save_checkpoint(construct_set_complement(6, p=p), folder)


def break_weights(folder: Path) -> Path:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    return folder


def brief(source: Any, marks: Path | None = None) -> StudyResult:
    """An audit as short as can be; leaves a mark that it ran."""
    if marks is not None:
        with (marks / "calls").open("a") as calls:
            calls.write(f"{Path(source).name}\n")
    return audit(source, lengths=[1, 2, 4], n_sequences=4)


def calls(marks: Path) -> list[str]:
    file = marks / "calls"
    found = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def said(records: list[AuditRecord]) -> list[tuple[str, str]]:
    return [(record.name, record.status) for record in records]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (20, 100):
        write(tmp_path / "run" / f"step-{step}", p=step / 5)
    return tmp_path / "run"


def test_each_is_audited_once_and_again_when_it_or_the_settings_change(
    run: Path, tmp_path: Path
) -> None:
    out, one = tmp_path / "out", functools.partial(brief, marks=tmp_path)
    paths = [run / "step-20", run / "step-100"]
    heard: list[AuditRecord] = []
    records = audit_many(
        [*paths, str(paths[0])], out, audit_one=one, on_done=heard.append, settings={"lengths": [4]}
    )
    assert records == heard
    assert said(records) == [("step-20", "audited"), ("step-100", "audited")]
    assert [record.step for record in records] == [20, 100]
    assert records[0].verdict in ("PASS", "WARN", "FAIL")
    assert records[0].sentence.startswith("step-20: ")
    assert calls(tmp_path) == ["step-20", "step-100"]
    result = StudyResult.load(out / "step-100")
    assert result.provenance.completed
    assert "<html" in (out / "step-100" / "report.html").read_text()
    assert sorted(path.name for path in out.iterdir()) == [
        LEDGER_FILE, "step-100", "step-20", "trend.html"
    ]  # fmt: skip

    again = functools.partial(audit_many, paths, out, audit_one=one)
    assert said(again(settings={"lengths": (4,)})) == [("step-20", "kept"), ("step-100", "kept")]
    assert calls(tmp_path) == []
    write(paths[0], p=3.0)
    assert said(again(settings={"lengths": [4]})) == [("step-20", "audited"), ("step-100", "kept")]
    assert calls(tmp_path) == ["step-20"]
    shutil.rmtree(out / "step-20")
    assert said(again(settings={"lengths": [4]})) == [("step-20", "audited"), ("step-100", "kept")]
    other = audit_many(paths[1:], out, audit_one=one, settings={"lengths": [8]})
    assert said(other) == [("step-100", "audited")]


def test_a_broken_one_is_a_record_and_the_others_go_on(run: Path, tmp_path: Path) -> None:
    break_weights(run / "step-20")
    paths = [run / "step-20", run / "step-100"]
    first, second = audit_many(paths, tmp_path / "out", audit_one=brief)
    assert (first.status, second.status) == ("failed", "audited")
    assert first.kind == "CheckpointError"
    assert "truncated" in first.sentence
    assert "\n" not in first.sentence
    assert "step-20 (step 20) has no result (failed)" in (tmp_path / "out/trend.html").read_text()
    # A new call tries again what failed, even where nothing changed.
    write(run / "step-20")
    assert said(audit_many(paths, tmp_path / "out", audit_one=brief)) == [
        ("step-20", "audited"),
        ("step-100", "kept"),
    ]


def test_equal_names_get_folders_of_their_own_and_keep_them(tmp_path: Path) -> None:
    paths = [write(tmp_path / run / "step-1") for run in ("a", "b")]
    out = tmp_path / "out"
    records = audit_many(paths, out, audit_one=brief)
    assert [record.name for record in records] == ["step-1", "b--step-1"]
    assert StudyResult.load(out / "b--step-1")
    again = audit_many(reversed(paths), out, audit_one=brief)
    assert said(again) == [("b--step-1", "kept"), ("step-1", "kept")]


def test_a_shipped_name_is_audited_too(tmp_path: Path) -> None:
    (record,) = audit_many(["set-complement-post"], tmp_path / "out", audit_one=brief)
    assert (record.name, record.status, record.source) == (
        "set-complement-post", "audited", "set-complement-post"
    )  # fmt: skip


@pytest.mark.slow
def test_a_dead_worker_loses_its_own_checkpoint_only(run: Path, tmp_path: Path) -> None:
    write(run / "step-60")
    prepared = brief(run / "step-20").save(tmp_path / "prepared")

    def one(source: Any) -> StudyResult:
        if Path(source).name == "step-60":
            os.kill(os.getpid(), signal.SIGKILL)
        return StudyResult.load(prepared)

    paths = [run / f"step-{step}" for step in (20, 60, 100)]
    records = audit_many(paths, tmp_path / "out", audit_one=one, jobs=2)
    assert [status for _, status in said(records)] == ["audited", "failed", "audited"]
    assert "its worker died twice" in records[1].sentence


@pytest.mark.slow
@pytest.mark.usefixtures("forked_dask")
def test_on_a_dask_cluster_the_results_are_the_same(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask is not installed")
    paths = [run / "step-20", run / "step-100", break_weights(write(run / "step-60"))]
    there = audit_many(paths, tmp_path / "there", audit_one=brief, jobs=2, backend="dask")
    here = audit_many(paths, tmp_path / "here", audit_one=brief)
    assert there == here
    assert [record.status for record in here] == ["audited", "audited", "failed"]
    for name in ("step-20", "step-100"):
        tables = [StudyResult.load(tmp_path / out / name).table for out in ("here", "there")]
        assert tables[0].equals(tables[1])


def test_an_interrupt_leaves_what_is_finished(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def one(source: Any) -> StudyResult:
        if Path(source).name == "step-100":
            raise KeyboardInterrupt
        return brief(source)

    paths = [run / "step-20", run / "step-100"]
    with pytest.raises(KeyboardInterrupt):
        audit_many(paths, out, audit_one=one)
    assert said(list(Ledger(out).records)) == [("step-20", "audited")]
    assert (out / "trend.html").exists()


def test_an_audit_cut_short_is_kept_said_and_done_again(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def partial(source: Any) -> StudyResult:
        result = brief(source)
        object.__setattr__(result.provenance, "completed", False)
        return result

    paths = [run / "step-20", run / "step-100"]
    with pytest.raises(KeyboardInterrupt):
        audit_many(paths, out, audit_one=partial)
    (record,) = Ledger(out).records
    assert record.status == "interrupted"
    assert not StudyResult.load(out / "step-20").provenance.completed
    assert not (out / "trend.html").exists()
    assert said(audit_many(paths, out, audit_one=brief)) == [
        ("step-20", "audited"),
        ("step-100", "audited"),
    ]


def test_a_folder_of_something_else_is_refused(run: Path, tmp_path: Path) -> None:
    brief(run / "step-20").save(tmp_path / "single")
    with pytest.raises(ResultError, match="result of a single study"):
        audit_many([], tmp_path / "single", audit_one=brief)
    (tmp_path / "file").touch()
    with pytest.raises(ResultError, match="is a file"):
        audit_many([], tmp_path / "file", audit_one=brief)
    out = tmp_path / "out"
    out.mkdir()
    for text in ("{", '{"format": "other"}', '{"format": "resharpen-audited"}', "[]"):
        (out / LEDGER_FILE).write_text(text)
        with pytest.raises(ResultError, match=r"audited\.json cannot be read"):
            audit_many([], out, audit_one=brief)


def test_records_come_back_from_disk(tmp_path: Path) -> None:
    record = AuditRecord("a", "/a", None, "failed", "", "no", "OSError", {"a": [1, 2]}, {"x": [1]})
    Ledger(tmp_path / "out").put(record)
    assert Ledger(tmp_path / "out").records == (record,)
    assert json.loads((tmp_path / "out" / LEDGER_FILE).read_text())["schema_version"] == 1


class Clock:
    """Time as the watch sees it: at each poll the next event happens; then it is over."""

    def __init__(self, *events: Any) -> None:
        self.events, self.slept = list(events), []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if seconds == POLL and self.events:
            self.events.pop(0)()

    def stop(self) -> bool:
        return not self.events


POLL = 60.0


def test_a_watch_audits_each_new_checkpoint_once(tmp_path: Path) -> None:
    run, out, heard = tmp_path / "run", tmp_path / "out", []
    write(run / "step-20")
    trends = []
    clock = Clock(
        lambda: trends.append((out / "trend.html").read_text()),
        lambda: write(run / "step-40"),
        lambda: break_weights(write(run / "step-60")),
        lambda: shutil.copytree(run / "step-20", run / "step-80.partial-1"),
        lambda: None,
        lambda: write(run / "step-60"),
        lambda: (run / "step-80.partial-1").rename(run / "step-80"),
    )
    records = watch(
        run,
        out,
        audit_one=functools.partial(brief, marks=tmp_path),
        poll_seconds=POLL,
        stop=clock.stop,
        sleep=clock.sleep,
        on_done=heard.append,
    )
    assert said(heard) == [
        ("step-20", "audited"),
        ("step-40", "audited"),
        ("step-60", "failed"),
        ("step-60", "audited"),
        ("step-80", "audited"),
    ]
    assert calls(tmp_path) == ["step-20", "step-40", "step-60", "step-60", "step-80"]
    assert said(records) == [(f"step-{step}", "audited") for step in (20, 40, 60, 80)]
    assert clock.slept.count(POLL) == 7
    assert set(clock.slept) == {POLL, 0.5}
    assert "1 checkpoint, step-20 (step 20)" in trends[0]
    page = (out / "trend.html").read_text()
    assert "4 checkpoints, step-20 (step 20) to step-80 (step 80)" in page
    # A second watch finds everything done.
    again = watch(run, out, audit_one=brief, stop=lambda: True, sleep=clock.sleep)
    assert [status for _, status in said(again)] == ["kept"] * 4


def test_a_watch_without_a_folder_or_interrupted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no folder .* to watch"):
        watch(tmp_path / "none", tmp_path / "out", audit_one=brief)
    (tmp_path / "run").mkdir()

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(tmp_path / "run", tmp_path / "out", audit_one=brief, sleep=interrupt)
    assert not (tmp_path / "out").exists()
