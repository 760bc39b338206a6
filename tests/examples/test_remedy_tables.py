"""The measured tables of docs/remedies/ are those of the committed map."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from resharpen.analyses.studies.remedies.config import PRESETS, REMEDIES
from resharpen.models import PLACEMENTS

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = load(ROOT / "examples" / "remedy_tables.py")


def row(task: str, model: str, **values: object) -> dict[str, object]:
    remedy, placement = model.split(", ")[0].split(" / ")
    of_cell = {"kind": "needle", "task": task, "remedy": remedy, "placement": placement}
    means = {"error_2x": 0.1, "error_8x": 0.25, "error_32x": 0.5, "slope": 0.98}
    ends = {
        f"{name}_{end}": mean + shift
        for name, mean in means.items()
        for end, shift in (("low", -0.03), ("high", 0.04))
    }
    words = {"predicted": "cannot", "measured": "no help", "agrees": "yes", "n_seeds": 5}
    return {**of_cell, "model": model, **means, **ends, **words, **values}


def write(path: Path, *rows: dict[str, object]) -> Path:
    # As the study writes it: no index, and a column more for a later row stands at the end.
    pd.DataFrame(rows).to_csv(path, index=False, float_format="%.6g")
    return path


def page(folder: Path, marker: str, name: str = "page.md") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"# Title\n\n<!-- measured: {marker} -->\nold\n<!-- end -->\n\nmore\n")
    return path


PLAIN = "remedies=softmax,log_n; placements=none,post; tasks=first"


def test_a_table_holds_what_the_map_says(tmp_path: Path) -> None:
    map_csv = write(
        tmp_path / "map.csv",
        row("mean", "softmax / none", error_32x=0.9),
        row("first", "log_n / none", predicted="cures", measured="shifts", agrees="no", n_seeds=3),
        row("first", "softmax / none"),
        row("first", "softmax / post", error_32x=None, slope=None, agrees=None),
        row("first", "softmax / none, LN, 1 layer, MLP", error_2x=0.7),
    )
    path = page(tmp_path / "pages", PLAIN)
    assert tables.main(map_csv, path.parent) == [path]
    short = "0.10 [0.07, 0.14] | 0.25 [0.22, 0.29]"
    whole = f"{short} | 0.50 [0.47, 0.54] | 0.98 [0.95, 1.02]"
    written = path.read_text().splitlines()
    assert written[:3] == ["# Title", "", f"<!-- measured: {PLAIN} -->"]
    assert [cell.strip() for cell in written[3].split("|")[1:4]] == ["task", "model", "error at 2x"]
    assert written[5:] == [
        f"| first | softmax / none | {whole} | cannot | no help |",
        f"| first | softmax / post | {short} | – | – | cannot | no help |",
        f"| first | log_n / none | {whole} | cures | **≠ shifts** |",
        "| first | log_n / post | – | – | – | – | – | not run |",
        "",
        "Means over 3 to 5 seeds with 95 % intervals; "
        "[how to read it](index.md#how-to-read-the-map).",
        "<!-- end -->",
        "",
        "more",
    ]
    assert {line.count("|") for line in written[3:9]} == {9}, "every row has every column"
    assert tables.main(map_csv, path.parent) == [], "a second run must change nothing"


def test_a_variant_takes_the_cells_of_the_fair_test(tmp_path: Path) -> None:
    models = (
        "softmax / post",
        "softmax / post, 1 layer, MLP",
        "softmax / post, 1 layer, attention only",
        "softmax / post, LN, final norm, 1 layer, attention only",
        "softmax / post, LN, 2 layers, attention only",
    )
    map_csv = write(tmp_path / "map.csv", *(row("first", model) for model in models))
    marker = "remedies=softmax; placements=post; tasks=first; variant=1 layer,attention only"
    path = page(tmp_path / "pages", marker)
    tables.main(map_csv, path.parent)
    assert re.findall(r"\| first \| (.*?) \|", path.read_text()) == list(models[2:4])


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        (PLAIN.replace("log_n", "log_m"), "unknown value 'log_m' of remedies .* ssmax"),
        (PLAIN.replace("post", "past"), "unknown value 'past' of placements .* res_post"),
        (PLAIN.replace("first", "last"), "unknown value 'last' of tasks .* set-complement"),
        (PLAIN.replace("tasks", "task"), "may say remedies, .*; got 'task'"),
        ("remedies=softmax; tasks=first", "must say which placements"),
        (PLAIN + "; variant=3 layers", "unknown value '3 layers' of variant"),
        (PLAIN.replace("first", "copy"), "none of the cells of copy"),
        (PLAIN + " -->\nno end\n<!-- measured: " + PLAIN, "needs its own '<!-- end -->'"),
    ],
)
def test_a_wrong_marker_is_refused_and_nothing_is_written(
    tmp_path: Path, marker: str, sentence: str
) -> None:
    map_csv = write(tmp_path / "map.csv", row("first", "softmax / none"))
    good = page(tmp_path / "pages", PLAIN, "a.md")
    page(tmp_path / "pages", marker, "b.md")
    before = good.read_text()
    with pytest.raises(ValueError, match=f"^b.md: .*{sentence}[^\n]*$"):
        tables.main(map_csv, good.parent)
    assert good.read_text() == before


def test_a_file_that_is_no_map_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.csv").write_text("task,remedy\nfirst,softmax\n")
    with pytest.raises(ValueError, match="no column 'placement'"):
        tables.main(tmp_path / "map.csv", tmp_path)


def test_the_committed_pages_are_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = shutil.copytree(tables.PAGES, tmp_path / "pages")
    if tables.MAP.exists():
        assert tables.main(tables.MAP, pages) == []
        return
    # Before the full result is there, the script says so and leaves the pages as they are.
    with pytest.raises(
        ValueError, match=r"^there is no map of remedies at .*map\.csv: run `[^\n]*$"
    ):
        tables.main(tables.MAP, pages)
    for path in pages.glob("*.md"):
        assert path.read_bytes() == (tables.PAGES / path.name).read_bytes()


def test_every_marker_of_the_pages_finds_its_cells(tmp_path: Path) -> None:
    """What the pages ask for is what the full preset measures, and leaves no remedy out."""
    cells = [cell for cell in PRESETS["full"].cells() if cell.why_not() is None]
    map_csv = write(tmp_path / "map.csv", *(row(cell.task, cell.label) for cell in cells))
    pages = shutil.copytree(tables.PAGES, tmp_path / "pages")
    tables.main(map_csv, pages)
    written = "".join(path.read_text() for path in pages.glob("*.md"))
    assert "not run" not in written
    asked = [tables.read_marker(words) for _, words, _, _ in tables.MARKED.findall(written)]
    for name, known in (
        ("remedies", REMEDIES),
        ("placements", PLACEMENTS),
        ("tasks", PRESETS["full"].tasks),
    ):
        assert {value for marker in asked for value in marker[name]} == set(known)


def test_the_command_says_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "remedy_tables.py", tmp_path / "map.csv", tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"remedy_tables: there is no map of remedies at [^\n]*\n", done.stderr)
