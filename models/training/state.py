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
from torch.optim.swa_utils import AveragedModel

from ..checkpoint import CheckpointError
from .stack import StackedTransformer

STATE_FILE = "training_state.safetensors"


def save_state(
    folder: Path,
    identity: dict[str, Any],
    step: int,
    losses: Tensor,
    stack: StackedTransformer,
    optimizer: AdamW,
    averages: dict[float, AveragedModel],
) -> None:
    """Write everything the next step depends on.

    Args:
        folder: Where to write; made if missing.
        identity: What the run is; a resumed run must be the same.
        step: Number of steps done.
        losses: Loss of each step and seed so far, ``[step, seed]``.
        stack: The models.
        optimizer: Their optimiser.
        averages: Averaged models by decay.
    """
    tensors: dict[str, Tensor] = {"losses": losses}
    for index, weight in enumerate(stack.weights):
        tensors[f"weight.{index}"] = weight.detach()
        for name, value in optimizer.state[weight].items():
            tensors[f"optimizer.{index}.{name}"] = value
    for decay, average in averages.items():
        for name, value in average.state_dict().items():
            tensors[f"average.{decay}.{name}"] = value
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
    averages: dict[float, AveragedModel],
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
    if metadata.get("identity") != json.dumps(identity, sort_keys=True):
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
    for decay, average in averages.items():
        prefix = f"average.{decay}."
        average.load_state_dict(
            {
                name.removeprefix(prefix): value
                for name, value in tensors.items()
                if name.startswith(prefix)
            }
        )
    return int(metadata["step"]), tensors["losses"]
