"""A result's folder: written whole or not at all (see `models.folders`), read strictly."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..models.folders import check_writable, previous_folder, replaced_folder

__all__ = [
    "FORMAT",
    "RESULT_FILE",
    "SCHEMA_VERSION",
    "ResultError",
    "check_destination",
    "find_document",
    "read_folder",
    "whole_file",
    "write_folder",
    "write_whole",
]

FORMAT = "resharpen-result"
"""What the `format` key of every `result.json` says."""

SCHEMA_VERSION = 1
"""Version of the layout of `result.json`; another one is refused."""

RESULT_FILE = "result.json"


class ResultError(ValueError):
    """A result could not be written or read; the message is one sentence that says what to do."""


def check_destination(folder: Path | str) -> Path:
    """Raise unless a result may and can be written here; returns the resolved path.

    Nothing there, an empty folder, or an earlier result (which would be replaced whole) are fine.
    A study calls this before hours of work, `write_folder` again after.

    Raises:
        ResultError: a file, a folder that is not a result, a result folder into which something
            else was put, which a replacement would delete; or a place where the system lets
            nothing be written.
    """
    path = Path(folder).resolve()
    try:
        check_writable(Path(folder))
    except OSError as error:
        raise ResultError(str(error)) from None
    if not path.exists():
        return path
    if not path.is_dir():
        raise ResultError(f"{folder} is a file: give a folder for the result")
    present = {entry.name for entry in path.iterdir()}
    if not present:
        return path
    try:
        listed = set(_read_json(path)["files"]) | {RESULT_FILE}
    except ResultError:
        raise ResultError(
            f"{folder} holds something that is not a resharpen result, so it is not replaced: "
            "give another folder, or remove this one yourself"
        ) from None
    foreign = sorted(present - listed)
    if foreign:
        raise ResultError(
            f"{folder} holds {', '.join(foreign[:3])} beside the result, which replacing it would "
            "delete: move that away, or give another folder"
        )
    return path


def write_folder(
    folder: Path | str, document: Mapping[str, Any], files: Mapping[str, bytes]
) -> Path:
    """Write `result.json` and the files, atomically.

    Args:
        folder: the destination; parents are made.
        document: JSON-able, without the keys `format`, `schema_version` and `files`, which are
            added: the last with the size and SHA-256 of each file.
        files: name to content.

    Returns:
        The folder's resolved path.

    Raises:
        ResultError: the destination may not be replaced (see `check_destination`), or the system
            refuses to write.
    """
    path = check_destination(folder)
    document = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        **document,
        "files": {name: _fingerprint(content) for name, content in files.items()},
    }
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    try:
        with replaced_folder(path) as fresh:
            for name, content in files.items():
                (fresh / name).write_bytes(content)
            (fresh / RESULT_FILE).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ResultError(f"could not write the result to {folder}: {error.strerror}") from error
    return path


def read_folder(folder: Path | str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document and the files of a result, checked against their sizes and hashes.

    Raises:
        ResultError: no such folder, no result, another schema version, a file missing, truncated
            or changed.
    """
    path = Path(folder).resolve()
    if not path.is_dir():
        previous = previous_folder(path)
        if previous.is_dir():
            raise ResultError(
                f"there is no result folder at {folder}: an interrupted save left the earlier "
                f"result at {previous}, rename that back"
            )
        raise ResultError(f"there is no result folder at {folder}")
    document = _read_json(path)
    contents = {}
    for name, fingerprint in document["files"].items():
        try:
            content = (path / name).read_bytes()
        except OSError:
            raise ResultError(f"the result at {folder} lacks {name}: run the study again") from None
        if _fingerprint(content) != fingerprint:
            raise ResultError(
                f"{name} in {folder} is not the file that was saved (truncated or changed): "
                "run the study again"
            )
        contents[name] = content
    return document, contents


def find_document(folder: Path | str) -> dict[str, Any] | None:
    """`result.json` of the result that stands here; None where none does that can be read."""
    try:
        return _read_json(Path(folder).resolve())
    except ResultError:
        return None


def _read_json(path: Path) -> dict[str, Any]:
    """`result.json`, its format, schema version and list of files checked."""
    file = path / RESULT_FILE
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultError(f"{path} has no {RESULT_FILE}: it is not a resharpen result") from None
    except OSError as error:
        raise ResultError(f"could not read {file}: {error.strerror}") from None
    except ValueError:
        raise ResultError(f"{file} is truncated or not JSON: run the study again") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ResultError(f"{file} does not say format {FORMAT!r}: it is not a resharpen result")
    found = document.get("schema_version")
    if found != SCHEMA_VERSION:
        raise ResultError(
            f"{file} has schema version {found!r}, this resharpen reads {SCHEMA_VERSION}: "
            "read it with the version that wrote it, or run the study again"
        )
    files = document.get("files")
    if not isinstance(files, dict) or any(Path(name).name != name for name in files):
        raise ResultError(f"{file} has no valid list of files: run the study again")
    return document


def _fingerprint(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield another name to write to, and rename it to the file's: whole or not at all."""
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield partial
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(file: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole_file(file) as partial:
        partial.write_text(text, encoding="utf-8")
