"""Errors of whole sequences: at every position, at the last one, and at all of them together.

:func:`resharpen.interp.sweep` reads the last query alone. In a language or a game every position
asks a question of its own, and a string is worth something only if none of them is answered wrongly
(Bhattamishra et al., arXiv 2009.11264; theory section 15). Here every position counts:

======================== ====== ====================================================================
quantity                 unit   of one sequence
======================== ====== ====================================================================
mean_total_variation     ratio  total variation to the exact distribution, mean over positions
mean_kl_divergence       nats   KL(exact || model), mean over positions
mean_illegal_mass        ratio  probability of tokens that may not follow, mean over positions
total_variation          ratio  the same three at the last position alone
kl_divergence            nats
illegal_mass             ratio
all_legal_rate           ratio  probability that one draw at each position is legal at all of them
legal_set_rate           ratio  1 if the tokens that reach half of the smallest legal probability
                                are the legal ones at every position, else 0
======================== ====== ====================================================================

(:mod:`.measures.error`, :mod:`.measures.sequences`.) A position whose target is no distribution is
left out; a sequence without any other is undefined and not counted in ``n_obs``.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor, nn

from .arguments import check_counts, check_labels, check_lengths
from .capturing import evaluating
from .drawing import Sample, draw, length_generator
from .measures import (
    all_legal_rate,
    illegal_mass,
    kl_divergence,
    legal_set_rate,
    mean_over_positions,
    total_variation,
)
from .reduce import Moments
from .sweeping import LOGITS, check_positions
from .tables import table

SEQUENCE_ERRORS: dict[str, str] = {
    "mean_total_variation": "ratio",
    "mean_kl_divergence": "nats",
    "mean_illegal_mass": "ratio",
    "total_variation": "ratio",
    "kl_divergence": "nats",
    "illegal_mass": "ratio",
    "all_legal_rate": "ratio",
    "legal_set_rate": "ratio",
}
"""Every quantity of :func:`sequence_errors` and its unit, in the order of its rows."""

LAST = ("total_variation", "kl_divergence", "illegal_mass")
"""Those that look at the last position alone."""

_BUDGET = 2**21
"""Numbers that one array of a batch may hold: logits, or the scores of one layer."""


def sequence_errors(
    model: nn.Module,
    sample: Sample,
    lengths: Iterable[int],
    *,
    n_sequences: int = 512,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Errors over all positions of the sequences of several lengths; returns the tidy table.

    The sequences of a length come in one stream from a generator keyed by ``(seed, length)``: those
    that :func:`~resharpen.interp.sweep` draws with the same seed. They are drawn and run in batches
    as large as a budget of memory allows, whose number does not matter where the sampler draws row
    after row, as every task does.

    Args:
        model: Any module that returns logits ``[batch, pos, d_vocab_out]``, or an object with
            ``.logits``; run in eval mode, without gradients, and left as it was.
        sample: ``sample(generator, batch, length)`` with exact ``targets`` at every position, such
            as a task's ``sample`` method.
        lengths: Lengths to ask of the task, each 1 or more, all different.
        n_sequences: Sequences of each length.
        seed: Seed of what is drawn (not a column of the table).
        labels: Values of the columns ``study``, ``checkpoint``, ``task`` and ``seed`` (the training
            seed); missing where not given.

    Returns:
        One row a length and quantity of :data:`SEQUENCE_ERRORS`, ``site`` ``"logits"``; ``mean``,
        ``sem``, ``min`` and ``max`` over sequences; ``n_key`` only where one position is read.

    Raises:
        ValueError: If a length is impossible for the task or longer than the positions the model
            has learned, the sample has no targets, targets and logits do not fit, a label is
            unknown, or a number is out of range.
        TypeError: If the model's output is not logits.
    """
    asked = check_lengths(lengths)
    check_counts(n_sequences=n_sequences)
    given = check_labels(labels)
    sizes: dict[int, tuple[int, int]] = {}
    for length in asked:
        first = draw(sample, seed, length, 1)
        check_positions(model, first, length)
        if first.target is None:
            raise ValueError(
                "sequence_errors needs a sample with exact targets [batch, pos, d_vocab_out]; got "
                "none: use a task's sample method"
            )
        pos = first.tokens.shape[1]
        sizes[length] = pos, _batch(model, pos, first.target.shape[-1])
    rows: list[dict[str, Any]] = []
    with evaluating(model):
        for length in asked:
            pos, batch = sizes[length]
            rows += _rows(
                _moments(model, sample, seed, length, n_sequences, batch),
                {**given, "length": length, "site": LOGITS},
                pos,
            )
    return table(rows)


def errors_of_sequences(
    logits: Float[Tensor, "batch pos d_vocab_out"], target: Float[Tensor, "batch pos d_vocab_out"]
) -> dict[str, Float[Tensor, " batch"]]:
    """Every quantity of :data:`SEQUENCE_ERRORS`, one number a sequence, in float64.

    Raises:
        ValueError: If logits and targets differ in shape.
    """
    if logits.shape != target.shape:
        raise ValueError(
            f"the model returned logits of shape {list(logits.shape)}, but the targets are "
            f"{list(target.shape)}: model and task do not fit"
        )
    wide, exact = logits.double(), target.double()
    errors = {
        "total_variation": total_variation(wide, exact),
        "kl_divergence": kl_divergence(wide, exact),
        "illegal_mass": illegal_mass(wide, exact),
    }
    return {
        **{f"mean_{name}": mean_over_positions(values) for name, values in errors.items()},
        **{name: values[:, -1] for name, values in errors.items()},
        "all_legal_rate": all_legal_rate(errors["illegal_mass"]),
        "legal_set_rate": legal_set_rate(wide, exact),
    }


def _batch(model: nn.Module, pos: int, d_vocab_out: int) -> int:
    """Sequences of a batch: neither their logits nor the scores of a layer exceed the budget."""
    n_heads = getattr(getattr(model, "cfg", None), "n_heads", None)
    heads = n_heads if isinstance(n_heads, int) else 1
    return max(1, _BUDGET // max(pos * d_vocab_out, heads * pos**2))


def _moments(
    model: nn.Module, sample: Sample, seed: int, length: int, n_sequences: int, batch: int
) -> dict[str, Moments]:
    generator = length_generator(seed, length)
    moments = {quantity: Moments() for quantity in SEQUENCE_ERRORS}
    parameter = next(model.parameters(), None)
    for start in range(0, n_sequences, batch):
        drawn = sample(generator, min(batch, n_sequences - start), length)
        tokens = drawn.tokens
        output = model(tokens if parameter is None else tokens.to(parameter.device))
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if not isinstance(logits, Tensor):
            raise TypeError(
                "the model must return logits [batch, pos, d_vocab_out], or an object with "
                f".logits; got {type(output).__name__}"
            )
        # Not every device has float64.
        found = errors_of_sequences(logits.cpu(), drawn.targets.cpu())
        for quantity, values in found.items():
            moments[quantity].update(values)
    return moments


def _rows(
    moments: Mapping[str, Moments], place: Mapping[str, Any], pos: int
) -> Iterator[dict[str, Any]]:
    for quantity, unit in SEQUENCE_ERRORS.items():
        yield {
            **place,
            "n_key": pos if quantity in LAST else None,
            "quantity": quantity,
            "unit": unit,
            **moments[quantity].result().cells(),
        }
