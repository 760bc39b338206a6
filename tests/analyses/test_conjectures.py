"""What is not proven is called a conjecture wherever a curve of it can be seen."""

import ast
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from resharpen.analyses import (
    compare,
    figures,
    plot_dispersion,
    plot_displacement,
    plot_error,
    plot_limits,
    plot_rescaling,
    plot_sampling_error,
    plot_score_laws,
)
from resharpen.analyses.figures.paper import plot_length_law
from resharpen.interp import theory
from resharpen.interp.tables import table
from resharpen.interp.theory import Curve

DRAWN: dict[str, tuple[Callable[..., go.Figure], str, str]] = {
    "error": (plot_error, "total_variation", "ratio"),
    "dispersion": (plot_dispersion, "entropy", "nats"),
    "displacement": (plot_displacement, "displacement", "logit"),
    "length_law": (plot_length_law, "displacement", "logit"),
    "rescaling": (plot_rescaling, "rescale_gain", "ratio"),
    "score_laws": (plot_score_laws, "log_accumulation_scale", "1"),
    "limits": (plot_limits, "separable_share", "ratio"),
    "sampling_error": (plot_sampling_error, "largest_sampling_error", "1"),
}
"""Every figure that takes curves, with a quantity that it draws."""

X = np.array([4.0, 8.0, 16.0])


def measured(quantity: str, unit: str) -> pd.DataFrame:
    numbers = {"sem": 0.01, "n_obs": 5, "status": "ok"}
    return table(
        {
            "study": "s", "checkpoint": "c", "task": "t", "length": int(x), "n_key": int(x),
            "layer": 0, "head": 0, "quantity": quantity, "unit": unit, "mean": 1 / x, **numbers,
        }
        for x in X
    )  # fmt: skip


def guess(quantity: str, unit: str, kind: str = "conjecture") -> Curve:
    return Curve(
        name="a law <of> someone",
        quantity=quantity,
        unit=unit,
        x=X,
        values=1 / X,
        kind=kind,
        hypotheses=("tokens are as they please", "and <many>"),
        source="Someone, arXiv 0000.00000 [second-hand] (theory 99)",
        domain=(1.0, math.inf),
        x_name="n_key",
    )


@pytest.mark.parametrize("name", DRAWN)
def test_key_and_hover_of_every_figure_say_conjecture(name: str) -> None:
    plot, quantity, unit = DRAWN[name]
    frame = measured(quantity, unit)
    figure = plot(frame, [guess(quantity, unit)])
    (key,) = (trace for trace in figure.data if trace.legend == "legend2")
    assert key.name == "a law &lt;of&gt; someone (conjecture)"
    (line,) = (
        trace for trace in figure.data
        if trace.hovertemplate and "someone" in trace.hovertemplate
    )  # fmt: skip
    assert line.name == key.name and line.line.dash == "longdash"
    assert "(conjecture, not proven here)" in line.hovertemplate
    for said in ("tokens are as they please", "and &lt;many&gt;", "source: Someone, arXiv"):
        assert said in line.hovertemplate
    for kind in ("exact", "limit", "upper_bound", "fit"):
        plain = plot(frame, [guess(quantity, unit, kind)])
        names = [str(trace.name) for trace in plain.data]
        assert "a law &lt;of&gt; someone" in names and not any("conjecture" in n for n in names)


def test_a_name_that_says_so_is_left_as_it_is_and_a_twin_has_its_own_entry() -> None:
    quantity, unit = "entropy", "nats"
    said = replace(guess(quantity, unit), name="Conjecture of someone")
    proven = guess(quantity, unit, "limit")
    figure = plot_dispersion(measured(quantity, unit), [said, guess(quantity, unit), proven])
    key = [trace.name for trace in figure.data if trace.legend == "legend2"]
    assert key == [
        "Conjecture of someone",
        "a law &lt;of&gt; someone (conjecture)",
        "a law &lt;of&gt; someone",
    ]


def test_findings_call_it_a_conjecture_and_never_a_violation() -> None:
    frame = measured("entropy", "nats")
    finding = compare(frame, replace(guess("entropy", "nats"), values=3 / X))
    assert not finding.violated and finding.row()["kind"] == "conjecture"
    assert "the conjecture 'a law <of> someone'" in finding.sentence


def test_every_figure_that_takes_curves_is_in_the_list_above() -> None:
    """And draws them by `add_theory` alone, where the word is put."""
    folder = Path(figures.__file__).parent
    takes: set[str] = set()
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        plots = {
            node.name.removeprefix("plot_")
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and node.name.startswith("plot_")
            and any(argument.arg == "curves" for argument in node.args.args)
        }
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not plots or "add_theory" in called, path.name
        takes |= plots
    assert takes == set(DRAWN)


def test_what_is_relayed_alone_is_no_theorem() -> None:
    """Curves whose whole source is second-hand claim no more than a conjecture."""
    keys = np.array([2, 8, 32])
    relayed = [
        theory.sphere_accumulation_curve(keys, 4, 2.0),
        theory.sampling_error_curve(keys, 1.0, uniform=True),
        theory.relayed_jacobian_curve(keys),
        *theory.relayed_selection_curves(keys),
    ]
    assert {curve.kind for curve in relayed} == {"conjecture"}
