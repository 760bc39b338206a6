from typing import Any

import pytest

from resharpen.analyses.searching.planning import plan, plan_reruns
from resharpen.analyses.searching.space import Space, parse_space
from resharpen.models import SetComplement, TrainingConfig


def test_a_draw_becomes_the_trial_that_it_says(space: Space) -> None:
    for one in plan(space):
        trial, values = one.trial, one.draw.values
        assert trial is not None
        assert trial.task == SetComplement(vocabulary=6)
        assert (trial.model.d_vocab, trial.model.d_vocab_out) == (6, 6)
        assert trial.model.norm_placement == values["model.norm_placement"]
        assert trial.model.d_model == trial.model.d_mlp == values["model.d_model"]
        assert trial.training == TrainingConfig(
            length=3,
            n_steps=4,
            batch_size=4,
            learning_rate=values["training.learning_rate"],
            ema_decays=(0.9,),
        )
        assert (trial.seeds, trial.lengths, trial.n_sequences) == ((one.draw.seed,), (2, 4), 8)


def test_a_configuration_is_planned_once(document: dict[str, Any]) -> None:
    document["model"] = {"norm_placement": {"choice": ["pre", "post"]}}
    document["training"]["learning_rate"] = 0.01
    planned = plan(parse_space({**document, "trials": 12}))
    seen: dict[str, int] = {}
    for index, one in enumerate(planned):
        placement = one.draw.values["model.norm_placement"]
        assert one.repeats == seen.get(placement)
        seen.setdefault(placement, index)
    assert len(seen) == len({one.digest for one in planned}) == 2
    longer = plan(parse_space({**document, "trials": 20}))
    assert longer[:12] == planned


def test_a_default_that_is_said_is_the_same_configuration(document: dict[str, Any]) -> None:
    document["model"] = {"d_model": 8, "n_heads": 2, "d_head": {"choice": [4, 8]}}
    said = plan(parse_space({**document, "trials": 12}))
    del document["model"]["d_head"]
    unsaid = plan(parse_space({**document, "trials": 12}))
    same = [one.digest == other.digest for one, other in zip(said, unsaid, strict=True)]
    assert same == [one.draw.values["model.d_head"] == 4 for one in said]
    assert set(same) == {True, False}


def test_what_a_configuration_refuses_is_a_trial_with_its_reason(document: dict[str, Any]) -> None:
    document["model"] = {"n_heads": {"choice": [1, 3]}, "d_model": 8}
    planned = plan(parse_space({**document, "trials": 12}))
    for one in planned:
        refused = one.draw.values["model.n_heads"] == 3
        assert (one.trial is None) == refused == bool(one.reason)
        if refused:
            assert "d_model must be a multiple of n_heads" in one.reason
            assert (one.digest, one.repeats) == ("", None)
    assert {one.draw.values["model.n_heads"] for one in planned} == {1, 3}


@pytest.mark.parametrize(
    ("table", "name", "value", "reason"),
    [
        ("training", "length", 6, "6"),
        ("task", "vocabulary", 4, "4"),
        ("task", "vocabulary", 1, "vocabulary must be at least 2; got 1"),
        ("training", "n_steps", 0, "n_steps must be a whole number of at least 1"),
    ],
)
def test_what_could_not_be_run_is_refused_before_it_is(
    document: dict[str, Any], table: str, name: str, value: Any, reason: str
) -> None:
    document[table][name] = {"choice": [document[table][name], value]}
    planned = plan(parse_space({**document, "trials": 16}))
    refused = [one for one in planned if one.draw.values[f"{table}.{name}"] == value]
    assert refused
    assert all(one.trial is None and reason in one.reason for one in refused)
    document[table][name] = value
    with pytest.raises(ValueError, match="not one of the 6 trials is possible; the first is not"):
        plan(parse_space(document))


def test_positions_that_are_not_learned_are_refused_before_training(
    document: dict[str, Any],
) -> None:
    document["model"] |= {"positional_embedding_type": "standard", "n_ctx": {"choice": [3, 4]}}
    planned = plan(parse_space({**document, "trials": 12}))
    for one in planned:
        assert (one.trial is None) == (one.draw.values["model.n_ctx"] == 3)
    reason = next(one.reason for one in planned if one.reason)
    assert reason.startswith("length 4 needs 4 positions, and n_ctx is 3")


def test_a_parameter_that_the_task_does_not_have(document: dict[str, Any]) -> None:
    document["task"]["vocabluary"] = 6
    with pytest.raises(ValueError, match="no parameter 'vocabluary'; it has vocabulary, bos, repl"):
        plan(parse_space(document))


def test_the_best_are_run_again_with_other_seeds(space: Space) -> None:
    planned = plan(space)
    again = plan_reruns(space, planned[2:4])
    assert [index for index, _ in again] == [2] * 3 + [3] * 3
    for (index, seed), trial in again.items():
        first = planned[index].trial
        assert first is not None
        assert trial.seeds == (seed,) != first.seeds
        assert (trial.model, trial.training) == (first.model, first.training)
    assert len({trial.digest for trial in again.values()}) == 6
