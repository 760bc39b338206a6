"""The explorer in JupyterLab, Notebook 7 and as a page, in a real browser, used as by a person.

In JupyterLab the notebook is the one that `resharpen notebook` writes, its path set to a checkpoint
of two layers and two heads; every cell is run, a head is clicked and a slider moved. Nothing may
complain.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec

import nbformat
import pytest
import torch

from resharpen.analyses.cli import main
from resharpen.analyses.exploring import Explorer, open_explorer
from resharpen.models import Checkpoint, Transformer, TransformerConfig, save_checkpoint

LONG = 180_000
MISSING = [name for name in ("jupyterlab", "notebook", "anywidget") if not find_spec(name)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING) and not os.environ.get("CI"),
        reason=f"nothing is opened in a browser: there is no {' and no '.join(MISSING)}",
    ),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A user's own: two layers of two heads, norms before and after, not trained."""
    torch.manual_seed(0)
    config = TransformerConfig(
        d_vocab=32, n_layers=2, n_heads=2, d_model=32, d_head=16, norm_placement="peri"
    )
    state = Transformer(config).state_dict()
    task = {"name": "set-complement", "vocabulary": 32, "bos": False, "replacement": False}
    folder = tmp_path_factory.mktemp("mine") / "checkpoint"
    return save_checkpoint(Checkpoint(config, {"raw": state}, task=task, seed=0), folder)


@pytest.fixture
def starter(tmp_path, checkpoint):
    """The starter notebook, whose path is the user's checkpoint."""
    with pytest.raises(SystemExit) as done:
        main(["notebook", str(tmp_path)])
    assert done.value.code == 0
    notebook = tmp_path / "resharpen.ipynb"
    text = notebook.read_text(encoding="utf-8")
    assert text.count('path = \\"set-complement-none\\"') == 1
    notebook.write_text(text.replace("set-complement-none", str(checkpoint)), encoding="utf-8")
    return notebook


