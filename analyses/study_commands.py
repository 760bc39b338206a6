"""What ``resharpen study`` does, for each study. Prints nothing itself: it is given a voice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .report import render_report
from .result import StudyResult
from .saving import save_result, saying_cached
from .storage import check_destination
from .studies.averaging.config import PRESETS as AVERAGING_PRESETS
from .studies.averaging.figures import study_figures as averaging_figures
from .studies.averaging.gains import gain_frame
from .studies.averaging.sentences import listed as averaging_lists
from .studies.averaging.study import run as run_averaging
from .studies.clustering.config import PRESETS as CLUSTERING_PRESETS
from .studies.clustering.figures import study_figures as clustering_figures
from .studies.clustering.sentences import listed as clustering_lists
from .studies.clustering.study import run as run_clustering
from .studies.paper.claim import claim_frame, render_claims
from .studies.paper.config import PRESETS as PAPER_PRESETS
from .studies.paper.figures import study_figures as paper_figures
from .studies.paper.language_claims import language_frame
from .studies.paper.sentences import listed as paper_lists
from .studies.paper.study import run as run_paper
from .studies.remedies.config import PRESETS as REMEDIES_PRESETS
from .studies.remedies.figures import study_figures as remedies_figures
from .studies.remedies.mapping import map_frame
from .studies.remedies.sentences import listed, render_lists, render_map
from .studies.remedies.study import run as run_remedies
from .studies.set_complement.config import PRESETS as SET_COMPLEMENT_PRESETS
from .studies.set_complement.figures import study_figures as set_complement_figures
from .studies.set_complement.study import run as run_set_complement

__all__ = ["run_study"]

Say = Callable[[str], None]


def run_study(command: Any, say: Say) -> int:
    """``resharpen study``: run a study and write its result folder."""
    check_destination(command.out)
    asked = {"study": command.study, "preset": command.preset}
    with saying_cached():
        done = _STUDIES[command.study](command, say, asked)
    report = render_report(done.result, done.figures, done.lists)
    say("")
    save_result(
        done.result, command.out, say, report=report, attachments=done.attachments, summary=True
    )
    return 0


@dataclass(frozen=True)
class _Done:
    """What a study hands over: its result, and what its report shows beside it."""

    result: StudyResult
    figures: Mapping[str, Any]
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    attachments: Mapping[str, str] = field(default_factory=dict)


def _where(command: Any) -> dict[str, Any]:
    """Where a study runs and what it keeps, as every study takes it."""
    return {
        "cache": command.cache,
        "jobs": command.jobs,
        "backend": command.backend,
        "address": command.address,
    }


def _set_complement(command: Any, say: Say, asked: dict[str, object]) -> _Done:
    if command.backend != "local" or command.address is not None:
        raise ValueError(
            "the set-complement study runs in local processes: leave --backend and --address out"
        )
    config = SET_COMPLEMENT_PRESETS[command.preset]
    study = run_set_complement(config, cache=command.cache, jobs=command.jobs, say=say, asked=asked)
    return _Done(study.result, set_complement_figures(config, study))


def _remedies(command: Any, say: Say, asked: dict[str, object]) -> _Done:
    config = REMEDIES_PRESETS[command.preset]
    study = run_remedies(config, **_where(command), say=say, asked=asked)
    say("\n" + render_map(config, study.cells))
    lists = listed(study.cells, study.claims, study.left_out)
    attachments = {
        "map.csv": map_frame(study.cells).to_csv(index=False, float_format="%.6g"),
        "claims.md": render_lists(lists),
    }
    return _Done(study.result, remedies_figures(config, study), lists, attachments)


def _averaging(command: Any, say: Say, asked: dict[str, object]) -> _Done:
    config = AVERAGING_PRESETS[command.preset]
    study = run_averaging(config, **_where(command), say=say, asked=asked)
    lists = averaging_lists(study.gains, study.scalings, study.left_out)
    attachments = {"gains.csv": gain_frame(study.gains).to_csv(index=False, float_format="%.6g")}
    return _Done(study.result, averaging_figures(config, study), lists, attachments)


def _clustering(command: Any, say: Say, asked: dict[str, object]) -> _Done:
    config = CLUSTERING_PRESETS[command.preset]
    study = run_clustering(config, **_where(command), say=say, asked=asked)
    lists = clustering_lists(
        config, study.result.table, study.cases, study.collapses, study.left_out
    )
    return _Done(study.result, clustering_figures(config, study), lists)


def _paper(command: Any, say: Say, asked: dict[str, object]) -> _Done:
    config = PAPER_PRESETS[command.preset]
    study = run_paper(config, **_where(command), say=say, asked=asked)
    table = render_claims(study.claims)
    say("\n" + table)
    frames = {
        "claims.csv": claim_frame(study.claims),
        "languages.csv": language_frame(study.effects),
    }
    attachments = {
        name: frame.to_csv(index=False, float_format="%.6g") for name, frame in frames.items()
    }
    lists = paper_lists(study.claims, study.effects, study.left_out)
    return _Done(
        study.result, paper_figures(config, study), lists, {"claims.md": table, **attachments}
    )


_STUDIES = {
    "set-complement": _set_complement,
    "remedies": _remedies,
    "averaging": _averaging,
    "clustering": _clustering,
    "paper": _paper,
}
