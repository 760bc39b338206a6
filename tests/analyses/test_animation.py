"""The animated figure: its frames, its controls, its size, and what it refuses."""

import json

import numpy as np
import pytest

from resharpen.analyses.figures import plot_token_paths
from resharpen.analyses.figures.animation import MAX_FRAMES, MAX_TOKENS


def paths(frames: int, tokens: int) -> np.ndarray:
    drawn = np.random.default_rng(0).uniform(-0.7, 0.7, (frames, tokens, 2))
    return drawn.astype(np.float64)


def test_a_frame_a_label_and_the_slider_goes_to_each() -> None:
    given = paths(5, 20)
    labels = ["0", "1", "2", "3", "end"]
    figure = plot_token_paths(given, labels, shares=(0.4, 0.1), what="time", n_tokens=300)
    assert len(figure.frames) == 5
    for frame, points in zip(figure.frames, given, strict=True):
        assert frame.traces == (1,)
        np.testing.assert_allclose(
            np.stack([frame.data[0].x, frame.data[0].y], 1), points, atol=6e-4
        )
    np.testing.assert_allclose(figure.data[1].x, given[0, :, 0], atol=6e-4)
    slider = figure.layout.sliders[0]
    assert [step.label for step in slider.steps] == labels
    assert [step.args[0][0] for step in slider.steps] == [frame.name for frame in figure.frames]
    assert slider.currentvalue.prefix == "time "
    play, pause = figure.layout.updatemenus[0].buttons
    assert play.method == pause.method == "animate" and play.args[0] is None
    assert "50 % of the squared length" in figure.layout.meta["caption"]
    assert "20 of 300 tokens" in figure.layout.meta["caption"]
    assert figure.layout.yaxis.scaleanchor == "x"
    assert list(figure.data[1].marker.color) == list(range(20))


def test_it_is_light_and_thins_what_is_too_much() -> None:
    usual = plot_token_paths(paths(32, 256))
    assert len(usual.to_json()) < 300_000
    figure = plot_token_paths(paths(500, 3000), position=np.arange(3000))
    assert len(figure.frames) == MAX_FRAMES and len(figure.data[1].x) == MAX_TOKENS
    assert len(figure.to_json()) < 1_000_000
    steps = figure.layout.sliders[0].steps
    assert (steps[0].label, steps[-1].label) == ("0", "499")
    assert figure.data[1].marker.color[-1] == 2999
    whole = usual.to_html(include_plotlyjs=False, full_html=False)
    assert len(whole) < 3_000_000 and json.loads(usual.to_json())["frames"]


@pytest.mark.parametrize(
    ("coordinates", "options", "sentence"),
    [
        (np.zeros((3, 4)), {}, r"coordinates must be \[frame, token, 2\], got shape \(3, 4\)"),
        (np.zeros((3, 4, 3)), {}, "coordinates must be"),
        (np.zeros((0, 4, 2)), {}, "coordinates must be"),
        (np.full((2, 2, 2), np.nan), {}, "coordinates must all be finite"),
        (np.zeros((2, 3, 2)), {"labels": ["one"]}, "2 frames of 3 tokens need as many labels"),
        (np.zeros((2, 3, 2)), {"position": [1, 2]}, "need as many labels and positions"),
    ],
)
def test_what_cannot_be_drawn_is_refused(coordinates, options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        plot_token_paths(coordinates, **options)
