"""What the study says: its sentences, the map as text, and the disagreements one by one."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...wording import format_interval, format_number, plural
from .claims import Claim
from .config import TASK_SETTINGS, RemediesConfig
from .mapping import MapCell


def conclude(
    config: RemediesConfig, found: Sequence[MapCell], claims: Sequence[Claim]
) -> list[str]:
    """The sentences that matter, most important first."""
    sentences = [f"{claim.statement}: {claim.standing}." for claim in claims]
    said = [cell for cell in found if cell.agrees is not None]
    wrong = [cell for cell in said if not cell.agrees]
    sentences.append(
        f"Theory and measurement agree on {len(said) - len(wrong)} of the {len(said)} cells on "
        f"which both say something; {plural(len(wrong), 'cell')} "
        f"{'disagrees' if len(wrong) == 1 else 'disagree'}."
    )
    for kind in ("aggregation", "needle"):
        cures = Counter(cell.cell.label for cell in found if cell.kind == kind and _cured(cell))
        if cures:
            names = ", ".join(f"{name} ({count})" for name, count in cures.most_common(6))
            sentences.append(f"What cures {kind} dispersion, on how many tasks: {names}.")
    return sentences


def _cured(cell: MapCell) -> bool:
    return cell.outcome == "cures"


def disagreements(found: Sequence[MapCell]) -> list[str]:
    """One sentence a cell on which theory and measurement differ."""
    return [
        f"{cell.cell.task}, {cell.cell.label}: theory says '{cell.prediction.answer}' "
        f"({cell.prediction.reason}; theory {cell.prediction.source}), measured '{cell.outcome}' "
        f"(error {_interval(cell, 1)} at 1x, {_interval(cell, cell.last)} at {cell.last}x)"
        for cell in found
        if cell.agrees is False
    ]


def render_map(config: RemediesConfig, found: Sequence[MapCell]) -> str:
    """The map as aligned text: a table a task, rows remedies."""
    lines = []
    for task in dict.fromkeys(cell.cell.task for cell in found):
        cells = [cell for cell in found if cell.cell.task == task]
        multiples = [m for m in (1, 2, 8, 32) if m in cells[0].seed_errors]
        head = "".join(f"{f'error at {multiple}x':>26}" for multiple in multiples)
        lines += [
            "",
            f"{task} ({cells[0].kind}, trained at {TASK_SETTINGS[task].length})",
            f"{'remedy / placement':44}{head}{'dH/dlog n':>26}  {'theory':11} measured",
        ]
        for cell in cells:
            errors = "".join(f"{_interval(cell, multiple):>26}" for multiple in multiples)
            slope = format_interval(cell.slope.mean, cell.slope.low, cell.slope.high)
            mark = "  <- disagree" if cell.agrees is False else ""
            lines.append(
                f"{cell.cell.label:44}{errors}{slope:>26}  {cell.prediction.answer:11} "
                f"{cell.outcome}{mark}"
            )
    lines += ["", f"cures: error at most {format_number(config.threshold)} at the longest input."]
    return "\n".join(lines[1:])


def listed(
    study_cells: Sequence[MapCell], claims: Sequence[Claim], left_out: Mapping[str, str]
) -> dict[str, list[str]]:
    """What the report lists after its figures.

    Each claim's evidence, every disagreement, and which cells could not be run, with the reason.
    """
    lists = {f"{claim.statement}: {claim.standing}": list(claim.evidence) for claim in claims}
    lists["Where theory and measurement disagree"] = disagreements(study_cells)
    lists["What could not be run"] = [f"{name}: {why}" for name, why in left_out.items()]
    return lists


def render_lists(lists: Mapping[str, Sequence[str]]) -> str:
    """The lists as Markdown; empty ones are left out."""
    blocks = []
    for heading, items in lists.items():
        if items:
            blocks.append("\n".join([f"## {heading}", "", *(f"- {item}" for item in items)]))
    return "\n\n".join(blocks) + "\n"


def _interval(cell: MapCell, multiple: int) -> str:
    error = cell.errors[multiple]
    return format_interval(error.mean, error.low, error.high)
