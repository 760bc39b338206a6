"""How far an attention output over n sampled keys lies from that over all of them (theory 8, 10).

One query, its scores ``l`` and the values ``v`` of its keys. Draw n of the keys at random, with
replacement, and attend to them alone: the output ``o_n = sum e^l v / sum e^l`` over the draw tends
to ``o``, that over all keys, and its root mean square distance to it falls as ``1 / sqrt(n)``.
Drawn so, the keys are i.i.d. from a finite vocabulary (the keys of the row, each as likely), which
is what the derived constant (:func:`resharpen.interp.theory.sampling_error_limit`) assumes; what
is left of its hypotheses is that n is large: well above :func:`sampling_scale`.
"""

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from .arguments import check_counts

_CHUNK = 2**22
"""Counts held at a time."""


def sampling_errors(
    scores: Float[Tensor, "*row key"],
    values: Float[Tensor, "*#row key d_value"],
    n_key: int,
    n_draws: int,
    generator: np.random.Generator,
) -> Float64[Tensor, "*row"]:
    """``sqrt(mean |o_n - o|^2)`` over draws of n keys with replacement; l2 of the values, >= 0.

    Args:
        scores: What enters the softmax; ``-inf`` where a key is hidden.
        values: What the weights average.
        n_key: n, 1 or more; it may exceed the number of keys.
        n_draws: Draws of each row, 1 or more.
        generator: Where the draws come from; each row's are its own.

    Returns:
        float64, one number a row; NaN for a row without a visible key.

    Raises:
        ValueError: If a number is less than 1, or the values do not fit the scores.

    Source: the quantity of theory 8, for one query.
    """
    check_counts(n_key=n_key, n_draws=n_draws)
    rows, vectors = _flat(scores, values)
    found = [
        _errors_of_row(row, vector, n_key, n_draws, generator)
        for row, vector in zip(rows, vectors, strict=True)
    ]
    return torch.tensor(found, dtype=torch.float64).reshape(scores.shape[:-1])


def sampling_scale(scores: Float[Tensor, "*row key"]) -> Float64[Tensor, "*row"]:
    """``E[e^(2 l)] / (E e^l)^2 = N sum a^2``: how many keys stand for one that counts; 1 or more.

    N keys over the effective support of the row: 1 where all weigh the same, N where one key holds
    everything. The ``1 / sqrt(n)`` rate is that of n well above it; below it most draws miss the
    keys that matter. NaN for a row without a visible key.

    Source: derived here (theory 0 and 10).
    """
    wide = scores.double().cpu()
    visible = wide != -torch.inf
    weights = torch.where(visible, wide.softmax(-1), 0.0)
    found = visible.sum(-1) * weights.square().sum(-1)
    return torch.where(visible.any(-1), found, torch.nan)


def _flat(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Rows one under the other, in float64 on the CPU."""
    wide, vectors = scores.double().cpu(), values.double().cpu()
    try:
        vectors = vectors.expand(*wide.shape, -1)
    except RuntimeError:
        raise ValueError(
            f"values must be [*row, key, d_value] for scores of shape {tuple(scores.shape)}; got "
            f"{tuple(values.shape)}"
        ) from None
    return wide.reshape(-1, wide.shape[-1]), vectors.reshape(-1, *vectors.shape[-2:])


def _errors_of_row(
    row: Tensor, vectors: Tensor, n_key: int, n_draws: int, generator: np.random.Generator
) -> float:
    visible = row != -torch.inf
    if not visible.any():
        return float("nan")
    kept, value = row[visible].numpy(), vectors[visible].numpy()
    share = np.full(kept.size, 1.0 / kept.size)
    weight = np.exp(kept - kept.max())
    # About the output, so that a common part of the values cancels before it is squared.
    moved = value - weight @ value / weight.sum()
    step, total = max(1, _CHUNK // kept.size), 0.0
    for start in range(0, n_draws, step):
        counts = generator.multinomial(n_key, share, size=min(step, n_draws - start))
        # Each draw about its own largest score: it may miss every key that has weight in the row.
        largest = np.where(counts > 0, kept, -np.inf).max(-1, keepdims=True)
        tilted = counts * np.exp(np.minimum(kept - largest, 0.0))
        error = tilted @ moved / tilted.sum(-1, keepdims=True)
        total += float((error**2).sum())
    return float(np.sqrt(total / n_draws))
