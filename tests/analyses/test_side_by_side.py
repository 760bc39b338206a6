import functools
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from resharpen.analyses.side_by_side import TaskFailure, run_side_by_side


def square(number: int, pause: float = 0.0) -> int:
    time.sleep(pause)
    return number * number


def fail(sentence: str) -> None:
    raise LookupError(sentence)


def die_once(mark: Path, number: int) -> int:
    """Kill the worker the first time, and leave a mark that it was tried."""
    first = not mark.exists()
    mark.touch()
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(marks: Path) -> None:
    (marks / f"{time.monotonic_ns()}").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def unpicklable() -> object:
    return (number for number in range(3))


def tasks_with_trouble(folder: Path) -> list:
    folder.mkdir()
    return [
        functools.partial(square, 0, 0.1),
        functools.partial(fail, "no such\nthing"),
        functools.partial(die_once, folder / "once", 2),
        functools.partial(square, 3, 0.1),
        functools.partial(die, folder),
        *(functools.partial(square, number) for number in range(5, 9)),
    ]


def check_trouble(results: list, deaths: int) -> None:
    assert results[1] == TaskFailure("LookupError", "no such thing")
    assert isinstance(results[4], TaskFailure), results[4]
    assert "\n" not in results[4].sentence
    assert results[4].sentence
    kept = [results[index] for index in (0, 2, 3, 5, 6, 7, 8)]
    assert kept == [0, 2, 9, 25, 36, 49, 64]
    assert deaths in (2, 3)  # once, once more, and possibly beside another's death


def wait_for(mark: Path) -> bool:
    """Whether a mark appears in time, which another task has to leave meanwhile."""
    patience = time.monotonic() + 30
    while not mark.exists() and time.monotonic() < patience:
        time.sleep(0.01)
    return mark.exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_a_failure_stays_alone(jobs: int) -> None:
    heard = []
    tasks = [
        functools.partial(square, 3),
        lambda: square(4),
        functools.partial(fail, "broken"),
        lambda: sys.exit("left"),
        *[functools.partial(square, number) for number in range(3)],
    ]
    results = run_side_by_side(
        tasks, jobs=jobs, on_done=lambda index, result: heard.append((index, result))
    )
    broken, left = TaskFailure("LookupError", "broken"), TaskFailure("SystemExit", "left")
    assert results == [9, 16, broken, left, 0, 1, 4]
    assert sorted(heard, key=lambda item: item[0]) == list(enumerate(results))


def test_a_slow_task_holds_no_other_back(tmp_path: Path) -> None:
    heard = []
    tasks = [
        functools.partial(wait_for, tmp_path / "mark"),
        *[functools.partial(square, number) for number in range(5)],
        (tmp_path / "mark").touch,
    ]
    results = run_side_by_side(tasks, jobs=2, on_done=lambda index, result: heard.append(index))
    assert results[0] is True
    assert heard.index(0) >= 5


def test_nothing_to_do() -> None:
    assert run_side_by_side([], jobs=2) == []


def test_what_cannot_travel_is_a_failure_of_its_own() -> None:
    generator = unpicklable()
    results = run_side_by_side(
        [functools.partial(next, generator), unpicklable, functools.partial(square, 2)],  # type: ignore[arg-type]
        jobs=2,
    )
    assert results[2] == 4
    assert [type(result) for result in results[:2]] == [TaskFailure, TaskFailure]
    assert "cannot be sent" in results[0].sentence


def test_a_worker_that_dies_loses_its_own_task_only(tmp_path: Path) -> None:
    results = run_side_by_side(tasks_with_trouble(tmp_path / "marks"), jobs=2)
    check_trouble(results, len(list((tmp_path / "marks").glob("[0-9]*"))))
    assert results[4].kind == "TerminatedWorkerError"


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_ends_it_and_what_was_heard_of_is_done(jobs: int) -> None:
    heard = []

    def interrupted(index: int, result: int) -> None:
        heard.append(result)
        if len(heard) == 2:
            raise KeyboardInterrupt

    tasks = [functools.partial(square, number) for number in range(20)]
    with pytest.raises(KeyboardInterrupt):
        run_side_by_side(tasks, jobs=jobs, on_done=interrupted)
    assert len(heard) == 2


def test_an_error_of_the_listener_is_not_taken_for_a_task() -> None:
    def careless(index: int, result: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_side_by_side([functools.partial(square, 1)] * 3, jobs=2, on_done=careless)


def test_local_workers_compute_with_one_thread() -> None:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    tasks = [lambda: [os.environ.get(name) for name in names]] * 2
    assert run_side_by_side(tasks, jobs=2) == [["1", "1"]] * 2


def test_bad_arguments_get_one_sentence() -> None:
    with pytest.raises(ValueError, match="one of local, dask, ray; got 'slurm'"):
        run_side_by_side([], backend="slurm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1; got 0"):
        run_side_by_side([], jobs=0)
    with pytest.raises(ValueError, match="takes no address"):
        run_side_by_side([], address="tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("backend", "package"), [("dask", "distributed"), ("dask", "dask"), ("ray", "ray")]
)
def test_a_missing_package_says_what_to_install(
    backend: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf'pip install "\.\[{backend}\]"'):
        run_side_by_side([functools.partial(square, 1)], backend=backend)  # type: ignore[arg-type]
