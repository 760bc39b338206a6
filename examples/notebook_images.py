"""Run notebooks and keep their output as text and images (`python notebook_images.py FILE...`).

So their figures can be seen where notebooks are shown without being run. Each runs in a temporary
folder beside a link to docs/, where what it writes does no harm. Needs the `static` extra (kaleido)
and a Chrome or Chromium that it can find.
"""

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import plotly.io

FIGURE = "application/vnd.plotly.v1+json"
WIDTH = 900
DOCS = Path(__file__).resolve().parents[1] / "docs"


def main(*files: str) -> None:
    for file in files:
        refresh(Path(file))


def refresh(path: Path) -> None:
    """Run one notebook, and write it again with its output."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "docs").symlink_to(DOCS)
        place = Path(folder) / "examples"
        place.mkdir()
        where = {"metadata": {"path": str(place)}}
        nbclient.NotebookClient(notebook, timeout=600, resources=where).execute()
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run is of no interest
        cell["outputs"] = [static(output) for output in cell.get("outputs", [])]
        if cell.cell_type != "code":
            del cell["outputs"]
    nbformat.write(notebook, path)


def static(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The output with its figure as an image; nothing else that needs a script."""
    data = output.get("data")
    if data is None:
        return output
    kept = {kind: data[kind] for kind in ("text/plain", "image/png") if kind in data}
    if FIGURE in data:
        figure: Any = plotly.io.from_json(json.dumps(data[FIGURE]), skip_invalid=True)
        # Legible on a code host's light and dark pages alike.
        figure.update_layout(paper_bgcolor="white", plot_bgcolor="white", font_color="#222")
        image = figure.to_image(width=WIDTH, height=figure.layout.height or 450)
        kept = {"image/png": base64.b64encode(image).decode()}
    output["data"] = kept
    return output


if __name__ == "__main__":
    main(*sys.argv[1:])
