"""What callers give is checked with one sentence: what was expected, what came, what to do."""

import numpy as np
import pytest

from resharpen.interp.arguments import check_keywords, check_lengths, check_seed, check_step


@pytest.mark.parametrize("given", [(16, 8), [16, 8.0], np.array([16, 8]), iter((16, 8))])
def test_lengths_of_any_kind_come_out_as_whole_numbers(given):
    lengths = check_lengths(given)
    assert lengths == (16, 8)
    assert all(type(length) is int for length in lengths)


def test_a_length_given_twice_passes_where_it_does_no_harm():
    assert check_lengths((8, 8), distinct=False) == (8, 8)
    with pytest.raises(ValueError, match=r"lengths must all be different; got \[8, 8\]"):
        check_lengths((8, 8))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (8, TypeError, r"written as \(8,\) for one length; got 8$"),
        ("abc", TypeError, r"sequence of whole numbers, .* got 'abc'$"),
        (b"16", TypeError, "sequence of whole numbers"),
        (None, TypeError, "sequence of whole numbers, .* got None$"),
        ((), ValueError, "at least one length"),
        ((8, "16"), ValueError, "a length must be a whole number, 1 or more; got '16'"),
        ((float("nan"),), ValueError, "a length must be a whole number, 1 or more; got nan"),
        ((float("inf"),), ValueError, "a length must be a whole number"),
        (((8, 9),), ValueError, "a length must be a whole number"),
        ((True,), ValueError, "got True"),
        ((0,), ValueError, "got 0"),
    ],
)
def test_what_are_no_lengths_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        check_lengths(given)


@pytest.mark.parametrize("check", [check_seed, check_step])
def test_seeds_and_steps_are_whole_numbers(check):
    assert check(np.int64(3)) == 3
    for wrong in ("a", "3", 1.5, -1, None, True, float("nan")):
        with pytest.raises(ValueError, match=r"must be a whole number.* 0 or more.*; got"):
            check(wrong)
    with pytest.raises(ValueError, match="below 2"):
        check_seed(2**64)


def test_a_misspelt_keyword_is_named_with_the_nearest():
    check_keywords("explore", ("lengths",), ("lengths", "seed"))
    with pytest.raises(TypeError, match=r"explore\(\) got .* 'lenghts': did you mean 'lengths'\?"):
        check_keywords("explore", ("lenghts",), ("lengths", "seed"))
    with pytest.raises(TypeError, match="'zzz': it takes lengths, seed"):
        check_keywords("explore", ("zzz",), ("lengths", "seed"))
