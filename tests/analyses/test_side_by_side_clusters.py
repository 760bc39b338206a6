"""The same tasks on a real Dask cluster and on Ray, with workers that are killed."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resharpen.analyses import side_by_side
from resharpen.analyses.side_by_side import TaskFailure, run_side_by_side

pytestmark = pytest.mark.slow


def square(number: int, pause: float = 0.0) -> int:
    time.sleep(pause)
    return number * number


def fail(sentence: str) -> None:
    raise LookupError(sentence)


def die(folder: Path) -> None:
    (folder / f"{time.monotonic_ns()}").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def stay(mark: Path, number: int) -> int:
    """Say which process this is and stay long enough to be killed; quick the second time."""
    tried = mark.exists()
    mark.write_text(str(os.getpid()))
    if not tried:
        time.sleep(60)
    return number


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as made,
    ):
        yield made


def test_a_dask_cluster_gives_results_in_order(cluster: Any) -> None:
    heard = []
    tasks = [
        functools.partial(square, 3, 0.3),
        lambda: square(4),
        functools.partial(fail, "broken"),
        *[functools.partial(square, number) for number in range(6)],
    ]
    results = run_side_by_side(
        tasks,
        backend="dask",
        address=cluster.scheduler_address,
        on_done=lambda index, result: heard.append(index),
    )
    assert results == [9, 16, TaskFailure("LookupError", "broken"), 0, 1, 4, 9, 16, 25]
    assert sorted(heard) == list(range(9))
    assert all(pid != os.getpid() for pid in run_side_by_side(
        [os.getpid] * 3, jobs=1, backend="dask", address=cluster.scheduler_address
    ))  # fmt: skip


def test_a_dask_worker_killed_in_the_middle_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def kill() -> None:
        while not (mark.exists() and mark.read_text()):
            time.sleep(0.05)
        os.kill(int(mark.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    tasks = [functools.partial(square, number, 0.05) for number in range(6)]
    results = run_side_by_side(
        [*tasks[:2], functools.partial(stay, mark, 7), *tasks[2:]],
        backend="dask",
        address=cluster.scheduler_address,
    )
    killer.join(timeout=5)
    assert not killer.is_alive()
    assert results == [0, 1, 7, 4, 9, 16, 25]


def test_a_task_that_kills_every_dask_worker_is_a_failure(cluster: Any, tmp_path: Path) -> None:
    tasks = [functools.partial(square, number) for number in range(4)]
    results = run_side_by_side(
        [tasks[0], functools.partial(die, tmp_path), *tasks[1:]],
        backend="dask",
        address=cluster.scheduler_address,
    )
    assert results[1].kind == "KilledWorker"
    assert [results[0], *results[2:]] == [0, 1, 4, 9]
    assert len(list(tmp_path.iterdir())) == 2, "once, and once more"


def test_a_cluster_of_its_own_and_an_address_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="dask is not installed")
    tasks = [functools.partial(square, 5), os.getpid]
    squared, pid = run_side_by_side(tasks, jobs=1, backend="dask")
    assert (squared, pid == os.getpid()) == (25, False)
    monkeypatch.setattr(side_by_side, "_PATIENCE", 0.5)
    with pytest.raises(ValueError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        run_side_by_side(tasks, backend="dask", address="tcp://127.0.0.1:9")


RAY = """
import functools, os, signal, sys, time
from pathlib import Path
from resharpen.analyses import side_by_side
from resharpen.analyses.side_by_side import TaskFailure, run_side_by_side
folder = Path(sys.argv[1])
def die():
    (folder / str(time.monotonic_ns())).touch()
    os.kill(os.getpid(), signal.SIGKILL)
def fail():
    raise LookupError("broken")
tasks = [lambda: 1, fail, die, lambda: 4, os.getpid]
if __name__ == "__main__":
    heard = []
    results = run_side_by_side(
        tasks, jobs=2, backend="ray", on_done=lambda index, result: heard.append(index)
    )
    assert results[:2] == [1, TaskFailure("LookupError", "broken")], results
    assert isinstance(results[2], TaskFailure), results
    assert results[3] == 4 and results[4] != os.getpid(), results
    assert sorted(heard) == [0, 1, 2, 3, 4]
    assert len(list(folder.iterdir())) == 2
"""


def test_ray_gives_results_in_order_and_a_dead_worker_is_a_failure(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install .[ray]")
    done = subprocess.run(
        [sys.executable, "-c", RAY, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
