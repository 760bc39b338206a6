"""The checks return float64 arrays or raise one sentence."""

import numpy as np
import pytest

from resharpen.interp.theory.arguments import (
    check_choice,
    check_numbers,
    check_real,
    check_weights,
    check_whole,
)


def test_numbers_let_nan_and_infinity_through_as_float64() -> None:
    array = check_numbers("x", [1, np.nan, np.inf])
    assert array.dtype == np.float64 and array.shape == (3,)
    np.testing.assert_array_equal(array, [1.0, np.nan, np.inf])


@pytest.mark.parametrize("value", ["three", 1j, [[1.0], [1.0, 2.0]], object()])
def test_what_is_no_number_is_a_type_error_with_the_name(value: object) -> None:
    with pytest.raises(TypeError, match="strength must be an array of real numbers"):
        check_numbers("strength", value)


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (-1.0, {"low": 0.0}, "p must be finite and >= 0, got -1."),
        (0.0, {"low": 0.0, "open_low": True}, "p must be finite and > 0, got 0."),
        (1.0, {"low": 0.0, "high": 1.0, "open_high": True}, ">= 0 and < 1, got 1."),
        (2.0, {"high": 1.0}, "p must be finite and <= 1, got 2."),
        ([0.5, np.nan], {}, "p must be finite, got nan."),
        (np.inf, {"low": 0.0}, "got inf."),
    ],
)
def test_a_number_out_of_range_is_named_with_its_range(
    value: object, options: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        check_real("p", value, **options)
    assert message in str(error.value)


def test_end_points_are_in_the_closed_range() -> None:
    np.testing.assert_array_equal(check_real("p", [0.0, 1.0], 0.0, 1.0), [0.0, 1.0])


@pytest.mark.parametrize("value", [0, 1.5, -3, np.nan, [2, 2.0001]])
def test_counts_are_whole_and_at_least_one(value: object) -> None:
    with pytest.raises(ValueError, match="length"):
        check_whole("length", value)


def test_whole_numbers_may_come_as_floats() -> None:
    assert check_whole("length", 3.0) == 3.0
    assert check_whole("n", 0, 0) == 0.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0.5, 0.4], "off by 0.1"),
        ([-0.5, 1.5], ">= 0"),
        (1.0, "at least one key"),
        (np.zeros((3, 0)), "at least one key"),
        ([np.nan, 1.0], "finite"),
    ],
)
def test_what_is_no_row_of_weights_is_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_weights("weights", value)


def test_float32_rows_pass_as_weights() -> None:
    row = np.full((2, 3000), 1.0 / 3000, dtype=np.float32)
    assert check_weights("weights", row).dtype == np.float64


def test_an_unknown_choice_lists_the_known_ones() -> None:
    check_choice("kind", "a", ("a", "b"))
    with pytest.raises(ValueError, match=r"kind must be one of 'a', 'b'; got 'c'\."):
        check_choice("kind", "c", ("a", "b"))
