"""Every cell that the study can be asked for: a model, or the reason why there is none."""

import dataclasses
import itertools
from typing import Any, get_args

import pytest

from resharpen.analyses.studies.remedies.config import (
    EVALUATED_ONLY,
    PRESETS,
    REMEDIES,
    TASK_SETTINGS,
    Cell,
    RemediesConfig,
)
from resharpen.models.config import NormalizerName, NormPlacement
from resharpen.models.placements import PLACEMENTS
from resharpen.models.tasks import TASKS, task_from_dict
from resharpen.models.tasks.task import Task


def task_of(name: str) -> Task:
    return task_from_dict({"name": name, **TASK_SETTINGS[name].parameters})


def test_every_remedy_placement_and_task_of_the_toolkit_is_in_the_map() -> None:
    # The other tasks are those of the paper's experiments, which have their own.
    assert set(TASK_SETTINGS) == set(TASKS) - {"language", "othello", "self-avoiding-walk"}
    normalizers = {fields.get("normalizer", "softmax") for fields in REMEDIES.values()}
    assert normalizers == set(get_args(NormalizerName))
    assert set(PRESETS["full"].placements) == set(PLACEMENTS)
    kinds = [TASKS[name].kind for name in TASK_SETTINGS]
    order = ["aggregation", "needle", "mixed"]
    assert kinds == sorted(kinds, key=order.index)


@pytest.mark.parametrize("name", PRESETS)
def test_every_cell_of_a_preset_comes_once_and_under_its_own_name(name: str) -> None:
    config = PRESETS[name]
    cells = config.cells()
    names = [(cell.task, cell.label) for cell in cells]
    assert len(set(cells)) == len(cells) == len(set(names))
    present = {(cell.remedy, cell.placement, cell.task) for cell in cells}
    for task in config.tasks:
        long = TASK_SETTINGS[task].max_seeds is not None
        placements = config.mixed_placements if long else config.remedy_placements
        assert set(itertools.product(config.remedies, placements, [task])) <= present
    assert all(Cell("softmax", "none", task) in cells for task in config.tasks)
    assert len(config.seeds) >= 5


def test_the_fair_test_varies_one_thing_at_a_time_and_has_its_baselines() -> None:
    config = PRESETS["full"]
    cells = config.cells()
    fair = [cell for cell in cells if cell.n_layers is not None]
    for cell in fair:
        assert cell.remedy == "softmax"
        assert Cell("softmax", "none", cell.task, n_layers=cell.n_layers, mlp=cell.mlp) in fair
        if cell.placement == "post":
            assert dataclasses.replace(cell, placement="pre") in fair
            assert dataclasses.replace(cell, placement="res_post") in fair
    # Norms x types x final norm x layers x MLP; without any norm there are no types.
    assert len(fair) == len(config.fair_tasks) * (3 * 16 + 8 + 4)
    assert {cell.normalization_type for cell in fair if cell.final_norm} == {"RMS", "LN"}


@pytest.mark.parametrize("task", TASK_SETTINGS)
def test_there_is_a_model_for_every_remedy_and_placement_or_a_reason(task: str) -> None:
    size = task_of(task)
    without = {}
    for remedy, placement in itertools.product(REMEDIES, get_args(NormPlacement)):
        cell = Cell(remedy, placement, task)
        reason = cell.why_not()
        if reason is not None:
            without[remedy, placement] = reason
            with pytest.raises(ValueError, match=r"leave|take"):
                cell.model(size.d_vocab, size.d_vocab_out)
            continue
        model = cell.model(size.d_vocab, size.d_vocab_out)
        assert (model.norm_placement, model.d_vocab, model.d_vocab_out) == (
            placement,
            size.d_vocab,
            size.d_vocab_out,
        )
        for field, value in {**TASK_SETTINGS[task].model, **REMEDIES[remedy]}.items():
            assert getattr(model, field) == value
        if size.needs_positions:
            assert model.positional_embedding_type != "none"
    spheres = {(remedy, "ngpt") for remedy in ("qk_norm", "qk_norm_learned", "sigma_reparam")}
    ordered = TASK_SETTINGS[task].model.get("positional_embedding_type") == "alibi"
    linear = {("linear", placement) for placement in PLACEMENTS} if ordered else set()
    assert set(without) == spheres | linear
    assert all("ngpt" in without[pair] for pair in spheres)
    assert all("ALiBi" in without[pair] for pair in linear)


