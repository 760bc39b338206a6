from pathlib import Path

import pytest

from resharpen.analyses import StudyResult, render_report, render_text
from resharpen.analyses.studies.set_complement.config import PRESETS, SetComplementConfig
from resharpen.analyses.studies.set_complement.figures import study_figures
from resharpen.analyses.studies.set_complement.study import SetComplementStudy, run
from resharpen.models import TrainingConfig

SMALL = SetComplementConfig(
    vocabulary=12,
    placements=("none", "post", "res_post"),
    d_model=24,
    seeds=(0, 1),
    lengths=(1, 2, 3, 4, 6, 8, 11),
    n_sequences=64,
    training=TrainingConfig(length=4, n_steps=400, batch_size=32, targets="exact", ema_decays=()),
    pattern_lengths=(4, 11),
)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> SetComplementStudy:
    cache = tmp_path_factory.mktemp("cache")
    first = run(SMALL, cache=cache, jobs=1, say=said.append)
    again = run(SMALL, cache=cache, jobs=1, say=said.append)
    assert first.result.table.equals(again.result.table)
    return first


def test_training_runs_are_made_once(study: SetComplementStudy, said: list[str]) -> None:
    assert [line for line in said if line.startswith(("trained", "found"))] == [
        *("trained none", "trained post", "trained res_post"),
        *("found none", "found post", "found res_post"),
    ]


def test_attention_disperses_and_norms_resharpen(study: SetComplementStudy) -> None:
    table = study.result.table
    longest = table[(table["length"] == 11) & table["seed"].notna()]

    def mean(placement: str, quantity: str) -> float:
        rows = longest[(longest["checkpoint"] == placement) & (longest["quantity"] == quantity)]
        assert len(rows) == 2
        return float(rows["mean"].mean())

    for placement in SMALL.placements:
        assert mean(placement, "normalised_entropy") > 0.95
        assert mean(placement, "frozen_displacement") < mean(placement, "displacement") + 1e-6
    assert mean("none", "displacement_rescale") == 1
    assert mean("res_post", "displacement_rescale") > 3
    assert mean("res_post", "total_variation") < 0.5 * mean("none", "total_variation")


def test_trained_models_obey_the_two_body_identity_and_constructed_ones_the_closed_forms(
    study: SetComplementStudy,
) -> None:
    findings = study.result.findings
    identity = [f for f in findings if f.quantity == "two_body_error"]
    assert len(identity) == 6
    assert all(f.status == "ok" and f.max_error < 1e-4 for f in identity)
    literal = [f for f in findings if f.quantity == "two_body_logit_error"]
    assert {f.checkpoint for f in literal} == {"none", "none (constructed)"}
    exact = [f for f in findings if f.kind == "exact"]
    assert len(exact) == 6 + 8 + 8
    assert all(min(f.max_error, f.max_ratio_error) < 1e-5 for f in exact)
    assert not study.result.violations


def test_predictions_from_short_lengths_are_compared(study: SetComplementStudy) -> None:
    predicted = [
        f for f in study.result.findings if f.kind == "fit" and f.quantity == "frozen_displacement"
    ]
    assert {f.checkpoint for f in predicted} == set(SMALL.placements)
    for finding in predicted:
        assert finding.exponent.value == pytest.approx(-1, abs=0.1)
        assert finding.predicted_exponent.value == pytest.approx(-1)


def test_the_result_is_written_whole_and_read_back(
    study: SetComplementStudy, tmp_path: Path
) -> None:
    figures = study_figures(SMALL, study)
    report = render_report(study.result, figures)
    folder = study.result.save(tmp_path / "out", report=report)
    assert {path.name for path in folder.iterdir()} == {
        "result.json",
        "table.parquet",
        "report.html",
    }
    loaded = StudyResult.load(folder)
    assert loaded.table.equals(study.result.table)
    assert loaded.sentences == study.result.sentences
    text = " ".join(render_text(loaded).split())
    assert all(sentence in text for sentence in loaded.sentences)
    assert set(study.patterns["post"]) == {4, 11}


def test_presets_have_at_least_five_seeds() -> None:
    for preset in PRESETS.values():
        assert len(preset.seeds) >= 5
        assert preset.training.length < max(preset.lengths)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lengths": (1, 32)}, r"lengths must lie in 1\.\.31"),
        ({"seeds": ()}, "seeds must hold at least one value"),
        ({"placements": ("pre", "pre")}, "all different"),
        ({"n_sequences": 1}, "n_sequences must be at least 2"),
    ],
)
def test_bad_configurations_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SetComplementConfig(**values)
