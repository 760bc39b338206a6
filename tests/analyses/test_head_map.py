"""The head map as data: every head in its cell, every head's numbers in the menu."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from resharpen.analyses.figures import plot_head_map
from resharpen.analyses.figures.head_map import SYMBOLS
from resharpen.analyses.figures.theme import INK
from resharpen.analyses.head_classes import classify_heads
from resharpen.interp.tables import table
from resharpen.interp.theory import max_weight_bounds, tight_entropy_bound


@pytest.fixture(scope="module")
def classes(many_heads):
    """The classes of the 270 heads."""
    return classify_heads(many_heads)


@pytest.fixture(scope="module")
def figure(many_heads, classes):
    """Their map."""
    return plot_head_map(many_heads, classes)


def ladder(frame, quantity, layer, head, column="mean"):
    """One column of one head, by n_key."""
    rows = frame[
        (frame["quantity"] == quantity) & (frame["layer"] == layer) & (frame["head"] == head)
    ]
    return rows.sort_values("n_key")[column].to_numpy()


def test_every_head_is_in_its_cell(figure, classes):
    """Slope as colour, class as letter, its number in the menu."""
    cells = figure.data[0]
    assert np.shape(cells.z) == (30, 9)
    for index, item in enumerate(classes):
        place = item.layer, item.head
        assert cells.z[place[0]][place[1]] == pytest.approx(item.slope.value, rel=1e-3)
        assert cells.text[place[0]][place[1]] == SYMBOLS[item.label]
        assert cells.customdata[place[0]][place[1]] == index
        hover = cells.hovertext[place[0]][place[1]]
        for part in (f"L{item.layer} H{item.head}", item.label, str(item.slope), "4096 keys:"):
            assert part in hover
    assert list(figure.layout.yaxis.ticktext) == [f"L{layer}" for layer in range(30)]
    assert figure.layout.yaxis.range == (29.5, -0.5)  # layer 0 on top
    for label in {item.label for item in classes}:
        assert f"{SYMBOLS[label]} {label}" in figure.layout.meta["caption"]


def test_colours_are_anchored_and_safe(figure):
    """-1, 0 and 1 whatever the slopes; blue and orange differ in every kind of colour vision."""
    cells = figure.data[0]
    assert (cells.zmin, cells.zmax) == (-1, 1)
    assert [stop for stop, _ in cells.colorscale] == [0, 0.5, 1]
    low, _, high = ((int(c[1:3], 16), int(c[5:7], 16)) for _, c in cells.colorscale)
    assert low[1] - low[0] > 100  # blue
    assert high[0] - high[1] > 100  # orange
    assert list(cells.colorbar.tickvals) == [-1, 0, 1]


def test_it_opens_on_the_worst_head(figure, classes):
    """The dispersing head with the largest slope: outlined, named, its curves drawn."""
    dispersing = [item for item in classes if item.label == "dispersing"]
    worst = max(dispersing, key=lambda item: item.slope.value)
    name = f"L{worst.layer} H{worst.head}"
    assert figure.layout.annotations[0].text.startswith(f"<b>{name}: dispersing</b>, slope 0.")
    assert str(worst.crossing) in figure.layout.annotations[0].text
    outline = figure.layout.shapes[0]
    assert (outline.x0, outline.x1) == (worst.head - 0.5, worst.head + 0.5)
    assert (outline.y0, outline.y1) == (worst.layer - 0.5, worst.layer + 0.5)
    (menu,) = figure.layout.updatemenus
    assert menu.buttons[menu.active].label == name


@pytest.mark.parametrize(("layer", "head"), [(0, 1), (7, 8), (12, 4), (29, 0)])
def test_the_menu_draws_the_head_it_names(figure, many_heads, classes, layer, head):
    """After its button is pressed every curve has that head's numbers."""
    (menu,) = figure.layout.updatemenus
    (button,) = (one for one in menu.buttons if one.label == f"L{layer} H{head}")
    curves, layout, numbers = button.args
    assert layout["annotations[0].text"].startswith(f"<b>L{layer} H{head}:")
    assert (layout["shapes[0].x0"], layout["shapes[0].y0"]) == (head - 0.5, layer - 0.5)
    drawn = json.loads(figure.to_json())["data"]
    for key, values in curves.items():
        for number, value in zip(numbers, values, strict=True):
            drawn[number][key] = value
    n_key = ladder(many_heads, "entropy", layer, head, "n_key").astype(float)
    spread = ladder(many_heads, "score_spread", layer, head, "max")
    bound = max_weight_bounds(n_key, spread).upper
    wanted = {
        ("measured", "entropy"): ladder(many_heads, "entropy", layer, head),
        ("max weight", "max_weight"): ladder(many_heads, "max_weight", layer, head),
        ("effective support", "effective_support"): ladder(
            many_heads, "effective_support", layer, head
        ),
        ("full dispersion", "entropy"): np.log(n_key),
        ("full dispersion", "max_weight"): 1 / n_key,
        ("full dispersion", "effective_support"): n_key,
        ("bound of its score spread", "entropy"): tight_entropy_bound(n_key, spread),
        ("bound of its score spread", "max_weight"): bound,
        ("bound of its score spread", "effective_support"): 1 / bound,
    }
    found = {(trace["name"], trace.get("meta")): trace for trace in drawn}
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key]["x"], n_key)
        np.testing.assert_allclose(found[key]["y"], values, rtol=1e-3, atol=1e-9, err_msg=str(key))
    band = found["entropy, 95 % interval", "entropy"]
    half = 1.998340543 * ladder(many_heads, "entropy", layer, head, "sem")
    mean = ladder(many_heads, "entropy", layer, head)
    np.testing.assert_allclose(band["y"][:12], mean + half, rtol=1e-3)
    np.testing.assert_allclose(band["y"][12:], (mean - half)[::-1], rtol=1e-3)


