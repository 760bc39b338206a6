"""Run a model over lengths, in batches that fit the memory, and reduce to the tidy table."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_counts, check_labels, check_lengths
from ..drawing import length_generator
from ..progress import Progress, advancing
from ..tables import concatenate, table
from .attention_rows import chosen_statistics
from .ladder import Ladder, checked_ladder, joined_ladder
from .observing import ProfileObserver, ReferenceObserver, Remedy
from .outputs import score_output
from .places import REFERENCE, Positions, find_positions
from .result import Observable, Probing, Profile, cut, status_frame
from .stream_shapes import StreamShapes
from .totals import Totals, table_rows


@dataclass(frozen=True)
class _Plan:
    """What was asked, resolved and checked."""

    adapter: Observable
    probe: Probing
    lengths: tuple[int, ...]
    prefixes: tuple[int, ...]
    n_sequences: int
    statistics: tuple[str, ...]
    ladder: Ladder
    seed: int
    labels: Mapping[str, Any]
    batch_tokens: int
    past_positions: bool
    stand_in: bool
    remedy: Remedy | None

    @property
    def causal(self) -> bool:
        return self.adapter.description.causal is not False


def profile(
    adapter: Observable,
    probe: Probing,
    lengths: Iterable[int],
    *,
    n_sequences: int = 16,
    statistics: str | Iterable[str] = "full",
    ladder: Ladder | Iterable[int] | None = None,
    n_bins: int = 12,
    one_pass: bool | None = None,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
    batch_tokens: int = 16384,
    past_positions: bool = False,
    stand_in: bool = True,
    remedy: Remedy | None = None,
    progress: bool | Progress | None = None,
) -> Profile:
    """Measure an adapted model on a probe; returns the tidy table and what is needed to read it.

    For each length, ``n_sequences`` are drawn from a generator keyed by ``(seed, length)`` and run
    in batches. Every attention row, norm and stream is reduced as it is seen. A causal model shows
    rows of every ``n_key`` up to the length in one pass; they are averaged by the rungs of a
    :class:`Ladder`, first over the rows of a sequence, then over sequences (``mean``, ``sem``,
    ``n_obs``, ``min`` and ``max`` of the table are over sequences). A model that is not causal has
    one ``n_key``, its length, and needs one pass a length.

    Quantities: per head the row statistics (units and ranges in
    :mod:`resharpen.interp.attention_statistics`), ``learned_sink_mass`` where there are sinks and
    ``relevant_mass`` where the probe names relevant keys, at the site ``"decoder.{layer}.attn"``
    (``"encoder..."``); ``norm_scale`` and ``rescale_gain`` at each norm's module name;
    ``residual_norm``, ``massive_activation`` and how far the tokens have drawn together
    (:mod:`.stream_shapes`: cosines, ranks, clusters of the first n tokens) at each block boundary;
    ``angular_speed``, ``norm_growth`` and ``score_cosine_correlation`` at each block; ``loss``
    [nats] and ``accuracy`` [ratio] at ``"logits"`` where the probe has labels and the model is
    causal and returns logits. ``rescale_gain`` is the norm's geometric mean scale over rows 2 to 8
    of the same sequence (of the same document, if packed), divided by its scale at the row: a model
    made by somebody else need not be able to run one token alone. If the model is not causal, the
    first 8 tokens are run alone for it.

    A layer with a sliding window has a last rung at its window: its rows see no more keys, however
    long the input (where packed documents turn the window into a mask, only rows near a rung are
    averaged, as everywhere). ``n_key`` of streams, norms and outputs counts the tokens of the own
    document.

    Args:
        adapter: The model.
        probe: What it is fed.
        lengths: Lengths, each 1 or more, all different; run in increasing order.
        n_sequences: Sequences a length.
        statistics: ``"full"``, ``"fast"`` (entropy and effective support) or names.
        ladder: Rungs of ``n_key``, or ``None`` for ``n_bins`` geometric ones from 4 on, and the
            lengths themselves where one pass stands for all. The longest row of each pass always
            has a rung.
        n_bins: Number of geometric rungs of the longest length, where no ladder is given.
        one_pass: Run only the longest length; its first positions stand for the shorter ones.
            ``None``: where the model is causal and the probe is ``nested``.
        seed: Seed of what is drawn (not a column of the table).
        labels: Values of the columns ``study``, ``checkpoint``, ``task`` (default: the probe's
            name) and ``seed``.
        batch_tokens: Most positions in one forward pass (but one sequence at least). Halved as
            often as memory does not suffice.
        past_positions: Run lengths that the model was not made for, where it can; they are listed
            in the result.
        stand_in: Let the attention output that comes with the statistics replace the model's own:
            measuring then costs little more than running. ``False`` runs the model's own kernel
            too, so that its outputs do not change by a bit.
        remedy: What-if: changes the record of each attention layer; the model then runs on what the
            changed record gives.
        progress: ``True`` for a bar, or called after each batch as ``progress(done, total,
            length)``, in sequences.

    An interrupt (ctrl-C) returns the lengths that are finished, with a warning; with none finished
    the sequences that are (``n_obs`` says how many); with no batch finished it goes through.

    Raises:
        ValueError: If a length is impossible for the probe or the model, or an argument is out of
            range. Everything is checked before anything is run.
        MemoryError: If a single sequence does not fit into memory.
    """
    plan, notes = _plan(
        adapter,
        probe,
        lengths,
        n_sequences=n_sequences,
        statistics=statistics,
        ladder=ladder,
        n_bins=n_bins,
        one_pass=one_pass,
        seed=seed,
        labels=labels,
        batch_tokens=batch_tokens,
        past_positions=past_positions,
        stand_in=stand_in,
        remedy=remedy,
    )
    finished: dict[int, Totals] = {}
    interrupted = False
    try:
        with advancing(progress, f"profile of {probe.name}", "sequence") as advance:
            for number, length in enumerate(plan.lengths):
                finished[length] = Totals()
                _run_length(plan, length, finished[length], number, advance)
    except KeyboardInterrupt:
        interrupted = True
        finished, held = _keep_finished(plan, finished)
        if not finished:
            raise
        warnings.warn(f"interrupted: the table holds the {held}", stacklevel=2)
    frames = [table(table_rows(totals, length, plan.labels)) for length, totals in finished.items()]
    limit = adapter.max_length
    return Profile(
        table=concatenate(frames),
        rows=status_frame(
            (length, site, status, number)
            for length, totals in finished.items()
            for site, counts in totals.statuses.items()
            for status, number in counts.items()
        ),
        lengths=tuple(finished),
        asked=plan.lengths,
        past_positions=tuple(
            n for n in finished if limit is not None and _longest(plan, n) > limit
        ),
        max_length=limit,
        batch={length: totals.batch for length, totals in finished.items()},
        notes=tuple(notes),
        interrupted=interrupted,
    )


def _plan(
    adapter: Observable,
    probe: Probing,
    lengths: Iterable[int],
    *,
    statistics: str | Iterable[str],
    ladder: Ladder | Iterable[int] | None,
    n_bins: int,
    one_pass: bool | None,
    labels: Mapping[str, Any] | None,
    **given: Any,
) -> tuple[_Plan, list[str]]:
    asked = tuple(sorted(check_lengths(lengths)))
    check_counts(**{name: given[name] for name in ("n_sequences", "batch_tokens")})
    own = check_labels(labels)
    causal = adapter.description.causal is not False
    nested = causal and probe.nested
    if one_pass and not nested:
        raise ValueError(
            f"one pass cannot stand for every length: the probe {probe.name!r} on this model needs "
            "a pass for each (leave one_pass at None)"
        )
    notes, prefixes = [], ()
    if len(asked) > 1 and (nested if one_pass is None else one_pass):
        notes.append(f"One pass of length {asked[-1]} was run; its rows give every smaller n_key.")
        ladder = joined_ladder(asked, n_bins) if ladder is None else ladder
        asked, prefixes = asked[-1:], asked[:-1]
    plan = _Plan(
        adapter,
        probe,
        asked,
        prefixes=prefixes,
        statistics=chosen_statistics(statistics),
        ladder=checked_ladder(ladder, max(asked), n_bins),
        labels={"task": probe.name, **own},
        **given,
    )
    for length in asked:
        _check_length(plan, length)
    return plan, notes


def _longest(plan: _Plan, length: int) -> int:
    """Positions of an input of that length."""
    return plan.probe.sample(length_generator(plan.seed, length), 1, length).tokens.shape[1]


def _check_length(plan: _Plan, length: int) -> None:
    pos, limit = _longest(plan, length), plan.adapter.max_length
    if limit is None or pos <= limit:
        return
    needs = f"length {length} needs {pos} positions, but the model"
    if plan.adapter.description.positions_fixed:
        raise ValueError(f"{needs} has learned {limit}: ask for shorter lengths")
    if not plan.past_positions:
        raise ValueError(
            f"{needs} was made for at most {limit}: ask for shorter lengths, or run them all the "
            "same with past_positions=True"
        )


def _keep_finished(plan: _Plan, begun: Mapping[int, Totals]) -> tuple[dict[int, Totals], str]:
    """The lengths that are finished, or else the sequences of the only one, and what they are."""
    most = max((totals.n_sequences for totals in begun.values()), default=0)
    kept = {n: totals for n, totals in begun.items() if totals.n_sequences == most > 0}
    if 0 < most < plan.n_sequences:
        return kept, f"{most} finished of {plan.n_sequences} sequences"
    return kept, f"{len(kept)} finished of {len(plan.lengths)} lengths"


def _run_length(
    plan: _Plan, length: int, totals: Totals, n_finished: int, advance: Progress
) -> None:
    drawn = plan.probe.sample(length_generator(plan.seed, length), plan.n_sequences, length)
    positions = find_positions(drawn, plan.causal)
    ladder = plan.ladder.up_to(int(positions.n_key.max()))
    shapes = _shape_ladder(plan, positions)
    batch = min(plan.n_sequences, max(1, plan.batch_tokens // drawn.tokens.shape[1]))
    totals.batch, start = batch, 0
    while start < plan.n_sequences:
        stop = min(start + batch, plan.n_sequences)
        observer = _unless_out_of_memory(
            lambda start=start, stop=stop: _run_batch(
                plan, drawn, positions, (ladder, shapes), start, stop
            )
        )
        if observer is None:
            if batch == 1:
                raise MemoryError(
                    f"one sequence of {drawn.tokens.shape[1]} positions does not fit into memory: "
                    "ask for shorter lengths"
                )
            batch = totals.batch = batch // 2
            continue
        totals.take(observer)
        start = stop
        done = n_finished * plan.n_sequences + stop
        advance(done, plan.n_sequences * len(plan.lengths), length)


def _shape_ladder(plan: _Plan, positions: Positions) -> Ladder:
    """The numbers of tokens of which a stream's shape is taken, each met exactly.

    The longest that there is, and every length that the same pass stands for; of a model that is
    not causal, every size that a document has.
    """
    sizes = positions.n_key[positions.n_key > 0]
    longest = int(sizes.max())
    counts = set(plan.prefixes) if plan.causal else set(sizes.unique().tolist())
    return Ladder((*sorted(n for n in counts if n < longest), longest), tolerance=0.0)


def _unless_out_of_memory(run: Callable[[], ProfileObserver]) -> ProfileObserver | None:
    """What ``run`` returns, or ``None`` if memory did not suffice; what it held is free by then."""
    try:
        return run()
    except (MemoryError, RuntimeError) as error:
        words = ("out of memory", "not enough memory", "can't allocate memory")
        if not isinstance(error, MemoryError) and not any(w in str(error).lower() for w in words):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def _run_batch(
    plan: _Plan,
    drawn: Any,
    positions: Positions,
    ladders: tuple[Ladder, Ladder],
    start: int,
    stop: int,
) -> ProfileObserver:
    arrays = cut(drawn, start, stop)
    tokens, labels, relevant = arrays["tokens"], arrays["labels"], arrays["relevant_key"]
    assert tokens is not None
    fed = {"documents": arrays["documents"], "past_positions": plan.past_positions}
    (ladder, shapes), part = ladders, positions.part(start, stop)
    observer = ProfileObserver(
        plan.statistics,
        ladder,
        part,
        relevant if relevant is not None and bool((relevant >= 0).any()) else None,
        plan.stand_in,
        plan.remedy,
        None if plan.causal else _references(plan, arrays),
        StreamShapes(part, shapes, plan.causal, start),
    )
    scored = plan.causal and labels is not None and bool((labels >= 0).any())
    last_only = not scored or labels is None or not bool((labels[:, :-1] >= 0).any())
    logits = plan.adapter.observe(
        tokens, observer, arrays["attention_mask"], last_only=last_only, **fed
    )
    if scored and labels is not None and _has_logits(plan, logits):
        loss, accuracy = score_output(logits, labels)
        observer.output("loss", "nats", loss)
        observer.output("accuracy", "ratio", accuracy)
    return observer


def _references(plan: _Plan, arrays: Mapping[str, Tensor | None]) -> dict[Any, Tensor]:
    """Scales of the first tokens run alone; none with padding or packed documents."""
    tokens, given = arrays["tokens"], (arrays["attention_mask"], arrays["documents"])
    if tokens is None or any(array is not None for array in given):
        return {}
    short = tokens[:, : REFERENCE[1]]
    if short.shape[1] < REFERENCE[0]:
        return {}
    observer = ReferenceObserver()
    plan.adapter.observe(short, observer, last_only=True)
    return observer.references


def _has_logits(plan: _Plan, output: Tensor) -> bool:
    """Whether the output is over tokens, not the hidden state of a model without a head."""
    facts = plan.adapter.description
    hidden = output.shape[-1] == facts.d_model != facts.d_vocab
    return output.ndim == 3 and not hidden
