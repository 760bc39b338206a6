"""How long a move of the explorer's sliders takes in a browser: from the key to the redrawn figure.

Run: ``python benchmarks/explorer_in_browser.py`` (needs chromium and playwright). A real Notebook 7
is opened headless; each of 16 moves is timed in the page itself, from the key that moves the slider
until the sentence and the figure show the new numbers. Medians, and the slowest; the first move is
left out.
"""

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import sync_playwright

MOVES = 16

CASES = {
    "set-complement-post, its task": 'explore("set-complement-post")',
    "set-complement-peri, its task": 'explore("set-complement-peri")',
    "4 layers x 4 heads, repeated to 256": """import torch
from resharpen.models import Transformer, TransformerConfig
config = TransformerConfig(d_vocab=512, n_layers=4, n_heads=4, d_model=64, norm_placement="peri")
explore(Transformer(config).eval())""",
}

# One move, timed in the page: the key is sent to the handle; the line above the figure and the last
# drawing of the figure within half a second of it say when the move was shown.
MOVE = """([number, key]) => new Promise(done => {
  const box = document.querySelector(".resharpen-explorer");
  const plot = box.querySelector(".js-plotly-plot");
  const said = () => box.querySelector(".widget-html-content span").textContent;
  const before = said(), begun = performance.now();
  let told = NaN, drawn = 0;
  const after = () => { drawn = performance.now() - begun; };
  plot.on("plotly_afterplot", after);
  box.querySelectorAll(".noUi-handle")[number].dispatchEvent(
    new KeyboardEvent("keydown", {key, bubbles: true}));
  const look = () => {
    const now = performance.now() - begun;
    if (isNaN(told) && said() !== before) told = now;
    if (now > 10000 || now > told + 500) {
      plot.removeListener("plotly_afterplot", after);
      done(Math.max(told, drawn));
    } else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""


@contextmanager
def notebook_server(folder: Path) -> Iterator[str]:
    """Notebook 7, serving a folder; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "notebook", "--no-browser", f"--ServerApp.port={port}",
         "--IdentityProvider.token=", "--ServerApp.allow_root=True",
         "--JupyterNotebookApp.expose_app_in_browser=True", f"--ServerApp.root_dir={folder}"],
        stdout=log, stderr=log,
    )  # fmt: skip
    place = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{place}/api", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield place
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def time_moves(page: Any, place: str, folder: Path, cell: str) -> dict[str, list[float]]:
    """Milliseconds of each move of the two sliders that run the model again."""
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(f"from resharpen.analyses import explore\n{cell}")]
    )
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, folder / "timed.ipynb")
    page.goto(f"{place}/notebooks/timed.ipynb")
    page.wait_for_function(
        "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status"
        " === 'idle'",
        timeout=120_000,
    )
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_selector(".resharpen-explorer .js-plotly-plot .heatmaplayer", timeout=120_000)
    page.wait_for_timeout(3_000)
    times: dict[str, list[float]] = {}
    for number, control in ((1, "temperature"), (2, "norm gain")):
        times[control] = []
        for move in range(MOVES + 1):
            key = "ArrowRight" if move % 8 < 4 else "ArrowLeft"
            times[control].append(page.evaluate(MOVE, [number, key]))
            page.wait_for_timeout(1_200)  # A person looks; the still figure is renewed meanwhile.
        page.get_by_role("button", name="reset", exact=True).click()
        page.wait_for_timeout(1_500)
    return times


def main() -> None:
    """Print one line a model and slider."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("this benchmark needs chromium on the path")
    print(f"{'model':40} {'move':12} {'median (ms)':>12} {'slowest (ms)':>13}")
    with (
        tempfile.TemporaryDirectory() as made,
        notebook_server(Path(made)) as place,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, cell in CASES.items():
            page = browser.new_page(viewport={"width": 1400, "height": 1100})
            for control, times in time_moves(page, place, Path(made), cell).items():
                kept = times[1:]
                print(
                    f"{name:40} {control:12} {statistics.median(kept):12.0f} {max(kept):13.0f}",
                    flush=True,
                )
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
