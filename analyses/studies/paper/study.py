"""Train what every claim needs, measure it, judge each claim, write one table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ....interp.tables import concatenate
from ...bounds import compare_everywhere
from ...named_runs import Rows, check_any_finished, run_named
from ...provenance import provenance
from ...result import StudyResult
from ...runs import default_cache
from ...side_by_side import Backend
from ...trials import Trial, run_trial
from .averaging_claims import (
    averaging_claims,
    averaging_trials,
    dropout_claims,
    othello_claims,
)
from .claim import ClaimRow
from .config import PaperConfig
from .dispersion_claims import dispersion_claims
from .language_claims import LanguageEffect, language_claims, language_effects, language_trials
from .length_claims import length_claims, length_laws, length_runs
from .measured.set_complement_runs import STUDY, run_set_complement
from .placement_claims import placement_claims, placement_runs
from .sentences import conclude
from .width_claims import construct_rows, width_claims, width_runs

Say = Callable[[str], None]


@dataclass(frozen=True)
class PaperStudy:
    """What the study leaves.

    Attributes:
        result: Table, sentences, provenance.
        claims: The table of claims.
        effects: Claim 5, language by language.
        left_out: By name, why a model could not be trained or measured.
    """

    result: StudyResult
    claims: tuple[ClaimRow, ...]
    effects: tuple[LanguageEffect, ...]
    left_out: Mapping[str, str]


def run(
    config: PaperConfig,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    address: str | None = None,
    say: Say = lambda message: None,
    asked: Mapping[str, object] | None = None,
) -> PaperStudy:
    """Run the study; what an earlier run with the same cache has finished is not run again.

    Args:
        config: What to do.
        cache: Folder of trained models and their rows; ``None`` for the user's cache folder.
        jobs: Models side by side; ``None`` for one a core, or all of a cluster.
        backend: Where they run: local processes, a Dask cluster, or Ray. The workers of a cluster
            of several machines must share the cache folder.
        address: Of a running Dask scheduler or Ray head.
        say: Called with one line as each model is done.
        asked: What the user asked for, for the record; the configuration by default.

    Returns:
        The claims, and the result with its table.

    Raises:
        ValueError: As :func:`~resharpen.analyses.side_by_side.run_side_by_side` raises it, or if
            not one model could be trained.
    """
    folder = (cache or default_cache()).resolve()
    trials = {**language_trials(config), **averaging_trials(config.averaging)}
    models = {**length_runs(config), **placement_runs(config), **width_runs(config)}
    work = {
        **{name: partial(run_set_complement, run, name, folder) for name, run in models.items()},
        **{name: partial(_trial_rows, trial, name, folder) for name, trial in trials.items()},
    }
    runs = run_named(work, verb="trained", jobs=jobs, backend=backend, address=address, say=say)
    check_any_finished(runs.frames, runs.failures.values(), "not one model could be trained")
    measured = concatenate(list(runs.frames.values()))
    constructed = construct_rows()
    laws = length_laws(config, measured)
    effects = language_effects(config, measured)
    claims = [
        *length_claims(config, measured),
        *dispersion_claims(config, measured),
        *placement_claims(config, measured),
        *averaging_claims(config.averaging, measured),
        *language_claims(config, effects),
        *othello_claims(config.averaging, measured),
        *dropout_claims(config.averaging, measured),
        *width_claims(config, measured, constructed),
    ]
    result = StudyResult(
        table=concatenate([measured, constructed]),
        curves=tuple(laws),
        findings=tuple(compare_everywhere(measured, law) for law in laws),
        verdicts=(),
        provenance=provenance(
            dict(asked or config.to_dict()), config.to_dict(), seeds=config.seeds
        ),
        sentences=tuple(conclude(claims)),
    )
    return PaperStudy(result, tuple(claims), tuple(effects), runs.failures)


def _trial_rows(trial: Trial, name: str, cache: Path) -> Rows:
    """A trial's rows, their ``checkpoint`` the name of the trial and of the weights."""
    frame, found = run_trial(trial, cache)
    frame["study"] = STUDY
    frame["checkpoint"] = name + " / " + frame["checkpoint"]
    return concatenate([frame]), found
