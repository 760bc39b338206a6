"""The figures of docs/theory: every point lies where its law says, to what its draw allows."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

# Largest distance of a point from its law, where both are exact or the draw is large.
CLOSE = {
    "set-complement": 1e-4,
    "critical-scaling": 1e-9,
    "norms": 1e-4,
    "needles": 1e-5,
    "clustering": 0.03,
}


@cache
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "theory_figures", ROOT / "examples" / "theory_figures.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", CLOSE)
def test_the_points_lie_on_their_laws(name: str) -> None:
    for pair in script().PANELS[name]().pairs:
        np.testing.assert_allclose(
            pair.points, pair.law(pair.x), atol=CLOSE[name], rtol=CLOSE[name]
        )


def test_no_point_passes_a_bound() -> None:
    for name in ("bounds", "limits"):
        for pair in script().PANELS[name]().pairs:
            law = np.asarray(pair.law(pair.x))
            assert (pair.points <= law * (1 + 1e-12)).all()
            assert (pair.points / law).max() > 0.95, "a bound that nothing comes near"


def test_the_relayed_bound_is_seen_to_be_false() -> None:
    panel = script().limits()
    (_, relayed), *_ = panel.lines
    pair = panel.pairs[0]
    assert (pair.points > relayed(pair.x)).any()


def test_the_averages_are_as_biased_as_theory_says() -> None:
    for pair in script().averaging().pairs:
        # 95 % intervals at nine times: none is off by twice its own.
        assert (np.abs(pair.points - pair.law(pair.x)) < 2 * pair.half_width).all()


def test_gaussian_entropy_holds_well_below_its_transition_and_not_near_it() -> None:
    narrow, _, wide = script().gaussian_rows().pairs
    late = narrow.x >= 64
    off = np.abs(narrow.points - narrow.law(narrow.x))[late]
    assert (off < 0.02 + narrow.half_width[late]).all()
    law = np.asarray(wide.law(wide.x))
    assert np.isnan(law[wide.x < np.exp(8)]).all()
    assert (wide.points - law)[-1] > 1


@pytest.mark.parametrize("name", ["set-complement", "limits"])
def test_a_figure_shows_every_point_and_law(name: str) -> None:
    panel = script().PANELS[name]()
    figure = script().draw(panel)
    assert len(figure.data) == 2 * len(panel.pairs) + len(panel.lines)
    markers = [trace for trace in figure.data if trace.mode == "markers"]
    assert [len(trace.x) for trace in markers] == [len(pair.x) for pair in panel.pairs]


def test_every_panel_is_a_committed_figure_of_a_page() -> None:
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "theory").glob("*.md"))
    for name in script().PANELS:
        image = ROOT / "docs" / "theory" / "figures" / f"{name}.png"
        assert image.stat().st_size < 100_000
        assert f"(figures/{name}.png)" in pages
