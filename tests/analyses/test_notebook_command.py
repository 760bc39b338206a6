"""`resharpen notebook`: writes the starter notebook, never over another file."""

import ast
import json

import nbformat
import pytest
import torch

from resharpen.analyses.cli import main
from resharpen.analyses.notebook_command import starter_notebook


def run(*arguments):
    """The exit status of the command."""
    with pytest.raises(SystemExit) as done:
        main(["notebook", *map(str, arguments)])
    return done.value.code


def test_it_writes_a_notebook_beside_the_user(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run() == 0
    assert "wrote resharpen.ipynb; open it with: jupyter lab" in capsys.readouterr().out
    assert (tmp_path / "resharpen.ipynb").read_text(encoding="utf-8") == starter_notebook()
    assert run(tmp_path / "other.ipynb") == 0
    (tmp_path / "folder").mkdir()
    assert run(tmp_path / "folder") == 0
    assert (tmp_path / "folder" / "resharpen.ipynb").exists()


def test_it_never_overwrites(tmp_path, capsys):
    place = tmp_path / "mine.ipynb"
    place.write_text("precious", encoding="utf-8")
    assert run(place) == 2
    assert "exists and is left as it is" in capsys.readouterr().err
    assert place.read_text(encoding="utf-8") == "precious"


@pytest.mark.parametrize(
    ("name", "said"), [("notes.txt", "ends in .ipynb"), ("no/x.ipynb", "there is no folder")]
)
def test_a_place_that_cannot_be_is_one_sentence(tmp_path, capsys, name, said):
    assert run(tmp_path / name) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_from_import_to_overlaid_curves_in_ten_lines():
    """Valid, without outputs; code that parses; the curves within the first ten lines of it."""
    notebook = nbformat.reads(starter_notebook(), as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    lines = [line for cell in code for line in ast.unparse(ast.parse(cell.source)).splitlines()]
    assert "plot_displacement(result.table, result.curves)" in lines[:10]
    assert lines[-1] == "explorer"
    assert json.loads(starter_notebook())["nbformat"] == 4


@pytest.mark.slow
def test_every_cell_runs_with_a_pretrained_folder(tmp_path):
    """As a user edits it: the path of a Hugging Face folder; the explorer is of that model."""
    pytest.importorskip("anywidget", reason="the explorer's live view needs anywidget")
    nbclient = pytest.importorskip("nbclient", reason="nbclient runs the cells")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=300, n_positions=256, n_embd=32, n_layer=2, n_head=2, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "pretrained")
    text = starter_notebook()
    assert text.count("pretrained = None") == 1
    notebook = nbformat.reads(
        text.replace("pretrained = None", 'pretrained = \\"pretrained\\"'), as_version=4
    )
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output["output_type"] == "error"]
    shown = [output["data"] for output in notebook.cells[-2].outputs if "data" in output]
    assert "application/vnd.jupyter.widget-view+json" in shown[-3]
    assert "application/vnd.plotly.v1+json" in shown[-1]
    titles = shown[-1]["application/vnd.plotly.v1+json"]["layout"]["annotations"]
    assert any(" H" in title["text"] for title in titles)
    maps = [output for output in notebook.cells[-4].outputs if "data" in output]
    assert any("application/vnd.plotly.v1+json" in output["data"] for output in maps)
