"""Checks of the arguments of the theory functions: each returns a float64 array or raises.

Parameters of a law (a strength, a length, a spread) must be finite; measured vectors may hold NaN,
which then comes out as NaN.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def check_numbers(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return `value` as a float64 array of any shape; NaN and infinities are let through.

    Raises:
        TypeError: if `value` is not an array of real numbers.
    """
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name} must be an array of real numbers, got {type(value).__name__}; "
            "pass numbers or a NumPy array (of a tensor: tensor.detach().cpu().double().numpy())."
        ) from None


def check_real(
    name: str,
    value: ArrayLike,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> NDArray[np.float64]:
    """Return `value` as a float64 array, every entry finite and between `low` and `high`.

    `open_low` and `open_high` exclude the end points.

    Raises:
        TypeError: if `value` is not an array of real numbers.
        ValueError: if an entry is not finite or out of range.
    """
    array = check_numbers(name, value)
    above = array > low if open_low else array >= low
    below = array < high if open_high else array <= high
    wrong = ~(np.isfinite(array) & above & below)
    if wrong.any():
        ends = (
            f"{'>' if open_low else '>='} {low:g}" if low > -math.inf else "",
            f"{'<' if open_high else '<='} {high:g}" if high < math.inf else "",
        )
        wanted = " and ".join(end for end in ends if end)
        raise ValueError(
            f"{name} must be finite{' and ' if wanted else ''}{wanted}, got {array[wrong][0]:g}."
        )
    return array


def check_whole(name: str, value: ArrayLike, low: int = 1) -> NDArray[np.float64]:
    """Return `value` as a float64 array of whole numbers, each at least `low`.

    Raises:
        TypeError: if `value` is not an array of real numbers.
        ValueError: if an entry is not whole, not finite, or below `low`.
    """
    array = check_real(name, value, low)
    wrong = array != np.rint(array)
    if wrong.any():
        raise ValueError(f"{name} must be whole numbers, got {array[wrong][0]:g}.")
    return array


def check_weights(name: str, value: ArrayLike, tolerance: float = 1e-4) -> NDArray[np.float64]:
    """Return attention weights `[*row, key]`: at least one key, non-negative, rows that sum to one.

    `tolerance` is the largest accepted |sum - 1|, wide enough for rows measured in float32.

    Raises:
        TypeError: if `value` is not an array of real numbers.
        ValueError: if there is no key, an entry is negative or not finite, or a row does not sum
            to one.
    """
    array = check_real(name, value, 0.0)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(
            f"{name} must have shape [*row, key] with at least one key, got {array.shape}."
        )
    error = np.abs(array.sum(axis=-1) - 1.0).max(initial=0.0)
    if error > tolerance:
        raise ValueError(
            f"{name} must sum to one over the last axis (keys), got a row off by {error:.3g}; "
            "pass the weights after the softmax, one row a query."
        )
    return array


def check_choice(name: str, value: object, known: tuple[object, ...]) -> None:
    """Raise unless `value` is one of `known`.

    Raises:
        ValueError: if it is not; the sentence lists the known ones.
    """
    if value not in known:
        listed = ", ".join(repr(choice) for choice in known)
        raise ValueError(f"{name} must be one of {listed}; got {value!r}.")
