"""One door: from whatever the user has to an adapter that was checked."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from ..checkpoint import Checkpoint, CheckpointError, check_not_misspelt, find_checkpoint
from ..transformer import Transformer
from .adapter import Adapter
from .checked import check_adapter
from .hook_points import HookPointAdapter, has_pattern_hooks
from .own import OwnAdapter
from .state_files import SUFFIXES, read_state_file, split_state
from .wrappers import unwrapped


def adapt(
    source: Any,
    config: Mapping[str, Any] | None = None,
    *,
    weights: str = "raw",
    dtype: str = "auto",
    device_map: Any = None,
) -> Adapter:
    """Adapt a model, or load one and adapt it; the adapter is checked before it is returned.

    Nothing is ever unpickled, and no code that comes with a checkpoint is run.

    Args:
        source: One of

            * a checkpoint of ours: a :class:`~resharpen.models.Checkpoint`, its folder, the name of
              a shipped one, or a :class:`~resharpen.models.Transformer`;
            * a Hugging Face folder (``config.json`` and safetensors), a ``.gguf`` file, a loaded
              ``PreTrainedModel``, or a name on the hub;
            * a ``TransformerBridge`` of TransformerLens 4, a ``HookedTransformer`` of 2 or 3, or
              any module with hook points ``blocks.N.attn.hook_pattern``;
            * a state dict of ``HookedTransformer`` or of nanoGPT: the mapping, or a file written
              with safetensors or ``torch.save``;
            * an :class:`Adapter` of your own.

            A model wrapped by ``torch.compile`` or data parallelism is looked into.
        config: For a state dict: its configuration, if the file does not hold it.
        weights: For our checkpoints: which weights, ``"raw"`` or an average.
        dtype: For Hugging Face: dtype to load in, ``"auto"`` for the checkpoint's own.
        device_map: For Hugging Face: as ``from_pretrained`` takes it.

    Raises:
        CheckpointError: If it cannot be read; one sentence says what is wrong and what to do.
        ValueError: If the model cannot be captured exactly; the message says why.
        TypeError: If ``source`` is nothing of the above.
    """
    adapter = _open(source, config, weights, {"dtype": dtype, "device_map": device_map})
    return check_adapter(adapter)


def _open(
    source: Any, config: Mapping[str, Any] | None, weights: str, options: dict[str, Any]
) -> Adapter:
    if isinstance(source, Adapter):
        return source
    source = unwrapped(source)
    checkpoint = find_checkpoint(source)
    if checkpoint is not None:
        check_load_options(checkpoint, **options)
        return _own(checkpoint, weights)
    if isinstance(source, nn.Module):
        return _module(source)
    if isinstance(source, Mapping):
        return _state(source, config, "the state dict")
    if isinstance(source, str | os.PathLike):
        return _path(source, config, options)
    raise TypeError(
        "expected a model, a checkpoint, a state dict or a path to adapt; got "
        f"{type(source).__name__}"
    )


def check_load_options(checkpoint: Checkpoint, dtype: str, device_map: Any) -> None:
    """Refuse options of Hugging Face for a checkpoint of ours, on which they have no effect.

    Raises:
        ValueError: If one is given.
    """
    for name, given, default in (("dtype", dtype, "auto"), ("device_map", device_map, None)):
        if given != default:
            raise ValueError(
                f"{name} is for models of Hugging Face, and {checkpoint.name} is a checkpoint of "
                f"this toolkit, which is loaded as it was saved: leave it out; got {given!r}"
            )


def _own(checkpoint: Checkpoint, weights: str) -> OwnAdapter:
    return OwnAdapter(checkpoint.model(weights), checkpoint.digest if weights == "raw" else None)


def _module(module: nn.Module) -> Adapter:
    if isinstance(module, Transformer):
        return OwnAdapter(module)
    if any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__):
        from .hugging_face import HuggingFaceAdapter

        return HuggingFaceAdapter(module)  # type: ignore[arg-type]
    if has_pattern_hooks(module):
        return HookPointAdapter(module)
    raise ValueError(
        f"{type(module).__name__} is no Hugging Face model and has no hook points "
        "blocks.N.attn.hook_pattern: show its attention through a small Adapter (see "
        "resharpen.models.adapters.adapter)"
    )


def _path(
    source: str | os.PathLike[str],
    config: Mapping[str, Any] | None,
    options: dict[str, Any],
) -> Adapter:
    path = Path(source)
    if path.is_dir():
        return _folder(path, config, options)
    if path.is_file():
        if path.suffix == ".gguf":
            from .pretrained import load_gguf

            return _module(load_gguf(path, **options))
        if path.suffix in SUFFIXES:
            return _state(read_state_file(path), config, str(path))
        raise CheckpointError(
            f"{path} is no checkpoint: expected a folder, a .gguf file, or a state dict "
            f"({', '.join(SUFFIXES)})"
        )
    words = str(source)
    is_path = isinstance(source, os.PathLike) or words.count("/") > 1 or "\\" in words
    if is_path or path.suffix in (*SUFFIXES, ".gguf"):
        raise CheckpointError(f"there is no file or folder {words!r}")
    check_not_misspelt(words)
    from .pretrained import load_name

    return _module(load_name(str(source), **options))


def _folder(folder: Path, config: Mapping[str, Any] | None, options: dict[str, Any]) -> Adapter:
    if (folder / "config.json").exists():
        from .pretrained import load_folder

        return _module(load_folder(folder, **options))
    files = sorted(p for p in folder.iterdir() if p.suffix in (*SUFFIXES, ".gguf"))
    if len(files) == 1:
        return _path(files[0], config, options)
    held = f"{len(files)} weight files" if files else "no weights"
    raise CheckpointError(
        f"{folder} has no config.json and {held}, so it is not a model: give a model folder, or "
        "name one file"
    )


def _state(content: Mapping[str, Any], config: Mapping[str, Any] | None, name: str) -> Adapter:
    from .hooked_state import is_hooked_state, load_hooked_state

    state, found, _ = split_state(content, name)
    given = {**(found or {}), **(config or {})} or None
    if is_hooked_state(state):
        model, note = load_hooked_state(state, given, name)
        return _noted(OwnAdapter(model), note)
    from .nanogpt import NOTE, is_nanogpt, load_nanogpt

    if is_nanogpt(state):
        adapter = _module(load_nanogpt(state, given, name))
        chosen = given is not None and "activation_function" in given
        return adapter if chosen else _noted(adapter, NOTE)
    names: list[str] = sorted(state)
    raise CheckpointError(
        f"{name} is a state dict of an unknown architecture (its first tensor is {names[0]!r}): "
        "expected the names of HookedTransformer or of nanoGPT; load it into its model and adapt "
        "that"
    )


def _noted(adapter: Adapter, note: str) -> Adapter:
    facts = adapter.description
    adapter.description = replace(facts, notes=(*facts.notes, note))
    return adapter
