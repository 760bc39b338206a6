"""The explorer around its arrays: controls move the view, failures leave it, pages stand alone."""

import json
import re
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from resharpen.analyses import explore
from resharpen.analyses.exploring import Explorer, measuring, open_explorer, page, widget
from resharpen.analyses.figures.embed import figure_bundle, pack_bytes
from resharpen.analyses.figures.explorer import MAP
from resharpen.models import Transformer, TransformerConfig

LENGTHS = (8, 16, 31)


@pytest.fixture(scope="module")
def state():
    return open_explorer("set-complement-post", lengths=LENGTHS, n_sequences=4)


@pytest.fixture
def explorer(state):
    pytest.importorskip("anywidget", reason="the live view needs anywidget")
    made = Explorer(state)
    assert made.widget is not None
    return made


def test_a_slider_changes_the_figure(explorer):
    figure = explorer._figure
    before = {trace.name: trace.y for trace in figure.data}
    assert not before["with the change"]
    explorer._controls["temperature"].value = 2.0
    assert explorer.message == "" and explorer.view.what_if.temperature == 2.0
    after = next(trace.y for trace in figure.data if trace.name == "with the change")
    np.testing.assert_allclose(after, explorer.view.changed["entropy"].mean, rtol=1e-3)
    assert "What if inverse temperature 2" in explorer._said.value
    explorer._controls["length"].value = 8
    assert explorer.view.length == 8
    weights = next(trace for trace in figure.data if trace.name == "weights")
    assert weights.z == pack_bytes(explorer.view.levels) and weights.z["shape"] == "8, 8"
    explorer._controls["by"].value = "normalised_entropy"
    assert explorer.head_map.by == "normalised_entropy"
    explorer._controls["reset"].click()
    assert explorer.view.what_if.plain and explorer._controls["temperature"].value == 1.0
    assert not next(trace.y for trace in figure.data if trace.name == "with the change")


def test_a_click_on_the_map_and_code_choose_alike(explorer):
    cells = explorer._figure.data[MAP].customdata
    explorer._clicked(cells[0][0])
    assert (explorer.layer, explorer.head) == (0, 0)
    view = explorer.select(length=16, temperature=0.5, everywhere=True)
    assert explorer._controls["everywhere"].value is True
    assert explorer._controls["temperature"].value == 0.5
    assert view.what_if.words("L0 H0") == "inverse temperature 0.5 on all heads"
    with pytest.raises(ValueError, match="one that was run"):
        explorer.select(length=9)
    assert explorer.length == 16


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyboardInterrupt(), "interrupted; the last view is shown"),
        (MemoryError(), "this could not be shown, the last view stays: MemoryError"),
        (ValueError("no\nsecond line"), "this could not be shown, the last view stays: no"),
    ],
)
def test_what_fails_leaves_the_last_view(explorer, monkeypatch, error, said):
    explorer._controls["temperature"].value = 2.0
    shown = [trace.y for trace in explorer._figure.data if trace.name == "with the change"]

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(type(explorer.state), "view", fail)
    explorer._controls["temperature"].value = 4.0
    assert explorer.message == said and said in explorer._said.value
    kept = [trace.y for trace in explorer._figure.data if trace.name == "with the change"]
    assert kept == shown and explorer.view.what_if.temperature == 2.0
    monkeypatch.undo()
    explorer._controls["temperature"].value = 1.5
    assert explorer.message == "" and explorer.view.what_if.temperature == 1.5


