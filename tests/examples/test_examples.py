"""Every example and the README's code run as a user would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

# Six draw the committed images and need a browser (`make figure`, `make remedy-map`, `make
# docs-figures`, two by hand; test_theory_figures.py checks what is drawn), the other rewrites the
# pages of docs/remedies (test_remedy_tables.py runs it on a copy).
NOT_RUN = {
    "clustering_figures.py",
    "notebook_images.py",
    "readme_figure.py",
    "remedy_map_figure.py",
    "remedy_tables.py",
    "theory_figures.py",
    "tutorial_figures.py",
}

DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if "```python" in path.read_text(encoding="utf-8")
)


def run(*arguments: object, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONWARNINGS": "error::UserWarning"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "script", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in NOT_RUN)
)
def test_scripts_run(script: str, tmp_path: Path) -> None:
    said = run(EXAMPLES / script, cwd=tmp_path)
    assert "report:" in said
    assert list(tmp_path.rglob("report.html"))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_notebooks_run(notebook: str, tmp_path: Path) -> None:
    content = nbformat.read(EXAMPLES / notebook, as_version=4)
    committed = [output for cell in content.cells for output in cell.get("outputs", [])]
    shown = {kind for output in committed for kind in output.get("data", {})}
    assert shown <= {"text/plain", "image/png"}, "keep static outputs (notebook_images.py), or none"
    assert (EXAMPLES / notebook).stat().st_size < 1_500_000
    # As in a checkout: beside docs/, whose committed results some of them read.
    (tmp_path / "docs").symlink_to(DOCS)
    place = tmp_path / "examples"
    place.mkdir()
    client = nbclient.NotebookClient(
        content, timeout=300, resources={"metadata": {"path": str(place)}}
    )
    client.execute()
    outputs = [output for cell in content.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "application/vnd.plotly.v1+json" in kinds


def test_the_readmes_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block by itself, with names of its own."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, str(ROOT / "README.md"), "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert "set-complement-post" in said
    assert "L0 H0 disperses" in said


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_the_docs_runs(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The blocks of a page, in order and in one namespace, as a reader runs them."""
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        # A failure is then shown at its line of the page.
        above = "\n" * (text[: block.start()].count("\n") + 1)
        exec(compile(above + block[1], str(DOCS / page), "exec"), names)
        assert capsys.readouterr().out.strip()
