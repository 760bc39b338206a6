"""Draw the images of the tutorial, by running the page, and of the explorer.

Run by `make docs-figures`. Needs the `static` extra (kaleido), playwright, and a Chrome or Chromium
that both can find.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from resharpen.analyses.exploring import Explorer, open_explorer
from resharpen.models import SetComplement, TrainingConfig, TransformerConfig, train

PAGE, FOLDER = Path("docs/tutorial.md"), Path("docs/figures")


def run_page(page: Path, folder: Path) -> dict[str, Any]:
    """Run every Python block of a page, in order, inside a folder; return what it defined."""
    names: dict[str, Any] = {"__name__": "__main__"}
    back = Path.cwd()
    os.chdir(folder)
    try:
        for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            exec(compile(code, str(page), "exec"), names)
    finally:
        os.chdir(back)
    return names


def photograph(report: Path, image: Path) -> None:
    """Take the top of a report as a reader sees it."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": 1000, "height": 760}, color_scheme="light")
        page.goto(report.as_uri())
        page.wait_for_timeout(2000)
        page.screenshot(path=image)
        browser.close()


def draw_explorer(image: Path) -> None:
    """Two layers of four heads, trained for a few seconds, with a change tried on the first."""
    task = SetComplement(32)
    config = TransformerConfig(task.d_vocab, n_layers=2, n_heads=4, norm_placement="peri")
    training = TrainingConfig(length=8, n_steps=300, targets="exact")
    (checkpoint,) = train(config, task, training)
    explorer = Explorer(open_explorer(checkpoint))
    explorer.select(temperature=2.0)
    figure = explorer.figure()
    figure.update_layout(paper_bgcolor="white", plot_bgcolor="white", font_color="#222", title="")
    figure.write_image(image, width=1100, height=620)


def main(page: str = str(PAGE), folder: str = str(FOLDER)) -> None:
    place = Path(folder).resolve()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        names = run_page(Path(page).resolve(), Path(work))
        figure = names["figure"]
        # Legible on a light and on a dark page alike.
        figure.update_layout(paper_bgcolor="white", plot_bgcolor="white", font_color="#222")
        figure.write_image(place / "tutorial-none.png", width=860, height=620)
        draw_explorer(place / "explorer.png")
        photograph(Path(work) / names["folder"] / "report.html", place / "report.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
