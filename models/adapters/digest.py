"""A fingerprint of a model's weights, and the check that they are numbers."""

import hashlib

import torch
from torch import Tensor, nn

from ..checkpoint import CheckpointError


def digest_weights(module: nn.Module) -> str | None:
    """SHA-256 over names, dtypes, shapes and bytes of the state dict, sorted by name.

    A TransformerBridge renames what it wraps, so a bridge's digest is not that of its model.

    Returns:
        64 hexadecimal digits, or ``None`` if some weights cannot be read (offloaded to disk).
    """
    digest = hashlib.sha256()
    state = module.state_dict()
    for name in sorted(state):
        tensor = state[name]
        if not isinstance(tensor, Tensor):
            continue
        if tensor.is_meta:
            return None
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_finite(module: nn.Module, name: str) -> None:
    """Refuse weights that are not numbers.

    Raises:
        CheckpointError: Naming the first parameter that holds NaN or infinity.
    """
    for parameter_name, parameter in module.named_parameters():
        if parameter.is_floating_point() and not parameter.is_meta:
            # A sum is finite only if every entry is, and costs no temporary of the tensor's size;
            # a sum of finite entries can overflow, hence the second look.
            total = parameter.detach().sum(dtype=torch.float32)
            if not bool(total.isfinite()) and not bool(parameter.detach().isfinite().all()):
                raise CheckpointError(
                    f"{name}: tensor {parameter_name!r} holds NaN or infinity, so nothing measured "
                    "on this model would mean anything"
                )
