"""State dicts from files: safetensors, or torch.save read with ``weights_only=True``."""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..checkpoint import CheckpointError

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
"""Names of files that may hold a state dict."""

_STATE_NAMES = ("state_dict", "model_state_dict", "model", "weights")
_CONFIG_NAMES = ("cfg", "config", "model_args")

# Plain numbers of NumPy, which TransformerLens's configurations hold: constructors without effects.
_NUMBERS = [
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f8", "f4", "i8", "i4", "?")),
]


def read_state_file(path: Path) -> dict[str, Any]:
    """Everything in the file: a state dict, or a dict that holds one beside other things.

    Raises:
        CheckpointError: If it is damaged, or could only be read by running code.
    """
    if path.suffix == ".safetensors":
        try:
            return dict(load_file(path))
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} is truncated or not a safetensors file ({error}): copy it again"
            ) from error
    scalar = np.float64(0).__reduce__()[0]  # NumPy's own constructor of scalars, under both names
    names = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
    allowed = [*_NUMBERS, *((scalar, name) for name in names)]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            # About unusual pickle protocols, just before it refuses them.
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds Python objects that could run code when loaded, so it is not loaded: "
            "save the state dict alone, best as safetensors"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path} is truncated or not a torch.save file: copy it again") from (
            error
        )
    if not isinstance(content, Mapping):
        raise CheckpointError(
            f"{path} holds a {type(content).__name__}, not a state dict: save model.state_dict()"
        )
    return dict(content)


def split_state(
    content: Mapping[str, Any], name: str
) -> tuple[dict[str, Tensor], dict[str, Any] | None, str | None]:
    """The state dict, the configuration beside it, and the configuration's name.

    Raises:
        CheckpointError: If there is no state dict, or it holds NaN or infinity.
    """
    state: Any = content
    if not _is_state(content):
        state = next((content[key] for key in _STATE_NAMES if _is_state(content.get(key))), None)
    if state is None:
        raise CheckpointError(
            f"{name} holds no state dict: expected tensors by name, or such a dict under one of "
            f"{', '.join(_STATE_NAMES)}"
        )
    for key, tensor in state.items():
        # Buffers of HookedTransformer hold the -inf that masks scores.
        is_buffer = key.rsplit(".", 1)[-1] in ("IGNORE", "mask")
        if tensor.is_floating_point() and not is_buffer and not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{name}: tensor {key!r} holds NaN or infinity")
    # nanoGPT keeps its model's arguments in model_args and those of its training in config.
    names = sorted(_CONFIG_NAMES, key=lambda key: key != "model_args")
    for key in names:
        if isinstance(content.get(key), Mapping):
            return dict(state), dict(content[key]), key
    return dict(state), None, None


def _is_state(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) > 0
        and all(isinstance(tensor, Tensor) for tensor in value.values())
    )
