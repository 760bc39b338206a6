"""Training runs that are made once: a cache of checkpoints by what they were asked to be.

The key is a hash of the configuration, the task, the recipe, the seeds and the source code of
``resharpen.models``: change any of them and the run is made anew.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ..models.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from ..models.config import TransformerConfig
from ..models.tasks import Task
from ..models.training import TrainingConfig, discard_state, train

_ROOMS = Path(__file__).resolve().parent.parent


def default_cache() -> Path:
    """Folder of the cache: ``$RESHARPEN_CACHE``, else ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get("RESHARPEN_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "resharpen"


def run_key(
    cfg: TransformerConfig, task: Task, training: TrainingConfig, seeds: Sequence[int]
) -> str:
    """Hash that names a run: everything its weights depend on, 16 hexadecimal digits."""
    asked = {
        "model": cfg.to_dict(),
        "task": task.to_dict(),
        "training": training.to_dict(),
        "seeds": list(seeds),
        "code": code_digest("models"),
    }
    return key_of(asked)


def key_of(asked: Mapping[str, Any]) -> str:
    """Hash that names whatever was asked for, as plain values: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def cached_train(
    cfg: TransformerConfig,
    task: Task,
    training: TrainingConfig,
    seeds: Sequence[int],
    cache: Path,
    *,
    progress: bool = False,
    on_step: Callable[[int, Tensor], None] | None = None,
) -> tuple[list[Checkpoint], bool]:
    """Train, or load what an earlier call trained; a killed run resumes.

    Args:
        cfg: Model.
        task: Task.
        training: Recipe.
        seeds: Seeds, trained together.
        cache: Folder of the cache.
        progress: Whether to show a progress bar.
        on_step: As for :func:`resharpen.models.train`.

    Returns:
        One checkpoint a seed, and whether they came from the cache.
    """
    folder = cache / "runs" / run_key(cfg, task, training, seeds)
    places = [folder / f"seed-{seed}" for seed in seeds]
    try:
        return [load_checkpoint(place) for place in places], True
    except CheckpointError:
        pass
    checkpoints = train(
        cfg, task, training, seeds, folder=folder, progress=progress, on_step=on_step
    )
    for checkpoint, place in zip(checkpoints, places, strict=True):
        save_checkpoint(checkpoint, place)
    discard_state(folder)
    return checkpoints, False


@functools.cache
def code_digest(room: str) -> str:
    """Hash of the source code of a room, such as ``models``; read once, as the code itself is."""
    folder, digest = _ROOMS / room, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
