"""The checkpoints below a folder: which there are, in which order, and whether one changed.

A checkpoint is a folder with `config.json` and whole safetensors weights (ours, and Hugging Face's
such as `checkpoint-500`), or a `.gguf` file. What is still being written is none yet.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Fingerprint", "find_checkpoints", "fingerprint", "natural_key", "step_of"]

Fingerprint = Mapping[str, Any]
"""Name of each file to its size in bytes and its time of change in ns."""

_HALF = re.compile(r"^\.|\.partial\b|\.incomplete\b|^tmp[-_]|\.tmp$", re.IGNORECASE)
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.safetensors$")
_NAMED_STEP = re.compile(r"(?:step|iter|checkpoint|ckpt|epoch)s?[-_=]?(\d+)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(\d+)$")


def find_checkpoints(
    folder: Path | str, *, pause: float = 0.5, sleep: Callable[[float], object] = time.sleep
) -> list[Path]:
    """The checkpoints below a folder, itself included, by step, those without a step last.

    Left out as half-written: names that are hidden or say so (`*.partial-*`, `tmp-*`), a folder
    without weights or without one of its shards, an empty file, and whatever changes between two
    looks.

    Args:
        folder: where to look, at any depth.
        pause: seconds between the two looks.
        sleep: what waits.

    Raises:
        ValueError: there is no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r} to look for checkpoints in")
    seen = {path: fingerprint(path) for path in _candidates(root)}
    if not seen:
        return []
    sleep(pause)
    whole = [path for path, before in seen.items() if before and fingerprint(path) == before]
    return sorted(whole, key=lambda path: natural_key(path.relative_to(root), step_of(path)))


def fingerprint(source: Path | str) -> dict[str, list[int]]:
    """Size and time of change of every file of a checkpoint; empty where there is none."""
    path = Path(source)
    try:
        files = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
        stats = {file.name: file.stat() for file in sorted(files)}
    except OSError:
        return {}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def step_of(source: Path | str) -> int | None:
    """The step that a name says: 500 for `checkpoint-500`, `step500-ema` and `run-500`.

    The number after a word such as step or checkpoint, else the number at the end.
    """
    name = Path(source).name.removesuffix(".gguf")
    named = _NAMED_STEP.findall(name) or _LAST_NUMBER.findall(name)
    return int(named[-1]) if named else None


def natural_key(path: Path | str, step: int | None) -> tuple[Any, ...]:
    """Sorts by step, what has none last; then by name, numbers in it by their value."""
    parts = re.split(r"(\d+)", str(path))
    by_value = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return (step is None, step or 0, by_value)


def _candidates(root: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not _HALF.search(name)]
        here = Path(place)
        if "config.json" in files and _has_whole_weights(here, files):
            yield here
        for name in files:
            if name.endswith(".gguf") and not _HALF.search(name) and (here / name).stat().st_size:
                yield here / name


def _has_whole_weights(folder: Path, files: list[str]) -> bool:
    """Whether all the weights are there: one file, or every shard that names and index tell."""
    weights = {name for name in files if name.endswith(".safetensors") and not _HALF.search(name)}
    if not weights or any((folder / name).stat().st_size == 0 for name in weights):
        return False
    shards = [match for name in weights if (match := _SHARD.search(name))]
    if not shards:
        # Of ours the averaged weights alone (`model.ema-0.99.safetensors`) are not enough.
        return not all(re.match(r"model\.(ema-|bema-|uniform)", name) for name in weights)
    if len({int(shard[1]) for shard in shards}) < max(int(shard[2]) for shard in shards):
        return False
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        return set(index["weight_map"].values()) <= weights
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False
