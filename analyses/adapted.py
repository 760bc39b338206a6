"""Audit any model that can be adapted: Hugging Face, GGUF, TransformerLens, a user's own.

One pass of a causal model over the longest length gives every head's rows of every shorter length
too; the numbers are exact and the pattern is never held (theory section 0).
"""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..interp.drawing import length_generator
from ..interp.profiling import Probing, Profile, profile
from ..interp.progress import Progress, advancing
from ..interp.remedies import NormGain
from ..interp.tables import concatenate
from ..interp.token_paths import TokenPaths, follow_tokens
from ..models.adapters import Adapter, adapt
from ..models.adapters.wrappers import unwrapped
from ..models.checkpoint import Checkpoint, find_checkpoint
from ..models.facts import Facts, brief, layers_by_heads
from ..models.probes import PROBES, Probe, get_probe
from ..models.probes.task_probe import TaskProbe
from ..models.tasks import task_from_dict
from .arguments import check_run
from .clustering_layers import read_layer_shapes
from .clustering_rows import weight_rows
from .clustering_sentences import headline
from .head_classes import classify_heads
from .head_records import HeadClass
from .head_verdicts import NO_ROWS, judge_heads, judge_nothing
from .lengths import fitting_lengths
from .provenance import provenance
from .result import StudyResult
from .rows import distinct, over, pick
from .thresholds import HeadThresholds
from .what_if import WhatIf, check_places, read_what_ifs, recorded_heads
from .wording import format_number, plural

MASSIVE = 1000.0
"""Largest over median magnitude of a stream's coordinates from which it has massive activations
(Sun et al., *Massive Activations in Large Language Models*, arXiv 2402.17762)."""

FOLLOWED = 256
"""Tokens of the sequence that is followed through the layers, at most."""

_NEEDS_TEXT = (
    "the text probe needs the model's tokenizer: give encode=, a function from text to token ids"
)


@dataclass(frozen=True, repr=False)
class AdaptedAudit(Facts):
    """What an audit of an adapted model leaves.

    Attributes:
        result: Table, curves, findings, verdicts, sentences.
        classes: What each head does.
        profile: How the measurement went: rows by status, batch sizes, notes.
        paths: The tokens of one sequence through the layers, or `None` if the model shows no stream
            or an interrupt came first.
    """

    result: StudyResult
    classes: tuple[HeadClass, ...]
    profile: Profile
    paths: TokenPaths | None = None

    def _facts(self) -> list[tuple[str, str]]:
        """The result, how many heads do what, the lengths that were run."""
        labels = Counter(item.label for item in self.classes)
        heads = ", ".join(f"{count} {label}" for label, count in labels.most_common())
        return [
            ("result", repr(self.result)),
            ("heads", heads or "none seen"),
            ("lengths", brief(self.profile.lengths)),
            ("complete", str(self.profile.complete)),
        ]

    def _repr_html_(self) -> str:
        """The result as it shows itself, and what the heads do."""
        return self.result._repr_html_() + super()._repr_html_()


