"""The study in small: what is finished is kept, what fails is told, and the rest goes on."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from resharpen.analyses import StudyResult
from resharpen.analyses.studies.remedies import study as module
from resharpen.analyses.studies.remedies.config import (
    TASK_SETTINGS,
    Cell,
    RemediesConfig,
    TaskSetting,
)
from resharpen.analyses.studies.remedies.figures import study_figures
from resharpen.analyses.studies.remedies.study import RemediesStudy, run
from resharpen.models import TrainingConfig

RECIPE = TrainingConfig(length=8, n_steps=5, batch_size=4, targets="exact", ema_decays=())
SMALL = RemediesConfig(
    tasks=("first", "argmax-retrieval"),
    remedies=("softmax", "log_n"),
    remedy_placements=("none",),
    placements=("none", "res_post"),
    placement_tasks=("first",),
    seeds=(0, 1),
    n_sequences=4,
    training=RECIPE,
    threshold=0.9,  # both above the error of a model that has learned nothing
    learned=0.9,
)
NAMES = [
    *("first, softmax / none", "first, log_n / none", "first, softmax / res_post"),
    *("argmax-retrieval, softmax / none", "argmax-retrieval, log_n / none"),
]
ONE_TASK = RemediesConfig(
    tasks=("first",),
    remedies=("softmax", "log_n"),
    remedy_placements=("none",),
    placements=("none",),
    seeds=(0, 1),
    n_sequences=2,
    training=RECIPE,
)


@pytest.fixture(scope="module", autouse=True)
def short_ladders() -> Any:
    """Of this process; workers have the study's own."""
    with pytest.MonkeyPatch.context() as patched:
        setting = TaskSetting(model={"d_model": 8}, length=4, multiples=(1, 2, 4))
        patched.setitem(TASK_SETTINGS, "argmax-retrieval", setting)  # type: ignore[arg-type]
        first = TaskSetting(model={"d_model": 8}, length=4, multiples=(1, 2, 4, 8))
        patched.setitem(TASK_SETTINGS, "first", first)  # type: ignore[arg-type]
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[RemediesStudy, list[str], Path]:
    """A run from nothing, what it said, and its cache."""
    said: list[str] = []
    cache = tmp_path_factory.mktemp("cache")
    done = run(SMALL, cache=cache, jobs=1, say=said.append, asked={"preset": "tiny"})
    return done, said, cache


def steps(said: list[str], word: str) -> list[str]:
    """The cells of which this was said."""
    return [line[9:].split(" (")[0] for line in said if line.startswith(word)]


def wrong_at(name: str, error: BaseException) -> Callable[..., Any]:
    """`measure_cell` that raises at one cell."""
    measure = module.measure_cell

    def wrapped(config: RemediesConfig, cell: Cell, cache: Path) -> tuple[pd.DataFrame, bool]:
        if f"{cell.task}, {cell.label}" == name:
            raise error
        return measure(config, cell, cache)

    return wrapped


def test_every_cell_is_measured_once_and_then_found(whole: Any) -> None:
    done, said, cache = whole
    assert said[0].startswith("5 cells, 2 seeds each")
    assert steps(said, "measured") == NAMES
    assert said[-1].endswith("(5 of 5)")
    again: list[str] = []
    repeated = run(SMALL, cache=cache, jobs=1, say=again.append)
    assert steps(again, "found") == NAMES
    pd.testing.assert_frame_equal(repeated.result.table, done.result.table)
    assert repeated.cells == done.cells


def test_the_study_leaves_a_map_claims_and_a_result(whole: Any, tmp_path: Path) -> None:
    done = whole[0]
    assert [f"{c.cell.task}, {c.cell.label}" for c in done.cells] == NAMES
    assert done.left_out == {}
    result = done.result
    assert set(result.table["study"]) == {"remedies"}
    assert result.provenance.asked == {"preset": "tiny"}
    assert result.provenance.resolved["threshold"] == 0.9
    assert result.provenance.resolved["training"]["n_steps"] == 5
    assert list(result.provenance.seeds) == [0, 1]
    (bounds,) = [sentence for sentence in result.sentences if "bounds on weights" in sentence]
    # Four bounds for the one head of each cell, at all its seeds.
    assert bounds.startswith("Of 20 bounds")
    assert bounds.endswith("0 are violated.")
    for cell in done.cells:
        errors = cell.errors[1]
        rows = result.table[
            (result.table["task"] == cell.cell.task)
            & (result.table["checkpoint"] == cell.cell.label)
            & (result.table["quantity"] == "total_variation")
            & (result.table["length"] == 4)
        ]
        assert errors.mean == pytest.approx(rows["mean"].mean())
        assert errors.n_seeds == 2
    loaded = StudyResult.load(result.save(tmp_path / "out"))
    assert loaded.table.equals(result.table)
    assert loaded.curves == result.curves


