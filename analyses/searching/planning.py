"""From draws to trials: configurations are built, named by their hash, and run once each.

A combination that a configuration refuses is no crash and is not drawn again: it counts as a trial,
with the reason, so that trial i stays a function of (seed, i) alone. A configuration that an
earlier trial has already (by its hash, seeds apart) is not run again; small spaces of choices
repeat themselves often.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...models.config import TransformerConfig
from ...models.tasks import TASKS, Task, seeded_generator, task_from_dict
from ...models.training.config import TrainingConfig
from ..trials import Trial
from .drawing import Draw, draw, fresh_seeds
from .space import Space

__all__ = ["Planned", "check_task", "plan", "plan_reruns"]


@dataclass(frozen=True)
class Planned:
    """One draw, and what is to be done about it.

    Attributes:
        draw: The draw.
        trial: What to run; None where there is no such model, task or recipe.
        digest: Hash of the configuration, seeds apart; empty where there is none.
        reason: Why there is none; else empty.
        repeats: Index of the earlier trial with the same configuration.
    """

    draw: Draw
    trial: Trial | None
    digest: str = ""
    reason: str = ""
    repeats: int | None = None


def plan(space: Space) -> list[Planned]:
    """Every trial of the space, in order.

    Raises:
        ValueError: The task has no such parameter, or not one trial is possible.
    """
    check_task(space)
    first: dict[str, int] = {}
    planned = []
    for index in range(space.trials):
        drawn = draw(space, index)
        try:
            trial = _trial(space, drawn)
        except ValueError as error:
            planned.append(Planned(drawn, None, reason=str(error)))
            continue
        digest = replace(trial, seeds=()).digest
        known = first.setdefault(digest, index)
        planned.append(Planned(drawn, trial, digest, repeats=None if known == index else known))
    if not first:
        raise ValueError(
            f"not one of the {space.trials} trials is possible; the first is not because: "
            f"{planned[0].reason}"
        )
    return planned


def plan_reruns(space: Space, best: Sequence[Planned]) -> dict[tuple[int, int], Trial]:
    """The best trials once more, by index and fresh seed: one run each, so that one may fail."""
    return {
        (one.draw.index, seed): replace(one.trial, seeds=(seed,))
        for one in best
        if one.trial is not None
        for seed in fresh_seeds(space, one.draw.index, space.rerun.seeds)
    }


def check_task(space: Space) -> None:
    """Refuse a parameter that the task does not have.

    Raises:
        ValueError: With the parameter and those that it has.
    """
    known = [item.name for item in dataclasses.fields(TASKS[space.task])]  # type: ignore[arg-type]
    for key in space.fields:
        table, _, name = key.partition(".")
        if table == "task" and name not in known:
            raise ValueError(
                f"task {space.task!r} has no parameter {name!r}; it has {', '.join(known)}"
            )


def _trial(space: Space, drawn: Draw) -> Trial:
    task = task_from_dict({"name": space.task, **drawn.table("task")})
    training = TrainingConfig(**drawn.table("training"))
    model = TransformerConfig(
        d_vocab=task.d_vocab, d_vocab_out=task.d_vocab_out, **drawn.table("model")
    )
    _check_lengths(task, model, (training.length, *space.lengths))
    return Trial(model, task, training, (drawn.seed,), space.lengths, space.n_sequences)


def _check_lengths(task: Task, model: TransformerConfig, lengths: Sequence[int]) -> None:
    """Refuse, before training, what could not be evaluated after it."""
    for length in lengths:
        task.check_length(length)
    if model.longest_input is None:
        return
    longest = task.sample(seeded_generator(0), 1, max(lengths)).tokens.shape[1]
    if longest > model.longest_input:
        raise ValueError(
            f"length {max(lengths)} needs {longest} positions, and n_ctx is {model.longest_input}: "
            "raise n_ctx, or take positions that are not learned one by one"
        )
