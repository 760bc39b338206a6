"""Reads string sets in FLaRe's layout: Butoi et al. (ICLR 2025); theory section 15.

A folder holds

    main.tok             one string a line, symbols apart by spaces, nothing for the empty string
    labels.txt           1 where the string of that line is in the language, 0 where it is not
    next-symbols.jsonl   one line for each string that is: a list of ``n + 1`` objects
                         ``{"s": "legal symbols, apart by spaces", "e": whether it may end here}``

Only strings of the language have next symbols, so only they are read; the labels say which line
belongs to which string, and nothing else is taken from them. Without ``labels.txt`` every string
is of the language. The target is uniform over the legal symbols and the end; a string that its
own next symbols do not allow is refused.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool

from ..task import Batch


@dataclass(frozen=True, eq=False)
class FlareStrings:
    """Strings of one language with what may follow each prefix.

    Attributes:
        alphabet: The symbols. On input their number is the beginning of the string, on output its
            end.
        strings: Each string as places in the alphabet.
        legal: For each string what may follow its prefixes, ``[pos_and_start, symbol_or_end]``.
    """

    alphabet: tuple[str, ...]
    strings: tuple[tuple[int, ...], ...]
    legal: tuple[Bool[np.ndarray, "pos_and_start symbol_or_end"], ...]

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of which there are strings, without repetitions."""
        return tuple(sorted({len(string) for string in self.strings}))

    def batch(self, length: int) -> Batch:
        """All strings of one length, in the order of the file.

        ``next_tokens`` are the strings' own symbols and their end.

        Raises:
            ValueError: If there is no string of that length.
        """
        chosen = [place for place, string in enumerate(self.strings) if len(string) == length]
        if not chosen:
            raise ValueError(
                f"there is no string of length {length}; lengths: "
                f"{', '.join(map(str, self.lengths))}"
            )
        mark = len(self.alphabet)
        whole = torch.tensor([(mark, *self.strings[place], mark) for place in chosen])
        legal = torch.from_numpy(np.stack([self.legal[place] for place in chosen])).float()
        return Batch(
            whole[:, :-1].contiguous(),
            legal / legal.sum(-1, keepdim=True),
            whole[:, 1:].contiguous(),
            torch.ones(1, 1, length + 1, dtype=torch.bool),
            length,
            bos=True,
        )

    def batches(self) -> Iterator[Batch]:
        """One batch a length, shortest first."""
        return map(self.batch, self.lengths)


def read_flare(folder: str | Path, alphabet: tuple[str, ...] | None = None) -> FlareStrings:
    """Read the strings of a language from a folder in FLaRe's layout.

    Args:
        folder: Where ``main.tok`` and ``next-symbols.jsonl`` are.
        alphabet: The symbols, such as those of the training strings where test strings are read;
            by default the symbols that occur in ``next-symbols.jsonl``, sorted.

    Raises:
        ValueError: If a file is malformed or does not fit the others (says which line), there is
            no string of the language, or a symbol of the alphabet comes twice.
        FileNotFoundError: If a file is missing.
    """
    folder = Path(folder)
    words = [line.split() for line in _lines(folder / "main.tok")]
    numbers = list(range(1, len(words) + 1))
    if (folder / "labels.txt").exists():
        labels = _lines(folder / "labels.txt")
        if len(labels) != len(words):
            raise ValueError(
                f"labels.txt must have a line for each of the {len(words)} of main.tok; "
                f"got {len(labels)}"
            )
        for number, label in enumerate(labels, 1):
            if label.strip() not in ("0", "1"):
                raise ValueError(f"labels.txt, line {number}: expected 0 or 1; got {label!r}")
        numbers = [number for number in numbers if labels[number - 1].strip() == "1"]
    rows = [_row(text, number) for number, text in enumerate(_lines(folder / SYMBOLS), 1)]
    if len(rows) != len(numbers):
        raise ValueError(
            f"{SYMBOLS} must have a line for each of the {len(numbers)} strings of the language; "
            f"got {len(rows)}"
        )
    if not rows:
        raise ValueError(f"{folder} holds no string of the language: nothing to read")
    if alphabet is None:
        alphabet = tuple(
            sorted({symbol for row in rows for symbols, _ in row for symbol in symbols})
        )
    elif isinstance(alphabet, str) or len(set(alphabet)) < len(alphabet):
        raise ValueError(f"alphabet must be a tuple of different symbols; got {alphabet!r}")
    place = {symbol: index for index, symbol in enumerate(alphabet)}
    strings, legal = [], []
    for line, (number, row) in enumerate(zip(numbers, rows, strict=True), 1):
        string = words[number - 1]
        _check_known(string, place, f"main.tok, line {number}")
        for symbols, _ in row:
            _check_known(symbols, place, f"{SYMBOLS}, line {line}")
        _check_allowed(string, row, number, line)
        may = np.zeros((len(row), len(alphabet) + 1), dtype=bool)
        for position, (symbols, end) in enumerate(row):
            may[position, [place[symbol] for symbol in symbols]] = True
            may[position, -1] = end
        strings.append(tuple(place[symbol] for symbol in string))
        legal.append(may)
    return FlareStrings(tuple(alphabet), tuple(strings), tuple(legal))


SYMBOLS = "next-symbols.jsonl"

Row = list[tuple[list[str], bool]]


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: expected text in UTF-8; {error}") from error
    return text.removesuffix("\n").split("\n") if text else []


def _row(text: str, number: int) -> Row:
    where = f"{SYMBOLS}, line {number}"
    try:
        values: Any = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: expected a JSON list; {error}") from error
    if not isinstance(values, list) or not values:
        raise ValueError(f"{where}: expected a list of objects; got {text[:60]!r}")
    row: Row = []
    for value in values:
        if (
            not isinstance(value, dict)
            or not isinstance(value.get("s"), str)
            or not isinstance(value.get("e"), bool)
        ):
            raise ValueError(
                f'{where}: expected objects {{"s": "symbols", "e": true or false}}; got {value!r}'
            )
        row.append((value["s"].split(), value["e"]))
    return row


def _check_known(symbols: list[str], known: dict[str, int], where: str) -> None:
    for symbol in symbols:
        if symbol not in known:
            raise ValueError(
                f"{where}: expected symbols of the alphabet ({' '.join(known)}); got {symbol!r}"
            )


def _check_allowed(string: list[str], row: Row, number: int, line: int) -> None:
    where = f"{SYMBOLS}, line {line}"
    if len(row) != len(string) + 1:
        raise ValueError(
            f"{where}: expected {len(string) + 1} objects for the {len(string)} symbols of "
            f"main.tok, line {number}; got {len(row)}"
        )
    for position, (symbol, (symbols, _)) in enumerate(zip(string, row, strict=False)):
        if symbol not in symbols:
            raise ValueError(
                f"{where}: symbol {position + 1} of main.tok, line {number}, {symbol!r}, must be "
                f"among the legal ones; got {' '.join(symbols)!r}"
            )
    if not row[-1][1]:
        raise ValueError(
            f"{where}: the string of main.tok, line {number}, must be allowed to end; got e = false"
        )
