"""Whether the verdicts of two audits may be set beside each other.

A verdict speaks about what was fed and the lengths that were run. Where these differ, or the lines
that were drawn, a changed verdict says nothing about the models, and the pair is refused.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .result import StudyResult

# What a probe takes over from the model that it is made for.
_OF_THE_MODEL = ("d_vocab", "avoid", "bos", "n_tokens", "path")


def read_audit(given: Any) -> StudyResult:
    """An audit, read if its folder is given.

    Raises:
        TypeError: If it is neither a result nor a path.
        ResultError: If the folder holds no result.
        ValueError: If it is the result of something else than an audit.
    """
    if isinstance(given, str | os.PathLike):
        given = StudyResult.load(Path(given))
    if not isinstance(given, StudyResult):
        raise TypeError(
            "expected an audit, as audit(...) returns it (audit_adapted(...).result), or the "
            f"folder it was saved in; got {type(given).__name__}"
        )
    if not {"probe", "task"} & set(given.provenance.resolved):
        raise ValueError(
            "expected the result of an audit, which says what was fed; got another kind of result: "
            "compare two audits"
        )
    return given


def check_comparable(first: StudyResult, second: StudyResult) -> None:
    """Refuse two audits of different settings; warn where only the noise differs.

    What was fed must be the same (task or probe, with their parameters, but for what a probe takes
    over from the model: its vocabulary and special tokens), the lengths and the thresholds too.

    Raises:
        ValueError: If they are not; the message names both.
    """
    pair = (first, second)
    kinds = ["probe" if "probe" in _settings(result) else "task" for result in pair]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"the first is an audit on a {kinds[0]} and the second on a {kinds[1]}, whose verdicts "
            "mean different things: audit both on the task, or both on one probe (--probe, probe=)"
        )
    fed = [_fed(result, kinds[0]) for result in pair]
    if fed[0] != fed[1]:
        words = [_words(one) for one in fed]
        raise ValueError(
            f"the two audits were fed different things ({words[0]}; {words[1]}), so their verdicts "
            f"cannot be compared: audit both on the same {kinds[0]}"
        )
    lengths = [_lengths(result) for result in pair]
    if lengths[0] != lengths[1]:
        said = [", ".join(map(str, some)) or "none" for some in lengths]
        common = sorted(set(lengths[0]) & set(lengths[1]))
        shared = ", ".join(map(str, common))
        advice = f", such as those that both have ({shared})" if common else ""
        raise ValueError(
            f"the two audits ran different lengths ({said[0]}; {said[1]}), so a changed verdict "
            f"may be due to them: audit both at the same lengths{advice}"
        )
    lines = [_settings(result).get("thresholds") for result in pair]
    if lines[0] != lines[1]:
        raise ValueError(
            "the two audits were judged by different thresholds, so their verdicts cannot be "
            "compared: audit both with the same ones"
        )
    counts = [_settings(result).get("n_sequences") for result in pair]
    if counts[0] != counts[1]:
        warnings.warn(
            f"the two audits ran {counts[0]} and {counts[1]} sequences a length: the one with "
            "fewer is less certain, and a small change may be chance",
            stacklevel=3,
        )


def _settings(result: StudyResult) -> Mapping[str, Any]:
    return result.provenance.resolved


def _fed(result: StudyResult, kind: str) -> dict[str, Any] | None:
    """What decides what was fed; `None` for a sample of the user's own, which has no name."""
    settings = _settings(result)[kind]
    if settings is None:
        return None
    return {name: value for name, value in settings.items() if name not in _OF_THE_MODEL}


def _lengths(result: StudyResult) -> list[int]:
    """The lengths that were finished, shortest first."""
    settings = _settings(result)
    finished = settings.get("finished_lengths")
    if finished is None:
        run = {int(length) for length in result.table["length"].dropna()}
        finished = [length for length in settings.get("lengths", ()) if length in run]
    return sorted(finished)


def _words(fed: Mapping[str, Any] | None) -> str:
    if fed is None:
        return "a sample of your own"
    inner = fed.get("task")
    if isinstance(inner, Mapping):
        return f"{fed['name']} {_words(inner)}"
    parts = [f"{name}={_short(value)}" for name, value in fed.items() if name != "name"]
    return f"{fed['name']}" + (f" with {', '.join(parts)}" if parts else "")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."
