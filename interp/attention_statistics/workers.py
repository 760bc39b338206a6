"""Run independent blocks on every core, each core on its own block.

A block is some fifty small operations. If each were split over the cores, every one of them would
end in a barrier, which costs more than it saves, and on a machine that is shared a barrier waits
for whichever core was taken away (measured on 2 cores beside one busy process: 8 times the time and
more). So the blocks run whole, each in a thread whose operations use its share of the cores.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MOST_WORKERS = 4
"""Python's lock is held for about a fifth of a block's time: more threads would wait for it."""

SCORES_WORTH_THREADS = 2**21
"""Below so many scores in all (about 5 ms of work) starting threads does not pay."""

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")


def split_cores(device: torch.device, n_scores: int) -> tuple[int, int]:
    """(threads that work side by side, intra-operation threads of each)."""
    total = torch.get_num_threads()
    if device.type != "cpu" or n_scores < SCORES_WORTH_THREADS:
        return 1, total
    workers = min(total, MOST_WORKERS)
    return workers, total // workers


def run_jobs(
    work: Callable[[Job], Outcome], jobs: Sequence[Job], workers: int, cores: int
) -> Iterator[tuple[Job, Outcome]]:
    """Every job with its outcome, in order, from ``workers`` threads of ``cores`` cores each.

    The first exception is raised here. The threads take over inference mode; gradients are off.
    The calling thread's number of threads stays as it is.
    """
    if workers == 1:
        for job in jobs:
            yield job, work(job)
        return
    total, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    def in_mode(job: Job) -> Outcome:
        with torch.inference_mode(inference), torch.no_grad():
            return work(job)

    pool = ThreadPoolExecutor(
        workers, thread_name_prefix="rows", initializer=torch.set_num_threads, initargs=(cores,)
    )
    try:
        futures = [pool.submit(in_mode, job) for job in jobs]
        for job, future in zip(jobs, futures, strict=True):
            yield job, future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        # A thread's own number also becomes what threads new to torch begin with: put that back.
        torch.set_num_threads(total)
