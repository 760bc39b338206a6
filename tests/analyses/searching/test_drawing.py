import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from resharpen.analyses.searching.distributions import RANGES, Choice, Range, parse_field
from resharpen.analyses.searching.drawing import draw, fresh_seeds
from resharpen.analyses.searching.space import Space, parse_space

LAST = math.nextafter(1.0, 0.0)
GRID = (np.arange(100_000) + 0.5) / 100_000


def test_a_choice_is_drawn_by_its_weights() -> None:
    choice = Choice(("a", "b", "c"), (1.0, 2.0, 5.0))
    drawn = [choice.at(u) for u in GRID.tolist()]
    shares = [drawn.count(level) / len(drawn) for level in choice.levels]
    assert shares == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=1e-4)
    assert (choice.at(0.0), choice.at(LAST)) == ("a", "c")


@pytest.mark.parametrize(
    ("kind", "low", "high", "median"),
    [("uniform", -1.0, 3.0, 1.0), ("log_uniform", 1e-4, 1.0, 1e-2)],
)
def test_continuous_ranges(kind: str, low: float, high: float, median: float) -> None:
    own = Range(kind, low, high)
    assert own.at(0.0) == low
    assert own.at(0.5) == pytest.approx(median)
    assert low <= own.at(LAST) <= high
    assert own.at(LAST) == pytest.approx(high)


@pytest.mark.parametrize("low", [-3, 0, 2])
def test_whole_numbers_are_alike_and_both_ends_come(low: int) -> None:
    own = Range("int_uniform", low, low + 4)
    values, counts = np.unique([own.at(u) for u in GRID.tolist()], return_counts=True)
    assert values.tolist() == list(range(low, low + 5))
    assert counts.tolist() == [20_000] * 5
    assert all(type(own.at(u)) is int for u in (0.0, 0.5, LAST))


def test_whole_numbers_on_a_logarithmic_axis() -> None:
    own = Range("int_log_uniform", 2, 9)
    values, counts = np.unique([own.at(u) for u in GRID.tolist()], return_counts=True)
    assert values.tolist() == list(range(2, 10))
    expected = [math.log(1 + 1 / k) / math.log(10 / 2) for k in values.tolist()]
    assert counts / len(GRID) == pytest.approx(expected, abs=1e-4)
    assert own.at(LAST) == 9


def test_every_range_can_be_written() -> None:
    for kind in RANGES:
        one = parse_field("model.x", {kind: [1, 5]})
        assert isinstance(one, Range)
        assert parse_field("model.x", one.to_dict()) == one
        assert all(1 <= one.at(u) <= 5 for u in GRID[::1000].tolist())


def test_a_trial_depends_on_the_seed_and_its_number_alone(
    document: dict[str, Any], space: Space
) -> None:
    again, longer = parse_space(document), space.with_trials(50)
    assert [draw(again, index) for index in (4, 0, 2)] == [draw(space, i) for i in (4, 0, 2)]
    assert draw(longer, 5) == draw(space, 5)
    other = parse_space({**document, "seed": 4})
    assert draw(other, 5).values != draw(space, 5).values
    assert draw(other, 5).seed != draw(space, 5).seed
    assert len({draw(longer, index).seed for index in range(50)}) == 50


def test_values_of_today_are_the_values_of_tomorrow(space: Space) -> None:
    """Written down: a change of the streams would silently make every search another one."""
    drawn = draw(space, 0)
    assert (drawn.seed, drawn.values["model.norm_placement"], drawn.values["model.d_model"]) == (
        786800481,
        "pre",
        9,
    )


def test_a_field_more_or_elsewhere_leaves_the_others(document: dict[str, Any]) -> None:
    before = draw(parse_space(document), 7)
    document["model"] = dict(reversed(document["model"].items()))
    document["training"]["weight_decay"] = {"uniform": [0.0, 1.0]}
    after = draw(parse_space(document), 7)
    assert {key: after.values[key] for key in before.values} == before.values
    assert after.seed == before.seed


def test_same_as_is_the_same_and_fields_are_independent(space: Space) -> None:
    drawn = [draw(space, index).values for index in range(400)]
    assert all(one["model.d_mlp"] == one["model.d_model"] for one in drawn)
    rates = np.log([one["training.learning_rate"] for one in drawn])
    assert stats.kstest(rates, stats.uniform(math.log(1e-3), math.log(100)).cdf).pvalue > 0.01
    post = np.array([one["model.norm_placement"] == "post" for one in drawn])
    assert stats.binomtest(int(post.sum()), 400).pvalue > 0.01
    assert abs(np.corrcoef(rates, post)[0, 1]) < 0.13  # 2.6 standard errors


def test_the_tables_of_a_draw(space: Space) -> None:
    drawn = draw(space, 1)
    assert drawn.table("task") == {"vocabulary": 6}
    assert set(drawn.table("model")) == {"norm_placement", "d_model", "d_mlp", "attn_only"}
    assert drawn.table("training")["ema_decays"] == (0.9,)


def test_fresh_seeds_are_new_and_extend(space: Space) -> None:
    few, many = fresh_seeds(space, 2, 3), fresh_seeds(space, 2, 8)
    assert many[:3] == few
    assert len({*many, draw(space, 2).seed}) == 9
    assert not set(many) & set(fresh_seeds(space, 3, 8))
