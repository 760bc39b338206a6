import itertools

import numpy as np
import pytest
from scipy import stats

from resharpen.models.tasks.languages import Automaton, Paths, explore, find_language
from resharpen.models.tasks.languages.language import Machine


def automaton(name: str) -> Automaton:
    language = find_language(name)
    assert isinstance(language, Machine)
    return language.automaton(0)


def bits(longest: int) -> list[np.ndarray]:
    return [
        np.array(list(itertools.product((0, 1), repeat=n))).reshape(2**n, n)
        for n in range(longest + 1)
    ]


def accepts(automaton: Automaton, symbols: np.ndarray) -> np.ndarray:
    return automaton.accepting[automaton.read(symbols)[:, -1]]


@pytest.mark.parametrize(("left", "right"), [("parity", "tomita-4"), ("tomita-3", "first")])
def test_products_and_complement(left: str, right: str) -> None:
    a, b = automaton(left), automaton(right)
    for symbols in bits(7):
        in_a, in_b = accepts(a, symbols), accepts(b, symbols)
        np.testing.assert_array_equal(accepts(a.intersection(b), symbols), in_a & in_b)
        np.testing.assert_array_equal(accepts(a.union(b), symbols), in_a | in_b)
        np.testing.assert_array_equal(accepts(a.complement(), symbols), ~in_a)


def test_tomita_5_is_the_product_of_two_parities() -> None:
    ones = automaton("parity")
    zeros = Automaton(("0", "1"), ones.transitions[:, ::-1].copy(), ones.accepting)
    both = ones.intersection(zeros)
    for symbols in bits(8):
        np.testing.assert_array_equal(
            accepts(both, symbols), accepts(automaton("tomita-5"), symbols)
        )


def test_a_state_is_dead_that_leads_to_no_accepting_one() -> None:
    # 0 -> 1 -> 2 accepts; 3 and 4 go round for ever.
    transitions = np.array([[1, 3], [2, 4], [2, 4], [4, 4], [3, 3]])
    machine = Automaton(("a", "b"), transitions, np.array([False, False, True, False, False]))
    assert machine.live.tolist() == [True, True, True, False, False]
    assert machine.legal.tolist() == [
        [True, False, False],
        [True, False, False],
        [True, False, True],
        [False, False, False],
        [False, False, False],
    ]


def test_a_machine_without_end_is_cut_off_behind_the_longest_string() -> None:
    machine = explore(("up",), 0, lambda n, _: n + 1, lambda n: n == 7, steps=3)
    assert len(machine.accepting) == 3 + 3, "0 to 3, their successor, and the dead state"
    assert machine.live.tolist() == [True] * 5 + [False]
    with pytest.raises(ValueError, match="cut off cannot be combined"):
        machine.complement()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transitions": np.zeros((2, 3), dtype=int)}, r"must be \[state, symbol\] = \(2, 1\)"),
        ({"transitions": np.array([[0], [2]])}, "must be a state below 2"),
        ({"start": 2}, "must be a state below 2"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict, message: str) -> None:
    fields = {"transitions": np.array([[0], [1]]), "accepting": np.array([True, False])}
    with pytest.raises(ValueError, match=message):
        Automaton(("a",), **{**fields, **change})


def test_automata_over_different_alphabets_are_not_combined() -> None:
    with pytest.raises(ValueError, match="must have one alphabet"):
        automaton("parity").union(automaton("abab-star"))


def test_paths_of_a_length_that_has_none_are_refused() -> None:
    paths = Paths(automaton("tomita-2"), 3)
    assert paths.count == 0
    with pytest.raises(ValueError, match="accepts no string of length 3"):
        paths.draw(np.zeros((1, 3)))


def test_a_rare_branch_is_drawn_as_often_as_its_strings_are_many() -> None:
    """First bit of a Tomita-7 string of 30 bits: far from a coin."""
    paths = Paths(automaton("tomita-7"), 30)
    after_one = Paths(
        Automaton(
            ("0", "1"), automaton("tomita-7").transitions, automaton("tomita-7").accepting, 1
        ),
        29,
    )
    share = after_one.count / paths.count
    assert share < 0.2
    n = 20_000
    first = paths.draw(np.random.Generator(np.random.Philox(5)).random((n, 30)))[:, 0]
    assert stats.binomtest(int(first.sum()), n, share).pvalue > 1e-3