def audit_adapted(
    source: Any,
    *,
    probe: str | Probe | None = None,
    lengths: Iterable[int] | None = None,
    n_sequences: int | None = None,
    statistics: str | Iterable[str] = "full",
    seed: int = 0,
    thresholds: HeadThresholds | None = None,
    what_if: str | WhatIf | Iterable[str | WhatIf] = (),
    name: str | None = None,
    encode: Callable[[str], Sequence[int]] | None = None,
    text: str | Path | None = None,
    past_positions: bool = False,
    batch_tokens: int = 16384,
    weights: str = "raw",
    dtype: str = "auto",
    device_map: Any = None,
    progress: bool | Progress | None = None,
) -> AdaptedAudit:
    """Measure a model on a probe, classify its heads, judge it, and try remedies on it.

    Args:
        source: Whatever :func:`resharpen.models.adapters.adapt` takes.
        probe: Name of a probe (:data:`resharpen.models.probes.PROBES`) or one of your own; by
            default ``"task"`` for a checkpoint of ours that names its task, ``"repeated"`` for any
            other model.
        lengths: Lengths to run; by default 32 to 1024, doubling, or every length of a task up to
            64 and a ladder beyond, as far as the model allows.
        n_sequences: Sequences a length; by default 256 of a task, 8 of any other probe.
        statistics: ``"full"``, ``"fast"`` (entropy and effective support) or names.
        seed: Seed of the sequences.
        thresholds: Where the lines are drawn.
        what_if: Remedies to try, one or several: texts as ``--what-if`` takes them
            (``"temperature:1.5"``, where the number multiplies the scores), or a ``Remedy``, a
            ``NormGain`` or a ``Reweigh``. The model is run again with each, without retraining, and
            the change is reported at each length.
        name: What to call the model; the checkpoint's, file's or class's name by default.
        encode: Tokenizer for the text probe.
        text: File for the text probe; the passage that ships by default.
        past_positions: Run lengths that the model was not made for; the report says so.
        batch_tokens: Most positions in one forward pass; halved where memory does not suffice.
        weights: For our checkpoints: which weights, ``"raw"`` or an average.
        dtype: For Hugging Face: dtype to load in.
        device_map: For Hugging Face: as ``from_pretrained`` takes it.
        progress: ``True`` for a bar, or called as ``progress(done, total, length)``.

    An interrupt (ctrl-C) leaves the model as it was and gives what the finished lengths say (of one
    pass for all, the finished sequences), with a warning; with none finished it goes through.

    Raises:
        CheckpointError: If the model cannot be read.
        ValueError: If it cannot be captured exactly, a length or argument is not possible, or the
            task is asked for of a model that names none; or a what-if cannot be read, or is for
            heads that the model does not have.
        TypeError: If lengths, probe, thresholds, name or a what-if are of another kind.
    """
    lengths = check_run(
        lengths=lengths, n_sequences=n_sequences, seed=seed, probe=probe, thresholds=thresholds,
        kind=HeadThresholds,
    )  # fmt: skip
    check_name(name)
    remedies = read_what_ifs(what_if)
    lines = thresholds or HeadThresholds()
    checkpoint = find_checkpoint(source)
    opened = source if checkpoint is None else checkpoint
    label = name or source_name(opened)
    own = None if checkpoint is None or checkpoint.task is None else checkpoint.task
    if probe is None:
        probe = "repeated" if own is None else "task"
    if probe == "task":
        probe = make_task_probe(own, label)
    adapter = adapt(opened, weights=weights, dtype=dtype, device_map=device_map)
    check_places(remedies, adapter.description.n_layers, adapter.description.n_heads)
    feed = probe if not isinstance(probe, str) else make_probe(probe, adapter, encode, text)
    ladder = fitting_lengths(feed, adapter.max_length) if lengths is None else lengths
    if n_sequences is None:
        n_sequences = 256 if isinstance(feed, TaskProbe) else 8
    options: dict[str, Any] = {
        "n_sequences": n_sequences,
        "statistics": statistics,
        "seed": seed,
        "past_positions": past_positions,
        "batch_tokens": batch_tokens,
    }
    with advancing(progress, f"auditing {label}", "sequence") as advance:
        plain = profile(adapter, feed, ladder, labels=_labels(label), progress=advance, **options)
    longest = max(plain.lengths)
    shared = weight_rows(
        adapter.blocks, adapter.description.n_layers, longest, {**_labels(label), "task": feed.name}
    )
    tables = [plain.table, shared]
    tried: list[WhatIf] = []
    complete = plain.complete
    for remedy in remedies if complete else ():
        changes = None if isinstance(remedy, NormGain) else remedy
        title = f"what if {remedy.name}"
        try:
            with remedy.applied(adapter), advancing(progress, title, "sequence") as advance:
                changed = profile(
                    adapter,
                    feed,
                    ladder,
                    labels=_labels(f"{label} + {remedy.name}"),
                    remedy=changes,
                    progress=advance,
                    **options,
                )
        except KeyboardInterrupt:
            complete = False
        else:
            tables.append(changed.table)
            tried.append(remedy)
            complete = changed.complete
        if not complete:
            warnings.warn(
                f"interrupted: {len(tried)} of {len(remedies)} what-ifs were tried", stacklevel=2
            )
            break
    table = concatenate(tables)
    classes = classify_heads(plain.table, lines)
    facts = adapter.description
    asked = {
        "source": source_words(source),
        "probe": feed.to_dict(),
        "lengths": list(ladder),
        "what_if": [remedy.name for remedy in remedies],
        "what_if_heads": recorded_heads(remedies),
        **{name: options[name] for name in ("n_sequences", "seed", "past_positions")},
    }
    result = StudyResult(
        table=table,
        curves=(),
        findings=(),
        verdicts=tuple(judge_heads(classes, lines) or [judge_nothing(label, lines)]),
        provenance=provenance(
            asked,
            {
                **asked,
                "thresholds": asdict(lines),
                "model": asdict(facts),
                "finished_lengths": list(plain.lengths),
                "past_positions_lengths": list(plain.past_positions),
            },
            seeds=[seed],
            checkpoints={} if facts.digest is None else {label: facts.digest},
            completed=complete,
        ),
        sentences=tuple(_sentences(label, adapter, plain, classes, table, tried)),
    )
    paths = _follow(adapter, feed, plain, seed) if complete else None
    return AdaptedAudit(result, classes, plain, paths)


def _follow(adapter: Adapter, feed: Probing, plain: Profile, seed: int) -> TokenPaths | None:
    """The tokens of one sequence, of the longest length that is not above `FOLLOWED`."""
    if read_layer_shapes(plain.table) is None:
        return None
    lengths = [length for length in plain.lengths if length <= FOLLOWED] or [min(plain.lengths)]
    drawn = feed.sample(length_generator(seed, max(lengths)), 1, max(lengths))
    if drawn.attention_mask is not None or drawn.documents is not None:
        return None
    return follow_tokens(adapter, drawn.tokens)