@pytest.fixture
def server(tmp_path):
    """Notebook 7 and JupyterLab, which it serves too, in this test's folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path / "lab.log").open("w")
    place = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "notebook", "--no-browser", f"--ServerApp.port={port}",
         "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.allow_root=True",
         "--JupyterNotebookApp.expose_app_in_browser=True", "--LabApp.expose_app_in_browser=True",
         f"--ServerApp.root_dir={tmp_path}"],
        stdout=log, stderr=log,
        env={**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
             "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
             "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
             "IPYTHONDIR": str(tmp_path / "ipython")},
    )  # fmt: skip
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{place}/api", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "lab.log").read_text()
                time.sleep(0.5)
        yield place
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:  # A busy kernel can keep it.
            server.kill()
            server.wait()
        log.close()


CELL = """([row, column]) => {
  const plot = document.querySelector("PLOT");
  plot.scrollIntoView({block: "center"});
  const {left, top} = plot.getBoundingClientRect();
  const {xaxis, yaxis} = plot._fullLayout;
  return [left + xaxis._offset + xaxis.l2p(column), top + yaxis._offset + yaxis.l2p(row)];
}"""


def click_cell(page, plot, row, column):
    """Click a cell of the map, wherever the page has it."""
    find = CELL.replace("PLOT", plot)
    page.evaluate(find, [row, column])
    page.wait_for_timeout(300)
    where = page.evaluate(find, [row, column])
    page.mouse.move(*where)
    page.wait_for_timeout(200)
    page.mouse.click(*where)


def say_in(page, selector, text):
    """Until the line above the figure says this."""
    page.wait_for_function(
        """([selector, text]) => document.querySelector(selector)?.textContent.includes(text)""",
        arg=[selector, text],
        timeout=LONG,
    )


def keep_shot(page, name):
    """A picture to look at, where the environment names a folder for it."""
    if folder := os.environ.get("RESHARPEN_SHOTS"):
        page.wait_for_timeout(1_500)
        page.screenshot(path=f"{folder}/{name}.png")


PLOT = ".resharpen-explorer .js-plotly-plot"
SAID = ".resharpen-explorer .widget-html-content span"
CELLS = """jupyterapp.shell.currentWidget?.content?.widgets?.map(cell => cell.model)
  .filter(model => model?.type === "code")"""


def run_all_cells(page, n_cells):
    """Wait for the notebook and its kernel, run every cell, and give what they show."""
    page.wait_for_function(f"window.jupyterapp && ({CELLS})?.length >= {n_cells}", timeout=LONG)
    page.wait_for_function(
        "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'",
        timeout=LONG,
    )
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(
        f"({CELLS}).every(model => model.executionCount > 0)"
        " && jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'",
        timeout=LONG,
    )
    outputs = page.evaluate(f"({CELLS}).map(model => model.outputs.toJSON())")
    assert not [one for cell in outputs for one in cell if one["output_type"] == "error"]
    return outputs


def use_explorer(page):
    """Click another layer's head and move a slider; gives the row that was clicked."""
    page.wait_for_selector(f"{PLOT} .heatmaplayer", timeout=LONG)
    page.wait_for_function(  # The figure is as wide as the cell.
        """plot => {
          const figure = document.querySelector(plot);
          const drawn = figure.querySelector(".main-svg");
          return Math.abs(figure.clientWidth - drawn.clientWidth) < 2;
        }""",
        arg=PLOT,
        timeout=LONG,
    )
    before = page.locator(SAID).text_content()
    row = 1 if before.startswith("L0") else 0
    click_cell(page, PLOT, row, 1)
    say_in(page, SAID, f"L{row} H1:")
    weights = f"""JSON.stringify([...document.querySelector("{PLOT}")._fullData.find(
      trace => trace.name === "weights").z].map(row => [...row]))"""
    before = page.evaluate(weights)
    slider = page.locator(".resharpen-explorer .noUi-handle").nth(1)
    slider.focus()
    slider.press("ArrowRight")
    say_in(page, SAID, "What if inverse temperature")
    page.wait_for_function(f"{weights} !== {json.dumps(before)}", timeout=LONG)
    after = json.loads(page.evaluate(weights))
    assert [len(row) for row in after] == [len(row) for row in json.loads(before)]
    assert all(0 <= level <= 255 for row in after for level in row)
    drawn = page.evaluate(
        f"""[...document.querySelector("{PLOT}")._fullData.find(
          trace => trace.name === "with the change").y].length"""
    )
    assert drawn > 3
    return row


def watch(page):
    """Everything that the page complains of, as it comes."""
    complaints = []
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return complaints


