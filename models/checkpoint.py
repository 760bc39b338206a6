"""Checkpoints: a folder of ``config.json`` and safetensors; strict to load, never unpickled.

::

    config.json                  schema version, model, task, training, seed
    model.safetensors            raw weights
    model.ema-0.99.safetensors   averaged weights, one file for each average (optional)
"""

import difflib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from .config import SCHEMA_VERSION, TransformerConfig
from .facts import Facts, layers_by_heads
from .folders import check_writable, previous_folder, replaced_folder
from .transformer import Transformer

SHIPPED = Path(__file__).parent / "shipped"
"""Folder of the checkpoints that ship with the package."""

_KIND = "resharpen-checkpoint"
_KEYS = ("schema_version", "kind", "model", "task", "training", "constructed", "seed", "losses")
_PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt")


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message says what is wrong and what to do."""


@dataclass(frozen=True, repr=False)
class Checkpoint(Facts):
    """A model's configuration and weights, with where they come from.

    Attributes:
        config: The model's configuration.
        weights: State dicts by kind: ``"raw"``, and one for each average kept, named as in
            :mod:`resharpen.models.training.averaging`.
        task: Name and parameters of the task it was made for, or ``None``.
        training: The recipe, or ``None`` for a model that was not trained.
        constructed: Parameters of the closed-form construction, or ``None``.
        seed: Seed of the training run, or ``None``.
        losses: Training loss (nats), averaged over at most 100 equal stretches of the run.
        name: What to call it in tables: the shipped name or the folder's name.
    """

    config: TransformerConfig
    weights: Mapping[str, Mapping[str, Tensor]] = field(repr=False)
    task: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    constructed: Mapping[str, Any] | None = None
    seed: int | None = None
    losses: tuple[float, ...] = field(default=(), repr=False)
    name: str = "unnamed"

    def model(self, weights: str = "raw") -> Transformer:
        """Build the model, in evaluation mode.

        Args:
            weights: Which weights: one of the keys of :attr:`weights`.

        Raises:
            ValueError: If there are no such weights.
        """
        if weights not in self.weights:
            raise ValueError(
                f"checkpoint {self.name!r} has no weights {weights!r}; it has "
                f"{', '.join(self.weights)}"
            )
        model = Transformer(self.config)
        model.load_state_dict(dict(self.weights[weights]))
        return model.eval()

    def _facts(self) -> list[tuple[str, str]]:
        """Name, shape, norms, weights, task, length and seed."""
        cfg = self.config
        n_parameters = sum(tensor.numel() for tensor in self.weights["raw"].values())
        made = "constructed in closed form" if self.constructed else "of unknown origin"
        if self.training is not None:
            made = f"trained to length {self.train_length}"
        return [
            ("name", self.name),
            ("model", f"{layers_by_heads(cfg.n_layers, cfg.n_heads)}, d_model {cfg.d_model}, "
                      f"d_vocab {cfg.d_vocab}, {n_parameters} parameters"),
            ("norms", f"{cfg.norm_placement} ({cfg.normalization_type})"),
            ("weights", ", ".join(self.weights)),
            ("task", "none" if self.task is None else str(self.task["name"])),
            ("made", made if self.seed is None else f"{made}, seed {self.seed}"),
        ]  # fmt: skip

    @property
    def digest(self) -> str:
        """SHA-256 of configuration and raw weights: the same content, the same digest."""
        digest = hashlib.sha256(json.dumps(self.config.to_dict(), sort_keys=True).encode())
        for name in sorted(self.weights["raw"]):
            tensor = self.weights["raw"][name].detach().cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    @property
    def train_length(self) -> int | None:
        """Length it was trained at, or ``None``."""
        return None if self.training is None else int(self.training["length"])


def save_checkpoint(checkpoint: Checkpoint, folder: str | os.PathLike[str]) -> Path:
    """Write a checkpoint as a folder, whole or not at all, and return its path.

    Raises:
        FileExistsError: If the folder exists and is not a checkpoint of ours (which would be
            replaced).
        OSError: If nothing can be written there.
    """
    target = Path(folder)
    check_checkpoint_destination(target)
    with replaced_folder(target) as fresh:
        description = {
            "schema_version": SCHEMA_VERSION,
            "kind": _KIND,
            "model": checkpoint.config.to_dict(),
            "task": checkpoint.task,
            "training": checkpoint.training,
            "constructed": checkpoint.constructed,
            "seed": checkpoint.seed,
            "losses": [round(loss, 6) for loss in checkpoint.losses],
        }
        text = json.dumps(description, indent=1, allow_nan=False)
        (fresh / "config.json").write_text(text + "\n", encoding="utf-8")
        for kind, state in checkpoint.weights.items():
            tensors = {name: tensor.detach().contiguous() for name, tensor in state.items()}
            # Written as bytes, since the library's own file is readable by its owner alone.
            (fresh / _weights_file(kind)).write_bytes(save(tensors))
    return target


def load_checkpoint(source: str | os.PathLike[str]) -> Checkpoint:
    """Load a checkpoint of ours from a folder, or one that ships with the package by its name.

    Args:
        source: Path of a folder, or one of :func:`shipped_checkpoints`.

    Raises:
        CheckpointError: If there is none, or anything in it is missing, damaged, unknown, of the
            wrong shape or not a finite number. Nothing is ever unpickled.
    """
    folder = _find(source)
    description = _read_description(folder)
    try:
        config = TransformerConfig.from_dict(description["model"])
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{folder / 'config.json'}: {error}") from error
    expected = {name: tuple(t.shape) for name, t in _meta_model(config).state_dict().items()}
    files = {"raw": folder / _weights_file("raw")}
    for path in sorted(folder.glob("model.*.safetensors")):
        files[path.name.removeprefix("model.").removesuffix(".safetensors")] = path
    return Checkpoint(
        config=config,
        weights={kind: _read_weights(path, expected) for kind, path in files.items()},
        task=description.get("task"),
        training=description.get("training"),
        constructed=description.get("constructed"),
        seed=description.get("seed"),
        losses=tuple(description.get("losses") or ()),
        name=folder.name,
    )


def find_checkpoint(source: Any) -> Checkpoint | None:
    """The checkpoint of ours that a source is, or names; ``None`` for everything else.

    Args:
        source: A :class:`Checkpoint`, the path of its folder, or one of
            :func:`shipped_checkpoints` where no file or folder has that name; anything else may be
            given too.

    Raises:
        CheckpointError: If it is one of ours and cannot be read; see :func:`load_checkpoint`.
    """
    if isinstance(source, Checkpoint):
        return source
    if not isinstance(source, str | os.PathLike):
        return None
    place = Path(source)
    is_shipped = not place.exists() and str(source) in shipped_checkpoints()
    return load_checkpoint(source) if is_shipped or is_checkpoint_folder(place) else None


def shipped_checkpoints() -> tuple[str, ...]:
    """Names of the checkpoints that ship with the package, for :func:`load_checkpoint`."""
    return tuple(sorted(path.parent.name for path in SHIPPED.glob("*/config.json")))


def check_not_misspelt(source: str) -> None:
    """Refuse what is close to the name of a shipped checkpoint, rather than ask a hub for it.

    Raises:
        CheckpointError: With the close names. A name with a slash is a hub's or a path.
    """
    names = shipped_checkpoints()
    close = [] if "/" in source else difflib.get_close_matches(source, names, n=3, cutoff=0.75)
    if close and source not in names:
        raise CheckpointError(
            f"there is no checkpoint {source!r}: did you mean {' or '.join(close)}? (`resharpen "
            "checkpoints` lists all that ship)"
        )


def is_checkpoint_folder(folder: Path) -> bool:
    """Whether a folder is one of our checkpoints, by its ``config.json``."""
    try:
        description = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(description, dict) and description.get("kind") == _KIND


def check_checkpoint_destination(folder: Path) -> None:
    """Raise unless a checkpoint may and can be written here: asked before training too.

    Raises:
        FileExistsError: If the folder exists and is not a checkpoint of ours.
        OSError: If nothing can be written there.
    """
    check_writable(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not is_checkpoint_folder(folder):
        raise FileExistsError(
            f"{folder} exists and is not something this tool wrote: choose another folder"
        )


def _weights_file(kind: str) -> str:
    return "model.safetensors" if kind == "raw" else f"model.{kind}.safetensors"


def _find(source: str | os.PathLike[str]) -> Path:
    folder = Path(source)
    if folder.is_dir():
        return folder
    if str(source) in shipped_checkpoints():
        return SHIPPED / str(source)
    if folder.is_file():
        what = "a pickle, which could run code" if folder.suffix in _PICKLES else "a file"
        raise CheckpointError(
            f"{folder} is {what}; a checkpoint is a folder with config.json and model.safetensors"
        )
    previous = previous_folder(folder)
    if previous.is_dir():
        raise CheckpointError(
            f"there is no folder {str(source)!r}: an interrupted save left the earlier checkpoint "
            f"at {previous}, rename that back"
        )
    raise CheckpointError(
        f"there is no folder {str(source)!r} and no shipped checkpoint of that name; shipped are "
        f"{', '.join(shipped_checkpoints()) or 'none'}"
    )


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder} has no config.json, so it is not a checkpoint of this tool"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(description, dict) or description.get("kind") != _KIND:
        raise CheckpointError(
            f"{path} does not describe a checkpoint of this tool (kind must be {_KIND!r})"
        )
    if description.get("schema_version") != SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema version {description.get('schema_version')!r}; this version reads "
            f"{SCHEMA_VERSION}"
        )
    unknown = sorted(set(description) - set(_KEYS))
    if unknown or not isinstance(description.get("model"), dict):
        wrong = f"unknown key {unknown[0]!r}" if unknown else "no 'model' section"
        raise CheckpointError(f"{path} has {wrong}; known keys are {', '.join(_KEYS)}")
    return description


def _meta_model(config: TransformerConfig) -> Transformer:
    with torch.device("meta"):
        return Transformer(config)


def _read_weights(path: Path, expected: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    try:
        state = load_file(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: the checkpoint has no weights") from error
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is truncated or not a safetensors file ({error}): copy it again"
        ) from error
    missing, extra = sorted(set(expected) - set(state)), sorted(set(state) - set(expected))
    if missing or extra:
        which = f"lacks tensor {missing[0]!r}" if missing else f"has unknown tensor {extra[0]!r}"
        raise CheckpointError(f"{path} {which}: weights and config.json do not belong together")
    for name, shape in expected.items():
        if tuple(state[name].shape) != shape:
            raise CheckpointError(
                f"{path}: tensor {name!r} has shape {tuple(state[name].shape)}, but config.json "
                f"asks for {shape}"
            )
        if not torch.isfinite(state[name]).all():
            raise CheckpointError(f"{path}: tensor {name!r} holds NaN or infinity")
    return state
