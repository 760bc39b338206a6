"""Figures as data: what is measured, what is theory, and that both can be read by everyone."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.figures import (
    plot_dispersion,
    plot_displacement,
    plot_error,
    plot_rescaling,
)
from resharpen.analyses.figures.theme import COLOURS, GRID, INK, MAX_LEGEND, log_axis, log_ladder
from resharpen.interp.tables import table
from resharpen.interp.theory.curve import Curve

PLACEMENTS = ["none", "post", "res_post", "peri"]


def lines(figure, dashed):
    """The visible traces that are theory (dashed) or measured (solid, with markers)."""
    return [
        trace
        for trace in figure.data
        if trace.hoverinfo != "skip" and (trace.line.dash != "solid") == dashed
    ]


def bands(figure):
    """The intervals."""
    return [trace for trace in figure.data if trace.fill == "toself"]


def luminance(colour):
    """Relative luminance of `#rrggbb` (WCAG 2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Contrast ratio of two colours (WCAG 2)."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def figures(study_table, study_curves):
    """Every figure of the study that is drawn from its table."""
    return {
        "error": plot_error(study_table, study_curves, train_length=8),
        "dispersion": plot_dispersion(study_table, study_curves),
        "weights": plot_dispersion(study_table, study_curves, quantity="max_weight"),
        "displacement": plot_displacement(study_table, study_curves),
        "rescaling": plot_rescaling(study_table, study_curves),
    }


def test_heads_of_several_layers_are_told_apart(many_heads):
    """By layer and head, not by the site of the layer; by the stack too where there are two."""
    few = many_heads[(many_heads["layer"] < 2) & (many_heads["head"] < 2)]
    names = [trace.name for trace in lines(plot_dispersion(few), dashed=False)]
    assert names == ["L0 H0", "L0 H1", "L1 H0", "L1 H1"]
    encoder = few.assign(site=few["site"].str.replace("decoder", "encoder"))
    both = table([*encoder.to_dict("records"), *few.to_dict("records")])
    names = [trace.name for trace in lines(plot_dispersion(both), dashed=False)]
    assert names[:1] + names[-1:] == ["encoder attn L0 H0", "decoder attn L1 H1"]
    assert len(set(names)) == 8


def test_every_figure_keeps_the_conventions(figures):
    """Measured solid with markers, theory dashed without; one legend entry a series; units."""
    for name, figure in figures.items():
        for trace in lines(figure, dashed=True):
            assert "dash" in trace.line.dash, name
            assert trace.mode == "lines"
            assert not trace.showlegend
            assert "(theory: " in trace.hovertemplate
        for trace in lines(figure, dashed=False):
            assert "markers" in trace.mode
            assert "(measured)" in trace.hovertemplate
        for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
            assert re.search(r"\(\w+\)$|order of the stream$", axis.title.text), name
        entries = [t for t in figure.data if t.showlegend is not False and t.legend != "legend2"]
        assert 1 <= len(entries) <= MAX_LEGEND
        assert figure.layout.meta["title"]
        assert "Measured" in figure.layout.meta["caption"]
        assert "Theory: dashed" in figure.layout.meta["caption"]
        assert len(figure.to_json()) < 100_000, name


def test_every_figure_is_readable_on_white_and_on_black(figures):
    """Clear backgrounds, one mid-tone ink with the contrast that both allow."""
    assert contrast(INK, "#ffffff") > 4
    assert contrast(INK, "#111111") > 4
    for colour in COLOURS:
        assert min(contrast(colour, "#ffffff"), contrast(colour, "#111111")) > 2
    for figure in figures.values():
        layout = figure.layout
        backgrounds = {layout.paper_bgcolor, layout.plot_bgcolor, layout.legend.bgcolor}
        assert backgrounds == {"rgba(0,0,0,0)"}
        assert layout.font.color == INK
        for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
            assert (axis.gridcolor, axis.linecolor) == (GRID, INK)


def test_legends_stand_outside_the_plot(figures):
    """Right of it and below it."""
    for figure in figures.values():
        assert figure.layout.legend.x > 1
        assert figure.layout.legend2.yref == "container"
        assert (figure.layout.legend2.y, figure.layout.legend2.yanchor) == (0, "bottom")


def test_error_figure_draws_means_and_intervals_over_seeds(figures, study_table):
    """Against pandas; the band is the t-interval, 2.776 at 5 seeds."""
    figure = figures["error"]
    measured = lines(figure, dashed=False)
    assert [trace.name for trace in measured] == PLACEMENTS
    assert len({trace.marker.color for trace in measured}) == 4
    assert len({trace.marker.symbol for trace in measured}) == 4
    rows = study_table[
        (study_table["quantity"] == "total_variation") & (study_table["checkpoint"] == "post")
    ]
    grouped = rows.groupby("length")["mean"]
    half = 2.7764451 * grouped.std(ddof=1) / math.sqrt(5)
    post = measured[1]
    np.testing.assert_allclose(post.y, grouped.mean())
    np.testing.assert_allclose(post.customdata[:, 0], grouped.mean() - half, rtol=1e-6)
    np.testing.assert_allclose(post.customdata[:, 2], 5)
    assert "interval over seeds" in post.hovertemplate
    band = bands(figure)[1]
    assert band.legendgroup == post.legendgroup
    np.testing.assert_allclose(band.y[:31], grouped.mean() + half, rtol=1e-6)
    assert np.all(np.asarray(band.y) > 0)  # cut where a log axis ends, the hover is not
    assert np.any(post.customdata[:, 0] < 0)


def test_theory_has_the_colour_of_its_series_and_its_hypotheses(figures):
    """Dashed, grouped with its series, name, hypotheses and source on hover, once in the key."""
    figure = figures["error"]
    measured = lines(figure, dashed=False)
    theory = lines(figure, dashed=True)
    assert len(theory) == 4
    for own, trace in zip(measured, theory, strict=True):
        assert trace.line.color == own.marker.color
        assert trace.legendgroup == own.legendgroup
        assert "total variation of equal displacements" in trace.hovertemplate
        assert "one layer, one head, attention only" in trace.hovertemplate
        assert "source: derived here" in trace.hovertemplate
        assert "p &lt;" in trace.hovertemplate  # a bare < would be read as markup
    key = [trace for trace in figure.data if trace.legend == "legend2"]
    assert [trace.name for trace in key] == ["total variation of equal displacements"]
    assert figure.layout.legend2.itemclick is False


def test_theory_comes_after_measurement_so_that_it_lies_on_top(figures):
    """A dashed line under a solid one of the same colour would not be seen."""
    data = list(figures["error"].data)
    assert min(data.index(t) for t in lines(figures["error"], True)) > max(
        data.index(t) for t in lines(figures["error"], False)
    )


def test_training_length_is_a_vertical_line(figures, study_table):
    """A line across the plot, named; none if not given."""
    (line,) = figures["error"].layout.shapes
    assert (line.x0, line.x1, line.y0, line.y1, line.yref) == (8, 8, 0, 1, "paper")
    assert "train length" in line.label.text
    assert not plot_error(study_table).layout.shapes


def test_axes_are_logarithmic_where_laws_are_power_laws(figures):
    """Entropy over log n; everything else log-log; lengths 1 to 31 of an error linear."""
    kinds = {
        name: (figure.layout.xaxis.type, figure.layout.yaxis.type)
        for name, figure in figures.items()
    }
    assert kinds == {
        "error": (None, "log"),
        "dispersion": ("log", None),
        "weights": ("log", "log"),
        "displacement": ("log", "log"),
        "rescaling": ("log", "log"),
    }


def test_bounds_that_are_the_same_everywhere_are_drawn_once_in_grey(figures):
    """Four checkpoints, one log n."""
    theory = lines(figures["dispersion"], dashed=True)
    assert [trace.name for trace in theory] == ["fully dispersed: log n", "log n - δ²/8"]
    assert {trace.line.color for trace in theory} == {INK}
    assert [trace.line.dash for trace in theory] == ["dashdot", "longdashdot"]


def test_displacement_has_three_panels_in_one_set_of_colours(figures):
    """Product above, factors below, each placement the same colour in all."""
    figure = figures["displacement"]
    titles = [axis.title.text for axis in figure.select_yaxes()]
    assert titles == [
        "displacement (logit)",
        "frozen displacement (logit)",
        "displacement rescale (ratio)",
    ]
    by_name: dict[str, set] = {}
    for trace in lines(figure, dashed=False):
        by_name.setdefault(trace.name, set()).add((trace.marker.color, trace.legendgroup))
    assert list(by_name) == PLACEMENTS
    assert all(len(styles) == 1 for styles in by_name.values())
    shown = [trace.name for trace in lines(figure, dashed=False) if trace.showlegend]
    assert shown == PLACEMENTS


def test_rescaling_tells_norms_apart_and_colours_by_checkpoint(figures):
    """Both norms of peri share its colour, not its marker; the stream has both ends."""
    figure = figures["rescaling"]
    gains = {trace.name: trace for trace in lines(figure, False) if trace.yaxis == "y"}
    assert list(gains) == ["post ln1_resid", "res_post ln1_post", "peri ln1", "peri ln1_post"]
    one, two = gains["peri ln1"], gains["peri ln1_post"]
    assert one.marker.color == two.marker.color
    assert one.marker.symbol != two.marker.symbol
    stream = [trace for trace in lines(figure, False) if trace.yaxis == "y2"]
    assert len(stream) == 8
    assert list(stream[0].x) == ["L0 resid_pre", "L0 resid_mid", "L0 resid_post"]
    open_ones = [trace for trace in stream if trace.marker.symbol.endswith("-open")]
    assert len(open_ones) == 4
    assert "length 1<" in open_ones[0].hovertemplate
    for trace in stream:
        np.testing.assert_allclose(trace.error_y.array, trace.error_y.arrayminus, atol=1e-12)
        assert np.all(np.asarray(trace.error_y.array)[1:] > 0)


def simple(quantity, values, **more):
    """Rows of one run over the lengths 1, 2, 4, ..."""
    return [
        {
            "study": "s",
            "checkpoint": "c",
            "task": "t",
            "seed": 0,
            "length": 2**step,
            "n_key": 2**step + 1,
            "quantity": quantity,
            "unit": "logit",
            "mean": value,
            "sem": 0.1,
            "n_obs": 5,
            **more,
        }
        for step, value in enumerate(values)
    ]


def test_what_a_log_axis_cannot_show_is_counted():
    """A displacement that turns negative is the worst failure: it must not vanish in silence."""
    figure = plot_displacement(table(simple("displacement", [4.0, 2.0, 0.0, -1.0])))
    (trace,) = lines(figure, dashed=False)
    assert np.isnan(trace.y[2:]).all()
    notes = [note.text for note in figure.layout.annotations]
    assert "2 points at or below 0: not drawn on the logarithmic axis" in notes


def test_one_run_has_the_interval_of_its_observations():
    """No seeds, so the t-interval over observations, and the hover says which it is."""
    figure = plot_error(
        table(simple("kl_divergence", [1.0, 2.0, 3.0])), quantity="kl_divergence", log_y=False
    )
    (trace,) = lines(figure, dashed=False)
    np.testing.assert_allclose(trace.customdata[:, 1], np.array([1, 2, 3]) + 2.7764451 * 0.1)
    assert "one run, interval over its observations" in trace.hovertemplate
    assert len(bands(figure)) == 1
    single = [{**row, "n_obs": 1, "sem": math.nan} for row in simple("kl_divergence", [1, 2, 3])]
    figure = plot_error(table(single), quantity="kl_divergence")
    assert not bands(figure)
    assert "interval" not in lines(figure, dashed=False)[0].hovertemplate


def test_more_heads_than_a_legend_holds_are_grey_but_named():
    """Twelve in colour, the rest thin and grey with a name on hover."""
    rows = [
        row
        for layer in range(3)
        for head in range(8)
        for row in simple("max_weight", [0.5, 0.3, 0.1], layer=layer, head=head)
    ]
    figure = plot_dispersion(table(rows), quantity="max_weight")
    measured = lines(figure, dashed=False)
    assert len(measured) == 24
    assert sum(bool(trace.showlegend) for trace in measured) == MAX_LEGEND
    assert "12 more in grey" in figure.layout.meta["caption"]
    assert measured[12].marker.color == INK
    assert "L1 H4" in measured[12].hovertemplate
    styles = {(trace.marker.color, trace.marker.symbol) for trace in measured[:MAX_LEGEND]}
    assert len(styles) == MAX_LEGEND
    chosen = plot_dispersion(table(rows), quantity="max_weight", layers=[1], heads=[0, 7])
    assert [trace.name for trace in lines(chosen, dashed=False)] == ["L1 H0", "L1 H7"]


def length_curve(values, **more):
    """A curve over the lengths 1, 2, 4."""
    return Curve(
        name="a law %{x} <b>",
        quantity="max_weight",
        unit="logit",
        x=np.array([1.0, 2.0, 4.0]),
        values=np.asarray(values, dtype=np.float64),
        kind="exact",
        hypotheses=("holds",),
        source="made up",
        domain=(1.0, 4.0),
        **more,
    )


def test_a_curve_over_lengths_is_moved_to_key_counts():
    """By the rows it speaks about: here n_key = length + 1."""
    frame = table(simple("max_weight", [0.5, 0.3, 0.1], layer=0, head=0))
    figure = plot_dispersion(frame, [length_curve([0.5, 0.3, 0.1])], quantity="max_weight")
    (trace,) = lines(figure, dashed=True)
    assert list(trace.x) == [2.0, 3.0, 5.0]
    assert list(trace.y) == [0.5, 0.3, 0.1]
    assert trace.name == "a law %\u200b{x} &lt;b&gt;"


def test_curves_of_several_seeds_are_drawn_as_their_mean():
    """And say so."""
    frame = table(
        row for s in range(3) for row in simple("max_weight", [0.5, 0.3, 0.1], seed=s, head=0)
    )
    curves = [length_curve(np.array([0.5, 0.3, 0.1]) + s / 10, seed=s) for s in range(3)]
    figure = plot_dispersion(frame, curves, quantity="max_weight")
    (trace,) = lines(figure, dashed=True)
    np.testing.assert_allclose(trace.y, [0.6, 0.4, 0.2])
    assert "mean over 3 seeds" in trace.hovertemplate


def test_curves_of_other_places_are_not_drawn(study_table, study_curves):
    """A checkpoint that is not drawn brings no theory."""
    figure = plot_error(study_table, study_curves, checkpoints=["post"])
    assert [trace.name for trace in lines(figure, dashed=False)] == ["post"]
    assert len(lines(figure, dashed=True)) == 1
    elsewhere = [replace(curve, checkpoint="no such") for curve in study_curves]
    assert not lines(plot_error(study_table, elsewhere), dashed=True)


def test_nothing_to_draw_is_told(study_table):
    """With what there is."""
    with pytest.raises(ValueError, match=r"no measured 'sink_mass' to draw; it has displacement, "):
        plot_dispersion(study_table, quantity="sink_mass")
    with pytest.raises(ValueError, match=r"checkpoint \['pre'\]; the table has none, post"):
        plot_error(study_table, checkpoints=["pre"])
    with pytest.raises(ValueError, match="no measured 'rescale_gain'"):
        plot_rescaling(study_table[study_table["quantity"] == "entropy"])


def test_a_model_without_norms_still_shows_its_stream(study_table):
    """The rescale panel is blank, the other is not."""
    figure = plot_rescaling(study_table, checkpoints=["none"])
    assert {trace.yaxis for trace in lines(figure, dashed=False)} == {"y2"}


def test_rows_that_are_not_ok_are_not_drawn():
    """Normalised entropy at one key is undefined, not 0."""
    rows = simple("normalised_entropy", [math.nan, 0.9, 0.8], layer=0, head=0)
    rows[0].update(status="undefined", sem=math.nan)
    figure = plot_dispersion(table(rows), quantity="normalised_entropy")
    (trace,) = lines(figure, dashed=False)
    assert list(trace.x) == [3.0, 5.0]


def test_tables_of_two_studies_are_not_mixed(study_table):
    """One line through both would be nobody's."""
    other = study_table.copy()
    other["study"] = pd.Series(["other"] * len(other), dtype=other["study"].dtype)
    both = pd.concat([study_table, other], ignore_index=True)
    with pytest.raises(ValueError, match=r"several studies or tasks \(set_complement, other\)"):
        plot_error(both)


def test_ladders_have_ticks_at_powers_of_two():
    """At most ten, whatever the range."""
    assert log_ladder(np.array([1.0, 5.0, 31.0]))["tickvals"] == [1, 2, 4, 8, 16, 32]
    assert len(log_ladder(np.array([1.0, 2.0**20]))["tickvals"]) <= 10
    assert log_axis(np.array([1e-9, 1.0]))["dtick"] == 1
    assert log_axis(np.array([1.0, 2.0]))["dtick"] == "D1"