def _labels(checkpoint: str) -> dict[str, str]:
    return {"study": "audit", "checkpoint": checkpoint}


def check_name(name: object) -> None:
    """Refuse a name that is no text (``TypeError``), which the table could not hold."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name is what to call the model, a text; got {type(name).__name__}")


def source_words(source: Any) -> str:
    """A source as a result records it: a path as given, a checkpoint's name, else its class."""
    if isinstance(source, Checkpoint):
        return source.name
    return str(source) if isinstance(source, str | os.PathLike) else type(source).__name__


def source_name(source: Any) -> str:
    """What a model is called in tables: the name of its checkpoint, file or class."""
    if isinstance(source, Checkpoint):
        return source.name
    if isinstance(source, str | os.PathLike):
        return Path(source).name
    module = unwrapped(source)
    return type(getattr(module, "module", module)).__name__


def make_task_probe(task: Mapping[str, Any] | None, label: str) -> TaskProbe:
    """The probe of a checkpoint's own task (``ValueError`` if it names none)."""
    if task is None:
        others = ", ".join(name for name in PROBES if name != TaskProbe.name)
        raise ValueError(
            f"{label} is no checkpoint of this toolkit that names its task, so there is no task to "
            f"feed it: choose another probe ({others})"
        )
    return TaskProbe(task_from_dict(task))


def make_probe(
    name: str,
    adapter: Adapter,
    encode: Callable[[str], Sequence[int]] | None,
    text: str | Path | None,
) -> Any:
    """The probe of that name for a model's vocabulary (``ValueError`` if it cannot be made)."""
    kind: Any = get_probe(name)
    facts = adapter.description
    # A configuration may name special tokens that its own vocabulary does not have.
    bos, pad = (
        token if token is not None and 0 <= token < facts.d_vocab else None
        for token in (facts.bos_token, facts.pad_token)
    )
    if name == "text":
        if encode is None:
            raise ValueError(_NEEDS_TEXT)
        return kind(encode=encode, path=text, bos=bos)
    return kind(d_vocab=facts.d_vocab, avoid=() if pad is None else (pad,), bos=bos)


def _sentences(
    label: str,
    adapter: Adapter,
    plain: Profile,
    classes: Sequence[HeadClass],
    table: pd.DataFrame,
    what_if: Sequence[WhatIf],
) -> list[str]:
    counts = pd.Series([item.label for item in classes]).value_counts()
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    facts = adapter.description
    longest = max(plain.lengths)
    sentences = [
        f"{label} ({facts.architecture}, {layers_by_heads(facts.n_layers, facts.n_heads)}, norms: "
        f"{facts.placement}) on inputs of up to {plural(longest, 'token')}: "
        + (f"of {plural(len(classes), 'head')}, {said}." if classes else f"{NO_ROWS}."),
        *plain.notes,
        *facts.notes,
    ]
    if plain.past_positions:
        lengths = ", ".join(map(str, plain.past_positions))
        sentences.append(
            f"Lengths {lengths} are beyond the {plain.max_length} positions the model was made for."
        )
    sentences += _massive(plain.table)
    shapes = read_layer_shapes(plain.table)
    if shapes is not None:
        sentences.append(headline(shapes))
    for remedy in what_if:
        sentences.append(_what_changed(table, label, f"{label} + {remedy.name}", remedy))
    return sentences


def _massive(table: pd.DataFrame) -> list[str]:
    """Name the block boundaries whose largest coordinate dwarfs the typical one."""
    rows = pick(table, quantity="massive_activation")
    found = [
        (site, float(over(pick(rows, site=site), "n_key").iloc[-1]))
        for site in distinct(rows, "site")
    ]
    massive = [(site, ratio) for site, ratio in found if ratio >= MASSIVE]
    if not massive:
        return []
    site, ratio = max(massive, key=lambda item: item[1])
    return [
        f"Massive activations: at {len(massive)} of {len(found)} block boundaries one coordinate "
        f"is more than {MASSIVE:g} times the median one, most of all at {site} "
        f"({format_number(ratio)} times)."
    ]


def _what_changed(table: pd.DataFrame, before: str, after: str, remedy: WhatIf) -> str:
    parts, n_key = [], float("nan")
    for quantity in ("entropy", "loss", "accuracy", "relevant_mass"):
        old, new = (
            _by_keys(pick(table, checkpoint=name, quantity=quantity)) for name in (before, after)
        )
        shared = sorted(set(old) & set(new))
        if shared:
            n_key = shared[-1]
            was, now = format_number(old[n_key]), format_number(new[n_key])
            parts.append(f"{quantity.replace('_', ' ')} {was} to {now}")
    if not parts:
        return f"What if {remedy.name}: nothing was measured with and without it."
    return f"What if {remedy.name}, at {n_key:g} keys: {', '.join(parts)}."


def _by_keys(rows: pd.DataFrame) -> dict[float, float]:
    means = over(rows, "n_key")
    return dict(zip(means.index.to_numpy().tolist(), means.to_numpy().tolist(), strict=True))
