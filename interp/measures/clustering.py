"""How far the tokens of a sequence have drawn together: cosines, ranks, clusters, turning.

All but the last two are one number (or one list) a sequence of a stream ``[batch, pos, d_model]``:
they compare its positions with one another, so they are no rows of a table of measures, and a mean
over sequences is taken of their results. No ``pos x pos`` array is ever held; with
``y_i = x_i / |x_i|``, ``n = pos``

    sum_ij <y_i, y_j> = |sum_i y_i|**2,    sum_ij <y_i, y_j>**2 = |Y^T Y|_F**2,

and what needs single pairs goes over blocks of positions. Results do not depend on how the batch
was split nor on the order of the positions (to rounding). Half-precision streams are widened to
float32; the Gram matrix is in float64 (on the CPU, where a device has none).
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .norms import residual_norm
from .precision import widen

BLOCK_PAIRS = 2**22
"""Cosines held at once (16 MB in float32): positions are taken in blocks of as many as fit."""


def _sequences(stream: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
    """The stream, widened.

    Raises:
        TypeError: If it is not made of real floating-point numbers.
        ValueError: If it has other axes or an empty one.
    """
    if not stream.is_floating_point():
        raise TypeError(f"stream must hold real floating-point numbers; got {stream.dtype}")
    if stream.ndim != 3 or 0 in stream.shape[1:]:
        raise ValueError(
            "stream must have axes [batch, pos, d_model], with at least one position and one "
            f"coordinate; got shape {tuple(stream.shape)}"
        )
    return widen(stream)


def directions(stream: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
    """``x / |x|``, unit 1: what the cosines are of. NaN where ``x`` is zero or not finite.

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate.
    """
    wide = _sequences(stream)
    # Divided by the largest coordinate first: squares neither overflow nor vanish.
    scaled = wide / wide.abs().amax(-1, keepdim=True)
    return scaled / torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)


def mean_cosine(stream: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch"]:
    """``(|sum_i y_i|**2 - n) / (n (n - 1))``, unit 1, range ``[-1/(n-1), 1]``: mean of all pairs.

    The mean cosine of two different positions, exact. NaN for one position, or if one of them is
    zero or not finite.

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate.
    """
    unit = directions(stream)
    n = unit.shape[1]
    return _over_pairs(unit.sum(1).square().sum(-1), n)


def mean_square_cosine(stream: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch"]:
    """``(|Y^T Y|_F**2 - n) / (n (n - 1))``, unit 1, range ``[0, 1]``: second moment of the cosines.

    Over pairs of different positions, exact; of the smaller of ``Y^T Y`` and ``Y Y^T``, which have
    the same norm. ``1/d_model`` for directions uniform on the sphere. NaN as for
    :func:`mean_cosine`; the variance of the cosines is this less the square of that.

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate.
    """
    unit = directions(stream)
    return _over_pairs(_gram(unit).square().sum((-2, -1)), unit.shape[1]).to(unit)


def _over_pairs(total: Tensor, n: int) -> Tensor:
    """Mean over ordered pairs of different positions, from the sum over all: each own one is 1."""
    return (total - n) / (n * (n - 1)) if n > 1 else torch.full_like(total, math.nan)


def _gram(rows: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch side side"]:
    """``X^T X`` or ``X X^T``, whichever is smaller, in float64."""
    wide = (rows.cpu() if rows.device.type == "mps" else rows).double()
    return wide.mT @ wide if wide.shape[2] <= wide.shape[1] else wide @ wide.mT


def effective_rank(stream: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch"]:
    """``e**H(sigma / sum sigma)``, unit 1, range ``[1, min(pos, d_model)]``.

    H is the entropy of the singular values of the stream of one sequence, which is not centred
    (Roy and Vetterli, *The effective rank*, EUSIPCO 2007). Singular values below
    ``sqrt(max(pos, d_model) * eps)`` of the largest (about 3e-7 at 500) are rounding, and count as
    zero. NaN for a stream of zeros or one that is not finite.

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate.
    """
    return ranks(stream)[0]


def stable_rank(stream: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch"]:
    """``|X|_F**2 / |X|_2**2``, unit 1, range ``[1, min(pos, d_model)]``; at most the rank.

    Of the stream of one sequence, which is not centred. NaN for a stream of zeros or one that is
    not finite.

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate.
    """
    return ranks(stream)[1]


def ranks(
    stream: Float[Tensor, "batch pos d_model"],
) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
    """:func:`effective_rank` and :func:`stable_rank`, for the price of one of them.

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate.
    """
    wide = _sequences(stream)
    square = _square_singular_values(wide)
    share = square.sqrt() / square.sqrt().sum(-1, keepdim=True)
    effective = torch.special.entr(share).sum(-1).exp()
    return effective.to(wide), (square.sum(-1) / square.amax(-1)).to(wide)


def _square_singular_values(
    wide: Float[Tensor, "batch pos d_model"],
) -> Float[Tensor, "batch side"]:
    """Squares of the singular values of each sequence, over the largest coordinate; NaN if none."""
    largest = wide.abs().amax((1, 2), keepdim=True)
    known = (largest > 0) & largest.isfinite()
    # The eigenvalues of a matrix with a NaN are refused: those sequences go in as zeros.
    gram = _gram(torch.where(known, wide / largest, 0.0))
    values = torch.linalg.eigvalsh(gram)
    rounding = max(wide.shape[1:]) * torch.finfo(values.dtype).eps
    values = torch.where(values > rounding * values.amax(-1, keepdim=True), values, 0.0)
    return torch.where(known.squeeze(-1).to(values.device), values, math.nan)


def _blocks(unit: Float[Tensor, "pos d_model"]) -> Iterator[tuple[int, Float[Tensor, "row key"]]]:
    """Blocks of rows ``i >= first`` of the cosines with the positions ``j >= first``, and first."""
    n = unit.shape[0]
    rows = max(1, min(n, BLOCK_PAIRS // max(n, 1)))
    for first in range(0, n, rows):
        yield first, unit[first : first + rows] @ unit[first:].mT


def cosine_histogram(
    stream: Float[Tensor, "batch pos d_model"], n_bins: int = 200
) -> Int[Tensor, "batch bin"]:
    """How many pairs of positions have a cosine in each of ``n_bins`` equal bins of ``[-1, 1]``.

    Counts, unit 1, int64: ``n (n - 1) / 2`` in all, less the pairs with a position that is zero or
    not finite, which has no cosine. Bin ``k`` is ``[-1 + 2 k / n_bins, -1 + 2 (k + 1) / n_bins)``,
    the last one closed; counts of several batches add up. A cosine within rounding of an edge may
    fall to either side of it.

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate, or
            there is no bin.
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1; got {n_bins}")
    unit = directions(stream)
    counts = torch.zeros(unit.shape[0], n_bins, dtype=torch.int64, device=unit.device)
    for sequence, total in zip(unit, counts, strict=True):
        for _, cosines in _blocks(sequence[~sequence.isnan().any(-1)]):
            rows, keys = cosines.shape
            later = torch.ones(rows, keys, dtype=torch.bool, device=unit.device).triu(1)
            index = ((cosines[later] + 1.0) * (n_bins / 2)).floor().long().clamp(0, n_bins - 1)
            total += torch.bincount(index, minlength=n_bins)
    return counts


