import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from resharpen.analyses.searching.distributions import Choice, Fixed, Range, SameAs
from resharpen.analyses.searching.space import (
    QUANTITIES,
    Objective,
    Rerun,
    Space,
    parse_space,
    read_space,
)
from resharpen.interp.output_errors import SEQUENCE_ERRORS
from resharpen.models.config import NormPlacement

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "search-space.toml"


def test_every_part_is_read(document: dict[str, Any]) -> None:
    document["objective"] = {"quantity": "all_legal_rate", "length": 2, "weights": "ema-0.9"}
    document["task"]["bos"] = {"choice": [True, False], "weights": [1, 3]}
    document["training"]["weight_decay"] = {"uniform": [0, 1]}
    document["training"]["betas"] = {"choice": [[0.9, 0.99], [0.8, 0.95]]}
    space = parse_space(document)
    assert (space.seed, space.trials, space.lengths, space.n_sequences) == (3, 6, (2, 4), 8)
    assert space.objective == Objective("all_legal_rate", 2, "ema-0.9")
    assert (space.objective.sign, Objective("total_variation", 2).sign) == (-1, 1)
    assert space.task == "set-complement"
    assert space.rerun == Rerun(2, 3)
    assert space.fields == {
        "task.vocabulary": Fixed(6),
        "task.bos": Choice((True, False), (1.0, 3.0)),
        "model.norm_placement": Choice(("pre", "post"), (1.0, 1.0)),
        "model.d_model": Range("int_log_uniform", 4, 16),
        "model.d_mlp": SameAs("model.d_model"),
        "model.attn_only": Fixed(False),
        "training.length": Fixed(3),
        "training.n_steps": Fixed(4),
        "training.batch_size": Fixed(4),
        "training.learning_rate": Range("log_uniform", 1e-3, 1e-1),
        "training.ema_decays": Fixed((0.9,)),
        "training.weight_decay": Range("uniform", 0.0, 1.0),
        "training.betas": Choice(((0.9, 0.99), (0.8, 0.95)), (1.0, 1.0)),
    }
    assert list(space.drawn) == [
        "task.bos",
        "model.norm_placement",
        "model.d_model",
        "training.learning_rate",
        "training.weight_decay",
        "training.betas",
    ]


def test_defaults(document: dict[str, Any]) -> None:
    for key in ("seed", "trials", "n_sequences", "rerun"):
        del document[key]
    space = parse_space(document)
    assert (space.seed, space.trials, space.n_sequences, space.rerun) == (0, 20, 512, Rerun(3, 5))
    assert space.objective == Objective("total_variation", 4, "raw")


def test_what_is_written_back_is_the_same_space(space: Space) -> None:
    def listed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: listed(item) for key, item in value.items()}
        return [listed(item) for item in value] if isinstance(value, (tuple, list)) else value

    assert parse_space(listed(space.to_dict())) == space


def test_another_number_of_trials(space: Space) -> None:
    assert space.with_trials(9).trials == 9
    assert space.with_trials(None) is space
    with pytest.raises(ValueError, match="trials must be a whole number of at least 1; got 0"):
        space.with_trials(0)


def test_the_example_is_a_space() -> None:
    space = read_space(EXAMPLE)
    assert space.trials == 40
    kinds = {one.kind if isinstance(one, Range) else "choice" for one in space.drawn.values()}
    assert kinds == {"choice", "uniform", "log_uniform", "int_log_uniform"}


