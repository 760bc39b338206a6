"""What every task promises, whatever it asks."""

import json
from typing import get_args

import pytest
import torch

from resharpen.models.task_names import TaskName
from resharpen.models.tasks import (
    TASKS,
    ArgmaxRetrieval,
    AssociativeRecall,
    Copy,
    Counting,
    DictionaryLookup,
    First,
    FlipFlop,
    LanguageTask,
    Majority,
    Mean,
    Othello,
    SelfAvoidingWalk,
    SetComplement,
    Sort,
    Task,
    seeded_generator,
    task_from_dict,
)

EXAMPLES: dict[str, Task] = {
    "set-complement": SetComplement(9, bos=True),
    "set-complement, replacement": SetComplement(5, replacement=True),
    "first": First(),
    "argmax-retrieval": ArgmaxRetrieval(priorities=3, classes=5),
    "dictionary-lookup": DictionaryLookup(keys=3, values=4),
    "flip-flop": FlipFlop(writes=3),
    "flip-flop, one write": FlipFlop(writes=1),
    "majority": Majority(),
    "counting": Counting(largest=3),
    "counting, no bos": Counting(largest=6, bos=False),
    "mean": Mean(alphabet=4),
    "associative-recall": AssociativeRecall(3, 2, queries=2),
    "associative-recall, one token": AssociativeRecall(7, 3, key_tokens=1, value_tokens=3),
    "copy": Copy(alphabet=3),
    "sort": Sort(alphabet=5),
    "othello": Othello(),
    "self-avoiding-walk": SelfAvoidingWalk(side=3),
    "language": LanguageTask("tomita-7"),
    "language, counts": LanguageTask("majority"),
    "language, machine without end": LanguageTask("reset-dyck-1"),
}
"""Values that differ from the defaults."""

PREFIX = [name for name, task in EXAMPLES.items() if hasattr(task, "exact_targets")]
EVERY = pytest.mark.parametrize("name", EXAMPLES)


def test_every_task_of_the_registry_is_tried() -> None:
    assert {type(task) for task in EXAMPLES.values()} == set(TASKS.values())
    for name, task in TASKS.items():
        assert task.name == name
        assert task().to_dict()["name"] == name
    kinds = {name: task.kind for name, task in TASKS.items()}
    assert sorted(name for name, kind in kinds.items() if kind == "aggregation") == [
        "counting",
        "majority",
        "mean",
        "set-complement",
    ]
    assert sorted(name for name, kind in kinds.items() if kind == "needle") == [
        "argmax-retrieval",
        "dictionary-lookup",
        "first",
        "flip-flop",
    ]
    assert sorted(name for name, task in TASKS.items() if task.needs_positions) == [
        "associative-recall",
        "copy",
        "flip-flop",
        "language",
        "othello",
        "self-avoiding-walk",
    ]


@EVERY
@pytest.mark.parametrize("more", [0, 1, 4])
def test_shapes_and_distributions(name: str, more: int) -> None:
    task = EXAMPLES[name]
    length = task.min_length + more
    batch = task.sample(seeded_generator(0, more), 40, length)
    n_pos = batch.tokens.shape[1]
    assert isinstance(task, Task) and batch.length == length
    assert batch.bos is task.to_dict().get("bos", isinstance(task, LanguageTask))
    assert batch.tokens.dtype == batch.next_tokens.dtype == torch.int64
    assert batch.tokens.shape == batch.next_tokens.shape == (40, n_pos)
    assert batch.targets.shape == (40, n_pos, task.d_vocab_out)
    assert batch.targets.dtype == torch.float32 and batch.relevant.dtype == torch.bool
    assert batch.tokens.min() >= 0 and batch.tokens.max() < task.d_vocab
    assert (batch.targets >= 0).all()
    torch.testing.assert_close(batch.targets.sum(-1), torch.ones(40, n_pos))
    assert (batch.targets.gather(2, batch.next_tokens[..., None]) > 0).all()
    relevant = batch.relevant.broadcast_to(40, n_pos, n_pos)
    assert relevant[:, -1].any(-1).all() or name.startswith("counting")


@EVERY
def test_the_batch_split_does_not_matter(name: str) -> None:
    task = EXAMPLES[name]
    length = task.min_length + 3
    whole = task.sample(seeded_generator(3, 1), 256, length)
    generator = seeded_generator(3, 1)
    parts = [task.sample(generator, 128, length) for _ in range(2)]
    for field in ("tokens", "targets", "next_tokens"):
        joined = torch.cat([getattr(part, field) for part in parts])
        assert torch.equal(joined, getattr(whole, field)), field
    n_pos = whole.tokens.shape[1]
    joined = torch.cat([part.relevant.broadcast_to(128, n_pos, n_pos) for part in parts])
    assert torch.equal(joined, whole.relevant.broadcast_to(256, n_pos, n_pos))


