"""The study on the smallest models that learn anything, run once."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from resharpen.analyses import StudyResult, render_report
from resharpen.analyses.studies.averaging.config import (
    AveragingConfig,
    Cell,
    TaskSetting,
    language,
    set_complement,
)
from resharpen.analyses.studies.averaging.figures import noise_frame, study_figures
from resharpen.analyses.studies.averaging.noise import (
    LABELS,
    progress_label,
    progress_of,
    task_facts,
)
from resharpen.analyses.studies.averaging.sentences import listed
from resharpen.analyses.studies.averaging.study import AveragingStudy, run, trial_of
from resharpen.analyses.trials import Trial
from resharpen.interp.gradient_noise import decompose_gradient
from resharpen.models import TrainingConfig, Transformer, train
from resharpen.models.tasks import LanguageTask, seeded_generator, task_from_dict

FEW = {"n_steps": 20, "burn_in": 10}


def complement(vocabulary: int, lengths: tuple[int, ...] = (3, 5)) -> TaskSetting:
    full = set_complement(vocabulary)
    return replace(full, model={"d_model": 16}, lengths=lengths)


SMALL = AveragingConfig(
    settings=(*map(complement, (6, 8, 10)), language("dyck-1", 4, 6, **FEW)),
    schedules=("constant", "linear"),
    seeds=(0, 1, 2),
    training=TrainingConfig(
        n_steps=80,
        batch_size=32,
        learning_rate=1e-2,
        warmup_steps=4,
        burn_in=40,
        ema_decays=(0.9, 0.99),
        uniform_average=True,
    ),
    n_sequences=32,
    noise_steps=(0.0, 0.5, 1.0),
    noise_sequences=48,
)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def study(cache: Path, said: list[str]) -> AveragingStudy:
    return run(SMALL, cache=cache, jobs=1, say=said.append)


def test_what_is_finished_is_not_run_again(study, cache, said) -> None:
    before = len(said)
    again = run(SMALL, cache=cache, jobs=1, say=said.append)
    assert study.result.table.equals(again.result.table)
    assert all(line.startswith("found") for line in said[before + 1 :])
    assert not study.left_out


def test_averages_come_from_one_run_and_help_at_a_constant_rate(study) -> None:
    helped = [
        item
        for item in study.gains
        if item.cell.schedule == "constant"
        and item.cell.targets == "sampled"
        and item.family == "set complement"
        and item.average == "uniform"
        and not item.longer
    ]
    assert len(helped) == 6
    assert np.mean([item.gain.mean for item in helped]) > 0.1
    assert any(item.outcome == "helps" for item in helped)


def test_the_table_tells_recipes_and_weights_apart(study) -> None:
    table = study.result.table
    assert set(table["study"]) == {"averaging"}
    errors = table[table["quantity"] == "mean_total_variation"]
    assert "constant, sampled, ema-0.99" in set(errors["checkpoint"])
    assert len(errors) == len(SMALL.cells()) * 4 * 2 * 3


def test_label_noise_at_the_logits_is_the_closed_form(study) -> None:
    assert len(study.result.findings) == 3
    assert not study.result.violations
    assert all(finding.max_error < 1e-5 for finding in study.result.findings)


def test_facts_count_legal_tokens() -> None:
    facts = task_facts(SMALL.settings[0])
    assert facts.legal == pytest.approx(3 / (1 / 5 + 1 / 4 + 1 / 3))
    # Knowing nothing, all six tokens look alike: off by the mass on those that were seen.
    assert facts.blind == pytest.approx((1 / 6 + 2 / 6 + 3 / 6) / 3, rel=0.02)
    # After every prefix of a Dyck word two symbols or the end of the string are legal.
    assert task_facts(SMALL.settings[3]).legal == pytest.approx(2)


def test_noise_is_measured_at_the_weights_of_the_run_itself(study, cache) -> None:
    """A run cut short at half its steps is the first half of the run: same loss, same weights."""
    trial: Trial = trial_of(SMALL, Cell(SMALL.settings[0].name, "constant", 1.0, "sampled"))
    seen: dict[int, torch.Tensor] = {}
    train(
        trial.model,
        trial.task,
        trial.training,
        trial.seeds,
        on_step=lambda step, loss: seen.setdefault(step, loss),
    )
    short: dict[int, torch.Tensor] = {}
    train(
        trial.model,
        trial.task,
        replace(trial.training, n_steps=40, ema_decays=(), uniform_average=False, burn_in=None),
        trial.seeds,
        on_step=lambda step, loss: short.setdefault(step, loss),
    )
    assert torch.equal(seen[40], short[40])
    frame = noise_frame(study.result.table, study.facts)
    assert set(frame["step"]) == {LABELS, *map(progress_label, SMALL.noise_steps)}
    assert set(frame["n_seeds"]) <= {1, 2, 3}


def test_before_training_the_noise_is_that_of_the_initial_weights(study) -> None:
    setting = SMALL.settings[1]
    task = task_from_dict(setting.parameters)
    model = Transformer(setting.architecture(task.d_vocab, task.d_vocab_out), seed=2)
    model.blocks[0].attn.fused = False
    batch = task.sample(seeded_generator(2, 1_000_003), 48, setting.length)
    expected = decompose_gradient(model, batch.tokens, batch.targets, batch.next_tokens)
    table = study.result.table
    row = table[
        (table["checkpoint"] == "0 % of the run")
        & (table["task"] == setting.name)
        & (table["seed"] == 2)
        & (table["quantity"] == "label_noise")
    ]
    assert row["mean"].tolist() == pytest.approx([expected.label])


def test_sentences_say_what_holds_and_what_was_not_learned(study) -> None:
    text = "\n".join(study.result.sentences)
    assert text.startswith("Constant rate, sampled targets: ema-0.99 ")
    assert "closed form 1 - 1/L holds on 3 of 3 tasks" in text
    learned = {item.cell.setting for item in study.gains if item.learned}
    for setting in SMALL.settings:
        assert (setting.name in text.partition("Not learned")[2]) == (setting.name not in learned)
    share = re.search(r"is (\d+) % \[(\d+), (\d+)\]", text)
    assert share and int(share[2]) <= int(share[1]) <= int(share[3]) <= 101


def test_the_report_shows_every_figure_and_every_gain(study, tmp_path) -> None:
    figures = study_figures(SMALL, study)
    assert {"gains at the training length", "gains at longer inputs", "errors"} <= set(figures)
    assert "noise, 100 % of the run" in figures
    gains = figures["gains at the training length"]
    means = [np.asarray(trace.y, dtype=float) for trace in gains.data if trace.name == "uniform"]
    expected = [
        np.exp(item.gain.mean)
        for item in study.gains
        if item.learned
        and item.average == "uniform"
        and item.quantity == "mean_total_variation"
        and not item.longer
    ]
    assert sorted(np.concatenate(means)) == pytest.approx(sorted(expected))
    lists = listed(study.gains, study.scalings, {"a run": "it failed"})
    assert lists["What could not be run"] == ["a run: it failed"]
    report = render_report(study.result, figures, lists)
    study.result.save(tmp_path / "result", report=report)
    assert StudyResult.load(tmp_path / "result").sentences == study.result.sentences


def test_a_study_of_which_nothing_can_be_run_says_why(tmp_path) -> None:
    config = AveragingConfig(
        settings=(complement(6, (3, 6)),),
        schedules=("constant",),
        seeds=(0,),
        training=TrainingConfig(n_steps=2, batch_size=2),
        noise_steps=(0.0,),
    )
    with pytest.raises(ValueError, match="not one training run"):
        run(config, cache=tmp_path, jobs=1)


def test_progress_has_a_name_and_the_name_a_progress() -> None:
    assert progress_label(0.05) == "5 % of the run"
    assert progress_of("5 % of the run") == 0.05
    assert progress_of(LABELS) == -1


def test_the_language_is_the_one_that_was_asked_for() -> None:
    assert trial_of(SMALL, Cell("dyck-1", "linear", 1.0, "sampled")).task == LanguageTask("dyck-1")
