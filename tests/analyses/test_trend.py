import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.audit_ledger import AuditRecord, Ledger
from resharpen.analyses.figures.trend import plot_trend
from resharpen.analyses.findings import Verdict
from resharpen.analyses.head_classes import classify_heads
from resharpen.analyses.head_verdicts import judge_heads
from resharpen.analyses.provenance import provenance
from resharpen.analyses.result import StudyResult
from resharpen.analyses.storage import ResultError
from resharpen.analyses.trend import (
    TREND_COLUMNS,
    collect_trend,
    summarise_audit,
    write_trend,
)
from resharpen.interp.tables import concatenate, table

N_KEY = (2, 4, 8, 16, 32, 64)
SLOPES = {10: ((0.5, 0.1), (0.3, -0.2)), 100: ((0.6, 0.5), (0.5, 0.4)), 1000: ((0.9, 0.8), (1, 1))}


def rows_of(name, slopes, loss):
    """Entropy `1 + slope log n` of every head, and a loss that falls with length."""
    base = {"study": "audit", "checkpoint": name, "task": "text", "n_obs": 4}
    for n_key in N_KEY:
        place = {**base, "length": n_key, "n_key": n_key}
        for layer, heads in enumerate(slopes):
            for head, slope in enumerate(heads):
                value = 1 + slope * math.log(n_key)
                at = {"layer": layer, "head": head, "site": f"decoder.{layer}.attn"}
                yield {**place, **at, "quantity": "entropy", "unit": "nats", "mean": value}
        yield {**place, "quantity": "loss", "unit": "nats", "mean": loss + 1 / n_key}


def audited(name, step):
    """An audit whose every number is known, with a remedy tried beside it."""
    own = table(rows_of(name, SLOPES[step], loss=5 - math.log10(step)))
    tried = table(rows_of(f"{name} + remedy", ((0, 0), (0, 0)), loss=99))
    return StudyResult(
        table=concatenate([own, tried]),
        curves=(),
        findings=(),
        verdicts=tuple(judge_heads(classify_heads(own))),
        provenance=provenance({}, {}, checkpoints={name: "ab" * 32}),
        sentences=(f"{name} was audited.",),
    )


def put(out, name, step, status="audited"):
    record = AuditRecord(
        name, f"/run/{name}", step, status, "WARN", "said so", "", {"f": [1, 2]}, {}
    )
    Ledger(out).put(record)
    return record


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """OUT with three checkpoints, put in another order than that of their steps."""
    for step in (1000, 10, 100):
        audited(f"step-{step}", step).save(tmp_path / "out" / f"step-{step}")
        put(tmp_path / "out", f"step-{step}", step)
    put(tmp_path / "out", "step-500", 500, status="failed")
    return tmp_path / "out"


def values(frame: pd.DataFrame, **wanted: str) -> list[float]:
    for column, value in wanted.items():
        frame = frame[frame[column] == value]
    return frame["value"].tolist()


def test_the_trend_holds_what_was_put_in(out: Path) -> None:
    trend = collect_trend(out)
    frame = trend.frame
    assert tuple(frame.columns) == TREND_COLUMNS
    assert [record.step for record in trend.records] == [10, 100, 1000]
    assert [record.name for record in trend.missing] == ["step-500"]
    for layer in (0, 1):
        expected = [np.mean(SLOPES[step][layer]) for step in (10, 100, 1000)]
        found = values(frame, quantity="dispersion_slope", place=f"layer {layer}")
        assert found == pytest.approx(expected, abs=1e-9)
    slopes = frame[(frame["quantity"] == "dispersion_slope") & (frame["place"] == "model")]
    assert slopes["value"].tolist() == pytest.approx(
        [np.mean(SLOPES[step]) for step in (10, 100, 1000)]
    )
    assert slopes["low"].tolist() == pytest.approx([-0.2, 0.4, 0.8])
    assert slopes["high"].tolist() == pytest.approx([0.5, 0.6, 1.0])
    assert slopes["count"].tolist() == [4, 4, 4]
    assert slopes["step"].tolist() == [10, 100, 1000]
    assert slopes["order"].tolist() == [0, 1, 2]
    assert values(frame, quantity="heads", place="model", label="dispersing") == [2, 4, 4]
    assert values(frame, quantity="heads", place="layer 1", label="sharpening") == [1]
    assert values(frame, quantity="loss") == pytest.approx([4 + 1 / 64, 3 + 1 / 64, 2 + 1 / 64])
    assert set(frame.loc[frame["quantity"] == "loss", "length"]) == {64}
    verdicts = frame[frame["quantity"] == "verdict"]
    assert verdicts["label"].tolist() == ["WARN", "WARN", "WARN"]
    assert verdicts["value"].tolist() == [0.5, 1.0, 1.0]


def test_an_audit_without_heads_or_error_has_a_verdict_only() -> None:
    empty = audited("step-10", 10)
    verdict = Verdict("m", "model", "?", "UNKNOWN", math.nan, 0.1, math.nan, math.nan, "no data")
    rows = summarise_audit(replace(empty, table=table([]), verdicts=(verdict,)))
    assert [(row["quantity"], row["label"]) for row in rows] == [("verdict", "UNKNOWN")]
    assert math.isnan(rows[0]["value"])
    assert rows[0]["length"] is None


