"""What a study returns: measurements, theory, findings, verdicts and where they come from.

On disk a result is a folder:

| file | holds |
| --- | --- |
| `result.json` | schema version, sentences, provenance, findings, verdicts, curves |
| `table.parquet` | the tidy table, every number unrounded |
| `report.html` | the report, self-contained (if one was given) |
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from ..interp.tables import check_table, concatenate
from ..interp.theory.curve import Curve
from .findings import VERDICTS, Finding, Verdict
from .markup import html_table
from .provenance import Provenance
from .rows import distinct
from .storage import RESULT_FILE, ResultError, read_folder, write_folder
from .wording import plural

__all__ = ["REPORT_FILE", "TABLE_FILE", "ResultError", "StudyResult"]

TABLE_FILE = "table.parquet"
REPORT_FILE = "report.html"

_SHOWN_FINDINGS = 12
_KEYS = frozenset(
    ("format", "schema_version", "files", "sentences", "provenance", "curves", "findings")
) | {"verdicts"}


@dataclass(frozen=True, eq=False)
class StudyResult:
    """A study's table, the theory for it, and what follows.

    Args:
        table: the tidy table (see `interp.tables`).
        curves: the theory curves.
        findings: each curve beside its rows (see `compare`).
        verdicts: judgements with their thresholds.
        provenance: how it was made.
        sentences: the three or four sentences that matter, most important first.

    Raises:
        ValueError: the table is no tidy table.
    """

    table: pd.DataFrame
    curves: tuple[Curve, ...]
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    provenance: Provenance
    sentences: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the table and keep the sequences as tuples."""
        check_table(self.table)
        if isinstance(self.sentences, str):
            raise ValueError("sentences is a sequence of sentences, got one string")
        for name in ("curves", "findings", "verdicts", "sentences"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings in which a theorem's curve is violated."""
        return tuple(finding for finding in self.findings if finding.violated)

    def save(
        self,
        folder: Path | str,
        report: str | None = None,
        attachments: Mapping[str, str] | None = None,
    ) -> Path:
        """Write the result's folder, whole or not at all; an earlier result there is replaced.

        Args:
            folder: the destination.
            report: the text of `report.html` (see `report.render_report`); None = without.
            attachments: further texts to write beside it, by file name.

        Returns:
            The folder's path.

        Raises:
            ResultError: the destination is not an earlier result, or cannot be written, or an
                attachment has the name of another file or of none.
        """
        buffer = io.BytesIO()
        self.table.to_parquet(buffer, index=False)
        files = {TABLE_FILE: buffer.getvalue()}
        if report is not None:
            files[REPORT_FILE] = report.encode("utf-8")
        for name, text in (attachments or {}).items():
            if name in (RESULT_FILE, TABLE_FILE, REPORT_FILE) or Path(name).name != name:
                raise ResultError(
                    f"an attachment needs a file name of its own, without folders; got {name!r}"
                )
            files[name] = text.encode("utf-8")
        document = {
            "sentences": list(self.sentences),
            "provenance": self.provenance.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "curves": [curve.to_dict() for curve in self.curves],
        }
        return write_folder(folder, document, files)

    @classmethod
    def load(cls, folder: Path | str) -> "StudyResult":
        """Read a folder that `save` wrote.

        Raises:
            ResultError: for whatever is wrong with it, in one sentence.
        """
        document, files = read_folder(folder)
        wrong = _KEYS.symmetric_difference(document)
        if wrong or TABLE_FILE not in files:
            names = ", ".join(sorted(wrong)) or TABLE_FILE
            raise ResultError(f"the result at {folder} has missing or unknown parts: {names}")
        try:
            return cls(
                table=_read_table(files[TABLE_FILE]),
                curves=_read(document["curves"], Curve),
                findings=_read(document["findings"], Finding),
                verdicts=_read(document["verdicts"], Verdict),
                provenance=Provenance.from_dict(document["provenance"]),
                sentences=tuple(str(sentence) for sentence in document["sentences"]),
            )
        except (TypeError, ValueError, KeyError) as error:
            raise ResultError(f"the result at {folder} cannot be read: {error}") from None

    def __repr__(self) -> str:
        """What it holds: rows, quantities, checkpoints, lengths, seeds, findings, verdicts."""
        table = self.table
        lengths = table["length"].dropna()
        seeds = sorted(distinct(table, "seed"))
        parts = [
            plural(len(table), "row"),
            f"{len(distinct(table, 'quantity'))} quantities",
            f"checkpoints {', '.join(distinct(table, 'checkpoint')) or 'none'}",
            f"lengths {lengths.min()} to {lengths.max()}" if len(lengths) else "no lengths",
            f"seeds {', '.join(map(str, seeds))}" if seeds else self._seed_of_sequences(),
            plural(len(self.curves), "curve"),
            f"{plural(len(self.findings), 'finding')} ({len(self.violations)} violated)",
            self._verdict_counts(),
        ]
        if not self.provenance.completed:
            parts.append("NOT COMPLETED")
        studies = ", ".join(distinct(table, "study")) or "empty"
        return f"StudyResult({studies}: {'; '.join(parts)})"

    def _seed_of_sequences(self) -> str:
        """Where no row is of a seeded run: the seed that the inputs were drawn with."""
        drawn = ", ".join(map(str, self.provenance.seeds))
        return f"sequences of seed {drawn}" if drawn else "no seeds"

    def _verdict_counts(self) -> str:
        verdicts = [verdict.verdict for verdict in self.verdicts]
        counts = [f"{verdicts.count(name)} {name}" for name in VERDICTS if name in verdicts]
        return f"verdicts {', '.join(counts)}" if counts else "no verdicts"

    def _repr_html_(self) -> str:
        """Sentences, verdicts and findings for a notebook: violations first, all of them."""
        findings = sorted(self.findings, key=lambda finding: not finding.violated)
        shown = findings[: max(_SHOWN_FINDINGS, len(self.violations))]
        hidden = len(findings) - len(shown)
        parts = [
            "<ul>",
            *(f"<li>{escape(sentence)}</li>" for sentence in self.sentences),
            "</ul>",
            html_table([verdict.row() for verdict in self.verdicts], badge="verdict"),
            html_table([finding.row() for finding in shown], badge="outcome"),
            f"<p>and {plural(hidden, 'more finding')}, none violated</p>" if hidden else "",
            f"<p><code>{escape(repr(self))}</code></p>",
        ]
        return "".join(parts)


def _read(items: Any, record: type[Any]) -> tuple[Any, ...]:
    if not isinstance(items, list):
        raise ValueError(f"expected a list of {record.__name__}s")
    return tuple(record.from_dict(item) for item in items)


def _read_table(content: bytes) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(io.BytesIO(content))
    except Exception as error:  # pyarrow raises its own types, which callers need not know
        raise ResultError(f"{TABLE_FILE} is no parquet file ({type(error).__name__})") from None
    return concatenate([frame])