def test_curves_are_compared_with_the_rows_of_their_own_task(whole: Any) -> None:
    """Cells of two tasks share a label: a curve of one meets its own two seeds only."""
    result = whole[0].result
    laws = [finding for finding in result.findings if finding.kind == "fit"]
    assert 1 <= len(laws) == len(result.curves)
    for finding, curve in zip(laws, result.curves, strict=True):
        assert finding.n_points == 2 * len(curve.x)
        assert finding.status == "ok"


def test_figures_are_the_remedies_and_the_placements(whole: Any) -> None:
    figures: dict[str, Any] = dict(study_figures(SMALL, whole[0]))
    assert list(figures) == ["remedies", "placements"]
    rows = {name: list(figure.layout.yaxis.ticktext) for name, figure in figures.items()}
    assert rows == {
        "remedies": ["softmax / none", "log_n / none"],
        "placements": ["softmax / none", "softmax / res_post"],
    }
    assert figures["placements"].layout.meta["title"].startswith("Which norm placement")
    assert "up to 0.9 counts as solved" in figures["remedies"].layout.meta["caption"]


@pytest.mark.parametrize("where", ["say", "measure_cell"])
def test_a_killed_run_goes_on_where_it_was(
    whole: Any, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if where == "say" and line.startswith("measured") and NAMES[1] in line:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        if where == "measure_cell":
            patched.setattr(module, "measure_cell", wrong_at(NAMES[2], KeyboardInterrupt()))
        run(SMALL, cache=tmp_path, jobs=1, say=say)
    assert steps(said, "measured") == NAMES[:2]
    resumed: list[str] = []
    done = run(SMALL, cache=tmp_path, jobs=1, say=resumed.append)
    assert steps(resumed, "found") == NAMES[:2]
    assert steps(resumed, "measured") == NAMES[2:]
    pd.testing.assert_frame_equal(done.result.table, whole[0].result.table)


def test_a_cell_that_fails_leaves_a_sentence_and_the_others_go_on(
    whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    error = RuntimeError("no room\nfor the pattern")
    monkeypatch.setattr(module, "measure_cell", wrong_at(NAMES[0], error))
    done = run(SMALL, cache=whole[2], jobs=1, say=said.append)
    assert done.left_out == {NAMES[0]: "no room for the pattern"}
    assert f"failed   {NAMES[0]}: no room for the pattern" in said
    assert [f"{c.cell.task}, {c.cell.label}" for c in done.cells] == NAMES[1:]
    assert {c.outcome for c in done.cells if c.cell.task == "first"} == {"undecided"}


def test_a_remedy_and_a_placement_that_exclude_each_other_are_left_out(tmp_path: Path) -> None:
    config = RemediesConfig(
        tasks=("first",),
        remedies=("softmax", "qk_norm"),
        remedy_placements=("none", "ngpt"),
        placements=("none",),
        seeds=(0,),
        n_sequences=2,
        training=RECIPE,
    )
    done = run(config, cache=tmp_path, jobs=1)
    assert list(done.left_out) == ["first, qk_norm / ngpt"]
    assert "normalises queries, keys and weights itself" in done.left_out["first, qk_norm / ngpt"]
    assert len(done.cells) == 3
    assert all(math.isnan(cell.errors[1].high) for cell in done.cells)


def test_a_study_of_which_nothing_could_be_run_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module, "measure_cell", fail)
    with pytest.raises(
        ValueError, match=r"not one cell could be run; the first failed .* disk full"
    ):
        run(SMALL, cache=tmp_path, jobs=1)
    with pytest.raises(ValueError, match="jobs must be at least 1; got 0"):
        run(SMALL, cache=tmp_path, jobs=0)


def test_a_cell_runs_on_one_thread_and_gives_the_others_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    def look(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise RuntimeError("seen")

    monkeypatch.setattr(module, "measure_cell", look)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="seen"):
            run(SMALL, cache=tmp_path, jobs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1] * 5


def test_two_jobs_find_what_one_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two processes, each with its own torch, come to the same table in the same order."""
    setting = TaskSetting(model={"d_model": 32})
    monkeypatch.setitem(TASK_SETTINGS, "first", setting)  # type: ignore[arg-type]
    said: list[str] = []
    two = run(ONE_TASK, cache=tmp_path / "two", jobs=2, say=said.append)
    assert sorted(steps(said, "measured")) == sorted(NAMES[:2])
    one = run(ONE_TASK, cache=tmp_path / "one", jobs=1)
    pd.testing.assert_frame_equal(two.result.table, one.result.table)
    assert two.cells == one.cells
    assert len(list((tmp_path / "two" / "remedies").iterdir())) == 2
