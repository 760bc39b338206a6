"""Open a model to look at one head of it: which adapter, which probe, which lengths."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..interp.drawing import length_generator
from ..models.adapters import Adapter, adapt
from ..models.adapters.tokenizers import load_tokenizer
from ..models.checkpoint import find_checkpoint
from ..models.probes import Probe, TaskProbe
from .adapted import make_probe, make_task_probe, source_name, source_words
from .arguments import check_run

__all__ = ["OneHead", "model_options", "open_head", "run_options"]

LONGEST = 1024
"""The longest length that is run where none are given."""

SHORTEST = 8
"""The shortest, where the longest leaves room for it."""


@dataclass(frozen=True)
class OneHead:
    """One head of a model, and what the model is fed.

    Attributes:
        label: Name of the model.
        adapter: The model.
        probe: What it is fed.
        layer: Which layer.
        head: Which head.
        lengths: Lengths to run, increasing.
        n_sequences: Sequences a length.
        asked: What was asked for, in JSON's own types.
    """

    label: str
    adapter: Adapter
    probe: Any
    layer: int
    head: int
    lengths: tuple[int, ...]
    n_sequences: int
    asked: dict[str, Any]

    @property
    def words(self) -> str:
        """What the model was opened from."""
        return self.asked["source"]

    @property
    def place(self) -> Any:
        """Checkpoint, layer and head, as a curve names them."""
        return {"checkpoint": self.label, "layer": self.layer, "head": self.head}


def open_head(
    source: Any,
    layer: int,
    head: int,
    *,
    lengths: Iterable[int] | None = None,
    probe: str | Probe | None = None,
    n_sequences: int | None = None,
    name: str | None = None,
    encode: Callable[[str], Sequence[int]] | None = None,
    text: str | Path | None = None,
    weights: str = "raw",
    dtype: str = "auto",
    device_map: Any = None,
) -> OneHead:
    """Adapt the model, make the probe, and fill in what is left open.

    Args:
        source: Whatever :func:`resharpen.models.adapters.adapt` takes; or a model that was opened
            before, which keeps its name and its probe.
        layer: Which layer, from 0.
        head: Which head, from 0.
        lengths: Lengths to run, up to 1024 or as far as model and probe allow by default: two an
            octave where one pass gives them all, and of a task; one an octave otherwise.
        probe: Name of a probe (:data:`resharpen.models.probes.PROBES`) or one of your own; by
            default the task of a checkpoint that names its own, ``"repeated"`` for others.
        n_sequences: Sequences a length; by default 64 of a task, 16 of any other probe.
        name: What to call the model.
        encode: Tokenizer for the text probe.
        text: File for the text probe; the passage that ships by default.
        weights: For our checkpoints: which weights, ``"raw"`` or an average.
        dtype: For Hugging Face: dtype to load in.
        device_map: For Hugging Face: as ``from_pretrained`` takes it.

    Raises:
        CheckpointError: If the model cannot be read.
        ValueError: If there is no such layer or head, or no probe or length fits.
        TypeError: If lengths or probe are of another kind.
    """
    asked_lengths = check_run(lengths=lengths, n_sequences=n_sequences, probe=probe)
    if isinstance(source, OneHead):
        label, adapter, feed, words = source.label, source.adapter, source.probe, source.words
    else:
        checkpoint = find_checkpoint(source)
        opened = source if checkpoint is None else checkpoint
        label, words = name or source_name(opened), source_words(source)
        own = None if checkpoint is None else checkpoint.task
        if probe is None:
            probe = "repeated" if own is None else "task"
        if probe == "task":
            probe = make_task_probe(own, label)
        adapter = adapt(opened, weights=weights, dtype=dtype, device_map=device_map)
        feed = make_probe(probe, adapter, encode, text) if isinstance(probe, str) else probe
    _check_place(adapter, layer, head)
    ladder = _default_lengths(adapter, feed) if asked_lengths is None else asked_lengths
    if n_sequences is None:
        n_sequences = 64 if isinstance(feed, TaskProbe) else 16
    asked = {
        "source": words,
        "layer": layer,
        "head": head,
        "probe": feed.to_dict(),
        "lengths": list(ladder),
        "n_sequences": n_sequences,
    }
    return OneHead(label, adapter, feed, layer, head, ladder, n_sequences, asked)


def model_options(command: Any) -> dict[str, Any]:
    """Which model and probe a command names, as the functions on one head take them."""
    return {
        "probe": command.probe,
        "encode": load_tokenizer(command.checkpoint) if command.probe == "text" else None,
        "text": command.text,
        "weights": command.weights,
        "dtype": command.dtype,
        "device_map": command.device_map,
    }


def run_options(command: Any) -> dict[str, Any]:
    """How a command is to be run, as the functions on one head take it, with a bar."""
    return {
        "seed": command.seed,
        "past_positions": command.past_positions,
        "progress": True,
    }


def _check_place(adapter: Adapter, layer: int, head: int) -> None:
    facts = adapter.description
    for what, value, count in (("layer", layer, facts.n_layers), ("head", head, facts.n_heads)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
            raise ValueError(
                f"{what} must be a number from 0 to {count - 1} for this model; got {value!r}"
            )


def _default_lengths(adapter: Adapter, probe: Any) -> tuple[int, ...]:
    """Down from the longest that model and probe allow, one or two an octave."""
    longest = next((n for n in range(LONGEST, 3, -1) if _possible(adapter, probe, n)), None)
    if longest is None:
        raise ValueError(f"no length from 4 to {LONGEST} fits this model and probe: give lengths=")
    shortest = SHORTEST if longest >= 8 * SHORTEST else 4
    cheap = probe.nested and adapter.description.causal is not False
    octave = 2 if cheap or isinstance(probe, TaskProbe) or longest < 8 * SHORTEST else 1
    steps = int(octave * math.log2(longest / shortest) + 1e-9)
    found = {round(longest * 2 ** (-step / octave)) for step in range(steps + 1)}
    return tuple(sorted(n for n in found if _possible(adapter, probe, n)))


def _possible(adapter: Adapter, probe: Any, length: int) -> bool:
    """Whether a probe has this length and a model was made for it."""
    limit = adapter.max_length
    try:
        probe.check_length(length)
        # A task may open its inputs with a token, and have lengths of its own.
        drawn = isinstance(probe, TaskProbe) and (limit is None or length <= limit)
        tokens = probe.sample(length_generator(0, length), 1, length).tokens if drawn else None
    except ValueError:
        return False
    return limit is None or (length if tokens is None else tokens.shape[1]) <= limit
