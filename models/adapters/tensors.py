"""Find tensors in what modules are called with and what they return."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def find_tensors(value: Any) -> Iterator[Tensor]:
    """Yield the floating-point tensors in nested tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from find_tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from find_tensors(part)


def first_tensor(value: Any) -> Tensor | None:
    """The first floating-point tensor of a call's arguments or result, or ``None``."""
    return next(find_tensors(value), None)
