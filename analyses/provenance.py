"""Where a result comes from: what was asked and resolved, by which code, with which checkpoints."""

import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .record import Record, encode

__all__ = ["PACKAGES", "Provenance", "provenance"]

PACKAGES = (
    "resharpen",
    "torch",
    "transformer-lens",
    "numpy",
    "pandas",
    "pyarrow",
    "plotly",
    "safetensors",
)
"""Packages whose version can change a number, a file or a figure."""


@dataclass(frozen=True, repr=False)
class Provenance(Record):
    """Everything needed to say how a result was made.

    Args:
        asked: the configuration as the user gave it.
        resolved: the same with every default filled in.
        seeds: the seeds of the independent runs.
        checkpoints: name to SHA-256 of each checkpoint's weights.
        packages: name to version, None = not installed.
        python: version of Python.
        machine: operating system and processor, without the host's name.
        commit: git commit of the toolkit's code, None outside a checkout.
        dirty: whether that checkout had changes not committed, None outside a checkout.
        created: UTC, ISO 8601.
        completed: False for what an interrupted run left.
    """

    asked: Mapping[str, Any]
    resolved: Mapping[str, Any]
    seeds: tuple[int, ...]
    checkpoints: Mapping[str, str]
    packages: Mapping[str, str | None]
    python: str
    machine: str
    commit: str | None
    dirty: bool | None
    created: str
    completed: bool


def provenance(
    asked: Mapping[str, Any],
    resolved: Mapping[str, Any],
    seeds: Iterable[int] = (),
    checkpoints: Mapping[str, str] | None = None,
    completed: bool = True,
) -> Provenance:
    """Collect versions, git commit and time, and put them beside what was asked.

    Versions are read from the installed packages' metadata: nothing is imported.

    Args:
        asked: the configuration as given; whatever `record.encode` takes.
        resolved: the configuration with its defaults filled in.
        seeds: seeds of the independent runs.
        checkpoints: name to hash.
        completed: False if the run was interrupted.

    Raises:
        TypeError: `asked` or `resolved` holds something that JSON cannot.
    """
    commit, dirty = _git_state(Path(__file__).resolve())
    return Provenance(
        asked=encode(asked),
        resolved=encode(resolved),
        seeds=tuple(int(seed) for seed in seeds),
        checkpoints=dict(checkpoints or {}),
        packages={name: _version(name) for name in PACKAGES},
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        commit=commit,
        dirty=dirty,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        completed=completed,
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_state(source: Path) -> tuple[str | None, bool | None]:
    """Commit and dirty flag of the checkout that tracks this file; (None, None) if none does.

    An installed copy may lie inside somebody else's checkout: that one does not track it.
    """
    if _git(source.parent, "ls-files", "--error-unmatch", source.name) is None:
        return None, None
    commit = _git(source.parent, "rev-parse", "HEAD")
    changes = _git(source.parent, "status", "--porcelain")
    return commit, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, None if it fails or there is none."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
