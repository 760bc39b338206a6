"""Tokens on the sphere, followed through a model or in time, and seen in one plane.

    y_ti = x_ti / |x_ti|,    M = 1/(T n) sum_ti y_ti y_ti^T,    seen = (<e_1, y_ti>, <e_2, y_ti>),

with e_1, e_2 the two leading eigenvectors of M, the same for every frame t. What the plane shows is
the share of the squared length, (lambda_1 + lambda_2) / sum lambda: the sum is 1, so what is not
shown is 1 less it. Directions are not centred, so tokens that have drawn together stand near the
rim of the unit disc, and tokens in all directions near its middle.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..models.facts import Facts
from ..models.observed import AttentionSeen, NormSeen, PatternSeen, StreamSeen

MOST_TOKENS = 256
"""Tokens that are followed, evenly spaced over the sequence."""


@dataclass(frozen=True, eq=False, repr=False)
class TokenPaths(Facts):
    """Tokens in a plane.

    Attributes:
        coordinates: ``[frame, token, 2]``, in the unit disc.
        shares: Of each axis, how much of the squared length it shows.
        position: Place of each token in its sequence, ``[token]``.
        labels: What each frame is.
        n_tokens: How many tokens there were to choose from.
    """

    coordinates: NDArray[np.float64]
    shares: tuple[float, float]
    position: NDArray[np.int64]
    labels: tuple[str, ...]
    n_tokens: int


def project_paths(paths: ArrayLike, labels: Sequence[str] | None = None) -> TokenPaths:
    """See tokens in the plane that shows most of their directions over all frames.

    Args:
        paths: ``[frame, token, d_model]``, of any length above 0; more than :data:`MOST_TOKENS`
            tokens are thinned, evenly.
        labels: What each frame is; numbers from 0 by default.

    Raises:
        ValueError: If the shape is another, a token is zero or not finite, or there are not as many
            labels as frames.
    """
    given = np.asarray(paths, dtype=np.float64)
    if given.ndim != 3 or given.size == 0:
        raise ValueError(f"paths must be [frame, token, d_model]; got shape {given.shape}")
    named = tuple(map(str, range(len(given)) if labels is None else labels))
    if len(named) != len(given):
        raise ValueError(f"there are {len(given)} frames but {len(named)} labels")
    n_tokens = given.shape[1]
    position = np.unique(np.linspace(0, n_tokens - 1, min(n_tokens, MOST_TOKENS)).round())
    position = position.astype(np.int64)
    chosen = given[:, position]
    norms = np.linalg.norm(chosen, axis=2, keepdims=True)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise ValueError("every token of every frame must be finite and not zero")
    unit = chosen / norms
    flat = unit.reshape(-1, unit.shape[2])
    values, vectors = np.linalg.eigh(flat.T @ flat / len(flat))
    axes = vectors[:, ::-1][:, :2]
    if axes.shape[1] < 2:
        axes = np.pad(axes, ((0, 0), (0, 1)))
    # A sign is a choice: most of the last frame stands to the right, and above.
    axes = axes * np.where(unit[-1].sum(0) @ axes < 0, -1.0, 1.0)
    shares = np.pad(values[::-1], (0, 1))[:2]
    return TokenPaths(unit @ axes, (float(shares[0]), float(shares[1])), position, named, n_tokens)


class _Keeper:
    """Keeps some tokens of the stream at every block boundary."""

    def __init__(self, position: Tensor) -> None:
        self.position, self.frames, self.labels = position, [], []

    def attention(self, seen: AttentionSeen) -> None:
        """Let the layer be."""

    def pattern(self, seen: PatternSeen) -> None:
        """Let the layer be."""

    def norm(self, seen: NormSeen) -> None:
        """Let the norm be."""

    def stream(self, seen: StreamSeen) -> None:
        tokens = seen.stream[0, self.position.to(seen.stream.device)]
        self.frames.append(tokens.double().cpu())
        self.labels.append(str(seen.layer))


def follow_tokens(adapter: object, tokens: Tensor) -> TokenPaths:
    """Follow the tokens of one sequence through an adapted model, layer by layer.

    Args:
        adapter: An adapted model (:class:`resharpen.interp.profiling.Observable`).
        tokens: ``[1, pos]``; at most :data:`MOST_TOKENS` of them are kept, evenly spaced.

    Raises:
        ValueError: If there is more than one sequence, or the model shows no stream.
    """
    if tokens.ndim != 2 or len(tokens) != 1:
        raise ValueError(f"one sequence [1, pos] is followed; got shape {tuple(tokens.shape)}")
    n = tokens.shape[1]
    position = torch.linspace(0, n - 1, min(n, MOST_TOKENS)).round().long().unique()
    keeper = _Keeper(position)
    adapter.observe(tokens, keeper, last_only=True)  # type: ignore[attr-defined]
    if not keeper.frames:
        raise ValueError("the model shows no stream at any block boundary")
    found = project_paths(torch.stack(keeper.frames).numpy(), keeper.labels)
    return TokenPaths(found.coordinates, found.shares, position.numpy(), found.labels, n)