def test_every_objective_is_measured() -> None:
    assert set(QUANTITIES) == set(SEQUENCE_ERRORS)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("sede", 1, "the space has no 'sede'; it has seed, trials, lengths"),
        ("seed", -1, "seed must be a whole number of at least 0; got -1"),
        ("seed", True, "seed must be a whole number of at least 0; got True"),
        ("trials", 2.5, "trials must be a whole number of at least 1; got 2.5"),
        ("lengths", 8, "lengths must be a list"),
        ("lengths", [], "lengths must be a list"),
        ("lengths", [8, 0], "lengths must be a whole number of at least 1; got 0"),
        ("lengths", [8, 8], "lengths must all be different"),
        ("n_sequences", 1, "n_sequences must be a whole number of at least 2; got 1"),
        ("model", 3, "model must be a table; got 3"),
        ("task.name", "set-compliment", "task.name must be one of set-complement, .*; got 'set-c"),
        ("task.name", {"choice": ["copy", "sort"]}, "task.name must be one of"),
        ("objective.quantity", "accuracy", "objective.quantity must be one of total_variation"),
        ("objective.length", 3, r"objective.length must be one of lengths \(2, 4\); got 3"),
        ("objective.weights", 0.99, "objective.weights names weights"),
        ("objective.goal", "min", "objective has no 'goal'; it has quantity, length, weights"),
        ("rerun.seeds", 1, "rerun.seeds must be a whole number of at least 2; got 1"),
        ("rerun.top", -1, "rerun.top must be a whole number of at least 0"),
        ("model.n_layer", 2, "model has no 'n_layer'; it has n_layers, n_heads"),
        ("model.d_vocab", 2, "model.d_vocab is decided by the task: leave it out"),
        ("training.lr", 0.1, "training has no 'lr'; it has length"),
        ("model.n_layers", 1.5, "model.n_layers must be a whole number; got 1.5"),
        ("model.n_layers", True, "model.n_layers must be a whole number; got True"),
        ("model.eps", "small", "model.eps must be a number; got 'small'"),
        ("model.biases", 1, "model.biases must be true or false; got 1"),
        ("model.d_head", "8", "model.d_head must be a whole number; got '8'"),
        ("model.qk_norm", "yes", "model.qk_norm must be one of none, fixed, learned; got 'yes'"),
        (
            "model.norm_placement",
            {"choice": ["pre", "psot"]},
            f"model.norm_placement must be one of {', '.join(get_args(NormPlacement))}; got 'psot'",
        ),
        ("training.betas", [0.9], "training.betas must be a list of 2 items: a number, a number"),
        ("training.ema_decays", 0.9, "training.ema_decays must be a list, each item a number"),
        ("training.bema", [[1, 2, 3]], "training.bema must be a list, each item a list of 2"),
        (
            "model.d_model",
            {"uniform": [4, 16]},
            "model.d_model must be a whole number; got 4.0: take int_uniform or int_log_uniform",
        ),
        ("model.d_model", {"normal": [0, 1]}, "model.d_model must be a value or a table with one"),
        ("model.d_model", {}, "model.d_model must be a value or a table with one of choice"),
        ("model.d_model", {"choice": [1, 2], "uniform": [1, 2]}, "with one of choice"),
        ("model.d_model", {"int_uniform": [1, 2], "weights": [1, 1]}, "with one of choice"),
        ("model.d_model", {"choice": [4]}, "choice takes a list of at least two levels; got"),
        ("model.d_model", {"choice": [4, 4]}, "the levels of a choice must all be different"),
        ("model.d_model", {"choice": [4, 8], "weights": [1]}, r"one positive number a level \(2\)"),
        ("model.d_model", {"choice": [4, 8], "weights": [1, 0]}, "one positive number a level"),
        ("model.d_model", {"int_uniform": [8]}, r"int_uniform takes two numbers, \[low, high\]"),
        ("model.d_model", {"int_uniform": [8, 8]}, "the low end of int_uniform must lie below"),
        ("model.d_model", {"int_uniform": [8, 4]}, "the low end of int_uniform must lie below"),
        ("model.d_model", {"int_uniform": [1.5, 4]}, "ends of int_uniform must be whole numbers"),
        ("model.eps", {"uniform": [0.0, float("nan")]}, "uniform takes two numbers"),
        ("model.eps", {"uniform": [0.0, float("inf")]}, "uniform takes two numbers"),
        ("model.eps", {"log_uniform": [0.0, 1.0]}, "low end of log_uniform must be positive"),
        ("model.norm_placement", {"uniform": [0, 1]}, "must be one of none, pre"),
        ("model.d_mlp", {"same_as": "d_model"}, r"same_as must name a field .* got 'd_model'"),
        ("model.d_mlp", {"same_as": "model.d_mlp"}, "same_as must name a field"),
        ("model.d_mlp", {"same_as": 4}, "same_as names another field"),
        ("model.d_mlp", {"same_as": "training.learning_rate"}, "d_mlp must be a whole number"),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(
    document: dict[str, Any], place: str, value: Any, message: str
) -> None:
    table, _, name = place.partition(".")
    if name:
        document.setdefault(table, {})[name] = value
    else:
        document[table] = value
    with pytest.raises(ValueError, match=message) as refused:
        parse_space(document)
    assert "\n" not in str(refused.value)


def test_missing_lengths_a_missing_task_and_nothing_to_draw(document: dict[str, Any]) -> None:
    without = {key: value for key, value in document.items() if key != "lengths"}
    with pytest.raises(ValueError, match="lengths is missing"):
        parse_space(without)
    without = {key: value for key, value in document.items() if key != "task"}
    with pytest.raises(ValueError, match=r"task\.name must be one of .*; got None"):
        parse_space(without)
    for table in ("model", "training"):
        document[table] = {}
    with pytest.raises(ValueError, match="nothing is drawn"):
        parse_space(document)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    place = tmp_path / "space.toml"
    with pytest.raises(ValueError, match=rf"could not read the space {place}: No such file"):
        read_space(place)
    place.write_text("seed = = 1")
    with pytest.raises(ValueError, match=rf"{re.escape(str(place))} is not TOML: .*line 1"):
        read_space(place)
    place.write_text("sede = 1")
    with pytest.raises(ValueError, match=rf"{re.escape(str(place))}: the space has no 'sede'"):
        read_space(place)


def test_reading_and_drawing_need_no_torch() -> None:
    code = (
        "import sys\n"
        "from resharpen.analyses.searching.space import read_space\n"
        "from resharpen.analyses.searching.drawing import draw\n"
        f"draw(read_space({str(EXAMPLE)!r}), 0)\n"
        "heavy = {'torch', 'pandas', 'plotly'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
