"""Audit any model that can be adapted: Hugging Face, GGUF, TransformerLens, a user's own.

One pass of a causal model over the longest length gives every head's rows of every shorter length
too; the numbers are exact and the pattern is never held (theory section 0).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..interp.profiling import Profile, profile
from ..interp.remedies import NormGain, Remedy
from ..interp.tables import concatenate
from ..models.adapters import Adapter, adapt
from ..models.probes import Probe, get_probe
from .head_classes import classify_heads
from .head_records import HeadClass, HeadThresholds
from .head_verdicts import judge_heads
from .progress import Progress, advancing
from .provenance import provenance
from .result import StudyResult
from .rows import distinct, over, pick
from .wording import format_number

LADDER = (32, 64, 128, 256, 512, 1024)
"""Lengths that are run where none are given, as far as the model allows."""

MASSIVE = 1000.0
"""Largest over median magnitude of a stream's coordinates from which it has massive activations
(Sun et al., *Massive Activations in Large Language Models*, arXiv 2402.17762)."""

_NEEDS_TEXT = (
    "the text probe needs the model's tokenizer: give encode=, a function from text to token ids"
)


@dataclass(frozen=True)
class AdaptedAudit:
    """What an audit of an adapted model leaves.

    Attributes:
        result: Table, curves, findings, verdicts, sentences.
        classes: What each head does.
        profile: How the measurement went: rows by status, batch sizes, notes.
    """

    result: StudyResult
    classes: tuple[HeadClass, ...]
    profile: Profile


def audit_adapted(
    source: Any,
    *,
    probe: str | Probe = "repeated",
    lengths: Iterable[int] | None = None,
    n_sequences: int = 8,
    statistics: str | Iterable[str] = "full",
    seed: int = 0,
    thresholds: HeadThresholds | None = None,
    what_if: Sequence[Remedy | NormGain] = (),
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
        probe: Name of a probe (:data:`resharpen.models.probes.PROBES`) or one of your own.
        lengths: Lengths to run; by default 32 to 1024, doubling, as far as the model allows.
        n_sequences: Sequences a length.
        statistics: ``"full"``, ``"fast"`` (entropy and effective support) or names.
        seed: Seed of the sequences.
        thresholds: Where the lines are drawn.
        what_if: Remedies to try: the model is run again with each, without retraining, and the
            change is reported at each length.
        name: What to call the model; the file's or class's name by default.
        encode: Tokenizer for the text probe.
        text: File for the text probe; the passage that ships by default.
        past_positions: Run lengths that the model was not made for; the report says so.
        batch_tokens: Most positions in one forward pass; halved where memory does not suffice.
        weights: For our checkpoints: which weights, ``"raw"`` or an average.
        dtype: For Hugging Face: dtype to load in.
        device_map: For Hugging Face: as ``from_pretrained`` takes it.
        progress: ``True`` for a bar, or called as ``progress(done, total, length)``.

    Raises:
        CheckpointError: If the model cannot be read.
        ValueError: If it cannot be captured exactly, or a length or argument is not possible.
    """
    lines = thresholds or HeadThresholds()
    adapter = adapt(source, weights=weights, dtype=dtype, device_map=device_map)
    label = name or _name(source)
    feed = probe if not isinstance(probe, str) else _probe(probe, adapter, encode, text)
    ladder = _lengths(lengths, adapter, feed)
    options: dict[str, Any] = {
        "n_sequences": n_sequences,
        "statistics": statistics,
        "seed": seed,
        "past_positions": past_positions,
        "batch_tokens": batch_tokens,
    }
    with advancing(progress, f"auditing {label}", "sequence") as advance:
        plain = profile(adapter, feed, ladder, labels=_labels(label), progress=advance, **options)
    tables = [plain.table]
    for remedy in what_if:
        changes = remedy if isinstance(remedy, Remedy) else None
        title = f"what if {remedy.name}"
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
        tables.append(changed.table)
    table = concatenate(tables)
    classes = classify_heads(plain.table, lines)
    facts = adapter.description
    asked = {
        "source": str(source) if isinstance(source, str | Path) else type(source).__name__,
        "probe": feed.to_dict(),
        "lengths": list(ladder),
        "what_if": [remedy.name for remedy in what_if],
        **{name: options[name] for name in ("n_sequences", "seed", "past_positions")},
    }
    result = StudyResult(
        table=table,
        curves=(),
        findings=(),
        verdicts=tuple(judge_heads(classes, lines)),
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
            completed=plain.complete,
        ),
        sentences=tuple(_sentences(label, adapter, plain, classes, table, what_if)),
    )
    return AdaptedAudit(result, classes, plain)


def _labels(checkpoint: str) -> dict[str, str]:
    return {"study": "audit", "checkpoint": checkpoint}


def _name(source: Any) -> str:
    if isinstance(source, str | Path):
        return Path(source).name
    module = getattr(source, "module", source)
    return type(module).__name__


def _probe(
    name: str,
    adapter: Adapter,
    encode: Callable[[str], Sequence[int]] | None,
    text: str | Path | None,
) -> Any:
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


def _lengths(lengths: Iterable[int] | None, adapter: Adapter, probe: Any) -> tuple[int, ...]:
    if lengths is not None:
        return tuple(sorted(set(lengths)))
    limit = adapter.max_length
    fitting = []
    for length in LADDER:
        if limit is not None and length > limit:
            break
        try:
            probe.check_length(length)
        except ValueError:
            break
        fitting.append(length)
    if not fitting:
        raise ValueError(
            f"none of the usual lengths ({', '.join(map(str, LADDER))}) fits this model and probe: "
            "give lengths="
        )
    return tuple(fitting)


def _sentences(
    label: str,
    adapter: Adapter,
    plain: Profile,
    classes: Sequence[HeadClass],
    table: pd.DataFrame,
    what_if: Sequence[Remedy | NormGain],
) -> list[str]:
    counts = pd.Series([item.label for item in classes]).value_counts()
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    facts = adapter.description
    longest = max(plain.lengths)
    sentences = [
        f"{label} ({facts.architecture}, {facts.n_layers} layers x {facts.n_heads} heads, norms: "
        f"{facts.placement}) on inputs of up to {longest} tokens: of {len(classes)} heads, {said}.",
        *plain.notes,
        *facts.notes,
    ]
    if plain.past_positions:
        lengths = ", ".join(map(str, plain.past_positions))
        sentences.append(
            f"Lengths {lengths} are beyond the {plain.max_length} positions the model was made for."
        )
    sentences += _massive(plain.table)
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


def _what_changed(table: pd.DataFrame, before: str, after: str, remedy: Remedy | NormGain) -> str:
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
