"""The model inside the wrappers of training, and the check that its weights are there."""

from typing import Any

from torch import nn

_PARALLEL = ("DataParallel", "DistributedDataParallel")


def unwrapped(model: Any) -> Any:
    """The model inside ``torch.compile`` and data parallelism; anything else as it is.

    The wrapped model shares its weights and submodules with what is returned.
    """
    while isinstance(model, nn.Module):
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in _PARALLEL:
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner
    return model


def check_weights_present(model: nn.Module) -> None:
    """Refuse a model whose weights have shapes and no numbers.

    Weights that accelerate keeps elsewhere and brings in for each module are fine.

    Raises:
        ValueError: Naming the first parameter on the meta device.
    """
    if any(hasattr(part, "_hf_hook") for part in model.modules()):
        return
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ValueError(
                f"{type(model).__name__} is on the meta device, where {name!r} has a shape and no "
                "numbers: load the model with its weights (from_pretrained, or to_empty and "
                "load_state_dict)"
            )
