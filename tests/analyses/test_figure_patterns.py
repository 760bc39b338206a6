"""Attention patterns: the right weights under slider and menu, small whatever the length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.analyses.figures import plot_patterns
from resharpen.analyses.figures.patterns import DECADES, MAX_KEYS, block_means, quantise


def test_slider_and_menu_choose_length_and_head(patterns):
    """The slider sets what is visible, the menu what is opaque; neither touches the other's."""
    figure = plot_patterns(patterns)
    lengths = sorted(patterns)
    names = [trace.name for trace in figure.data]
    assert names == [f"length {n}, head {h}" for n in lengths for h in (0, 1)]
    (slider,) = figure.layout.sliders
    assert [step.label for step in slider.steps] == ["4", "8", "16", "31"]
    for step, length in zip(slider.steps, lengths, strict=True):
        change = step.args[0]
        assert set(change) == {"visible"}
        shown = [name for name, on in zip(names, change["visible"], strict=True) if on]
        assert shown == [f"length {length}, head {head}" for head in (0, 1)]
    (menu,) = figure.layout.updatemenus
    for head, button in enumerate(menu.buttons):
        change = button.args[0]
        assert set(change) == {"opacity", "hoverinfo"}
        opaque = [n for n, value in zip(names, change["opacity"], strict=True) if value == 1]
        assert opaque == [f"length {length}, head {head}" for length in lengths]
        assert [value == "all" for value in change["hoverinfo"]] == [
            value == 1 for value in change["opacity"]
        ]
    start = [t.name for t in figure.data if t.visible and t.opacity == 1]
    assert start == ["length 4, head 0"]


def test_one_head_needs_no_menu(patterns):
    """Only the slider."""
    figure = plot_patterns({n: weights[:1] for n, weights in patterns.items()})
    assert not figure.layout.updatemenus


def test_weights_are_stored_in_bytes_and_told_exactly_when_small(patterns):
    """uint8 for the colour, the weight itself on hover."""
    trace = plot_patterns(patterns).data[-1]
    assert trace.z.dtype == np.uint8
    np.testing.assert_allclose(trace.customdata, patterns[31][1], rtol=1e-6)
    assert "%{customdata" in trace.hovertemplate
    assert trace.z[0, 1] == 0  # masked
    assert trace.colorscale[0][1] == trace.colorscale[1][1] == "rgba(0,0,0,0)"


def test_long_patterns_stay_small():
    """2048 x 2048 is drawn as 256 x 256: under 100 kB instead of 54 MiB."""
    rng = np.random.default_rng(0)
    weights = rng.random((1, 2048, 2048), dtype=np.float32)
    figure = plot_patterns({2048: weights / weights.sum(axis=-1, keepdims=True)})
    (trace,) = figure.data
    assert trace.z.shape == (MAX_KEYS, MAX_KEYS)
    assert (trace.dx, trace.x0) == (8, 3.5)
    assert trace.customdata is None
    assert len(figure.to_json()) < 100_000
    assert "mean over a block" in figure.layout.meta["caption"]


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12), st.integers(0, 99))
def test_block_means_are_means_of_blocks(queries, keys, limit, seed):
    """Against a loop; sides never exceed the limit; the total mass is kept."""
    weights = np.random.default_rng(seed).random((queries, keys))
    means = block_means(weights, limit)
    block = -(-max(queries, keys) // limit)
    assert max(means.shape) <= limit or block == 1
    total = 0.0
    for i in range(means.shape[0]):
        for j in range(means.shape[1]):
            part = weights[i * block : (i + 1) * block, j * block : (j + 1) * block]
            assert means[i, j] == pytest.approx(part.mean())
            total += means[i, j] * part.size
    assert total == pytest.approx(weights.sum())


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.floats(1e-4, 1.0))
def test_levels_are_within_two_percent(weight):
    """255 levels over four decades."""
    level = int(quantise(np.array([weight]))[0])
    back = 10.0 ** (DECADES * ((level - 1) / 254 - 1))
    assert back == pytest.approx(weight, rel=0.02)


def test_levels_at_the_ends():
    """0 is clear, the smallest weight is not, 1 is the top."""
    assert quantise(np.array([0.0, 1e-30, 1e-4, 1.0])).tolist() == [0, 1, 1, 255]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({}, "no patterns to draw"),
        ({4: np.ones((4, 4))}, r"\[head, query, key\], got \(4, 4\) at 4"),
        ({4: [[1.0]]}, r"\[head, query, key\], got list at 4"),
        ({4: np.full((1, 4, 4), 2.0)}, "between 0 and 1, not so at length 4"),
        ({4: np.full((1, 4, 4), np.nan)}, "between 0 and 1, not so at length 4"),
        ({4: np.ones((1, 4, 4)), 8: np.ones((2, 8, 8))}, r"differs between lengths: \[1, 2\]"),
    ],
)
def test_bad_patterns_are_refused(bad, message):
    """One clear sentence."""
    with pytest.raises(ValueError, match=message):
        plot_patterns(bad)


def test_head_names(patterns):
    """One a head, escaped."""
    figure = plot_patterns(patterns, head_names=["L0 <b>", "L0 H1"])
    assert "L0 &lt;b&gt;" in figure.data[0].hovertemplate
    with pytest.raises(ValueError, match="expected 2 head names, got 1"):
        plot_patterns(patterns, head_names=["one"])
