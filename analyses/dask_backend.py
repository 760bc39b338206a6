"""joblib's Dask backend, with two gaps closed: a lost task, and a cluster of one worker.

joblib waits for ever on a task that Dask gave up (`KilledWorker`), and with one worker runs the
tasks in the calling process, where a task that dies takes everything with it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from joblib._dask import DaskDistributedBackend

__all__ = ["LosslessDaskBackend"]


@dataclass(frozen=True, eq=False)
class _Numbered:
    """What joblib wants called when a task is done, with the task's number."""

    callback: Callable[[Any], Any]
    index: int

    def __call__(self, result: Any) -> None:
        self.callback(result)


class LosslessDaskBackend(DaskDistributedBackend):
    """Yields `on_lost(index, error)` for a task that Dask gave up.

    For one task a batch, `function(index, ...)`.

    Args:
        client: a `dask.distributed.Client`.
        on_lost: makes the result of a lost task from its number and its error.
    """

    def __init__(self, client: Any, on_lost: Callable[[int, BaseException], Any]) -> None:
        """Use the client that is given, not the current one."""
        super().__init__(client=client)
        self._on_lost = on_lost

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Threads of the cluster, but two at least: one would mean the calling process."""
        return max(2, super().effective_n_jobs(n_jobs))

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Submit one batch of one task."""
        ((_, (index, *_), _),) = func.items
        return super().submit(func, _Numbered(callback, index))

    async def _collect(self) -> None:
        while self._continue:
            async for future, result in self.waiting_futures:
                waiting, callback = self._results.pop(future), self._callbacks.pop(future)
                if future.status != "finished":
                    error = result[1] if isinstance(result, tuple) else result
                    if not isinstance(error, BaseException):
                        error = RuntimeError(f"Dask calls the task {future.status}")
                    result = [self._on_lost(callback.index, error)]
                waiting.set_result(result)
                callback(result)
            await asyncio.sleep(0.01)
