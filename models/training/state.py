"""The state that a killed training run resumes from: one safetensors file, replaced atomically."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import AdamW

from ..checkpoint import CheckpointError
from ..config import TransformerConfig
from .averaging import Averages
from .config import TrainingConfig
from .stack import StackedTransformer

STATE_FILE = "training_state.safetensors"


def save_state(
    folder: Path,
    identity: dict[str, Any],
    step: int,
    losses: Tensor,
    stack: StackedTransformer,
    optimizer: AdamW,
    averages: Averages,
) -> None:
    """Write everything the next step depends on.

    Args:
        folder: Where to write; made if missing.
        identity: What the run is; a resumed run must be the same.
        step: Number of steps done.
        losses: Loss of each step and seed so far, ``[step, seed]``.
        stack: The models.
        optimizer: Their optimiser.
        averages: Averages of their weights.
    """
    tensors: dict[str, Tensor] = {"losses": losses}
    for index, weight in enumerate(stack.weights):
        tensors[f"weight.{index}"] = weight.detach()
        for name, value in optimizer.state[weight].items():
            tensors[f"optimizer.{index}.{name}"] = value
    for name, value in averages.state().items():
        tensors[f"average.{name}"] = value
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / (STATE_FILE + ".partial")
    metadata = {"step": str(step), "identity": json.dumps(identity, sort_keys=True)}
    save_file({name: t.contiguous() for name, t in tensors.items()}, partial, metadata)
    os.replace(partial, folder / STATE_FILE)


def load_state(
    folder: Path,
    identity: dict[str, Any],
    stack: StackedTransformer,
    optimizer: AdamW,
    averages: Averages,
) -> tuple[int, Tensor] | None:
    """Restore a saved run in place and return ``(steps done, losses)``; ``None`` if there is none.

    Raises:
        CheckpointError: If the file is damaged or belongs to a different run.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a readable training state ({error}): delete it to start afresh"
        ) from error
    if not _same_run(metadata.get("identity"), identity):
        raise CheckpointError(
            f"{path} belongs to a different run (other configuration, task or seeds): choose "
            "another folder, or delete it to start afresh"
        )
    with torch.no_grad():
        for index, weight in enumerate(stack.weights):
            weight.copy_(tensors[f"weight.{index}"])
            prefix = f"optimizer.{index}."
            optimizer.state[weight] = {
                name.removeprefix(prefix): value
                for name, value in tensors.items()
                if name.startswith(prefix)
            }
    prefix = "average."
    averages.load(
        {
            name.removeprefix(prefix): value
            for name, value in tensors.items()
            if name.startswith(prefix)
        }
    )
    return int(metadata["step"]), tensors["losses"]


def _same_run(kept: str | None, identity: dict[str, Any]) -> bool:
    """Whether a state is this run's; fields that its version did not have yet are the defaults."""
    try:
        run = json.loads(kept or "")
        run["model"] = TransformerConfig.from_dict(run["model"]).to_dict()
        run["training"] = TrainingConfig.from_dict(run["training"]).to_dict()
    except (ValueError, TypeError, KeyError):
        return False
    return json.dumps(run, sort_keys=True) == json.dumps(identity, sort_keys=True)