def test_without_widgets_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(widget, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "\.\[notebook\]"'):
        explore("set-complement-post")


def test_the_still_figure_needs_no_kernel(explorer):
    bundle = figure_bundle(explorer.figure())
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/html", "text/plain"}
    assert len(bundle["application/vnd.plotly.v1+json"]["data"]) == len(explorer._figure.data)
    assert len(json.dumps(bundle)) < 1_000_000


def test_the_page_holds_every_head_and_length_and_asks_for_nothing(state, tmp_path):
    place = Explorer(state).save_html(tmp_path / "heads.html")
    text = place.read_text(encoding="utf-8")
    assert place.stat().st_size < 10_000_000
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", text)
    held = json.loads(re.search(r'id="heads">(.*?)</script>', text, re.DOTALL)[1])
    assert [len(head) for head in held["heads"]] == [3] and held["numbers"] == {"0,0": 0}
    assert "need a kernel and are not part of this page" in text


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("folder", IsADirectoryError, "folder is a folder: name a file in it, such as .*explorer"),
        ("folder.html", IsADirectoryError, "is a folder: name a file in it"),
        ("nope/x.html", FileNotFoundError, "there is no folder .*nope to write x.html into"),
        ("x.pdf", ValueError, "to a name that ends in .html; got .*x.pdf"),
        ("x", ValueError, "to a name that ends in .html"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_it_is_made(
    state, tmp_path, monkeypatch, name, error, words
):
    monkeypatch.setattr(widget, "render_page", lambda *_: pytest.fail("the page was made"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(error, match=words):
        Explorer(state).save_html(tmp_path / name)


@pytest.mark.parametrize(("watched", "long", "bars"), [(1, 1, 1), (1, 0, 0), (0, 1, 0)])
def test_a_long_opening_shows_a_bar_where_somebody_sees_it(monkeypatch, watched, long, bars):
    asked, audited = [], measuring.audit_adapted
    monkeypatch.setattr(measuring, "is_watched", lambda: bool(watched))
    monkeypatch.setattr(measuring, "LONG", 1.0 if long else 1e15)

    def listening(*args, progress, **options):
        asked.append((progress, options["batch_tokens"]))
        return audited(*args, **options)

    monkeypatch.setattr(measuring, "audit_adapted", listening)
    open_explorer("set-complement-post", lengths=(8, 16), n_sequences=2)
    open_explorer("set-complement-post", lengths=(8, 16), n_sequences=2, progress=False)
    assert [bool(progress) for progress, _ in asked] == [bool(bars), False]
    assert asked[0][1] == (16 if long else 16384)


def test_where_the_weights_do_not_fit_the_page_keeps_the_chosen_length(state, monkeypatch):
    monkeypatch.setattr(page, "ROOM", 534)
    monkeypatch.setattr(page, "PER_VIEW", 0)
    text = page.render_page(state, Explorer(state).view, "slope")
    held = json.loads(re.search(r'id="heads">(.*?)</script>', text, re.DOTALL)[1])
    assert [len(head) for head in held["heads"]] == [1]
    assert "nor are other lengths, whose weights would not fit" in text
    weights = next(trace for trace in held["heads"][0][0]["data"] if "dx" in trace)
    assert weights["dx"] == 2 and weights["z"]["shape"] == "16, 16"


@pytest.mark.slow
def test_a_page_of_many_heads_stays_below_ten_megabytes(tmp_path):
    torch.manual_seed(0)
    config = TransformerConfig(d_vocab=300, n_layers=24, n_heads=42, d_model=16, d_head=2)
    state = open_explorer(
        Transformer(config).eval(), probe="repeated", lengths=(16, 64, 256), n_sequences=1
    )
    assert len(state.classes) == 1008
    place = Explorer(state).save_html(tmp_path / "many.html")
    assert place.stat().st_size < 10_000_000


def test_the_hand_over_to_circuitsvis(state, monkeypatch):
    explorer = Explorer(state)
    monkeypatch.setattr(
        sys.modules["resharpen.analyses.exploring.circuitsvis"], "find_spec", lambda name: None
    )
    with pytest.raises(ModuleNotFoundError, match=r'pip install "\.\[circuitsvis\]"'):
        explorer.to_circuitsvis()
    monkeypatch.undo()
    monkeypatch.setattr(
        sys.modules["resharpen.analyses.exploring.circuitsvis"], "find_spec", lambda name: True
    )
    stub = ModuleType("circuitsvis")
    stub.attention = ModuleType("attention")  # type: ignore[attr-defined]
    stub.attention.attention_heads = lambda **given: given  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "circuitsvis", stub)
    given = explorer.to_circuitsvis(0, 0, 16)
    tokens, weights = state.weights(0, 0, 16)
    np.testing.assert_array_equal(given["attention"][0], weights)
    assert given["tokens"] == [str(token) for token in tokens.tolist()]
    assert given["attention_head_names"] == ["L0 H0"]
    with pytest.raises(ValueError, match="head must be a number"):
        explorer.to_circuitsvis(0, 5)
