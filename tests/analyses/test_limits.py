"""Limits of one head: bounds hold on any model, figures name what is only reported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from resharpen.analyses import StudyResult, measure_limits, plot_limits
from resharpen.analyses.cli import main
from resharpen.interp.tables import check_table, concatenate


@pytest.fixture(scope="module")
def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 90, "n_positions": 128}
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    return GPT2LMHeadModel(GPT2Config(**shape, **tokens, initializer_range=0.4)).eval()


@pytest.fixture(scope="module")
def measured(gpt2: GPT2LMHeadModel) -> StudyResult:
    return measure_limits(gpt2, 1, 0, probe="random", n_sequences=8, name="made")


def test_bounds_hold_and_conjectures_are_compared(measured: StudyResult) -> None:
    check_table(measured.table)
    assert set(measured.table["study"]) == {"limits"} and not measured.violations
    outcome = {item.name: item.outcome for item in measured.findings}
    assert outcome["1/2, slope of a row"] == outcome["1/4, slope of one weight"] == "holds"
    assert outcome["slope that the spread allows"] == outcome["longest value"] == "holds"
    conjectures = {item.name for item in measured.findings if item.kind == "conjecture"}
    assert conjectures == {
        "1/4, slope of a row as relayed",
        "0, distance of many keys",
        "about 80 % separable (70 to 85 % reported)",
    }
    assert all(outcome[name] == "compared" for name in conjectures)


@pytest.mark.parametrize(
    "source", ["set-complement-none", "set-complement-peri", "constructed-post"]
)
def test_bounds_hold_for_shipped_checkpoints(source: str) -> None:
    found = measure_limits(source, 0, 0, n_sequences=16)
    assert not found.violations, [item.sentence for item in found.violations]
    assert found.provenance.resolved["selected"] == 0.06
    slope = found.table[found.table["quantity"] == "jacobian_norm"].sort_values("n_key")
    assert slope["mean"].iloc[-1] < 0.5 * slope["mean"].iloc[0]


def test_equal_weights_have_the_slope_that_is_known() -> None:
    found = measure_limits("constructed-post", 0, 0, n_sequences=4, selected=2)
    slope = found.table[found.table["quantity"] == "jacobian_norm"]
    # The constructed solution attends to all tokens alike: diag(1/n) - 1/n^2 has norm 1/n.
    n_key = slope["n_key"].to_numpy(float)
    np.testing.assert_allclose(slope["mean"], 1 / n_key, rtol=1e-5)
    assert "as n^-1.00" in found.sentences[0] and "2 at 31 keys" in found.sentences[1]
    # Of a fixed number of keys nothing is reported.
    assert not {"selection_distance", "separable_share"} & {
        curve.quantity for curve in found.curves if curve.kind == "conjecture"
    }


def test_the_figure_has_a_panel_each_and_names_conjectures(measured: StudyResult) -> None:
    figure = plot_limits(measured.table, measured.curves)
    assert [axis.type for axis in figure.select_yaxes()] == [None, None, "log"]
    solid = [trace.name for trace in figure.data if trace.mode == "lines+markers"]
    assert solid == ["selection distance", "separable share", "jacobian norm", "jacobian entry"]
    key = {trace.name for trace in figure.data if trace.legend == "legend2"}
    assert "0, distance of many keys (conjecture)" in key
    assert "1/4, slope of a row as relayed (conjecture)" in key
    assert {"1/2, slope of a row", "longest value", "slope that the spread allows"} <= key
    assert figure.layout.meta["title"] == "Limits of selection of made, layer 1, head 0"
    assert "conjecture" in figure.layout.meta["caption"]
    few = plot_limits(measured.table[measured.table["quantity"].str.startswith("jacobian")])
    assert len(list(few.select_yaxes())) == 1
    with pytest.raises(ValueError, match="no measured 'selection_distance' to draw"):
        plot_limits(measured.table.iloc[:0])
    two = measured.table.assign(head=measured.table["head"] + 1)
    both = concatenate([measured.table, two])
    with pytest.raises(ValueError, match="this figure is of one head"):
        plot_limits(both)


def test_a_result_survives_its_folder(measured: StudyResult, tmp_path: Path) -> None:
    loaded = StudyResult.load(measured.save(tmp_path / "out"))
    assert loaded.sentences == measured.sentences and loaded.curves == measured.curves


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_the_command_line_says_limits_and_rate_and_writes_both(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    place = ("set-complement-post", "--layer", 0, "--head", 0, "--n-sequences", 8)
    code, said, _ = run(capsys, "limits", *place, "--out", out, "--selected", 3)
    assert code == 0 and max(map(len, said.splitlines()[:-1])) <= 100
    assert "the slope of a row" in said and "3 at 31 keys" in said and "falls as n^-0." in said
    loaded = StudyResult.load(out)
    assert set(loaded.table["study"]) == {"limits", "sampling-rate"}
    assert loaded.provenance.asked["limits"]["selected"] == 3
    assert loaded.provenance.asked["sampling-rate"]["n_draws"] == 128
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "(conjecture)" in report and "selection distance" in report


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--layer", 9, "--head", 0), "layer must be a number from 0 to 0"),
        (("--layer", 0, "--head", 0, "--selected", 0), "selected must be a whole number of keys"),
        (("--layer", 0, "--head", 0, "--lengths", 99), "at most 31"),
    ],
)
def test_the_command_line_refuses_in_one_sentence(
    arguments: tuple[Any, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, complaint = run(capsys, "limits", "set-complement-post", *arguments)
    assert code == 2 and sentence in complaint and "Traceback" not in complaint
