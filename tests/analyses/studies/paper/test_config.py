"""What the study refuses, and that every preset's models and languages exist."""

from dataclasses import replace
from typing import Any

import pytest

from resharpen.analyses.studies.paper.config import PRESETS, PaperConfig
from resharpen.analyses.studies.paper.language_claims import language_lengths, language_trials
from resharpen.analyses.studies.paper.length_claims import length_runs
from resharpen.analyses.studies.paper.placement_claims import placement_runs
from resharpen.analyses.studies.paper.width_claims import width_runs
from resharpen.models import TrainingConfig
from resharpen.models.tasks.languages import find_language

QUICK = PRESETS["quick"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": ()}, "seeds must hold at least one"),
        ({"languages": ("first", "first")}, "languages must hold"),
        ({"lengths": (1, 2, 8, 32)}, r"lengths must lie in 1\.\.31"),
        ({"lengths": (1, 8, 31)}, "2 is missing"),
        ({"lengths": (1, 2, 31)}, "8 is missing"),
        ({"lengths": (1, 2, 4, 8)}, "beyond the training length 8"),
        ({"training": TrainingConfig(length=8)}, "must be 'exact'"),
        ({"narrow_vocabulary": 13}, r"must lie in 5\.\.12"),
        ({"language_multiples": (2, 4)}, "must begin with 1"),
        ({"language_multiples": (1,)}, "must begin with 1"),
        ({"ema_decay": 0.5}, "not among the averages"),
        ({"language_variants": ("pre", "ngpt")}, "language_variants"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(QUICK, **changes)


def test_lists_become_tuples() -> None:
    assert PaperConfig(seeds=[1, 2, 3]).seeds == (1, 2, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PRESETS)
def test_every_model_of_a_preset_can_be_built(name: str) -> None:
    config = PRESETS[name]
    labels = [*length_runs(config), *placement_runs(config), *width_runs(config)]
    assert len(labels) == len(set(labels)) == 2 + 6 * len(config.depths) + 6
    trials = language_trials(config)
    assert len(trials) == len(config.languages) * len(config.language_variants)
    for trial in trials.values():
        assert trial.training.length == trial.lengths[0]
        assert trial.model.d_vocab == trial.task.d_vocab


@pytest.mark.parametrize("language", ["dyck-1", "cycle-navigation", "aa-star", "tomita-2"])
def test_languages_are_trained_at_lengths_that_they_have(language: str) -> None:
    config = replace(QUICK, languages=(language,), language_length=15)
    lengths = language_lengths(config, language)
    found = find_language(language)
    assert all(found.has(length) for length in lengths)
    assert all(n <= 15 * m for n, m in zip(lengths, config.language_multiples, strict=True))
    assert not any(found.has(n) for n in range(lengths[0] + 1, 16))


def test_a_narrow_model_has_one_narrow_width() -> None:
    v = QUICK.narrow_vocabulary
    widths = {
        label: (run.model.d_model, run.model.head_width) for label, run in width_runs(QUICK).items()
    }
    assert widths["d_model = 6"] == (6, v)
    assert widths["d_v = 6"] == (2 * v, 6)
    assert min(min(pair) for pair in widths.values()) == v - 3
