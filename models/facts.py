"""What an object holds, said in one line and shown as a small table in a notebook.

Imports nothing of the toolkit and no tensor library, so that every room may use it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from html import escape
from typing import Any, TypeVar, get_args

__all__ = [
    "Facts",
    "Registry",
    "Settings",
    "brief",
    "facts_table",
    "first_line",
    "layers_by_heads",
    "plural",
]

_Value = TypeVar("_Value")

_LONGEST = 72
"""Characters of one value; what is longer is cut, or counted."""

_LISTED = 4096
"""Numbers up to which a list is looked through for its range."""

_FEW = 6
"""Entries up to which a collection is written out."""


class Facts:
    """Gives a class a table for notebooks and, where it has no repr of its own, a short repr.

    Both show :meth:`_facts`. A dataclass keeps the repr that can be read back, unless it is
    declared with ``repr=False``.
    """

    def _facts(self) -> list[tuple[str, str]]:
        """Name and value of everything that is shown; by default every public field."""
        if not is_dataclass(self):
            return []
        return [
            (field.name, brief(getattr(self, field.name), field.type))
            for field in fields(self)
            if field.repr and not field.name.startswith("_")
        ]

    def __repr__(self) -> str:
        """Everything that it holds in one line: tensors by their shapes, long values cut."""
        told = "; ".join(f"{name} {value}" for name, value in self._facts())
        return f"{type(self).__name__}({told})"

    def _repr_html_(self) -> str:
        """The same as a small table for a notebook."""
        return facts_table(type(self).__name__, self._facts())


class Settings(Facts):
    """The same for a dataclass of settings: its repr can be read back and leaves out defaults.

    Declare the dataclass with ``repr=False``. A field that is ``None`` until the others give it is
    left out where they give what it holds.
    """

    def __repr__(self) -> str:
        """The call that makes it, without the arguments that have their default."""
        given = ", ".join(f"{name}={value!r}" for name, value in _changed(self).items())
        return f"{type(self).__name__}({given})"


class Registry(dict[str, _Value]):
    """A dictionary of what can be chosen by name; it shows the names, not the values.

    Everything else is a dictionary's: lookup, order, ``**``, equality, pickling.
    """

    def __init__(self, entries: Mapping[str, _Value], lines: Mapping[str, str]) -> None:
        """Hold entries by name.

        Args:
            entries: What can be chosen.
            lines: What each is, in one line, by the same names.

        Raises:
            ValueError: If an entry has no line, or a line no entry.
        """
        super().__init__(entries)
        if strange := set(entries) ^ set(lines):
            raise ValueError(f"each entry needs one line; check {', '.join(sorted(strange))}")
        self._lines = dict(lines)

    def __repr__(self) -> str:
        """How many there are, and their names."""
        return f"Registry({len(self)}: {', '.join(self)})"

    def _repr_html_(self) -> str:
        """Name and one line what it is, a row each."""
        return facts_table(f"{len(self)} to choose from", [*self._lines.items()])


def first_line(thing: Any) -> str:
    """The first line of what something says of itself."""
    return (thing.__doc__ or "").strip().partition("\n")[0]


def facts_table(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """Name and value a row, as HTML that any notebook shows well; every cell is escaped.

    Args:
        title: Stands above the rows.
        facts: Name and value of each row.
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts
    )
    head = f'<thead><tr><th colspan="2" style="text-align:left">{escape(title)}</th></tr></thead>'
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def plural(count: int, noun: str) -> str:
    """``1 length``, ``5 lengths``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def layers_by_heads(n_layers: int, n_heads: int) -> str:
    """The size of a transformer in words: ``1 layer x 4 heads``."""
    return f"{plural(n_layers, 'layer')} x {plural(n_heads, 'head')}"


def brief(value: Any, annotation: Any = None) -> str:
    """A value in a few words: an array by its type and axes, a long collection by its size.

    Args:
        value: Anything.
        annotation: Its type; a jaxtyping annotation gives the axes their names.
    """
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        return _brief_array(value, tuple(shape), annotation)
    if hasattr(value, "columns") and shape is not None:
        return f"{shape[0]} rows x {shape[1]} columns"
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        words = "{" + ", ".join(f"{_plain(k)}: {brief(v)}" for k, v in value.items()) + "}"
        return (
            words
            if _short(value, words)
            else _count(value, "entry" if len(value) == 1 else "entries", map(_plain, value))
        )
    if isinstance(value, tuple | list | set | frozenset):
        words = ", ".join(brief(item) for item in value)
        if _short(value, words):
            return f"({words})"
        return _count(
            value, "item" if len(value) == 1 else "items", (brief(item) for item in value)
        )
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    return _cut(repr(value))


def _changed(value: Any) -> dict[str, Any]:
    """Fields of a dataclass without their default, and not given by the others."""
    given = {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if getattr(value, field.name) != _default(field)
    }
    for field in fields(value):
        if field.name in given and field.default is None:
            kept = {name: item for name, item in given.items() if name != field.name}
            with suppress(ValueError):  # It is needed: the others do not make one without it.
                if type(value)(**kept) == value:
                    given = kept
    return given


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _brief_array(value: Any, shape: tuple[int, ...], annotation: Any) -> str:
    kind = str(value.dtype).removeprefix("torch.")
    if not shape:
        return f"{value.item():.6g}" if kind.startswith(("float", "int")) else str(value.item())
    names = _axes(annotation)
    named = zip(names, shape, strict=True) if len(names) == len(shape) else ()
    axes = [f"{name} {size}" for name, size in named] or [str(size) for size in shape]
    return f"{kind} [{', '.join(axes)}]{_range(value, kind)}"


def _range(value: Any, kind: str) -> str:
    """Between what the numbers of a list lie; of an array of more axes, or a long one, nothing."""
    on_cpu = getattr(getattr(value, "device", "cpu"), "type", "cpu") == "cpu"
    listed = len(value.shape) == 1 and 1 <= value.shape[0] <= _LISTED
    if not (kind.startswith(("float", "int")) and on_cpu and listed):
        return ""
    low, high = value.min().item(), value.max().item()
    return f" of {low:.6g}" if low == high else f" from {low:.6g} to {high:.6g}"


def _axes(annotation: Any) -> list[str]:
    """Names of the axes in a jaxtyping annotation, or in the one among alternatives."""
    for one in (annotation, *get_args(annotation)):
        if names := getattr(one, "dim_str", ""):
            return [name.lstrip("#*").partition("=")[0] for name in names.split()]
    return []


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _short(value: Any, words: str) -> bool:
    return len(value) <= _FEW and len(words) <= _LONGEST


def _count(value: Any, noun: str, words: Any) -> str:
    first = next(iter(words))
    return f"{len(value)} {noun}, the first {_cut(first, _LONGEST // 2)}"


def _cut(text: str, longest: int = _LONGEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
