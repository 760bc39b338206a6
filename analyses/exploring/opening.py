"""One call from a model to its explorer."""

import inspect
from collections.abc import Iterable
from typing import Any

from ...interp.arguments import check_keywords
from ...interp.progress import Progress
from ...models.probes import Probe
from .measuring import open_explorer
from .widget import Explorer, check_widgets

__all__ = ["explore"]


def explore(
    source: Any,
    *,
    probe: str | Probe | None = None,
    lengths: Iterable[int] | None = None,
    n_sequences: int | None = None,
    seed: int = 0,
    progress: bool | Progress | None = None,
    **options: Any,
) -> Explorer:
    """Measure a model and return an interactive view of its heads; put it last in a cell.

    A map of dispersion, layer by head; beside it one head: its entropy and largest weight over the
    keys that it sees, with theory, its weights at a length, its scores, the scales of its norms.
    Sliders change the temperature of its scores and the gain of its norms, and run the model again.

    Args:
        source: A checkpoint (name, folder or object), a Hugging Face folder, a model: whatever
            :func:`resharpen.models.adapt` takes.
        probe: What it is fed; by default the task of a checkpoint that names its own, else
            ``"repeated"``.
        lengths: Lengths to run; by default one or two an octave up to 256, as far as the model and
            the probe allow. Fewer and shorter ones answer faster.
        n_sequences: Sequences a length; by default 32 of a task, 8 of any other probe.
        seed: Seed of the sequences.
        progress: ``True`` for a bar, ``False`` for none, or called as ``progress(done, total,
            length)``; by default a bar in a notebook or a terminal where it takes long.
        **options: Further arguments of :func:`resharpen.analyses.exploring.open_explorer`
            (``name=``, ``thresholds=``, ``weights=``, ``dtype=`` ...).

    Raises:
        ModuleNotFoundError: The widgets of a notebook are not installed; the sentence says what to
            do.
        CheckpointError: The model cannot be read.
        ValueError: No head's attention could be measured, or no probe or length fits.
        TypeError: An argument is of another kind, or there is none of that name.
    """
    check_keywords("explore", options, [*inspect.signature(open_explorer).parameters])
    check_widgets()
    return Explorer(
        open_explorer(
            source,
            probe=probe,
            lengths=lengths,
            n_sequences=n_sequences,
            seed=seed,
            progress=progress,
            **options,
        )
    )
