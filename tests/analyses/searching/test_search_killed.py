"""A search whose worker, or whose whole command, is killed in the middle of a trial.

No finished trial is lost or run twice, and the results are those of a search that nobody disturbed.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from resharpen.analyses.searching.space import read_space
from resharpen.analyses.searching.study import SearchStudy, run

pytestmark = pytest.mark.slow

SPACE = """
trials = 6
lengths = [2, 4]
n_sequences = 8
[task]
name = "set-complement"
vocabulary = 8
[model]
d_model = 8
norm_placement = {choice = ["pre", "post"]}
[training]
length = 4
n_steps = 100
batch_size = 8
save_every = 20
learning_rate = {log_uniform = [1e-3, 1e-1]}
[rerun]
top = 1
seeds = 2
"""


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("space") / "space.toml"
    place.write_text(SPACE)
    return place


@pytest.fixture(scope="module")
def undisturbed(space: Path, tmp_path_factory: pytest.TempPathFactory) -> SearchStudy:
    return run(read_space(space), cache=tmp_path_factory.mktemp("undisturbed"), jobs=1)


def finished(cache: Path) -> dict[str, int]:
    """Every file of a finished trial, with the time at which it was written."""
    return {
        path.name: path.stat().st_mtime_ns
        for kind in ("trials/*.parquet", "outcomes/*.json")
        for path in cache.glob(kind)
    }


def under_way(cache: Path) -> int:
    """How many trainings have a saved state and no result."""
    return sum(
        not list(path.glob("seed-*")) for path in (cache / "runs").glob("*") if list(path.iterdir())
    )


def wait(condition: Callable[[], Any]) -> Any:
    patience = time.monotonic() + 240
    while not (met := condition()) and time.monotonic() < patience:
        time.sleep(0.05)
    assert met, "it did not come to that in time"
    return met


def outcomes(cache: Path) -> int:
    return len(list((cache / "outcomes").glob("*.json")))


def check(trials: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Equal in everything but the time it took."""
    pd.testing.assert_frame_equal(
        trials.drop(columns="seconds"), expected.drop(columns="seconds"), rtol=1e-12
    )


@pytest.fixture
def cluster(forked_dask: None) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as made,
    ):
        yield made


def test_a_dask_worker_killed_in_the_middle_of_a_trial_loses_that_trial_only(
    cluster: Any, space: Path, undisturbed: SearchStudy, tmp_path: Path
) -> None:
    before: dict[str, int] = {}
    killed: list[int] = []

    def kill() -> None:
        wait(lambda: outcomes(tmp_path) >= 1 and under_way(tmp_path))
        busy = [
            nanny
            for nanny in cluster.workers.values()
            if cluster.scheduler.workers[nanny.worker_address].processing
        ]
        killed.append(busy[0].pid)
        os.kill(busy[0].pid, signal.SIGKILL)
        before.update(finished(tmp_path))

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    said: list[str] = []
    search = run(
        read_space(space),
        cache=tmp_path,
        backend="dask",
        address=cluster.scheduler_address,
        say=said.append,
    )
    killer.join(timeout=5)
    assert killed
    assert 2 <= len(before) < len(finished(tmp_path)), "it was killed in the middle"
    after = finished(tmp_path)
    assert {name: after[name] for name in before} == before
    check(search.trials, undisturbed.trials)
    assert search.winners == undisturbed.winners
    assert search.result.table.equals(undisturbed.result.table)
    assert [line.split()[0] for line in said[1:7]].count("failed") == 0


def test_a_command_killed_in_the_middle_goes_on_where_it_was(
    space: Path, undisturbed: SearchStudy, tmp_path: Path
) -> None:
    cache, out = tmp_path / "cache", tmp_path / "out"
    command = [
        *(sys.executable, "-c", "from resharpen.analyses.cli import main; main()", "search"),
        *(str(space), "--out", str(out), "--cache", str(cache), "--jobs"),
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen([*command, "2"], start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        wait(lambda: outcomes(cache) >= 2 and under_way(cache))
        os.kill(first.pid, signal.SIGKILL)
        assert first.wait(timeout=10) == -signal.SIGKILL
        before = finished(cache)
        n_before = outcomes(cache)
        assert 2 <= n_before < 6, "it was killed in the middle"
        assert not out.exists()
        done = subprocess.run([*command, "1"], capture_output=True, text=True, timeout=300)
    finally:
        # What the killed command had begun may still be under way.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
    assert done.returncode == 0, done.stderr
    after = finished(cache)
    assert {name: after[name] for name in before} == before
    lines = [line.split()[0] for line in done.stdout.splitlines() if "total variation" in line]
    assert lines.count("found") >= n_before
    assert outcomes(cache) == 6 + 2
    written = io.StringIO(undisturbed.trials.to_csv(index=False))
    check(pd.read_csv(out / "trials.csv"), pd.read_csv(written))