def cluster_labels(
    stream: Float[Tensor, "batch pos d_model"], threshold: float = 0.9
) -> Int[Tensor, "batch pos"]:
    """The cluster of each position, named by the first position in it.

    Two positions are joined when their cosine is at least ``threshold``; a cluster is a connected
    component of that graph (single linkage), so two of its positions may themselves be further
    apart, through a chain of others. A position that is zero or not finite has no cosine and stands
    alone. The cosines are taken once, in blocks.

    Raises:
        TypeError: If the stream is not made of real floating-point numbers.
        ValueError: If it is not ``[batch, pos, d_model]`` with a position and a coordinate, or the
            threshold is not in ``(-1, 1)``.
    """
    if not -1.0 < threshold < 1.0:
        raise ValueError(f"threshold must be a cosine between -1 and 1; got {threshold}")
    unit = directions(stream)
    n = unit.shape[1]
    found = torch.arange(n, device=unit.device).repeat(unit.shape[0], 1)
    for sequence, labels in zip(unit, found, strict=True):
        for first, cosines in _blocks(sequence):
            _join(labels, first, cosines >= threshold)
    return found


def _join(labels: Int[Tensor, "pos"], first: int, edges: Bool[Tensor, "row key"]) -> None:
    """Give all positions that the edges connect the least of their labels, in place.

    A label is a position with itself as label. A row reads the least label of its neighbours and
    hands it to the labels of all of them, and labels are followed to their ends, until nothing
    changes.
    """
    n = labels.shape[0]
    edges.fill_diagonal_(True)  # each with itself, whatever the rounding
    # Labels of half the width: the two reductions over all pairs are what takes the time.
    width = torch.int16 if n < 2**15 else torch.int64
    last = torch.tensor(n, dtype=width, device=labels.device)
    while True:
        keys = labels[first:]
        least = torch.where(edges, keys.to(width), last).amin(1)
        offered = torch.where(edges, least[:, None], last).amin(0).long()
        parents = torch.arange(n, device=labels.device)
        parents.scatter_reduce_(0, keys, offered, "amin")
        while not torch.equal(further := parents[parents], parents):
            parents = further
        moved = parents[labels]
        if torch.equal(moved, labels):
            return
        labels.copy_(moved)


