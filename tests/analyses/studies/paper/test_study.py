"""The study in small, end to end, and what it writes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from resharpen.analyses import StudyResult, study_commands
from resharpen.analyses.command_options import Study
from resharpen.analyses.figures.paper import plot_claims, plot_length_law
from resharpen.analyses.studies.averaging.config import AveragingConfig, set_complement
from resharpen.analyses.studies.paper import study as module
from resharpen.analyses.studies.paper.averaging_plan import AveragingPlan
from resharpen.analyses.studies.paper.claim import claim_frame
from resharpen.analyses.studies.paper.config import PaperConfig
from resharpen.analyses.studies.paper.figures import study_figures
from resharpen.analyses.studies.paper.language_claims import language_frame
from resharpen.analyses.studies.paper.sentences import listed
from resharpen.analyses.studies.paper.study import PaperStudy, run
from resharpen.models import TrainingConfig

SEEDS = (0, 1, 2)
EXACT = TrainingConfig(length=3, n_steps=3, batch_size=4, targets="exact", ema_decays=())
SAMPLED = TrainingConfig(n_steps=4, batch_size=4, schedule="constant", ema_decays=(0.99,))
PLAN = AveragingPlan(
    AveragingConfig(
        settings=tuple(set_complement(v) for v in (8, 9, 10)),
        schedules=("constant",),
        seeds=SEEDS,
        training=SAMPLED,
        n_sequences=4,
    ),
    schedules=("constant",),
    othello_length=4,
    othello_training=SAMPLED,
    dropouts=(0.0, 0.3),
    dropout_placements=("none",),
    dropout_vocabulary=8,
    dropout_training=EXACT,
    dropout_lengths=(3, 7),
    learned=0.9,
)
SMALL = PaperConfig(
    seeds=SEEDS,
    vocabulary=6,
    d_model=8,
    lengths=(1, 2, 3, 5),
    n_sequences=4,
    theorem_lengths=(2,),
    training=EXACT,
    depths=(1,),
    narrow_vocabulary=5,
    narrow_training=EXACT,
    languages=("tomita-7", "dyck-1"),
    language_variants=("pre", "post"),
    language_length=4,
    language_multiples=(1, 2),
    language_model={"d_model": 8, "n_heads": 2, "attn_only": False, "d_mlp": 8},
    language_training=SAMPLED,
    language_sequences=4,
    averaging=PLAN,
    learned=0.9,  # above the error of a model that has learned nothing
    language_learned=99.0,
)
MODELS = 1 + 6 + 6  # minimal, placements, widths
LANGUAGES = 2 * 2
AVERAGING = 3 * 2 + 1 + 2  # claim 4 with sampled and exact targets, Othello, dropout


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[PaperStudy, list[str], Path]:
    """A run from nothing, what it said, and its cache."""
    said: list[str] = []
    cache = tmp_path_factory.mktemp("cache")
    done = run(SMALL, cache=cache, jobs=1, say=said.append, asked={"preset": "tiny"})
    return done, said, cache


def test_every_claim_of_the_paper_gets_a_row(whole: Any) -> None:
    done, said, _ = whole
    assert {row.claim for row in done.claims} == set(range(1, 8))
    keys = [row.key for row in done.claims]
    assert keys == sorted(keys) and len(keys) == len(set(keys))
    assert done.left_out == {}
    assert len(said) == MODELS + LANGUAGES + AVERAGING
    rows = {row.key: row for row in done.claims}
    assert " lie" in rows["3a"].reason and rows["3a"].runs == 3
    # The comparisons with a final norm are not asked where it was not run; two languages are few.
    assert {row.key for row in done.claims if row.claim == 5} == {"5a", "5b", "5g"}
    assert {row.verdict for row in done.claims if row.claim == 5} == {"undecided"}
    assert len(done.effects) == 3 * 2


def test_the_result_holds_all_that_was_measured(whole: Any, tmp_path: Path) -> None:
    done = whole[0]
    result = done.result
    assert set(result.table["study"].dropna()) == {"paper"}
    assert {"tomita-7 / post / ema-0.99", "minimal model trained at 2"} <= set(
        result.table["checkpoint"]
    )
    assert [curve.name for curve in result.curves] == ["2/s law from length 2"]
    assert len(result.findings) == 1
    assert result.provenance.asked == {"preset": "tiny"}
    assert result.provenance.resolved["averaging"]["othello_length"] == 4
    assert " statements of the paper: holds " in result.sentences[0]
    loaded = StudyResult.load(result.save(tmp_path / "result"))
    pd.testing.assert_frame_equal(loaded.table, result.table)
    assert loaded.sentences == result.sentences


def test_what_is_finished_is_not_run_again(whole: Any) -> None:
    done, _, cache = whole
    said: list[str] = []
    again = run(SMALL, cache=cache, jobs=1, say=said.append)
    assert {line.split()[0] for line in said} == {"found"}
    pd.testing.assert_frame_equal(claim_frame(again.claims), claim_frame(done.claims))
    pd.testing.assert_frame_equal(again.result.table, done.result.table)


def test_a_model_that_fails_leaves_the_others_their_claims(
    whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = module.run_set_complement

    def broken(model: Any, label: str, cache: Path) -> Any:
        if label == "post-norm, 1 block":
            raise RuntimeError("no more memory")
        return measure(model, label, cache)

    monkeypatch.setattr(module, "run_set_complement", broken)
    said: list[str] = []
    done = run(SMALL, cache=whole[2], jobs=1, say=said.append)
    assert done.left_out == {"post-norm, 1 block": "no more memory"}
    assert "failed   post-norm, 1 block: no more memory" in said
    rows = {row.key: row for row in done.claims}
    assert rows["3a"].verdict == "undecided"
    assert "post-norm, 1 block (error unknown at length 3)" in rows["3a"].reason
    assert rows["3d"].reason == {row.key: row for row in whole[0].claims}["3d"].reason
    lists = listed(done.claims, done.effects, done.left_out)
    assert lists["What could not be run"] == ["post-norm, 1 block: no more memory"]
    assert "law" in study_figures(SMALL, done)


def test_a_study_without_a_model_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("no more memory")

    monkeypatch.setattr(module, "run_set_complement", broken)
    monkeypatch.setattr(module, "run_trial", broken)
    with pytest.raises(
        ValueError, match=r"not one model could be trained; .* because: no more memory"
    ):
        run(SMALL, cache=tmp_path, jobs=1)


def test_figures_show_every_claim_and_every_language(whole: Any) -> None:
    done = whole[0]
    figures = study_figures(SMALL, done)
    assert list(figures) == ["claims", "law", "placements 1", "languages"]
    drawn = sum(len(trace.x) for trace in figures["claims"].data if trace.name != "asked for")
    assert drawn == len(done.claims)
    ticks = [axis.ticktext for axis in figures["languages"].select_yaxes()]
    assert ticks == [("tomita-7", "dyck-1")] * 3
    assert figures["law"].layout.meta["title"] == "Displacement against 2/s"


def test_a_figure_of_claims_marks_verdicts_and_shades_what_is_asked_for() -> None:
    frame = pd.DataFrame(
        {
            "claim": [3, 3, 7],
            "key": ["3a", "3b", "7a"],
            "statement": ["A <b>", "B", "C"],
            "effect": ["difference"] * 3,
            "unit": ["ratio", "ratio", "logit"],
            "value": [-0.2, 0.3, 1.0],
            "low": [-0.3, 0.1, float("nan")],
            "high": [-0.1, 0.5, float("nan")],
            "asked for": ["below 0", "below 0", "above 0"],
            "asked above": [float("-inf"), float("-inf"), 0.0],
            "asked below": [0.0, 0.0, float("inf")],
            "verdict": ["holds", "does not hold", "undecided"],
        }
    )
    figure = plot_claims(frame)
    assert [note.text for note in figure.layout.annotations] == [
        "<b>claim 3</b>",
        "<b>claim 7, in logits</b>",
    ]
    names = {trace.name: trace for trace in figure.data}
    assert set(names) == {"holds", "does not hold", "undecided"}
    assert list(names["holds"].error_x.array) == pytest.approx([0.1])
    assert list(names["does not hold"].y) == [1]
    assert "A &lt;b&gt;" in names["holds"].customdata[0]
    bands = [(shape.x0, shape.x1) for shape in figure.layout.shapes]
    left, right = figure.layout.xaxis.range
    assert bands[:2] == [(left, 0.0)] * 2
    assert left < -0.3 and right > 0.5
    assert bands[2][0] == 0.0
    with pytest.raises(ValueError, match="at least one"):
        plot_claims(frame.head(0))


def test_there_is_no_law_without_displacements(make_frame: Callable[..., pd.DataFrame]) -> None:
    with pytest.raises(ValueError, match="no measured 'displacement'"):
        plot_length_law(make_frame([]), [])


def test_the_command_writes_claims_beside_the_report(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _, cache = whole
    monkeypatch.setattr(study_commands, "PAPER_PRESETS", {"quick": SMALL})
    said: list[str] = []
    command = Study(study="paper", out=tmp_path / "out", cache=cache, jobs=1)
    assert study_commands.run_study(command, said.append) == 0
    out = tmp_path / "out"
    names = {"result.json", "table.parquet", "report.html", "claims.md", "claims.csv"}
    assert {path.name for path in out.iterdir()} == {*names, "languages.csv"}
    claims = pd.read_csv(out / "claims.csv")
    assert claims["key"].tolist() == claim_frame(done.claims)["key"].tolist()
    assert len(pd.read_csv(out / "languages.csv")) == len(language_frame(done.effects))
    text = (out / "claims.md").read_text(encoding="utf-8")
    assert all(f"| {row.key} | " in text for row in done.claims)
    assert any("| claim | what was run |" in line for line in said)
    asked = json.loads((out / "result.json").read_text(encoding="utf-8"))["provenance"]["asked"]
    assert asked == {"study": "paper", "preset": "quick"}
