"""Write the measured tables of docs/remedies/ from the committed map of the remedies study.

    python examples/remedy_tables.py [MAP_CSV] [FOLDER_OF_PAGES]

A table stands between two markers in a page, and everything between them is replaced:

    <!-- measured: remedies=log_n,ssmax; placements=none,res_post; tasks=first,mean -->
    <!-- end -->

One row a task, remedy and placement, in the order of the marker; "not run" where the map has no
such cell. With `variant=1 layer,attention only` the rows are, instead, the cells of the fair test
of post-norm that are all of this. Either every page is written or, at the first fault, none.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from resharpen.analyses.studies.remedies.config import REMEDIES, TASK_SETTINGS
from resharpen.analyses.wording import format_interval
from resharpen.models import PLACEMENTS

ROOT = Path(__file__).resolve().parents[1]
MAP = ROOT / "docs" / "results" / "remedies" / "map.csv"
PAGES = ROOT / "docs" / "remedies"

KNOWN: Mapping[str, tuple[str, ...]] = {
    "remedies": tuple(REMEDIES),
    "placements": tuple(PLACEMENTS),
    "tasks": tuple(TASK_SETTINGS),
    "variant": ("LN", "final norm", "1 layer", "2 layers", "attention only", "MLP"),
}
"""What each word of a marker may list; the first three must be there."""

COLUMNS = ("task", "remedy", "placement", "model", "n_seeds", "predicted", "measured", "agrees")
HEAD = (
    "| task | model | error at 2x | error at 8x | error at 32x | dH/dlog n | theory | measured |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)
HOW_TO_READ = "index.md#how-to-read-the-map"
OPEN = "<!-- measured:"
MARKED = re.compile(rf"({OPEN}(.*?)-->\n)(.*?)(<!-- end -->)", re.DOTALL)


def read_map(path: Path) -> pd.DataFrame:
    """The map as the study wrote it; raises a ValueError if it is not there or not a map."""
    if not path.exists():
        raise ValueError(
            f"there is no map of remedies at {path}: run `resharpen study remedies --preset full` "
            "and put its map.csv there"
        )
    frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
    missing = [name for name in COLUMNS if name not in frame]
    if missing:
        raise ValueError(f"{path} is not a map of remedies: it has no column {missing[0]!r}")
    return frame


def read_marker(words: str) -> dict[str, list[str]]:
    """What a marker lists, by word."""
    asked = {}
    for part in words.split(";"):
        name, _, listed = part.partition("=")
        asked[name.strip()] = [value.strip() for value in listed.split(",")]
    for name, values in asked.items():
        if name not in KNOWN:
            raise ValueError(f"a marker may say {', '.join(KNOWN)}; got {name!r}")
        for value in values:
            if value not in KNOWN[name]:
                raise ValueError(
                    f"unknown value {value!r} of {name} in a marker: expected one of "
                    f"{', '.join(KNOWN[name])}"
                )
    absent = [name for name in ("remedies", "placements", "tasks") if name not in asked]
    if absent:
        raise ValueError(f"the marker '{words.strip()}' must say which {absent[0]}")
    return asked


def cells(asked: Mapping[str, list[str]], frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows of the map that a marker asks for, in its order."""
    # What a model is: remedy and placement, then what the fair test of post-norm varies.
    rows = [(row["model"].split(", "), row) for row in frame.to_dict("records")]
    variant = set(asked.get("variant", ()))
    for task, remedy, placement in product(asked["tasks"], asked["remedies"], asked["placements"]):
        name = f"{remedy} / {placement}"
        own = [(set(rest), row) for (model, *rest), row in rows if model == name]
        chosen = [
            row
            for rest, row in own
            if row["task"] == task and (variant <= rest if variant else not rest)
        ]
        yield from chosen
        if not chosen and not variant:
            yield {"task": task, "model": name}


def table(asked: Mapping[str, list[str]], frame: pd.DataFrame) -> str:
    """The table that a marker asks for, as Markdown."""
    rows = list(cells(asked, frame))
    seeds = sorted({int(row["n_seeds"]) for row in rows if "n_seeds" in row})
    if not seeds:
        raise ValueError(
            f"the map has none of the cells of {', '.join(asked['tasks'])} that a marker asks for: "
            "take the map of the full preset"
        )
    many = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    note = f"Means over {many} seeds with 95 % intervals; [how to read it]({HOW_TO_READ})."
    return "\n".join([HEAD, *map(line, rows), "", note])


def line(row: Mapping[str, Any]) -> str:
    """One row of a table."""
    numbers = [interval(row, name) for name in ("error_2x", "error_8x", "error_32x", "slope")]
    measured = row.get("measured", "not run")
    if row.get("agrees") == "no":
        measured = f"**≠ {measured}**"
    words = [row["task"], row["model"], *numbers, row.get("predicted", "–"), measured]
    return f"| {' | '.join(words)} |"


def interval(row: Mapping[str, Any], name: str) -> str:
    """A mean with its interval; a dash where there is none."""
    mean, low, high = (row.get(f"{name}{end}", math.nan) for end in ("", "_low", "_high"))
    return "–" if math.isnan(mean) else format_interval(mean, low, high)


def fill(text: str, frame: pd.DataFrame) -> str:
    """The page with every table written anew."""
    found = MARKED.findall(text)
    if len(found) != text.count(OPEN) or any(OPEN in body for _, _, body, _ in found):
        raise ValueError(f"every '{OPEN} ... -->' needs its own '<!-- end -->' below it")
    return MARKED.sub(
        lambda part: f"{part[1]}{table(read_marker(part[2]), frame)}\n{part[4]}", text
    )


def main(map_csv: Path = MAP, pages: Path = PAGES) -> list[Path]:
    """Fill every page; returns those that changed."""
    frame = read_map(Path(map_csv))
    filled = {}
    for page in sorted(Path(pages).glob("*.md")):
        try:
            filled[page] = fill(page.read_text(encoding="utf-8"), frame)
        except ValueError as error:
            raise ValueError(f"{page.name}: {error}") from None
    changed = [page for page, text in filled.items() if page.read_text(encoding="utf-8") != text]
    for page in changed:
        page.write_text(filled[page], encoding="utf-8")
    return changed


if __name__ == "__main__":
    try:
        written = main(*map(Path, sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"remedy_tables: {error}")
    print("written:", ", ".join(page.name for page in written) or "nothing, all up to date")