def cluster_sizes(labels: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """Sizes of the clusters of :func:`cluster_labels`, largest first, then zeros, unit 1.

    A row sums to ``pos``; its count of numbers above zero is the number of clusters.

    Raises:
        ValueError: If the labels are not ``[batch, pos]`` whole numbers from 0 below ``pos``.
    """
    if labels.ndim != 2 or labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            "labels must be whole numbers [batch, pos], from cluster_labels; got "
            f"{labels.dtype} {tuple(labels.shape)}"
        )
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < labels.shape[1]:
        raise ValueError(
            f"labels must be positions from 0 to {labels.shape[1] - 1}; got "
            f"{int(labels.min())} to {int(labels.max())}"
        )
    whole = labels.long()
    sizes = torch.zeros_like(whole).scatter_add_(1, whole, torch.ones_like(whole))
    return sizes.sort(dim=1, descending=True).values


def cluster_count(labels: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch"]:
    """Number of clusters of :func:`cluster_labels`, unit 1, range ``[1, pos]``.

    Raises:
        ValueError: If the labels are not ``[batch, pos]`` whole numbers from 0 below ``pos``.
    """
    return (cluster_sizes(labels) > 0).sum(1)


def angular_speed(
    before: Float[Tensor, "*row d_model"], after: Float[Tensor, "*row d_model"]
) -> Float[Tensor, "*row"]:
    """Angle by which each token turned from one stream to a later one, radians, ``[0, pi]``.

    ``2 atan2(|u - v|, |u + v|)`` of the directions, which small angles do not round away as the
    arccosine does (an angle of 1e-4 comes out of it as 0 or 3e-4 in float32). Over one layer it is
    the speed; one number a row. NaN where a stream is zero or not finite.

    Raises:
        TypeError: If a stream is complex.
        ValueError: If the two differ in shape or have no coordinate.
    """
    _check_pair(before, after)
    start, end = widen(before), widen(after)
    start = start / start.abs().amax(-1, keepdim=True)
    end = end / end.abs().amax(-1, keepdim=True)
    u, v = start / residual_norm(start).unsqueeze(-1), end / residual_norm(end).unsqueeze(-1)
    return 2.0 * torch.atan2(residual_norm(u - v), residual_norm(u + v))


def norm_growth(
    before: Float[Tensor, "*row d_model"], after: Float[Tensor, "*row d_model"]
) -> Float[Tensor, "*row"]:
    """``|x_after| / |x_before|``, unit ratio, range ``[0, inf]``: how the token's length grew.

    One number a row; over one layer it is the growth a layer. NaN where both are zero.

    Raises:
        TypeError: If a stream is complex.
        ValueError: If the two differ in shape or have no coordinate.
    """
    _check_pair(before, after)
    return residual_norm(after) / residual_norm(before)


def _check_pair(before: Tensor, after: Tensor) -> None:
    if before.shape != after.shape or before.ndim == 0 or before.shape[-1] == 0:
        raise ValueError(
            "the streams before and after must have the same shape [*row, d_model], with at least "
            f"one coordinate; got {tuple(before.shape)} and {tuple(after.shape)}"
        )
