"""Load Hugging Face models strictly: nothing unpickled, no remote code, no weight made up.

transformers fills missing weights with random numbers and a warning; here that is an error. Every
way in which a folder or file can be broken ends in one sentence.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from ..checkpoint import CheckpointError

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def load_folder(folder: Path, dtype: str = "auto", device_map: Any = None) -> PreTrainedModel:
    """Load a folder of ``config.json`` and safetensors.

    Args:
        folder: The folder.
        dtype: Dtype to load in; ``"auto"`` is that of the checkpoint.
        device_map: As ``from_pretrained`` takes it.

    Raises:
        CheckpointError: If anything is missing, damaged, unknown, or does not fit together.
    """
    description = _read_config(folder)
    _check_weight_files(folder)
    config = _configuration(str(folder), description)
    model_class = _model_class(config, str(folder))
    return _load(model_class, str(folder), dtype=dtype, device_map=device_map)


def load_gguf(path: Path, dtype: str = "auto", device_map: Any = None) -> PreTrainedModel:
    """Load a GGUF file; its weights are de-quantised, to float32 unless ``dtype`` says otherwise.

    Raises:
        CheckpointError: If the file is damaged or its architecture is unknown.
        ImportError: If the ``gguf`` package is not installed.
    """
    try:
        import gguf
    except ImportError as error:
        raise ImportError(
            'reading GGUF files needs the gguf package: pip install ".[gguf]" in a checkout'
        ) from error
    try:
        reader = gguf.GGUFReader(str(path))
        ends = [int(t.data_offset + t.n_bytes) for t in reader.tensors]
    except Exception as error:
        raise CheckpointError(
            f"{path} is truncated or not a GGUF file ({_first_line(error)}): copy it again"
        ) from error
    if not ends or max(ends) > path.stat().st_size:
        raise CheckpointError(f"{path} is truncated: its tensors end past the end of the file")
    options: dict[str, Any] = {"gguf_file": path.name, "device_map": device_map}
    options["dtype"] = "float32" if dtype == "auto" else dtype
    with _parsed_once(reader):
        config = _configuration(str(path.parent), {}, gguf_file=path.name)
        model_class = _model_class(config, str(path))
        return _load(model_class, str(path.parent), shown=str(path), **options)


def load_name(name: str, dtype: str = "auto", device_map: Any = None) -> PreTrainedModel:
    """Load a model by its name on the hub, or from the hub's cache on this machine.

    Raises:
        CheckpointError: If it cannot be had, or does not fit together.
    """
    config = _configuration(name, {})
    return _load(_model_class(config, name), name, dtype=dtype, device_map=device_map)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder} has no config.json, so it is not a model folder"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(description, dict) or not isinstance(description.get("model_type"), str):
        raise CheckpointError(f"{path} names no model_type, so the architecture is unknown")
    return description


def _check_weight_files(folder: Path) -> None:
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        pickles = [path.name for pattern in _PICKLES for path in folder.glob(pattern)]
        if pickles:
            raise CheckpointError(
                f"{folder} has only pickled weights ({pickles[0]}), which could run code: convert "
                "them to safetensors"
            )
        raise CheckpointError(f"{folder} has a config.json but no safetensors: no weights")
    for path in paths:
        try:
            with safe_open(path, framework="pt") as tensors:
                tensors.keys()
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} is truncated or not a safetensors file ({_first_line(error)}): copy it "
                "again"
            ) from error


def _configuration(source: str, description: dict[str, Any], **options: Any) -> PreTrainedConfig:
    known = description.get("model_type")
    try:
        with _silent():
            return AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
    except Exception as error:
        if description.get("auto_map") and known not in transformers.CONFIG_MAPPING:
            raise CheckpointError(
                f"{source} brings code of its own for its architecture {known!r}, which is never "
                "run here"
            ) from error
        if known is not None and known not in transformers.CONFIG_MAPPING:
            raise CheckpointError(
                f"{source}/config.json: transformers {transformers.__version__} does not know the "
                f"architecture {known!r}"
            ) from error
        if known is None and not options:
            raise CheckpointError(
                f"{source!r} is no folder, no file and no shipped checkpoint, and as a name on the "
                f"Hugging Face hub it cannot be had ({_first_line(error)})"
            ) from error
        raise CheckpointError(
            f"{source}: the configuration cannot be read ({_first_line(error)})"
        ) from error


def _model_class(config: PreTrainedConfig, source: str) -> type[PreTrainedModel]:
    """The class that the configuration names, if it is one of transformers' own for this type."""
    named = (getattr(config, "architectures", None) or [None])[0]
    if named is not None:
        found: Any = getattr(transformers, str(named), None)
        is_model = isinstance(found, type) and issubclass(found, PreTrainedModel)
        if not is_model or found.config_class is not type(config):
            raise CheckpointError(
                f"{source}: the configuration names the class {named!r}, which transformers does "
                f"not have for model_type {config.model_type!r}"
            )
        return found
    for mapping in (
        transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
        transformers.MODEL_FOR_MASKED_LM_MAPPING,
        transformers.MODEL_MAPPING,
    ):
        if type(config) in mapping:
            found: Any = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    raise CheckpointError(
        f"{source}: transformers has no model class for model_type {config.model_type!r}"
    )


def _load(
    model_class: type[PreTrainedModel], source: str, shown: str | None = None, **options: Any
) -> PreTrainedModel:
    shown = shown or source
    if "gguf_file" not in options:
        options["use_safetensors"] = True
    try:
        with _silent():
            loaded: Any = model_class.from_pretrained(
                source, output_loading_info=True, trust_remote_code=False, **options
            )
    except Exception as error:
        raise CheckpointError(
            f"{shown}: the weights cannot be loaded into {model_class.__name__} "
            f"({_first_line(error)})"
        ) from error
    model, info = loaded
    for kind, what in (
        ("missing_keys", "lacks tensor"),
        ("mismatched_keys", "has the wrong shape for tensor"),
        ("unexpected_keys", "has a tensor that the configuration has no place for,"),
        ("error_msgs", "could not be loaded:"),
    ):
        wrong = sorted(map(str, info.get(kind) or ()))
        if wrong:
            raise CheckpointError(
                f"{shown} {what} {wrong[0]!r} ({len(wrong)} such): weights and configuration do "
                "not belong together"
            )
    return model


@contextmanager
def _silent() -> Iterator[None]:
    """Keep transformers and its hub from logging and drawing progress bars."""
    level = transformers_logging.get_verbosity()
    hub = logging.getLogger("huggingface_hub")  # tells of every retry
    hub_level = hub.level
    hub.setLevel(logging.CRITICAL)
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        hub.setLevel(hub_level)
        if bars:
            transformers_logging.enable_progress_bar()


@contextmanager
def _parsed_once(reader: Any) -> Iterator[None]:
    """Hand transformers the file as it was parsed already.

    It parses a file four times, each time the whole vocabulary in pure Python: 20 s a time with
    Gemma's 262,144 tokens.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as conversion

    replacements: list[tuple[Any, str, Any]] = [
        (gguf, "GGUFReader", lambda *args, **kwargs: reader),
        (conversion, "tqdm", lambda tensors, **kwargs: tensors),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    for owner, name, value in replacements:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".:")
