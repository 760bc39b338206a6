"""Formal languages: what may follow this prefix of a string of the language?

Strings of a language over ``A`` symbols, uniform over those of exactly ``n`` symbols (drawn by
counting, :mod:`.languages.paths`), behind a beginning-of-sequence token, so that the first symbol
is predicted too. After every prefix the target is exact:

    uniform   1 / L for each of the L answers that are legal, among them the end of the string
    grammar   the distribution of the language's own grammar: Hewitt et al.'s of Dyck-(k, m),
              Bhattamishra et al.'s of Dyck-k without a bound; others have none

The strings are the same for both, and uniform: those that a grammar generates have any length, and
among the strings of one length it prefers some. A grammar's target at a prefix is what it generates
next, over all strings of any length that begin so.

A symbol is legal where some string of the language goes on with it; the end is, where the prefix
is a string of the language. Sources of each language: :mod:`.languages`; theory section 15.

Id ``A`` opens a string on input and ends it on output. ``next_tokens`` are drawn from the targets,
not read off the string, which is one of a given length.

Worked example, Dyck-1, ``( ) ( )``, ids ``2, 0, 1, 0, 1``: after ``2`` the opener and the end have
1/2 each, after ``(`` the opener and the closer, after ``( )`` the opener and the end, and so on.

Which keys matter depends on the way a model reads the language, so all are called relevant, the
opening token among them: the relevant mass is 1 and says nothing. Most languages need the order
of the symbols; parity, Tomita 5 and 6, majority, balance and the shuffles of Dyck-1 read counts.

Degenerate lengths: at lengths that no string of the language has there is nothing to draw, and
they are refused.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .drawn import DrawnTask, next_draws
from .languages.catalogue import find_language
from .task import Batch, TaskKind

LanguageTargets = Literal["uniform", "grammar"]


@dataclass(frozen=True)
class LanguageTask(DrawnTask):
    """Next-symbol prediction in a formal language.

    Attributes:
        language: Name of the language; see :func:`~resharpen.models.tasks.languages.find_language`.
        targets: ``"uniform"`` over what is legal, or the ``"grammar"``'s own distribution.
    """

    name: ClassVar[str] = "language"
    kind: ClassVar[TaskKind] = "mixed"
    needs_positions: ClassVar[bool] = True
    length_note: ClassVar[str] = "the number of symbols"
    language: str = "tomita-3"
    targets: LanguageTargets = "uniform"

    def __post_init__(self) -> None:
        """Check that the language is known and has the targets that are asked for."""
        language = find_language(self.language)
        if self.targets not in get_args(LanguageTargets):
            raise ValueError(f"targets must be uniform or grammar; got {self.targets!r}")
        if self.targets == "grammar" and language.grammar(np.zeros((1, 0), dtype=np.int64)) is None:
            raise ValueError(
                f"the language {self.language} has no grammar with a distribution: use "
                'targets="uniform"'
            )

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols, in the order of their ids."""
        return find_language(self.language).alphabet

    @property
    def d_vocab(self) -> int:
        """``A + 1``: the symbols and the beginning of the sequence."""
        return len(self.alphabet) + 1

    @property
    def d_vocab_out(self) -> int:
        """``A + 1``: the symbols and the end of the string."""
        return len(self.alphabet) + 1

    @property
    def min_length(self) -> int:
        """Length of the shortest string that is not empty."""
        language = find_language(self.language)
        return 1 if language.has(1) else language.nearest(1)[0]

    def check_length(self, length: int) -> None:
        """Refuse a length that no string of the language has.

        Raises:
            ValueError: If it is less than ``min_length`` or one that the language leaves out.
        """
        super().check_length(length)
        language = find_language(self.language)
        if not language.has(length):
            near = " and ".join(map(str, language.nearest(length)))
            raise ValueError(
                f"{self.name}: {self.language} has no string of length {length}; the nearest "
                f"lengths that have one: {near}"
            )

    def exact_targets(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Distribution over what may follow each prefix; a row is NaN behind an illegal symbol.

        Args:
            tokens: Sequences that the beginning-of-sequence token opens, symbols behind it.

        Raises:
            ValueError: If they are something else.
        """
        language, mark = find_language(self.language), len(self.alphabet)
        if tokens.ndim != 2 or not tokens.shape[1] or tokens.is_floating_point():
            raise ValueError(
                f"{self.name}: tokens must be whole numbers [batch, pos], the opening token among "
                f"them; got {tokens.dtype} {list(tokens.shape)}"
            )
        inner = tokens[:, 1:]
        right = (tokens[:, 0] == mark) & ((inner >= 0) & (inner < mark)).all(1)
        if not right.all():
            raise ValueError(
                f"{self.name}: every sequence must be the token {mark} and then symbols of "
                f"{self.language}, 0 to {mark - 1}; got {tokens[~right][0].tolist()}"
            )
        symbols = inner.numpy()
        weights = (
            language.grammar(symbols) if self.targets == "grammar" else language.legal(symbols)
        )
        masses = torch.from_numpy(weights).float()
        return masses / masses.sum(-1, keepdim=True)

    def _widths(self, length: int) -> tuple[int, ...]:
        return (find_language(self.language).width(length), length + 1)

    def _build(self, length: int, *uniforms: np.ndarray) -> Batch:
        strings, draws = uniforms
        symbols = torch.from_numpy(find_language(self.language).draw(length, strings))
        opening = torch.full_like(symbols[:, :1], self.d_vocab - 1)
        tokens = torch.cat([opening, symbols], dim=1)
        targets = self.exact_targets(tokens)
        relevant = torch.ones(1, 1, length + 1, dtype=torch.bool)
        return Batch(tokens, targets, next_draws(targets, draws), relevant, length, bos=True)
