"""Docstrings are written for people in an editor: this reads them as autodoc needs them.

They hold Markdown tables, formulas set apart by indentation or by dollars, and single backticks
around names and code. Each becomes the reStructuredText that says the same, before napoleon reads
the sections.
"""

import importlib
import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

PACKAGES = tuple(
    f"resharpen.{name}"
    for name in ("models", "interp", "analyses", "interp.theory", "interp.measures")
)
ARRAY_TYPES = {
    stringify_annotation(long, "smart"): short
    for long, short in (
        (ArrayLike, "ArrayLike"),
        (NDArray[np.float64], "NDArray[float64]"),
        (NDArray[np.bool_], "NDArray[bool]"),
        (NDArray[np.int64], "NDArray[int64]"),
        (NDArray[np.str_], "NDArray[str]"),
    )
}
MARKDOWN_ROW = re.compile(r"^\s*\|.*\|\s*$")
MARKDOWN_RULE = re.compile(r"^\s*\|[\s:|-]+\|\s*$")
SIMPLE_RULE = re.compile(r"^\s*=+( +=+)+\s*$")
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Examples?|Notes?)( \(.*\))?:$")


# Literals and roles are kept; then code and formulas; then what would be markup and is not meant.
SPAN = re.compile(
    r"(?P<kept>``[^`]+``|:[a-z:]+:`[^`]+`|(?<![\w*`])\*[A-Za-z][^*`|\[\]]*[\w.?!]\*(?![\w*])"
    r"|(?<![\w*`])\*\*[A-Za-z][^*`|]*[\w.?!]\*\*(?![\w*]))"
    r"|`(?P<code>[^`]+)`|(?<![\w$])\$(?P<math>[^$\s][^$]*)\$"
    r"|(?P<bullet>^\s*[*] )|(?P<markup>[*|]|(?<=\w)_(?!\w))",
    re.MULTILINE,
)


@cache
def addresses() -> dict[str, str]:
    """Return the full address of each public name."""
    return {
        name: f"{package}.{name}"
        for package in reversed(PACKAGES)
        for name in importlib.import_module(package).__all__
    }


def _span(match: re.Match[str]) -> str:
    kept = match["kept"] or match["bullet"]
    if kept:
        return kept
    # "`Curve`s": what follows a span at once must be told from it.
    close = "\\ " if match.string[match.end() : match.end() + 1].isalnum() else ""
    if match["code"]:
        code = match["code"]
        address = addresses().get(code.removesuffix("()"))
        return (f":py:obj:`{code} <{address}>`" if address else f"``{code}``") + close
    if match["math"]:
        return f":math:`{match['math']}`{close}"
    return "\\" + match["markup"]


def convert_text(lines: list[str]) -> list[str]:
    """Convert the markup inside lines that belong together: a span may run over their ends."""
    return SPAN.sub(_span, "\n".join(lines)).split("\n") if lines else []


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _cells(row: str) -> list[str]:
    inner = row.strip()[1:-1].replace("\\\\|", "\0").replace("\\|", "\0")
    return [convert_text([cell.strip().replace("\0", "|")])[0] for cell in inner.split("|")]


def convert_table(rows: list[str]) -> list[str]:
    """Convert one Markdown table, whose second row is the rule below the head."""
    indent = _indent(rows[0])
    lines = ["", f"{indent}.. list-table::", f"{indent}   :header-rows: 1", ""]
    for row in rows:
        if not MARKDOWN_RULE.match(row):
            for place, cell in enumerate(_cells(row)):
                lines.append(f"{indent}   {'* -' if place == 0 else '  -'} {cell}".rstrip())
    return [*lines, ""]


def keep_table(lines: list[str]) -> list[str]:
    """Keep a table of reStructuredText; as literal text where its cells overrun their columns."""
    rule = lines[0]
    margins = [place for place in range(len(_indent(rule)), len(rule)) if rule[place] == " "]
    if any(line[place : place + 1].strip() for line in lines for place in margins):
        return ["::", "", *(f"   {line}" for line in lines), ""]
    return lines