def test_the_starter_notebook_is_run_and_its_explorer_used(server, starter, browser):
    place, notebook = server, starter
    context = browser.new_context(viewport={"width": 1400, "height": 1100})
    page = context.new_page()
    complaints = watch(page)
    page.goto(f"{place}/lab/tree/{notebook.name}")
    outputs = run_all_cells(page, 6)
    assert sum("application/vnd.plotly.v1+json" in one.get("data", {}) for cell in outputs
               for one in cell) >= 4  # fmt: skip
    page.evaluate("jupyterapp.shell.currentWidget.content.scrollToItem(12)")
    row = use_explorer(page)
    keep_shot(page, "lab-light")

    # The still figure behind the widget is hidden, and is that of the last state when it is saved.
    outputs = page.locator(".jp-OutputArea-child:has(.resharpen-explorer) ~ .jp-OutputArea-child")
    assert outputs.count() == 2 and not any(one.is_visible() for one in outputs.all())
    page.wait_for_timeout(4_000)
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty", timeout=LONG)
    saved = json.loads(notebook.read_text(encoding="utf-8"))
    bundles = [one["data"] for one in saved["cells"][-2]["outputs"] if "data" in one]
    last = bundles[-1]["application/vnd.plotly.v1+json"]
    titles = [note["text"] for note in last["layout"]["annotations"]]
    title = f"L{row} H1: changed weights at 31"
    assert f"<b>{title}</b>" in titles
    page.evaluate(
        "jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    page.wait_for_function("document.body.dataset.jpThemeLight === 'false'", timeout=LONG)
    keep_shot(page, "lab-dark")
    assert complaints == []

    # Another kernel knows nothing of the widget: the still figure shows what was last shown.
    page.evaluate("jupyterapp.shell.currentWidget.sessionContext.session.kernel.shutdown()")
    page.goto(f"{place}/lab/tree/{notebook.name}?reset")
    page.wait_for_function(f"window.jupyterapp && ({CELLS})?.length > 5", timeout=LONG)
    page.evaluate("jupyterapp.shell.currentWidget.content.scrollToItem(12)")
    page.get_by_text(title).wait_for(state="visible", timeout=LONG)
    assert page.locator(".resharpen-explorer").count() == 0
    assert not any(one.is_visible() for one in page.get_by_text("widget", exact=False).all()
                   if "oading widget" in (one.text_content() or ""))  # fmt: skip
    page.get_by_text(title).scroll_into_view_if_needed()
    keep_shot(page, "lab-without-a-kernel")
    context.close()


def test_the_explorer_is_used_in_notebook_7(server, checkpoint, browser, tmp_path):
    cell = (
        "from resharpen.analyses import explore\n"
        f"explore({str(checkpoint)!r}, lengths=[4, 8, 16], n_sequences=4)"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, tmp_path / "seven.ipynb")
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    complaints = watch(page)
    page.goto(f"{server}/notebooks/seven.ipynb")
    page.wait_for_function(f"window.jupyterapp && ({CELLS})?.length >= 1", timeout=LONG)
    page.wait_for_timeout(3_000)
    complaints.clear()  # Notebook 7.6 complains of itself while it opens, of an empty notebook too.
    run_all_cells(page, 1)
    use_explorer(page)
    outputs = page.locator(".jp-OutputArea-child:has(.resharpen-explorer) ~ .jp-OutputArea-child")
    assert outputs.count() == 2 and not any(one.is_visible() for one in outputs.all())
    keep_shot(page, "notebook-7")
    assert complaints == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_offline_and_shows_the_head_that_is_chosen(
    scheme, browser, checkpoint, tmp_path
):
    state = open_explorer(checkpoint, lengths=(8, 16, 31), n_sequences=4)
    file = Explorer(state).save_html(tmp_path / "heads.html")
    context = browser.new_context(
        offline=True, color_scheme=scheme, viewport={"width": 1240, "height": 1000}
    )
    page = context.new_page()
    requests, complaints = [], []
    page.on("request", lambda asked: requests.append(asked.url))
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector("#view .heatmaplayer")
    click_cell(page, "#view", 1, 0)
    say_in(page, "#summary", "L1 H0:")
    assert page.locator("#head").evaluate("s => s.options[s.selectedIndex].text") == "L1 H0"
    page.locator("#head").select_option(label="L0 H1")
    say_in(page, "#summary", "L0 H1:")
    page.locator("#length").select_option(label="8")
    title = "document.querySelectorAll('#view .annotation-text')[3].textContent"
    page.wait_for_function(f"{title} === 'L0 H1: weights at 8'")
    drawn = page.evaluate(
        "[...document.querySelector('#view')._fullData.find(t => t.name === 'measured').y]"
    )
    view, _ = state.view(0, 1, 8)
    assert drawn == pytest.approx(view.measured["entropy"].mean.tolist(), rel=1e-3)
    weights = page.evaluate(
        "[...document.querySelector('#view')._fullData.find(t => t.name === 'weights').z]"
        ".map(row => [...row])"
    )
    assert weights == view.levels.tolist()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep_shot(page, f"page-{scheme}")
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [file.as_uri()]
    assert complaints == []
    context.close()
