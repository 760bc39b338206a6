"""Figures as data: what is drawn is what the frame says."""

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.figures import figure_meta
from resharpen.analyses.figures.averaging import (
    plot_averaging_errors,
    plot_averaging_gains,
    plot_label_noise,
)


@pytest.fixture
def gains() -> pd.DataFrame:
    rows = [
        {
            "task": f"set complement, {legal} tokens" if family else "dyck",
            "family": "set complement" if family else "dyck",
            "legal": float(legal),
            "schedule": schedule,
            "targets": "sampled",
            "average": average,
            "gain": gain,
            "gain_low": gain - 0.1,
            "gain_high": gain + 0.1,
            "raw": 0.2,
            "raw_low": -0.1,
            "raw_high": 0.3,
            "error": 0.2 * np.exp(-gain),
            "error_low": np.nan,
            "error_high": np.nan,
            "n_seeds": 3,
        }
        for schedule in ("constant", "linear")
        for average, gain in (("ema-0.9", 0.5), ("uniform", -0.7))
        for legal, family in ((8, True), (16, True), (2, False))
    ]
    return pd.DataFrame(rows)


def traces(figure, name: str) -> list:
    return [trace for trace in figure.data if trace.name == name]


def test_a_gain_is_drawn_as_how_many_times_smaller_the_error_is(gains) -> None:
    figure = plot_averaging_gains(gains)
    drawn = traces(figure, "uniform")
    # Two panels, and in each the family is joined and the other task stands alone.
    assert sorted(len(trace.x) for trace in drawn) == [1, 1, 2, 2]
    assert all(np.allclose(trace.y, np.exp(-0.7)) for trace in drawn)
    top = drawn[0].y + drawn[0].error_y.array
    assert top == pytest.approx(np.exp(-0.6))
    assert [note.text for note in figure.layout.annotations] == [
        *("<b>constant, sampled</b>", "<b>linear, sampled</b>"),
    ]
    assert sum(trace.showlegend for trace in drawn) == 1
    assert "above 1 averaging helps" in figure_meta(figure)["caption"]


def test_errors_stand_beside_the_raw_error(gains) -> None:
    figure = plot_averaging_errors(gains)
    trace = traces(figure, "constant, sampled")[0]
    assert list(trace.x) == ["raw", "ema-0.9", "uniform"]
    assert trace.y == pytest.approx([0.2, 0.2 * np.exp(-0.5), 0.2 * np.exp(0.7)])
    # A bar that reaches below zero ends above it; one that is not known is not drawn.
    assert 0 < trace.y[0] - trace.error_y.arrayminus[0] < 0.01
    assert trace.error_y.array[1] == 0


@pytest.fixture
def noise() -> pd.DataFrame:
    rows = [
        {
            "task": f"{legal} tokens",
            "legal": float(legal),
            "step": step,
            "quantity": quantity,
            "mean": value,
            "low": value / 2,
            "high": 2 * value,
            "n_seeds": 3,
        }
        for legal in (2, 8)
        for step, quantity, value in (
            ("labels", "logit_label_noise", 1 - 1 / legal),
            ("early", "label_noise", 3.0),
            ("early", "input_noise", 2.0),
            ("late", "label_noise", 1.0),
        )
    ]
    return pd.DataFrame(rows)


def test_noise_is_drawn_at_one_step_with_theory_at_the_logits(noise) -> None:
    figure = plot_label_noise(noise, step="early")
    assert list(traces(figure, "labels")[0].y) == [3.0, 3.0]
    assert list(traces(figure, "labels, at the logits")[0].y) == [0.5, 1 - 1 / 8]
    (theory,) = traces(figure, "1 - 1/L (exact)")
    assert theory.y == pytest.approx(1 - 1 / theory.x)
    assert theory.line.dash == "dash"


def test_what_cannot_be_drawn_is_refused(gains, noise) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        plot_averaging_gains(gains.iloc[:0])
    with pytest.raises(ValueError, match="at least one row"):
        plot_averaging_errors(gains.iloc[:0])
    with pytest.raises(ValueError, match="the frame has early, labels, late"):
        plot_label_noise(noise, step="never")
