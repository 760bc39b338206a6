"""Panels of lines: what is measured, what is theory, what is said of each panel."""

import numpy as np
import pytest

from resharpen.analyses.figures.clustering_study import Line, LinePanel, plot_line_panels

X = [1.0, 2.0, 4.0]
MEASURED = Line("post", X, [0.1, 0.2, 0.4], 1, [0.0, 0.1, 0.3], [0.2, 0.3, 0.5], said="<b>a</b>")
THEORY = Line("equation", X, [0.1, 0.3, 0.5], 1, kind="exact")
WORDS = {"title": "t", "caption": "c", "x_title": "block", "y_title": "cosine"}


def named(figure, name):
    return [trace for trace in figure.data if trace.name == name]


def test_measured_is_solid_with_its_interval_and_theory_dashed_in_its_colour():
    figure = plot_line_panels([LinePanel("one", [MEASURED, THEORY])], **WORDS)
    (measured,) = named(figure, "post")
    theory, key = named(figure, "equation")
    assert measured.line.dash == "solid" and theory.line.dash == "dash"
    assert measured.marker.color == theory.line.color
    np.testing.assert_array_equal(measured.y, MEASURED.y)
    assert key.legend == "legend2" and list(key.x) == [None]
    (band,) = [trace for trace in figure.data if trace.fill == "toself"]
    assert list(band.y) == [0.2, 0.3, 0.5, 0.3, 0.1, 0.0]
    assert "&lt;b&gt;a" in measured.hovertemplate
    assert dict(figure.layout.meta) == {"title": "t", "caption": "c"}


def test_panels_share_their_legend_and_have_their_notes_and_marks():
    panels = [
        LinePanel(name, [MEASURED, THEORY], note="far\noff", marks={"here": 2.0})
        for name in ("one", "two", "three")
    ]
    figure = plot_line_panels(panels, columns=2, log_x=True, **WORDS)
    assert [trace.showlegend for trace in named(figure, "post")] == [True, False, False]
    assert len(named(figure, "equation")) == 4  # one a panel, and the key
    texts = [note.text for note in figure.layout.annotations]
    assert texts[:3] == ["<b>one</b>", "<b>two</b>", "<b>three</b>"]
    assert texts.count("far<br>off") == 3 and texts.count("here") == 3
    assert [shape.x0 for shape in figure.layout.shapes] == [2.0] * 3


def test_many_lines_have_no_bands():
    lines = [
        Line(str(number), X, [0.1, 0.2, 0.4], number, [0.0, 0.1, 0.3], [0.2, 0.3, 0.5])
        for number in range(8)
    ]
    figure = plot_line_panels([LinePanel("one", lines)], **WORDS)
    assert len(figure.data) == 8 and not any(trace.fill for trace in figure.data)


def test_a_logarithmic_axis_says_what_it_leaves_out():
    line = Line("post", X, [0.0, 0.1, -1.0])
    figure = plot_line_panels([LinePanel("one", [line])], log_y=True, y_range=(0.01, 1), **WORDS)
    assert np.isnan(figure.data[0].y[[0, 2]]).all()
    assert any("2 points" in note.text for note in figure.layout.annotations)
    assert figure.layout.yaxis.range == (-2, 0)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="there is no line to draw"):
        plot_line_panels([LinePanel("one", [])], **WORDS)
    with pytest.raises(ValueError, match="a line is measured or one of"):
        Line("a", X, X, kind="guess")
    with pytest.raises(ValueError, match="one 1-d shape"):
        Line("a", X, X[:2])
