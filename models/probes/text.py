"""Text: windows of a text file, or of the passage that ships with the package.

Each sequence is a stretch of consecutive tokens that begins at a uniformly drawn place; every
position is scored against the token that really follows. No query needs a particular key.

The passage that ships is chapter I of Jane Austen's *Pride and Prejudice* (London: T. Egerton,
1813). The author died in 1817; the work is in the public domain everywhere. It has some 850 words:
enough for short lengths. Longer lengths need a longer text of the user's.

Worked example, tokens of the text ``5 3 8 1 9``, length 3: one of ``5 3 8`` (labels ``3 8 1``) and
``3 8 1`` (labels ``8 1 9``).

Degenerate lengths: one token, or with a beginning-of-sequence token that alone, is refused, as is a
length that leaves no token to follow.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..facts import Facts
from .batch import NO_KEY, ProbeBatch, check_batch, make_batch

Encode = Callable[[str], Sequence[int]]
"""A tokenizer: from a text to token ids, without special tokens."""

_PASSAGE = Path(__file__).with_name("pride_and_prejudice.txt")


def shipped_text() -> str:
    """The passage that ships with the package (its provenance is told in this module)."""
    return _PASSAGE.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Text(Facts):
    """The probe of running text.

    Attributes:
        encode: The model's tokenizer, ``str -> list of int``, adding no special tokens.
        path: UTF-8 file to read; ``None`` is the passage that ships.
        bos: Id that opens every sequence, or ``None``. Its own successor is not scored.
    """

    name: ClassVar[str] = "text"
    nested: ClassVar[bool] = True
    encode: Encode = field(repr=False)
    path: str | Path | None = None
    bos: int | None = None

    @cached_property
    def text(self) -> str:
        """The text.

        Raises:
            ValueError: If the file cannot be read as UTF-8.
        """
        if self.path is None:
            return shipped_text()
        try:
            return Path(self.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} cannot be read as UTF-8 text: {error}") from error

    @cached_property
    def ids(self) -> np.ndarray:
        """The text's token ids, int64.

        Raises:
            ValueError: If the tokenizer does not return a sequence of whole numbers.
        """
        ids = np.asarray(list(self.encode(self.text)))
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                "encode must turn a text into a sequence of token ids; it returned "
                f"{ids.ndim}-d {ids.dtype}"
            )
        return ids.astype(np.int64)

    def check_length(self, length: int) -> None:
        """Refuse a length at which the probe is not defined.

        Raises:
            ValueError: If it holds fewer than two tokens of text or more than the text has.
        """
        opening = int(self.bos is not None)
        if length - opening < 2:
            raise ValueError(f"text needs a length of at least {2 + opening}; got {length}")
        limit = len(self.ids) - 1 + opening
        if length > limit:
            source = "the text that ships" if self.path is None else str(self.path)
            raise ValueError(
                f"length {length} is more than {source} has: its {len(self.ids)} tokens allow "
                f"{limit}; give a longer text"
            )

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> ProbeBatch:
        """Draw windows of the text.

        Raises:
            ValueError: If ``batch`` is less than 1 or the length is not defined.
        """
        self.check_length(length)
        check_batch(batch)
        n_body = length - (self.bos is not None)
        n_places = len(self.ids) - n_body
        first = np.floor(generator.random((batch, 1)) * n_places).astype(np.int64)
        index = first + np.arange(n_body)
        nothing = np.full(index.shape, NO_KEY)
        return make_batch(self.ids[index], nothing, self.ids[index + 1], length, self.bos)

    def to_dict(self) -> dict[str, Any]:
        """Name, where the text is from, its SHA-256 and its number of tokens."""
        return {
            "name": self.name,
            "path": None if self.path is None else str(self.path),
            "sha256": hashlib.sha256(self.text.encode()).hexdigest(),
            "n_tokens": len(self.ids),
            "bos": self.bos,
        }