def convert_formula(lines: list[str]) -> list[str]:
    """Convert one formula between double dollars."""
    indent, text = _indent(lines[0]), " ".join(line.strip() for line in lines)
    return ["", f"{indent}.. math:: {text.rstrip(',. ').strip('$')}", ""]


def _is_closed(lines: list[str]) -> bool:
    return len(" ".join(lines)) > 4 and lines[-1].rstrip(",. ").endswith("$$")


def convert(lines: list[str]) -> list[str]:
    """Convert a docstring."""
    lines = [re.sub(r"^Raises \(.*\):$", "Raises:", line) for line in lines]
    result: list[str] = []
    place, in_section = 0, False
    while place < len(lines):
        line = lines[place]
        in_section = in_section or bool(SECTION.match(line))
        stop = place + 1
        if MARKDOWN_ROW.match(line):
            while stop < len(lines) and MARKDOWN_ROW.match(lines[stop]):
                stop += 1
            result += convert_table(lines[place:stop])
        elif SIMPLE_RULE.match(line):
            rules = [i for i in range(place, len(lines)) if SIMPLE_RULE.match(lines[i])]
            stop = rules[min(2, len(rules) - 1)] + 1
            result += keep_table(lines[place:stop])
        elif line.strip().startswith("$$"):
            while not _is_closed(lines[place:stop]) and stop < len(lines):
                stop += 1
            result += convert_formula(lines[place:stop])
        elif line.startswith("    ") and not in_section and not (place and lines[place - 1]):
            # A formula set apart by its indentation.
            while stop < len(lines) and (not lines[stop].strip() or lines[stop][0] == " "):
                stop += 1
            opened = any(before.endswith("::") for before in lines[max(place - 2, 0) : place])
            result += [*([] if opened else ["::", ""]), *lines[place:stop], ""]
        elif line == "Returns:":
            # As a field: napoleon would take what stands before a colon for a type.
            while stop < len(lines) and lines[stop].startswith(" "):
                stop += 1
            first, *rest = convert_text([line.strip() for line in lines[place + 1 : stop]])
            result += [f":returns: {first}", *(f"    {line}" for line in rest)]
        elif line.strip():
            while stop < len(lines) and _goes_on(lines[stop]):
                stop += 1
            result += convert_text(lines[place:stop])
        else:
            result.append("")
        place = stop
    return result


def _goes_on(line: str) -> bool:
    """Return whether a line belongs to the paragraph before it."""
    starts = (MARKDOWN_ROW, SIMPLE_RULE, SECTION)
    is_other = any(pattern.match(line) for pattern in starts) or line.strip().startswith("$$")
    return bool(line.strip()) and not is_other


CONVERTED: dict[str, list[str]] = {}
"""Docstrings of attributes and properties, by name."""


def read(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Convert the docstring of one object in place, before napoleon sees it."""
    lines[:] = convert(lines)
    if what in ("attribute", "property") and not any(SECTION.match(line) for line in lines):
        CONVERTED[name] = list(lines)


def restore(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Put an attribute's text back, of which napoleon took what precedes a colon for a type."""
    lines[:] = CONVERTED.pop(name, lines)


def shorten(
    app: Sphinx,
    what: str,
    name: str,
    value: object,
    options: object,
    arguments: str | None,
    returns: str | None,
) -> tuple[str | None, str | None] | None:
    """Write array types in a signature by the names that the code has for them."""
    if arguments is None:
        return None
    for long, short in ARRAY_TYPES.items():
        arguments = arguments.replace(long, short)
        returns = returns and returns.replace(long, short)
    return arguments, returns


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the conversion, around napoleon's, and the shorter signatures."""
    app.connect("autodoc-process-docstring", read, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)
    app.connect("autodoc-process-signature", shorten)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
