"""Pieces of a study side by side, each under its name: what finished, and why the rest did not.

Each piece finds its rows in the cache or makes them, on one thread, since the models of a study are
too small for more.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from ..models.facts import Facts
from .side_by_side import Backend, TaskFailure, run_side_by_side
from .threads import one_thread

__all__ = ["NamedRuns", "Rows", "check_any_finished", "run_named"]

Rows = tuple[pd.DataFrame, bool]
"""Rows of the tidy table, and whether they came from the cache."""

Say = Callable[[str], None]


@dataclass(frozen=True, repr=False)
class NamedRuns(Facts):
    """What a number of pieces left.

    Attributes:
        frames: the rows of each that was finished, by its name, in the order given.
        failures: why the others were not, one sentence each, by name.
    """

    frames: dict[str, pd.DataFrame]
    failures: dict[str, str]


def run_named(
    work: Mapping[str, Callable[[], Rows]],
    *,
    verb: str,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    say: Say = lambda message: None,
) -> NamedRuns:
    """Run every piece; one that fails leaves the others their rows.

    Args:
        work: by name.
        verb: what is said of a piece that was not in the cache, `trained`.
        jobs: pieces at once; None for one a core, or all of a cluster.
        backend: local processes, a Dask cluster, or Ray.
        address: of a running Dask scheduler or Ray head.
        say: called with one line as each is done.

    Raises:
        ValueError: as :func:`~resharpen.analyses.side_by_side.run_side_by_side`.
    """
    names = list(work)
    frames: dict[str, pd.DataFrame] = {}
    failures: dict[str, str] = {}

    def note(index: int, done: Any) -> None:
        name = names[index]
        if isinstance(done, TaskFailure):
            failures[name] = done.sentence
            say(f"failed   {name}: {done.sentence}")
            return
        frames[name], found = done
        say(f"{'found' if found else verb:8} {name} ({len(frames)} of {len(names)})")

    run_side_by_side(
        [partial(_in_worker, piece) for piece in work.values()],
        jobs=jobs,
        backend=backend,
        address=address,
        on_done=note,
    )
    return NamedRuns({name: frames[name] for name in names if name in frames}, failures)


@one_thread()
def _in_worker(piece: Callable[[], Rows]) -> Rows:
    return piece()


def check_any_finished(finished: object, reasons: Iterable[str], what: str) -> None:
    """Refuse to conclude from nothing.

    Args:
        finished: what was finished, false if nothing was.
        reasons: why the others were not.
        what: `not one cell could be run`.

    Raises:
        ValueError: nothing was finished; the sentence has the first reason.
    """
    if not finished:
        raise ValueError(
            f"{what}; the first failed because: {next(iter(reasons), 'there is none')}"
        )
