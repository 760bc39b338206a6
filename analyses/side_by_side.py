"""Tasks side by side through joblib: in local processes, on a Dask cluster or on Ray.

A task that fails leaves a record, and the others their results. A task whose worker dies is tried
once more, then it is a record too.
"""

import importlib
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle
from joblib import Parallel, cpu_count, delayed, parallel_config

from .record import Record

__all__ = ["BACKENDS", "Backend", "TaskFailure", "run_side_by_side"]

Backend = Literal["local", "dask", "ray"]

BACKENDS: tuple[Backend, ...] = ("local", "dask", "ray")
"""Where tasks can run: in processes of this machine, on a Dask cluster, on a Ray cluster."""

_PATIENCE = 10
"""Seconds until a Dask scheduler must have answered."""


@dataclass(frozen=True)
class TaskFailure(Record):
    """What is left of a task that failed.

    Args:
        kind: the type of the error, `CheckpointError`.
        sentence: what it said, on one line.
    """

    kind: str
    sentence: str


@dataclass(frozen=True)
class _Site:
    """Where a run of joblib takes place: its settings, and how many tasks are sent ahead."""

    settings: dict[str, Any]
    ahead: int
    yields: bool = True


def run_side_by_side(
    tasks: Sequence[Callable[[], Any]],
    *,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    on_done: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Run every task and return what each returned, or a `TaskFailure`, in order.

    Tasks and results travel pickled by value (closures are fine); keep them small, and write what
    is large to disk in the task. Local processes compute with one thread each. With one local job
    the tasks run one after another in this process, with all its threads.

    A worker that dies loses its own task only: that is run once more, and is a `TaskFailure` if it
    dies again. (On a Dask cluster of your own, its `allowed-failures` says how often before
    that.)
    On an interrupt nothing new is begun and what runs is stopped; what `on_done` has heard of is
    done.

    Args:
        tasks: functions without arguments.
        jobs: how many at once; None = one a core of this machine, or all of the cluster.
        backend: one of `BACKENDS`.
        address: of the Dask scheduler or the Ray head; None = a cluster on this machine, for as
            long as the tasks run.
        on_done: called here as `on_done(index, result)` whenever a task is done.

    Raises:
        ValueError: an unknown backend, fewer than one job, an address that the local backend does
            not take or where nobody answers, or a backend whose package is not installed.
    """
    if backend not in BACKENDS:
        raise ValueError(f"the backend is one of {', '.join(BACKENDS)}; got {backend!r}")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1; got {jobs}")
    if backend == "local" and address is not None:
        raise ValueError("the local backend takes no address: choose dask or ray for a cluster")
    tasks = list(tasks)
    results: list[Any] = [None] * len(tasks)

    def note(index: int, result: Any) -> None:
        results[index] = result
        if on_done is not None:
            on_done(index, result)

    if backend == "local" and (jobs or cpu_count()) == 1:
        for index, task in enumerate(tasks):
            note(index, _attempt(task))
        return results
    waiting: dict[int, bytes] = {}
    for index, task in enumerate(tasks):
        try:
            waiting[index] = cloudpickle.dumps(task)
        except Exception as error:
            note(index, _failure(error, "the task cannot be sent to another process: "))
    if waiting:
        with _SITES[backend](jobs, address) as site:
            _run(waiting, site, note)
    return results


LOST = "KilledWorker"
"""Kind of a task that Dask gave up since its worker died."""


def _run(waiting: dict[int, bytes], site: _Site, note: Callable[[int, Any], None]) -> None:
    """Run what waits; whatever was under way when a worker died is run again, one at a time."""
    while waiting:
        sent: list[int] = []
        lost: list[int] = []
        with closing(_one_pass(dict(waiting), site, sent)) as done:
            while len(waiting) > len(lost):
                try:
                    index, result = next(done)
                except Exception as error:
                    if not set(sent) & set(waiting):
                        raise ValueError(
                            f"the tasks could not be sent to their workers: {_one_line(error)}"
                        ) from error
                    break
                if isinstance(result, TaskFailure) and result.kind == LOST:
                    # Dask gives up whatever lay on a worker that died, the innocent too.
                    lost.append(index)
                    continue
                del waiting[index]
                note(index, result)
        for index in [index for index in sent if index in waiting]:
            alone = {index: waiting.pop(index)}
            try:
                with closing(_one_pass(alone, site, [])) as done:
                    result = next(done)[1]
            except Exception as error:
                result = _failure(error, "its worker died twice: ")
            note(index, result)


def _one_pass(
    waiting: dict[int, bytes], site: _Site, sent: list[int]
) -> Generator[tuple[int, Any], None, None]:
    """Send the tasks, noting which were, and yield number and result of each as it is done."""

    def feed(items: Sequence[tuple[int, bytes]]) -> Iterator[Any]:
        for index, packed in items:
            sent.append(index)
            yield delayed(_work)(index, packed)

    items = list(waiting.items())
    step = len(items) if site.yields else site.ahead
    with parallel_config(**site.settings):
        for start in range(0, len(items), step):
            done: Any = Parallel(
                return_as="generator_unordered" if site.yields else "list",
                batch_size=1,  # type: ignore[arg-type]
                pre_dispatch=site.ahead,  # type: ignore[arg-type]
            )(feed(items[start : start + step]))
            try:
                for index, packed in done:
                    yield index, cloudpickle.loads(packed)
            finally:
                _stop(done)


def _stop(done: Any) -> None:
    """Stop what still runs, if anything does; joblib warns that it did so."""
    if hasattr(done, "close"):
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            done.close()


def _work(index: int, packed: bytes) -> tuple[int, bytes]:
    """In the worker: everything that can go wrong with a task or its result becomes a record."""
    try:
        return index, cloudpickle.dumps(_attempt(cloudpickle.loads(packed)))
    except Exception as error:
        return index, cloudpickle.dumps(_failure(error))


def _attempt(task: Callable[[], Any]) -> Any:
    try:
        return task()
    except (Exception, SystemExit) as error:
        return _failure(error)


def _failure(error: BaseException, before: str = "") -> TaskFailure:
    return TaskFailure(type(error).__name__, before + _one_line(error))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def _local(jobs: int | None, address: str | None) -> Iterator[_Site]:
    count = jobs or cpu_count()
    yield _Site({"backend": "loky", "n_jobs": count, "inner_max_num_threads": 1}, count)


@contextmanager
def _dask(jobs: int | None, address: str | None) -> Iterator[_Site]:
    dask, distributed = _import("dask", "dask"), _import("distributed", "dask")
    from .dask_backend import LosslessDaskBackend

    with ExitStack() as stack:
        scheduler = address
        if address is None:
            # One death gives up all that lay on the worker; each is then run again, alone.
            stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
            scheduler = distributed.LocalCluster(
                n_workers=jobs or cpu_count(),
                threads_per_worker=1,
                dashboard_address=":0",
                silence_logs=50,
            )
            stack.enter_context(scheduler)
        try:
            client = distributed.Client(scheduler, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"no Dask scheduler answers at {address}: {_one_line(error)}"
            ) from None
        stack.enter_context(client)
        made = LosslessDaskBackend(
            client, lambda index, error: (index, cloudpickle.dumps(_failure(error)))
        )
        yield _Site({"backend": made}, jobs or made.effective_n_jobs(-1))


@contextmanager
def _ray(jobs: int | None, address: str | None) -> Iterator[_Site]:
    ray, ray_joblib = _import("ray", "ray"), _import("ray.util.joblib", "ray")
    ray_joblib.register_ray()
    own = not ray.is_initialized()
    if own:
        # With one process joblib would run the tasks here.
        place = {"num_cpus": max(2, jobs or cpu_count())} if address is None else {}
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level=40, **place)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(f"no Ray head answers at {address}: {_one_line(error)}") from None
    try:
        count = max(2, jobs or int(ray.cluster_resources().get("CPU", 2)))
        yield _Site({"backend": "ray", "n_jobs": count}, count, yields=False)
    finally:
        if own:
            ray.shutdown()


_SITES = {"local": _local, "dask": _dask, "ray": _ray}


def _import(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(
            f"the {extra} backend needs a package that is not installed: "
            f'pip install ".[{extra}]" in a checkout'
        ) from None
