"""One cell: measured once, trained once, kept under a name that everything it depends on is in."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses import runs
from resharpen.analyses.rows import pick
from resharpen.analyses.studies.remedies import cells
from resharpen.analyses.studies.remedies.cells import MEASURED, cell_key, measure_cell
from resharpen.analyses.studies.remedies.config import (
    TASK_SETTINGS,
    Cell,
    RemediesConfig,
    TaskSetting,
)
from resharpen.interp.tables import check_table
from resharpen.models import TrainingConfig

RECIPE = TrainingConfig(length=8, n_steps=5, batch_size=4, targets="exact", ema_decays=())
SMALL = RemediesConfig(tasks=("first",), seeds=(0, 1), n_sequences=6, training=RECIPE)
CELL = Cell("softmax", "none", "first")


@pytest.fixture(autouse=True)
def short_ladders(monkeypatch: pytest.MonkeyPatch) -> None:
    complement = TaskSetting(
        {"vocabulary": 8}, {"d_model": 16}, length=3, multiples=(1, 2), short=(1, 2)
    )
    monkeypatch.setitem(TASK_SETTINGS, "set-complement", complement)  # type: ignore[arg-type]
    first = TaskSetting(model={"d_model": 8}, length=4, multiples=(1, 2, 4))
    monkeypatch.setitem(TASK_SETTINGS, "first", first)  # type: ignore[arg-type]


def test_a_cell_is_a_tidy_table_and_the_same_from_the_cache(tmp_path: Path) -> None:
    table, found = measure_cell(SMALL, CELL, tmp_path)
    again, found_again = measure_cell(SMALL, CELL, tmp_path)
    assert (found, found_again) == (False, True)
    pd.testing.assert_frame_equal(table, again)
    check_table(table)
    assert set(table["study"]) == {"remedies"}
    assert set(table["checkpoint"]) == {"softmax / none"}
    assert set(table["task"]) == {"first"}
    assert set(table["seed"]) == {0, 1}
    assert set(table["length"]) == {4, 8, 16}
    assert set(table["quantity"]) == set(MEASURED)
    assert set(table["status"]) == {"ok"}
    assert set(table["n_obs"]) == {6}  # three batches of the largest power of two in it
    assert not table.duplicated(["seed", "length", "quantity"]).to_numpy().any()


def test_what_is_measured_depends_on_the_remedy_and_on_the_theorem(tmp_path: Path) -> None:
    """Total mass where it may not be one; short lengths and displacements on set complement."""
    table, _ = measure_cell(SMALL, Cell("sigmoid", "none", "set-complement"), tmp_path)
    assert set(table["length"]) == {1, 2, 3, 6}
    assert {"total_mass", "displacement", "frozen_displacement"} <= set(table["quantity"])
    normed, _ = measure_cell(SMALL, Cell("softmax", "res_post", "set-complement"), tmp_path)
    assert "total_mass" not in set(normed["quantity"])
    assert "norm_scale" in set(normed["quantity"])
    alone = normed[(normed["length"] == 1) & (normed["quantity"] == "normalised_entropy")]
    assert set(alone["status"]) == {"undefined"}


def test_hardmax_is_measured_on_the_weights_of_softmax(tmp_path: Path) -> None:
    soft, _ = measure_cell(SMALL, CELL, tmp_path)
    hard, found = measure_cell(SMALL, Cell("hardmax", "none", "first"), tmp_path)
    assert not found
    assert len(list((tmp_path / "runs").iterdir())) == 1

    def of(table: pd.DataFrame, quantity: str) -> np.ndarray:
        return pick(table, quantity=quantity)["mean"].to_numpy(dtype=np.float64)

    np.testing.assert_array_equal(of(soft, "score_spread"), of(hard, "score_spread"))
    assert (of(hard, "entropy") < of(soft, "entropy")).all()


def test_a_cell_whose_measurement_was_cut_off_is_not_trained_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls, sweep = [], cells.sweep

    def cut_off(*arguments: Any, **more: Any) -> pd.DataFrame:
        calls.append(more)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sweep(*arguments, **more)

    def never(*arguments: Any, **more: Any) -> None:
        raise AssertionError("trained again")

    with monkeypatch.context() as patched:
        patched.setattr(cells, "sweep", cut_off)
        with pytest.raises(KeyboardInterrupt):
            measure_cell(SMALL, CELL, tmp_path)
    assert not (tmp_path / "remedies").exists()
    with monkeypatch.context() as patched:
        patched.setattr(runs, "train", never)
        table, found = measure_cell(SMALL, CELL, tmp_path)
    assert not found
    whole, _ = measure_cell(SMALL, CELL, tmp_path / "whole")
    pd.testing.assert_frame_equal(table, whole)
    assert [path.suffix for path in (tmp_path / "remedies").iterdir()] == [".parquet"]


def test_the_key_depends_on_everything_that_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trained here."""
    key = cell_key(SMALL, CELL)
    assert key == cell_key(SMALL, CELL)
    assert len(key) == 16
    changed = [
        cell_key(dataclasses.replace(SMALL, **change), CELL)
        for change in (
            {"training": dataclasses.replace(RECIPE, n_steps=6)},
            {"seeds": (0, 2)},
            {"seeds": (0, 1, 2)},
            {"n_sequences": 8},
        )
    ]
    changed += [
        cell_key(SMALL, dataclasses.replace(CELL, **other))
        for other in ({"remedy": "hardmax"}, {"placement": "post"}, {"remedy": "log_n"})
    ]
    for setting in (
        TaskSetting(model={"d_model": 8}, length=4, multiples=(1, 2)),
        TaskSetting(model={"d_model": 16}, length=4, multiples=(1, 2, 4)),
        TaskSetting(model={"d_model": 8}, length=4, multiples=(1, 2, 4), training={"n_steps": 4}),
        TaskSetting(model={"d_model": 8}, length=4, multiples=(1, 2, 4), short=(1,)),
    ):
        with monkeypatch.context() as patched:
            patched.setitem(TASK_SETTINGS, "first", setting)  # type: ignore[arg-type]
            changed.append(cell_key(SMALL, CELL))
    for module in (cells, runs):  # the code that measures, the code that trains
        with monkeypatch.context() as patched:
            patched.setattr(module, "code_digest", lambda room: f"another {room}")
            changed.append(cell_key(SMALL, CELL))
    assert len({key, *changed}) == 1 + len(changed)


def test_the_key_does_not_depend_on_what_is_judged_later() -> None:
    other = dataclasses.replace(SMALL, threshold=0.2, tasks=("first", "mean"), placements=("pre",))
    assert cell_key(other, CELL) == cell_key(SMALL, CELL)


@pytest.mark.parametrize(
    ("n_sequences", "n_heads", "n_pos", "batch"),
    [
        (64, 1, 256, 64),
        (64, 4, 256, 64),  # 64 x 4 x 256 x 256 is 2^24
        (64, 4, 257, 32),
        (96, 1, 8, 32),
        (3, 1, 8, 1),
        (64, 4, 4096, 1),
    ],
)
def test_batches_divide_the_sequences_and_fit(
    n_sequences: int, n_heads: int, n_pos: int, batch: int
) -> None:
    config = RemediesConfig(n_sequences=n_sequences)
    assert cells._batch(config, n_heads, n_pos) == batch
    assert n_sequences % batch == 0