def test_hardmax_is_the_trained_softmax_evaluated_differently() -> None:
    hard, soft = (Cell(name, "post", "first") for name in ("hardmax", "softmax"))
    assert hard.model(4, 2, trained=True) == soft.model(4, 2)
    assert hard.model(4, 2).normalizer == "hardmax"
    for remedy in set(REMEDIES) - set(EVALUATED_ONLY):
        cell = Cell(remedy, "post", "first")
        assert cell.model(4, 2, trained=True) == cell.model(4, 2)


def test_which_remedies_still_are_a_softmax() -> None:
    others = {"entmax", "asentmax", "softmax1", "sigmoid", "differential", "hardmax"}
    named = {name for name in REMEDIES if not Cell(name, "none", "first").is_softmax}
    assert named - {"linear"} == others


def test_labels_say_what_the_fair_test_varies() -> None:
    plain = Cell("ssmax", "post", "first")
    assert plain.label == "ssmax / post"
    varied = Cell("softmax", "post", "first", "LN", True, 2, False)
    assert varied.label == "softmax / post, LN, final norm, 2 layers, attention only"
    assert Cell("softmax", "pre", "first", n_layers=1, mlp=True).label == (
        "softmax / pre, 1 layer, MLP"
    )
    assert Cell("softmax", "post", "first", n_layers=2, mlp=True).model(4, 2).n_layers == 2
    assert not Cell("softmax", "post", "first", mlp=True).model(4, 2).attn_only


def test_seeds_and_recipes_of_a_task() -> None:
    config = RemediesConfig(seeds=(3, 1, 4, 5, 9))
    assert config.seeds_of("first") == (3, 1, 4, 5, 9)
    assert config.seeds_of("copy") == (3, 1, 4)
    recipe = config.recipe("set-complement")
    assert (recipe.length, recipe.n_steps) == (6, 1000)
    assert recipe.batch_size == config.training.batch_size
    assert config.recipe("first") == config.training


@pytest.mark.parametrize("name", TASK_SETTINGS)
def test_ladders_begin_at_the_training_length_and_end_32_times_further(name: str) -> None:
    setting, task = TASK_SETTINGS[name], task_of(name)
    assert setting.lengths[0] == setting.length
    assert list(setting.lengths) == sorted(set(setting.lengths))
    assert max(setting.short, default=0) < setting.length
    if name == "set-complement":  # as far as the vocabulary allows
        assert setting.lengths[-1] < task.d_vocab <= 2 * setting.lengths[-1]
    else:
        assert setting.lengths[-1] >= 32 * setting.length


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"tasks": ("parity",)}, "tasks must be among set-complement, .*; got 'parity': leave it"),
        ({"placement_tasks": ("dyck",)}, "placement_tasks must be among .*; got 'dyck'"),
        ({"fair_tasks": ("first", "dyck")}, "fair_tasks must be among .*; got 'dyck'"),
        ({"remedies": ("softmax", "magic")}, "remedies must be among softmax, .*; got 'magic'"),
        ({"tasks": ()}, r"tasks must hold at least one value, all different; got \(\)"),
        ({"seeds": (0, 0)}, r"seeds must hold at least one value, all different; got \(0, 0\)"),
        ({"placements": ()}, "placements must hold at least one value"),
        ({"remedies": ("log_n",)}, "the map is read against softmax without norms: keep"),
        ({"remedy_placements": ("post",)}, "keep 'softmax' among remedies and 'none' among"),
        ({"n_sequences": 1}, "n_sequences must be at least 2; got 1"),
        ({"threshold": 1.0}, "must satisfy 0 < learned <= threshold < 1; got learned=0.05, thres"),
        ({"threshold": 0.04}, "0 < learned <= threshold < 1; got learned=0.05, threshold=0.04"),
        ({"learned": 0.0}, "learned and threshold must satisfy .*; got learned=0.0, threshold=0.1"),
    ],
)
def test_what_cannot_be_a_study_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RemediesConfig(**values)


def test_a_placement_that_is_none_is_a_reason() -> None:
    reason = Cell("softmax", "upside_down", "first").why_not()  # type: ignore[arg-type]
    assert reason is not None
    assert "norm_placement must be one of" in reason
