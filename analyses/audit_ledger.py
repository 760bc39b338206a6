"""What has been audited into a folder: `audited.json` beside its results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checkpoint_places import natural_key
from .record import Record
from .storage import RESULT_FILE, ResultError, write_whole

__all__ = ["LEDGER_FILE", "AuditRecord", "Ledger"]

LEDGER_FILE = "audited.json"

_FORMAT = "resharpen-audited"
_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class AuditRecord(Record):
    """What became of one checkpoint.

    Args:
        name: its folder below OUT.
        source: its path, or the name it goes by.
        step: the step that its name says; None if it says none.
        status: `audited`; `kept`, audited before and not changed since; `failed`; `interrupted`,
            measured in part.
        verdict: the worst verdict on the model; empty if there is none.
        sentence: the first sentence of the result, or what went wrong.
        kind: the type of the error; empty if there was none.
        fingerprint: sizes and times of its files when the audit began (see `fingerprint`).
        settings: what the audit was asked for.
    """

    name: str
    source: str
    step: int | None
    status: str
    verdict: str
    sentence: str
    kind: str
    fingerprint: Mapping[str, Any]
    settings: Mapping[str, Any]


class Ledger:
    """The records of a folder, on disk at any time.

    Args:
        out: the folder; made when the first record is put.

    Raises:
        ResultError: it is a file or a single result, or its ledger cannot be read.
    """

    def __init__(self, out: Path | str) -> None:
        """Read what the folder has, if anything."""
        self.out = Path(out)
        self._file = self.out / LEDGER_FILE
        if self.out.exists() and not self.out.is_dir():
            raise ResultError(f"{out} is a file: give a folder for the results")
        if (self.out / RESULT_FILE).exists():
            raise ResultError(
                f"{out} is the result of a single study: give another folder for many results"
            )
        self._records = {record.source: record for record in self._read()}

    @property
    def records(self) -> tuple[AuditRecord, ...]:
        """Every record, by step, those without a step last."""
        return tuple(
            sorted(self._records.values(), key=lambda one: natural_key(one.source, one.step))
        )

    def find(self, key: str) -> AuditRecord | None:
        """The record of a checkpoint, if there is one."""
        return self._records.get(key)

    @staticmethod
    def key(source: Path | str) -> str:
        """What a checkpoint is known by: its absolute path, or its name where that is no path."""
        return str(Path(source).resolve()) if Path(source).exists() else str(source)

    def name_for(self, key: str, taken: set[str]) -> str:
        """The name of a checkpoint's folder: that of its record, else one that is free.

        `checkpoint-500`, or `run-2--checkpoint-500` where the short one is another checkpoint's.
        """
        known = self.find(key)
        if known is not None:
            return known.name
        taken = taken | {record.name for record in self._records.values()}
        parts = [part for part in Path(key).parts if part.strip("/\\")]
        for count in range(1, len(parts) + 1):
            name = "--".join(parts[-count:])
            if name not in taken:
                return name
        return f"{'--'.join(parts)}-{len(taken)}"

    def put(self, record: AuditRecord) -> None:
        """Keep a record in place of an earlier one of the same checkpoint; whole or not at all."""
        self._records[record.source] = record
        document = {
            "format": _FORMAT,
            "schema_version": _SCHEMA_VERSION,
            "checkpoints": [one.to_dict() for one in self.records],
        }
        self.out.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    def _read(self) -> list[AuditRecord]:
        try:
            document = json.loads(self._file.read_text(encoding="utf-8"))
            if (document["format"], document["schema_version"]) != (_FORMAT, _SCHEMA_VERSION):
                raise ValueError("another format or version")
            return [AuditRecord.from_dict(item) for item in document["checkpoints"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultError(
                f"{self._file} cannot be read ({error}): remove it to audit everything anew"
            ) from None
