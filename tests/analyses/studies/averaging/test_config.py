import dataclasses
import subprocess
import sys

import pytest

from resharpen.analyses.studies.averaging.config import (
    PRESETS,
    AveragingConfig,
    Cell,
    language,
    othello,
    set_complement,
)
from resharpen.models import TrainingConfig
from resharpen.models.tasks import task_from_dict

QUICK = PRESETS["quick"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_run(name: str) -> None:
    config = PRESETS[name]
    assert len(config.seeds) >= 5
    for cell in config.cells():
        setting = config.setting(cell.setting)
        task = task_from_dict(setting.parameters)
        model = setting.architecture(task.d_vocab, task.d_vocab_out)
        recipe = config.recipe(cell)
        assert recipe.length == setting.length
        for length in setting.lengths:
            task.check_length(length)
        if model.positional_embedding_type == "standard":
            assert max(setting.lengths) <= model.n_ctx


def test_one_run_holds_every_average() -> None:
    assert QUICK.averages == ("ema-0.9", "ema-0.99", "ema-0.999", "bema-0.5-0.2", "uniform")


def test_exact_targets_are_trained_on_at_their_schedules_only() -> None:
    config = dataclasses.replace(QUICK, settings=(set_complement(8),))
    assert [cell.recipe for cell in config.cells()] == [
        *("constant, sampled", "cosine, sampled", "linear, sampled", "constant, exact"),
    ]


def test_a_recipe_is_the_study_s_then_the_task_s_then_the_cell_s() -> None:
    config = AveragingConfig(
        settings=(othello(8, learning_rate=1e-3),),
        rate_factors=(1.0, 0.5),
        training=TrainingConfig(n_steps=40, warmup_steps=2, batch_size=64, learning_rate=1e-2),
    )
    recipe = config.recipe(Cell("othello", "linear", 0.5, "exact"))
    assert (recipe.learning_rate, recipe.batch_size, recipe.length) == (5e-4, 32, 8)
    assert (recipe.schedule, recipe.targets) == ("linear", "exact")
    assert config.cells()[-1].recipe == "constant at 0.5, exact"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": ()}, "settings must hold"),
        ({"settings": (set_complement(8), set_complement(8))}, "all different"),
        ({"schedules": ("constant", "step")}, "schedules must be among"),
        ({"schedules": ("linear",)}, "exact_schedules must be among linear"),
        ({"rate_factors": (0.3,)}, "1 among them"),
        ({"noise_steps": (0.0, 1.5)}, "fractions of the run"),
        ({"noise_steps": (0.001,)}, "end of the warm-up"),
        ({"noise_sequences": 1}, "noise_sequences must be at least 2"),
        ({"training": TrainingConfig(ema_decays=())}, "no average"),
    ],
)
def test_what_cannot_be_run_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(QUICK, **change)


def test_reading_the_configuration_does_not_load_torch() -> None:
    code = (
        "import resharpen.analyses.studies.averaging.config, sys; "
        "assert not {'torch', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_languages_have_a_longer_length_that_they_can_reach() -> None:
    setting = language("dyck-1", 6, 10)
    task = task_from_dict(setting.parameters)
    assert setting.lengths == (6, 10) and task.sample is not None
    task.check_length(10)
