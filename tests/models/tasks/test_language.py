import re

import pytest
import torch
from scipy import stats

from resharpen.models.tasks import LanguageTask, seeded_generator


def test_worked_example() -> None:
    task = LanguageTask("dyck-1")
    assert task.alphabet == ("(0", ")0")
    targets = task.exact_targets(torch.tensor([[2, 0, 1, 0, 1]]))
    between, inside = [0.5, 0, 0.5], [0.5, 0.5, 0]
    assert targets.tolist() == [[between, inside, between, inside, between]]


def test_the_first_symbol_and_the_end_are_predicted_too() -> None:
    batch = LanguageTask("abab-star").sample(seeded_generator(0), 3, 4)
    assert batch.tokens.tolist() == [[2, 0, 1, 0, 1]] * 3
    assert batch.targets[0].tolist() == [
        [0.5, 0, 0.5],
        [0, 1, 0],
        [1, 0, 0],
        [0, 1, 0],
        [0.5, 0, 0.5],
    ]


def test_the_grammars_distribution_is_the_target_where_it_is_asked_for() -> None:
    grammar = LanguageTask("dyck-2-2", targets="grammar")
    uniform = LanguageTask("dyck-2-2")
    batch = grammar.sample(seeded_generator(1), 50, 8)
    other = uniform.sample(seeded_generator(1), 50, 8)
    assert torch.equal(batch.tokens, other.tokens), "the strings are the same"
    assert torch.equal(batch.targets > 0, other.targets > 0)
    start = torch.tensor([0.25, 0.25, 0, 0, 0.5])
    torch.testing.assert_close(batch.targets[:, 0], start.expand(50, 5))
    torch.testing.assert_close(other.targets[:, 0], (start > 0).float().expand(50, 5) / 3)


def test_next_tokens_are_drawn_and_not_read_off_the_string() -> None:
    batch = LanguageTask("parity").sample(seeded_generator(2), 4000, 1)
    assert batch.tokens[:, 1].eq(0).all(), "the only string of one bit"
    counts = torch.bincount(batch.next_tokens[:, 0], minlength=3)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_a_row_is_nan_behind_an_illegal_symbol() -> None:
    targets = LanguageTask("dyck-1").exact_targets(torch.tensor([[2, 0, 1, 1, 0]]))
    assert targets[0].isnan().all(-1).tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("language", "length", "message"),
    [
        (
            "tomita-2",
            7,
            "tomita-2 has no string of length 7; the nearest lengths that have one: 6 and 8",
        ),
        ("aaaa-star", 5, "the nearest lengths that have one: 4 and 8"),
        ("tomita-5", 3, "the nearest lengths that have one: 2 and 4"),
        ("modular-arithmetic-simple", 1, "at least 3 (the number of symbols); got 1"),
        ("counter-3", 0, "at least 3 (the number of symbols); got 0"),
    ],
)
def test_lengths_without_strings_are_refused(language: str, length: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LanguageTask(language).sample(seeded_generator(0), 2, length)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LanguageTask("klingon"), "unknown language 'klingon'; known languages: tomita-1"),
        (lambda: LanguageTask("parity", targets="own"), "must be uniform or grammar; got 'own'"),
        (lambda: LanguageTask("parity", targets="grammar"), "parity has no grammar"),
        (lambda: LanguageTask("reset-dyck-1", targets="grammar"), "reset-dyck-1 has no grammar"),
        (lambda: LanguageTask("shuffle-dyck-2", targets="grammar"), "shuffle-dyck-2 has no gram"),
        (lambda: LanguageTask(3), "name of a language is a word, such as dyck-2-3; got 3"),  # type: ignore
        (lambda: LanguageTask(["a"]), "name of a language is a word"),  # type: ignore[arg-type]
        (lambda: sampled(length=6.0), "language: a length must be a whole number; got 6.0"),
        (lambda: sampled(length=True), "a length must be a whole number; got True"),
        (lambda: sampled(length="6"), "a length must be a whole number; got '6'"),
        (lambda: sampled(batch=2.0), "language: batch must be a whole number; got 2.0"),
        (lambda: targets([[4, 4, 0]]), r"must be the token 4 and then .* 0 to 3; got \[4, 4, 0\]"),
        (lambda: targets([[4, 0], [4, -1]]), r"symbols of dyck-2, 0 to 3; got \[4, -1\]"),
        (lambda: targets([[4, 5]]), r"got \[4, 5\]"),
        (lambda: targets([[0, 2]]), r"must be the token 4 and then symbols .*; got \[0, 2\]"),
        (lambda: targets([4, 0]), r"whole numbers \[batch, pos\], .*; got torch.int64 \[2\]"),
        (lambda: targets([[4.0, 0.0]]), "whole numbers .*; got torch.float32"),
        (lambda: targets([[]]), "the opening token among them"),
    ],
)
def test_bad_parameters_get_one_clear_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def sampled(batch=2, length=6):
    return LanguageTask("dyck-2").sample(seeded_generator(0), batch, length)


def targets(tokens: list) -> torch.Tensor:
    return LanguageTask("dyck-2").exact_targets(torch.tensor(tokens))


def test_no_sequences_have_no_targets() -> None:
    for language in ("dyck-2", "parity", "shuffle-dyck-2", "counter-3", "majority"):
        task = LanguageTask(language)
        tokens = torch.zeros(0, 4, dtype=torch.int64)
        assert task.exact_targets(tokens).shape == (0, 4, task.d_vocab_out)


def test_the_grammar_without_a_bound_is_that_of_bhattamishra() -> None:
    batch = LanguageTask("dyck-2", targets="grammar").sample(seeded_generator(4), 50, 10)
    start = torch.tensor([3**0.5 - 1, 3**0.5 - 1, 0, 0, 2 * (2 - 3**0.5)]) / 2
    torch.testing.assert_close(batch.targets[:, 0], start.expand(50, 5))
    uniform = LanguageTask("dyck-2").sample(seeded_generator(4), 50, 10)
    assert torch.equal(batch.tokens, uniform.tokens)
    assert torch.equal(batch.targets > 0, uniform.targets > 0)


@pytest.mark.parametrize(
    "language", ["cycle-navigation", "reset-dyck-1", "dyck-8-10", "shuffle-dyck-4", "majority"]
)
def test_long_strings_can_be_drawn(language: str) -> None:
    task = LanguageTask(language)
    batch = task.sample(seeded_generator(3), 4, 400)
    assert batch.tokens.shape == (4, 401) and batch.tokens.max() == task.d_vocab - 1
    assert not batch.targets.isnan().any()
    assert (batch.targets[:, -1, -1] > 0).all(), "every string may end"
