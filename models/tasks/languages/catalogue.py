"""Every language by name: fixed ones, and families whose name carries their numbers."""

import re
from collections.abc import Callable
from functools import lru_cache

from .brackets import RESET_DYCK, Dyck, ShuffleDyck
from .counters import BALANCE, MAJORITY, EqualBlocks
from .language import Language
from .regular import REGULAR, star_free

LANGUAGES: dict[str, Language] = {
    **REGULAR,
    "reset-dyck-1": RESET_DYCK,
    "majority": MAJORITY,
    "balance": BALANCE,
}
"""Languages without numbers of their own."""

FAMILIES: dict[str, tuple[Callable[..., Language], tuple[tuple[int, int], ...]]] = {
    "shuffle-dyck-K": (ShuffleDyck, ((1, 8),)),
    "dyck-K-M": (Dyck, ((1, 64), (1, 1024))),
    "dyck-K": (Dyck, ((1, 64),)),
    "d-N": (star_free, ((1, 1024),)),
    "counter-K": (EqualBlocks, ((2, 26),)),
}
"""Families: how the name is written, what builds a member, and the range of each number.

``dyck-2-3`` is Dyck-(2, 3), ``dyck-2`` Dyck-2 without a bound, ``d-12`` the star-free ``D_12``,
``counter-3`` is ``a^n b^n c^n``.
"""


def find_language(name: str) -> Language:
    """The language of this name, such as ``tomita-3`` or ``dyck-2-3``.

    Raises:
        ValueError: If there is none, or a number is out of its range.
    """
    if not isinstance(name, str):
        raise ValueError(f"the name of a language is a word, such as dyck-2-3; got {name!r}")
    return _find(name)


@lru_cache(maxsize=256)
def _find(name: str) -> Language:
    if name in LANGUAGES:
        return LANGUAGES[name]
    for pattern, (build, ranges) in FAMILIES.items():
        stem = pattern.rstrip("-KMN")
        parts = name.removeprefix(f"{stem}-").split("-")
        if not name.startswith(f"{stem}-") or len(parts) != len(ranges):
            continue
        if not all(re.fullmatch("0|[1-9][0-9]{0,8}", part) for part in parts):
            continue
        numbers = [int(part) for part in parts]
        for number, (low, high) in zip(numbers, ranges, strict=True):
            if not low <= number <= high:
                raise ValueError(
                    f"a number of the language {pattern} must lie in {low}..{high}; got {name!r}"
                )
        return build(*numbers)
    raise ValueError(
        f"unknown language {name!r}; known languages: {', '.join([*LANGUAGES, *FAMILIES])}"
    )