@EVERY
def test_next_tokens_are_draws_from_the_targets(name: str) -> None:
    """Of every position and token: how often it followed, against the sum of its probabilities.

    Once with equal weights and once weighted by the probability itself, which also sees draws that
    are right on average and blind to the input.
    """
    task = EXAMPLES[name]
    batch = task.sample(seeded_generator(5), 4000, task.min_length + 3)
    target = batch.targets.double()
    followed = torch.nn.functional.one_hot(batch.next_tokens, task.d_vocab_out).double()
    for weight in (torch.ones_like(target), target):
        excess = ((followed - target) * weight).sum(0)
        deviation = (target * (1 - target) * weight**2).sum(0).sqrt()
        certain = deviation < 1e-6
        assert excess[certain].abs().le(1e-6).all()
        assert (excess[~certain] / deviation[~certain]).abs().le(4.5).all()


@pytest.mark.parametrize("name", PREFIX)
def test_the_target_of_a_prefix_is_the_target_at_its_end(name: str) -> None:
    task = EXAMPLES[name]
    length = min(task.max_length or 12, 12)
    batch = task.sample(seeded_generator(7), 30, length)
    assert torch.equal(task.exact_targets(batch.tokens), batch.targets)  # type: ignore[attr-defined]
    for end in range(1, batch.tokens.shape[1] + 1):
        alone = task.exact_targets(batch.tokens[:, :end])  # type: ignore[attr-defined]
        assert torch.equal(alone, batch.targets[:, :end])


@EVERY
def test_lengths_that_are_not_defined_are_refused(name: str) -> None:
    task = EXAMPLES[name]
    generator = seeded_generator(0)
    wrong = [task.min_length - 1, 0, -3]
    if task.max_length is not None:
        wrong.append(task.max_length + 1)
        assert task.sample(generator, 2, task.max_length).length == task.max_length
    upper = "" if task.max_length is None else f" and at most {task.max_length}"
    for length in wrong:
        message = f"defined for lengths of at least {task.min_length}{upper}.*; got {length}"
        with pytest.raises(ValueError, match=message):
            task.sample(generator, 2, length)
    with pytest.raises(ValueError, match="batch must be at least 1; got 0"):
        task.sample(generator, 0, task.min_length)


@EVERY
def test_round_trip_through_plain_values(name: str) -> None:
    task = EXAMPLES[name]
    assert task_from_dict(json.loads(json.dumps(task.to_dict()))) == task


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ArgmaxRetrieval(priorities=1), "priorities must be a whole number, 2 or more"),
        (lambda: ArgmaxRetrieval(classes=2.0), "classes must be a whole number"),  # type: ignore
        (lambda: DictionaryLookup(keys=True), "keys must be a whole number, 2 or more; got True"),
        (lambda: DictionaryLookup(values=0), "values must be a whole number, 2 or more; got 0"),
        (lambda: FlipFlop(writes=0), "writes must be a whole number, 1 or more; got 0"),
        (lambda: Counting(largest=0), "largest must be a whole number, 1 or more; got 0"),
        (lambda: Counting(bos=1), "bos must be True or False; got 1"),  # type: ignore[arg-type]
        (lambda: Mean(alphabet=1), "alphabet must be a whole number, 2 or more; got 1"),
        (lambda: Copy(alphabet=1), "copy: alphabet must be a whole number, 2 or more"),
        (lambda: Sort(alphabet=1), "sort: alphabet must be a whole number, 2 or more"),
        (lambda: AssociativeRecall(key_tokens=0), "key_tokens must be a whole number, 1 or more"),
        (lambda: AssociativeRecall(queries=300), "got 256 for 300 queries"),
        (lambda: AssociativeRecall(key_tokens=9), "must be at least queries and at most 65536"),
        (lambda: task_from_dict({"name": "first", "size": 3}), "does not take these parameters"),
    ],
)
def test_bad_parameters_get_one_clear_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@EVERY
def test_a_long_input_can_be_drawn(name: str) -> None:
    task = EXAMPLES[name]
    batch = task.sample(seeded_generator(1), 2, min(task.max_length or 700, 700))
    torch.testing.assert_close(batch.targets.sum(-1), torch.ones(batch.tokens.shape))


def test_flags_name_every_task() -> None:
    assert list(get_args(TaskName)) == list(TASKS)
