"""What ``resharpen study`` does, for each study. Prints nothing itself: it is given a voice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .report import render_report, render_text
from .result import StudyResult
from .storage import check_destination
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
    done = _STUDIES[command.study](command, say, asked)
    report = render_report(done.result, done.figures, done.lists)
    folder = done.result.save(command.out, report=report, attachments=done.attachments)
    say("\n" + render_text(done.result))
    say(f"report: {folder / 'report.html'}")
    return 0


@dataclass(frozen=True)
class _Done:
    """What a study hands over: its result, and what its report shows beside it."""

    result: StudyResult
    figures: Mapping[str, Any]
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    attachments: Mapping[str, str] = field(default_factory=dict)


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
    study = run_remedies(
        config,
        cache=command.cache,
        jobs=command.jobs,
        backend=command.backend,
        address=command.address,
        say=say,
        asked=asked,
    )
    say("\n" + render_map(config, study.cells))
    lists = listed(study.cells, study.claims, study.left_out)
    attachments = {
        "map.csv": map_frame(study.cells).to_csv(index=False, float_format="%.6g"),
        "claims.md": render_lists(lists),
    }
    return _Done(study.result, remedies_figures(config, study), lists, attachments)


_STUDIES = {"set-complement": _set_complement, "remedies": _remedies}
