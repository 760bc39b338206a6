"""Draw, run, compare, run the best again: the search from its space to its result."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ...interp.tables import concatenate
from ..provenance import provenance
from ..result import StudyResult
from ..runs import default_cache
from ..side_by_side import Backend
from ..wording import format_number, quantity_words
from .effects import Effect, marginal_effects
from .planning import plan, plan_reruns
from .running import Ran, run_outcomes
from .sentences import conclude, listed
from .space import Space
from .tabulating import objective_of, tidy_rows, trials_frame
from .winners import Winner, best_trials, confirm

__all__ = ["SearchStudy", "run"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class SearchStudy:
    """What a search leaves.

    Attributes:
        space: What was searched.
        result: The measurements, and the sentences.
        trials: One row a trial (see `tabulating`).
        effects: The marginal effects.
        winners: The best trials beside their runs with fresh seeds.
        lists: What the report lists, by heading.
    """

    space: Space
    result: StudyResult
    trials: pd.DataFrame
    effects: tuple[Effect, ...]
    winners: tuple[Winner, ...]
    lists: Mapping[str, Sequence[str]]


def run(
    space: Space,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    say: Say = lambda message: None,
    asked: Mapping[str, object] | None = None,
) -> SearchStudy:
    """Run a search; what an earlier one with the same cache has finished is not run again.

    Args:
        space: What to search.
        cache: Folder of what is kept; None for the user's cache folder.
        jobs: Trials side by side; None for one a core, or all of a cluster.
        backend: Where they run: local processes, a Dask cluster, or Ray. The workers of a cluster
            of several machines must share the cache folder.
        address: Of a running Dask scheduler or Ray head.
        say: Called with one line as each trial is done.
        asked: What the user asked for, for the record; the space by default.

    Raises:
        ValueError: The task has no such parameter, no trial is possible, not one was finished, or
            none of them has the weights of the objective; or as `run_side_by_side` raises it.
    """
    folder = (cache or default_cache()).resolve()
    planned = plan(space)
    todo = {
        one.draw.index: one.trial
        for one in planned
        if one.trial is not None and one.repeats is None
    }
    where = {"cache": folder, "jobs": jobs, "backend": backend, "address": address}
    say(f"{len(planned)} trials, {len(todo)} to run (kept in {folder})")
    ran = run_outcomes(
        todo, **where, on_done=_voice(space, len(todo), lambda name: f"trial {name}", say)
    )
    _check_finished(space, ran)
    trials = trials_frame(space, planned, ran)
    best = best_trials(space, planned, trials)
    reruns = plan_reruns(space, best)
    if reruns:
        say(f"the best {len(best)} again, {space.rerun.seeds} fresh seeds each")
    again = run_outcomes(
        reruns,
        **where,
        on_done=_voice(space, len(reruns), lambda name: f"trial {name[0]}, seed {name[1]}", say),
    )
    rows = [
        tidy_rows({f"trial {index}": one for index, one in ran.items()}),
        *(tidy_rows({f"trial {index} again": one}) for (index, _), one in again.items()),
    ]
    effects = marginal_effects(space, trials)
    winners = confirm(space, best, ran, again)
    result = StudyResult(
        table=concatenate(rows),
        curves=(),
        findings=(),
        verdicts=(),
        provenance=provenance(dict(asked or space.to_dict()), space.to_dict(), seeds=(space.seed,)),
        sentences=tuple(conclude(space, trials, effects, winners)),
    )
    lost_again = {name: one.outcome.reason for name, one in again.items() if one.rows is None}
    lists = listed(space, trials, effects, winners, lost_again)
    return SearchStudy(space, result, trials, tuple(effects), tuple(winners), lists)


def _voice(space: Space, count: int, words: Callable[..., str], say: Say) -> Callable[..., None]:
    """One line a trial as it is done."""
    done: list[object] = []

    def note(name: object, ran: Ran) -> None:
        done.append(name)
        said = f"{'found' if ran.found else ran.outcome.status:8} {words(name)}"
        if ran.rows is None:
            what = ran.outcome.reason
        else:
            value = objective_of(ran.rows, space.objective)[0]
            what = f"{quantity_words(space.objective.quantity)} {format_number(value)}"
        took = ran.outcome.seconds
        seconds = "" if math.isnan(took) else f", {format_number(took)} s"
        say(f"{said} ({len(done)} of {count}): {what}{seconds}")

    return note


def _check_finished(space: Space, ran: Mapping[int, Ran]) -> None:
    """Refuse to conclude from nothing."""
    done = [one.rows for one in ran.values() if one.rows is not None]
    if not done:
        why = next(one.outcome.reason for one in ran.values())
        raise ValueError(f"not one trial was finished; the first was not because: {why}")
    if all(math.isnan(objective_of(rows, space.objective)[0]) for rows in done):
        known = dict.fromkeys(name for rows in done for name in rows["checkpoint"].tolist())
        raise ValueError(
            f"no trial has {space.objective.quantity} of weights {space.objective.weights!r}: "
            f"objective.weights can be {', '.join(known)}"
        )