def test_what_was_read_is_read_once_until_it_changes(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, load = [], StudyResult.load
    monkeypatch.setattr(
        StudyResult, "load", lambda folder: read.append(Path(folder).name) or load(folder)
    )
    cache = {}
    first = collect_trend(out, cache).frame
    assert collect_trend(out, cache).frame.equals(first)
    assert sorted(read) == ["step-10", "step-100", "step-1000"]
    audited("step-10", 1000).save(out / "step-10")
    assert not collect_trend(out, cache).frame.equals(first)
    assert read[3:] == ["step-10"]


def test_the_figure_draws_the_numbers_of_the_trend(out: Path) -> None:
    frame = collect_trend(out).frame
    figure = plot_trend(frame)
    lines = {trace.name: trace for trace in figure.data if trace.legendgroup == "dispersion slope"}
    assert list(lines) == ["layer 0", "layer 1", "all layers"]
    for name, place in (("layer 0", "layer 0"), ("all layers", "model")):
        assert list(lines[name].x) == [10, 100, 1000]
        assert list(lines[name].y) == values(frame, quantity="dispersion_slope", place=place)
    heads = {trace.name: list(trace.y) for trace in figure.data if trace.legendgroup == "heads"}
    assert heads["dispersing"] == [2, 4, 4]
    assert heads["sharpening"] == [1, 0, 0]
    assert [sum(counts) for counts in zip(*heads.values(), strict=True)] == [4, 4, 4]
    (loss,) = (trace for trace in figure.data if trace.legendgroup == "loss")
    assert list(loss.y) == values(frame, quantity="loss")
    assert figure.layout.xaxis3.title.text == "step"
    assert figure.layout.yaxis3.title.text == "loss (nats)"
    assert "loss at the longest length" in figure.layout.meta["caption"]


def test_without_steps_the_order_is_drawn_and_the_names_stand_at_the_ticks(out: Path) -> None:
    frame = collect_trend(out).frame
    frame = frame.assign(step=pd.array([None] * len(frame), dtype="Int64"))
    figure = plot_trend(frame)
    (loss,) = (trace for trace in figure.data if trace.legendgroup == "loss")
    assert list(loss.x) == sorted(set(frame["order"].tolist()))
    assert list(figure.layout.xaxis3.ticktext) == frame["checkpoint"].drop_duplicates().tolist()
    twice = frame.assign(step=pd.array([7] * len(frame), dtype="Int64"))
    assert plot_trend(twice).layout.xaxis3.title.text == "checkpoint"


def test_many_layers_stay_readable_and_a_single_one_is_drawn_once() -> None:
    def trend(layers):
        rows = [
            {
                **dict(zip(TREND_COLUMNS, [None] * len(TREND_COLUMNS), strict=True)),
                **{"checkpoint": "a", "order": 0, "step": 1, "place": place, "label": ""},
                **{"quantity": "dispersion_slope", "unit": "nats", "value": 0.5, "count": 2},
            }
            for place in ("model", *(f"layer {layer}" for layer in range(layers)))
        ]
        return pd.DataFrame(rows)

    many = plot_trend(trend(30))
    assert len(many.data) == 31
    assert sum(bool(trace.showlegend) for trace in many.data) == 13
    assert [trace.name for trace in plot_trend(trend(1)).data] == ["layer 0"]


def test_nothing_to_draw_is_one_sentence(out: Path) -> None:
    frame = collect_trend(out).frame
    with pytest.raises(ValueError, match="no slopes, heads or error to draw; it has verdict"):
        plot_trend(frame[frame["quantity"] == "verdict"])
    with pytest.raises(ValueError, match="no 'accuracy' to draw; it has dispersion_slope"):
        plot_trend(frame, error="accuracy")
    with pytest.raises(ValueError, match="it has nothing"):
        plot_trend(frame.iloc[:0])


def test_the_page_stands_alone_and_says_what_changed(out: Path, tmp_path: Path) -> None:
    assert write_trend(tmp_path / "empty") is None
    page = write_trend(out)
    assert page == out / "trend.html"
    text = page.read_text()
    assert "3 checkpoints, step-10 (step 10) to step-1000 (step 1000)" in text
    assert "is 0.175 to 0.925 nats per unit of log n" in text
    assert "2 of 4 to 4 of 4 heads disperse" in text
    assert "the loss at the longest length is 4.02 to 2.02" in text
    assert "step-500 (step 500) has no result (failed): said so" in text
    assert text.count('class="figure-data"') == 1
    assert not [line for line in text.splitlines() if 'src="http' in line or "<link" in line]
    for name in ("step-10", "step-100", "step-1000"):
        assert f">{name}</td>" in text
    assert not list(out.glob(".*"))


def test_a_damaged_result_is_one_sentence(out: Path) -> None:
    (out / "step-100" / "table.parquet").write_bytes(b"")
    with pytest.raises(ResultError, match=r"table\.parquet .* is not the file that was saved"):
        collect_trend(out)
