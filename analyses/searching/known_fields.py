"""Which fields a space can name, and which values each takes; from the dataclasses themselves.

The parameters of a task are known to its class alone, which needs torch: their names are checked by
`planning.check_task`, before anything runs.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from ...models.config import TransformerConfig
from ...models.training.config import TrainingConfig

__all__ = ["FROM_TASK", "KNOWN", "check_value"]

FROM_TASK = ("d_vocab", "d_vocab_out")
"""Fields of the model that the task decides."""

KNOWN: Mapping[str, Mapping[str, Any]] = {
    "model": {
        item.name: item.type
        for item in dataclasses.fields(TransformerConfig)
        if item.name not in FROM_TASK
    },
    "training": {item.name: item.type for item in dataclasses.fields(TrainingConfig)},
}
"""By table of the file: the type of every field."""


def check_value(key: str, hint: Any, value: Any) -> None:
    """Refuse a value that is not of the field's type.

    Args:
        key: The field, for the message.
        hint: Its type: a plain one, a `Literal`, `X | None`, or a tuple of these.
        value: The value; a list of the file as a tuple.

    Raises:
        ValueError: With the key, what came, and what it takes.
    """
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (one for one in get_args(hint) if one is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(
                f"{key} must be one of {', '.join(map(str, get_args(hint)))}; got {value!r}"
            )
        return
    if not _fits(hint, value):
        advice = ": take int_uniform or int_log_uniform" if _almost(hint, value) else ""
        raise ValueError(f"{key} must be {_words(hint)}; got {value!r}{advice}")


def _fits(hint: Any, value: Any) -> bool:
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if inner[-1] is Ellipsis:
            return all(_fits(inner[0], item) for item in value)
        return len(inner) == len(value) and all(map(_fits, inner, value))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else hint)


def _almost(hint: Any, value: Any) -> bool:
    return hint is int and isinstance(value, float)


def _words(hint: Any) -> str:
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if inner[-1] is Ellipsis:
            return f"a list, each item {_words(inner[0])}"
        return f"a list of {len(inner)} items: {', '.join(map(_words, inner))}"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[hint]
