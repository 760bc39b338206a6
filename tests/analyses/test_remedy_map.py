"""The map of remedies as data: what is drawn, what is marked, what stands on hover."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.figures import plot_remedy_map
from resharpen.analyses.figures.theme import GRID, INK


def cell(kind, task, remedy, placement, errors, **more):
    """One row of the map; errors at 2, 8 and 32 times the training length."""
    row = {
        "kind": kind,
        "task": task,
        "remedy": remedy,
        "placement": placement,
        "n_seeds": 5,
        "slope": 0.91,
        "slope_low": 0.88,
        "slope_high": 0.94,
        "predicted": "cannot",
        "measured": "no help",
        "agrees": "yes",
        "source": "theory 1.1",
    }
    for multiple, error in errors.items():
        row[f"error_{multiple}x"] = error
        row[f"error_{multiple}x_low"] = error - 0.01
        row[f"error_{multiple}x_high"] = error + 0.01
    return {**row, **more}


@pytest.fixture(scope="module")
def frame():
    """Two remedies on a needle, a mixture and an aggregation that ends at 8x, in no order."""
    long = {2: 0.05, 8: 0.3, 32: 0.6}
    return pd.DataFrame(
        [
            cell("needle", "argmax-retrieval", "softmax", "none", long),
            cell("needle", "argmax-retrieval", "softmax", "post", {2: 0.0, 8: 0.1, 32: 0.4},
                 predicted="shifts", measured="cures", agrees="no"),
            cell("mixed", "copy", "softmax", "none", {2: 0.9, 8: 0.9, 32: 0.9},
                 measured="not learned", predicted="open", agrees=""),
            cell("aggregation", "set-complement", "softmax", "none", {2: 0.1, 8: 0.5}),
            cell("aggregation", "set-complement", "softmax", "post", {2: 0.02, 8: 0.2},
                 agrees="no"),
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def figure(frame):
    """The map."""
    return plot_remedy_map(frame)


def test_columns_are_tasks_by_kind_and_rows_remedies(figure):
    """Aggregation, needle, mixed; a length that a task does not reach has no column."""
    heat, _ = figure.data
    assert list(figure.layout.xaxis.ticktext) == [
        *("2x", "8x"),
        *("2x", "8x", "32x"),
        *("2x", "8x", "32x"),
    ]
    assert list(figure.layout.yaxis.ticktext) == ["softmax / none", "softmax / post"]
    # From the top down, and no wider than the cells.
    assert figure.layout.yaxis.range == (1.5, -0.5)
    assert figure.layout.xaxis.range == (-0.5, 7.5)
    headings = [(note.text, note.x) for note in figure.layout.annotations]
    assert headings == [
        ("set<br>complement", 0.5),
        ("argmax<br>retrieval", 3.0),
        ("copy", 6.0),
        ("<b>aggregation</b>", 0.5),
        ("<b>needle</b>", 3.0),
        ("<b>mixed</b>", 6.0),
    ]
    assert [line.x0 for line in figure.layout.shapes] == [1.5, 4.5]
    assert (len(heat.x), len(heat.y)) == (8, 2)


def test_cells_are_the_errors_and_gaps_where_there_are_none(figure):
    """A task that was not learned is a cross, a cell that was not run is empty: neither has an
    error."""
    heat, crosses = figure.data
    nan = math.nan
    expected = [
        [0.1, 0.5, 0.05, 0.3, 0.6, nan, nan, nan],
        [0.02, 0.2, 0.0, 0.1, 0.4, nan, nan, nan],
    ]
    np.testing.assert_allclose(np.array(heat.z, dtype=float), expected)
    assert (heat.zmin, heat.zmax) == (0, 1)
    assert list(heat.text[0]) == ["0.10", "0.50", "0.05", "0.30", "0.60", "", "", ""]
    assert list(zip(crosses.x, crosses.y, crosses.text, strict=True)) == [
        (5, 0, "×"),
        (6, 0, "×"),
        (7, 0, "×"),
    ]
    assert crosses.textfont.color == INK and "copy" in crosses.customdata[0]
    assert heat.hoverongaps is False


def test_a_disagreement_is_marked_once_at_the_longest_length(figure):
    """At 8x for a task that ends there."""
    heat, _ = figure.data
    assert list(heat.text[1]) == ["0.02", "0.20≠", "0.00", "0.10", "0.40≠", "", "", ""]
    assert "≠" in figure.layout.meta["caption"]


def test_hover_tells_the_interval_the_slope_and_both_answers(figure):
    """The numbers of its own column."""
    heat, _ = figure.data
    assert heat.customdata[1][4] == (
        "<b>argmax-retrieval</b>, softmax / post<br>"
        "error at 32x: 0.40 [0.39, 0.41] (5 seeds)<br>"
        "dispersion slope: 0.91 [0.88, 0.94]<br>"
        "theory: shifts (theory 1.1)<br>"
        "measured: cures"
    )
    assert "error at 8x: 0.50 [0.49, 0.51]" in heat.customdata[0][1]
    assert "measured: not learned" in heat.customdata[0][7]
    assert heat.customdata[1][7] == ""
    assert heat.hovertemplate == "%{customdata}<extra></extra>"


def test_title_threshold_and_colours_of_every_figure(frame, figure):
    """As the other figures: clear background, ink that both themes allow; taller with each row."""
    assert figure.layout.meta["title"] == "Which remedy cures which dispersion"
    other: Any = plot_remedy_map(frame, threshold=0.25, title="Another")
    assert other.layout.meta["title"] == "Another"
    assert "up to 0.25 counts as solved" in other.layout.meta["caption"]
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.font.color == INK
    assert (figure.layout.xaxis.gridcolor, figure.layout.xaxis.linecolor) == (GRID, INK)
    needles = frame[frame["kind"] == "needle"]
    fewer: Any = plot_remedy_map(needles[needles["placement"] == "none"])
    assert fewer.layout.height < figure.layout.height
    assert not fewer.layout.shapes


def test_a_map_without_cells_is_refused(frame):
    """In one sentence."""
    with pytest.raises(ValueError, match="at least one cell: the frame has no rows"):
        plot_remedy_map(frame.iloc[:0])