def test_the_axes_fit_every_head(figure, many_heads):
    """They do not move from head to head, so no point may lie outside."""
    low, high = figure.layout.yaxis2.range
    entropy = many_heads.query("quantity == 'entropy'")["mean"]
    assert low <= entropy.min() <= entropy.max() <= high
    for axis, quantity in (("yaxis3", "max_weight"), ("yaxis4", "effective_support")):
        low, high = figure.layout[axis].range
        means = many_heads.loc[many_heads["quantity"] == quantity, "mean"]
        assert figure.layout[axis].type == "log"
        assert low <= math.log10(means.min()) <= math.log10(means.max()) <= high
    for axis in ("xaxis2", "xaxis3", "xaxis4"):
        assert figure.layout[axis].type == "log"


def test_it_is_light(figure):
    """270 heads at 12 lengths in well under a megabyte: shared numbers are not repeated."""
    assert len(figure.to_json()) < 800_000
    (menu,) = figure.layout.updatemenus
    curves, _, numbers = menu.buttons[0].args
    assert "x" not in curves
    names = {figure.data[number].name for number in numbers}
    assert "full dispersion" not in names


def test_ladders_that_differ_are_told_apart(many_heads):
    """A head with fewer lengths brings its own x; full dispersion then moves too."""
    few = many_heads[(many_heads["layer"] < 2) & (many_heads["head"] < 2)]
    cut = few[~((few["layer"] == 1) & (few["n_key"] > 512))]
    figure = plot_head_map(cut, classify_heads(cut))
    (menu,) = figure.layout.updatemenus
    curves, _, numbers = menu.buttons[-1].args
    (limit,) = (
        place for place, number in enumerate(numbers)
        if (figure.data[number].name, figure.data[number].meta) == ("full dispersion", "entropy")
    )  # fmt: skip
    assert curves["x"][limit] == [2, 4, 8, 16, 32, 64, 128, 256, 512]


def test_a_head_without_a_slope_is_clear_and_can_be_chosen(many_heads):
    """Its cell has no colour; its symbol, hover text and number come from the other trace."""
    few = many_heads[many_heads["layer"] == 0]
    cut = few[~((few["head"] == 3) & (few["n_key"] > 4))]
    classes = classify_heads(cut)
    figure = plot_head_map(cut, classes)
    cells, bare = figure.data[:2]
    assert cells.z[0][3] is None
    assert (list(bare.x), list(bare.y), list(bare.text)) == ([3], [0], ["?"])
    assert list(bare.customdata) == [cells.customdata[0][3]]
    assert "2 points, at least 3 are needed" in bare.hovertext[0]
    assert bare.textfont.color == INK


def test_relevant_mass_is_drawn_where_it_was_measured(many_heads):
    """In the panel of the weights, with a legend entry of its own."""
    few = many_heads[(many_heads["layer"] == 0) & (many_heads["head"] < 2)]
    rows = few[few["quantity"] == "max_weight"].assign(quantity="relevant_mass")
    frame = table([*few.to_dict("records"), *rows.to_dict("records")])
    figure = plot_head_map(frame, classify_heads(frame))
    (line,) = (trace for trace in figure.data if trace.name == "relevant mass")
    assert line.showlegend
    assert line.yaxis == "y3"
    assert "relevant mass below 0.1" in figure.layout.annotations[0].text
    plain = plot_head_map(few, classify_heads(few))
    (line,) = (trace for trace in plain.data if trace.name == "relevant mass")
    assert not line.showlegend


def test_stacks_are_rows_of_their_own(many_heads):
    """An encoder's layer 0 above a decoder's."""
    decoder = many_heads[many_heads["layer"] < 2]
    encoder = decoder.assign(site=decoder["site"].str.replace("decoder", "encoder"))
    frame = table([*encoder.to_dict("records"), *decoder.to_dict("records")])
    figure = plot_head_map(frame, classify_heads(frame))
    assert list(figure.layout.yaxis.ticktext) == [
        "encoder L0", "encoder L1", "decoder L0", "decoder L1"
    ]  # fmt: skip
    assert np.shape(figure.data[0].z) == (4, 9)


def test_names_from_outside_are_escaped(many_heads):
    """A site may say anything."""
    few = many_heads[many_heads["layer"] == 0]
    odd = few.assign(site="<b>%{x}</b>.0.attn")
    frame = table([*few.to_dict("records"), *odd.to_dict("records")])
    text = plot_head_map(frame, classify_heads(frame)).to_json()
    assert "<b>%{x}" not in json.loads(text)["data"][0]["hovertext"][1][0]
    assert "&lt;b&gt;" in text


def test_bad_input_is_refused(many_heads, classes):
    """Nothing, several models or probes, another table."""
    with pytest.raises(ValueError, match="at least one head"):
        plot_head_map(many_heads, [])
    for name in ("checkpoint", "task"):
        other = replace(classes[0], **{name: "other"})
        with pytest.raises(ValueError, match=f"shows one {name}, got other, "):
            plot_head_map(many_heads, [classes[1], other])
    with pytest.raises(ValueError, match=r"no entropy of layer 40, head 0 at 'decoder\.0\.attn'"):
        plot_head_map(many_heads, [replace(classes[0], layer=40)])
