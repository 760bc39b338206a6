"""The whole study on a small scale: what it leaves, what it says, what it draws."""

import numpy as np
import pytest

from resharpen.analyses import StudyResult, render_report
from resharpen.analyses.studies.clustering import study as module
from resharpen.analyses.studies.clustering.config import PRESETS, ClusteringConfig
from resharpen.analyses.studies.clustering.expectations import find_departure, idealised
from resharpen.analyses.studies.clustering.figures import study_figures
from resharpen.analyses.studies.clustering.profiles import over_depth
from resharpen.analyses.studies.clustering.sentences import listed
from resharpen.interp.tables import check_table
from resharpen.models.training import TrainingConfig

SMALL = ClusteringConfig(
    placements=("pre", "ngpt"),
    untrained_depths=(2,),
    trained_depths=(2,),
    mlp=(False, True),
    d_model=8,
    seeds=(0, 1),
    lengths=(4, 8),
    profile_length=8,
    phase_length=8,
    n_sequences=3,
    training=TrainingConfig(
        length=4, n_steps=3, batch_size=2, learning_rate=1e-3, targets="exact", ema_decays=()
    ),
    ideal_layers=(8, 16),
    ideal_length=6,
    ideal_width=6,
    ideal_time=3.0,
    n_gammas=9,
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def study(cache):
    return module.run(SMALL, cache=cache, jobs=1)


def test_every_case_is_measured_and_none_violates_the_theory(study):
    check_table(study.result.table)
    assert len(study.cases) == len(SMALL.cases()) == 8 and not study.left_out
    labels = {case.label for case in study.cases} | {ideal.label for ideal, _ in study.ideals}
    assert set(study.result.table["checkpoint"]) == labels
    assert len(study.result.findings) == 2 * 2 and not study.result.violations
    assert len(study.result.curves) == len(study.result.findings)
    trained = study.result.table["quantity"] == "total_variation"
    assert trained.sum() == 2 * 2 * 2  # with and without MLP, placements, seeds


def test_a_second_run_finds_everything(study, cache):
    heard = []
    again = module.run(SMALL, cache=cache, jobs=1, say=heard.append)
    assert sum(line.startswith("found") for line in heard) == 8
    a, b = (one.result.table.drop(columns="status") for one in (study, again))
    np.testing.assert_array_equal(a["mean"], b["mean"])


def test_what_is_said_holds_for_the_table(study):
    said = study.result.sentences
    assert said[0].startswith("Where the weights are the theory's assumptions")
    assert any("untrained, 2 layers, attention only" in sentence for sentence in said)
    assert any("The streams of the trained, 2 layers, with MLP" in sentence for sentence in said)
    unlearned = next(sentence for sentence in said if "learned its task" in sentence)
    assert "ngpt, with MLP" in unlearned  # three steps teach nothing
    case = next(c for c in study.cases if c.trained and c.mlp and c.placement == "ngpt")
    found = find_departure(SMALL, case, study.result.table)
    assert found.radius.mean == pytest.approx(1.0, rel=1e-4)  # nGPT's embedding has length one
    assert found.visible.mean == pytest.approx(36 / 64)
    assert 0 < found.mlp.mean < 1 and abs(found.qk.mean) < 0.5
    assert found.step.mean == pytest.approx(1.0, abs=0.1)  # a step of 0.05
    measured = over_depth(study.result.table, case.label, "mean_cosine", 8)
    path = idealised(SMALL, case, study.result.table)
    assert len(path.cosine) == len(measured.x) == 3 and path.cosine[0] == pytest.approx(0, abs=1e-9)


def test_the_report_shows_it(study, tmp_path):
    figures = study_figures(SMALL, study)
    assert {"ideal weights", "collapse", "phases", "cosine, 2 layers, attention only"} <= set(
        figures
    )
    drawn = {trace.name for trace in figures["cosine, 2 layers, attention only"].data}
    assert {"trained", "untrained", "idealised system"} <= drawn
    notes = [note.text for note in figures["cosine, 2 layers, attention only"].layout.annotations]
    assert sum("cos(W, I)" in note for note in notes) == 2
    turning = figures["turning, trained, 2 layers, with MLP"]
    measured = next(trace for trace in turning.data if trace.name == "measured turning")
    case = next(c for c in study.cases if c.trained and c.mlp and c.placement == "pre")
    expected = over_depth(study.result.table, case.label, "attention_turn", 8).mean
    np.testing.assert_allclose(measured.y, expected)
    lists = listed(SMALL, study.result.table, study.cases, study.collapses, {"one": "why"})
    assert lists["What could not be run"] == ["one: why"]
    assert [len(items) for items in lists.values()] == [8, 8, 1]
    page = render_report(study.result, figures, lists)
    folder = study.result.save(tmp_path / "out", report=page)
    assert StudyResult.load(folder).sentences == study.result.sentences


def test_a_case_that_fails_is_left_out_with_its_reason(cache, monkeypatch):
    def fail(config, case, folder):
        if case.placement == "pre":
            raise ValueError("no such thing")
        return measure(config, case, folder)

    measure = module.measure_case
    monkeypatch.setattr(module, "measure_case", fail)
    found = module.run(SMALL, cache=cache, jobs=1)
    assert len(found.left_out) == 4 and set(found.left_out.values()) == {"no such thing"}
    assert not any(case.placement == "pre" for case in found.cases)
    monkeypatch.setattr(module, "measure_case", lambda *given: 1 / 0)
    with pytest.raises(ValueError, match="not one case could be run; the first failed because"):
        module.run(SMALL, cache=cache, jobs=1)


def test_the_presets_are_the_issue():
    for config in PRESETS.values():
        assert len(config.placements) == 11 and max(config.untrained_depths) == 32
        assert min(config.lengths) <= 8 and max(config.lengths) == 512
        assert len({case.label for case in config.cases()}) == len(config.cases())
