"""What changed between two audits: of two checkpoints, or of one checkpoint at two times."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from .comparable import check_comparable, read_audit
from .findings import SEVERITY, Verdict
from .record import Record
from .result import StudyResult
from .wording import format_number, plural


@dataclass(frozen=True)
class Difference(Record):
    """One subject that two audits judged, and how the second differs.

    Args:
        subject: `L0 H1`, `layer 0`, or `model`.
        level: `head`, `layer` or `model`.
        before: verdict and label in the first audit; empty if it was not judged there.
        after: the same in the second.
        value_before: the number that was judged; NaN when unknown.
        value_after: the same in the second.
        unit: unit of both values.
        change: `worse`, `better`, `relabelled`, `same`, `new` or `gone`.
    """

    subject: str
    level: str
    before: str
    after: str
    value_before: float
    value_after: float
    unit: str
    change: str

    def row(self) -> dict[str, str]:
        """The difference as the cells of a table, all text."""
        return {
            "subject": self.subject,
            "change": self.change,
            "before": self.before,
            "after": self.after,
            "value before": format_number(self.value_before, self.unit),
            "value after": format_number(self.value_after, self.unit),
        }


def compare_audits(
    first: StudyResult | str | os.PathLike[str], second: StudyResult | str | os.PathLike[str]
) -> tuple[Difference, ...]:
    """Set two audits' verdicts beside each other, heads and layers by place, model by model.

    Both must have been fed the same (task or probe, with parameters) at the same lengths and judged
    by the same thresholds. Different numbers of sequences are warned of: they change the noise.

    Args:
        first: The audit before, or the folder it was saved in.
        second: The audit after, likewise.

    Returns:
        One difference a subject, in the order of the first audit; what is the same included.

    Raises:
        TypeError: If one is neither an audit nor a path.
        ValueError: If their settings differ: then a changed verdict would say nothing about the
            models; or if one is the result of something else than an audit.
        ResultError: If a folder holds no result that can be read.
    """
    first, second = read_audit(first), read_audit(second)
    check_comparable(first, second)
    before, after = _by_place(first.verdicts), _by_place(second.verdicts)
    return tuple(
        _difference(place, before.get(place), after.get(place))
        for place in dict.fromkeys((*before, *after))
    )


def render_differences(differences: Sequence[Difference], names: tuple[str, str]) -> str:
    """What changed, for a terminal: a summary line and one line for each change, worst first.

    Args:
        differences: What :func:`compare_audits` returned.
        names: What the two audits are called.
    """
    changed = [item for item in differences if item.change != "same"]
    lines = [
        f"{names[0]} -> {names[1]}: of {plural(len(differences), 'verdict')}, "
        f"{len(changed)} changed."
    ]
    order = ("worse", "better", "relabelled", "new", "gone")
    for kind in order:
        for item in changed:
            if item.change == kind:
                values = (
                    f"{format_number(item.value_before, item.unit)} -> "
                    f"{format_number(item.value_after, item.unit)}"
                )
                was, now = item.before or "not judged", item.after or "not judged"
                lines.append(f"{kind:10}  {item.subject:12}  {was} -> {now}  ({values})")
    return "\n".join(lines) + "\n"


def _by_place(verdicts: Sequence[Verdict]) -> dict[tuple[str, str], Verdict]:
    """Verdicts by level and subject; the model is called `model`, whatever its name."""
    models = sum(verdict.level == "model" for verdict in verdicts)
    return {
        (
            verdict.level,
            "model" if verdict.level == "model" and models == 1 else verdict.subject,
        ): verdict
        for verdict in verdicts
    }


def _difference(
    place: tuple[str, str], before: Verdict | None, after: Verdict | None
) -> Difference:
    level, subject = place
    judged = before or after
    assert judged is not None
    return Difference(
        subject=subject,
        level=level,
        before="" if before is None else f"{before.verdict} {before.label}",
        after="" if after is None else f"{after.verdict} {after.label}",
        value_before=math.nan if before is None else before.value,
        value_after=math.nan if after is None else after.value,
        unit=judged.unit,
        change=_change(before, after),
    )


def _change(before: Verdict | None, after: Verdict | None) -> str:
    if before is None:
        return "new"
    if after is None:
        return "gone"
    if before.verdict != after.verdict:
        return "worse" if SEVERITY[after.verdict] > SEVERITY[before.verdict] else "better"
    return "same" if before.label == after.label else "relabelled"
