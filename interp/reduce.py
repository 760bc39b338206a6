"""Streaming reduction: mergeable accumulators in float64, of constant memory.

The result does not depend on how the observations were split into batches, nor on the order in
which the parts were merged (to rounding). Both accumulators take a batch on the leading axis.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..models.facts import Facts


@dataclass(frozen=True, repr=False)
class Summary(Facts):
    """What was accumulated, per place (the axes after the batch axis), on the CPU.

    Attributes:
        mean: Mean of the defined observations, float64; NaN where there is none.
        sem: Its standard error, ``sqrt(variance / n_obs)`` with the unbiased variance, float64; NaN
            with fewer than two observations or an infinite one.
        n_obs: Number of defined observations, int64.
        min: Smallest observation, float64; NaN where there is none.
        max: Largest observation, float64; NaN where there is none.
        undefined: Number of NaN observations, which were skipped, int64.
    """

    mean: Float[Tensor, "*place"]
    sem: Float[Tensor, "*place"]
    n_obs: Int[Tensor, "*place"]
    min: Float[Tensor, "*place"]
    max: Float[Tensor, "*place"]
    undefined: Int[Tensor, "*place"]

    def cells(self) -> dict[str, Any]:
        """The cells of one row of the tidy table, where there is one place only.

        ``mean``, ``sem``, ``n_obs``, ``min``, ``max``; ``status`` is undefined without a mean.
        """
        mean = float(self.mean)
        return {
            "mean": mean,
            "sem": float(self.sem),
            "n_obs": int(self.n_obs),
            "min": float(self.min),
            "max": float(self.max),
            "status": "undefined" if mean != mean else "ok",
        }


def _double(values: Tensor) -> Tensor:
    """On the CPU first: not every device has float64."""
    return values.detach().to("cpu").to(torch.float64)


def _check_batch(values: Tensor, shape: torch.Size | None) -> None:
    if values.ndim == 0:
        raise ValueError("observations need a leading batch axis; got a scalar")
    if values.is_complex():
        raise TypeError(f"observations must be real numbers; got {values.dtype}")
    if shape is not None and values.shape[1:] != shape:
        raise ValueError(
            f"observations must have the shape [batch, {', '.join(map(str, shape))}] of those "
            f"before; got {list(values.shape)}"
        )


class Moments(Facts):
    """Count, mean, squared deviations, minimum and maximum over the batch axis, per place.

    For two parts with ``n``, mean ``m`` and ``M2 = sum (x - m)**2`` (Chan, Golub and LeVeque 1983):

        n = n_a + n_b,   m = m_a + (m_b - m_a) n_b / n,
        M2 = M2_a + M2_b + (m_b - m_a)**2 n_a n_b / n.

    NaN observations are counted apart and skipped. An infinite observation makes the mean infinite
    (NaN when both signs occur) and the standard error NaN.

    Example:
        >>> total = Moments()
        >>> total.update(torch.tensor([1.0, 2.0])).update(torch.tensor([3.0])).result().mean
        tensor(2., dtype=torch.float64)
    """

    shape: torch.Size | None
    """Shape of the places, ``None`` while empty."""
    _finite: Tensor
    _undefined: Tensor
    _infinite: Tensor
    _mean: Tensor
    _m2: Tensor
    _min: Tensor
    _max: Tensor

    def __init__(self) -> None:
        """Start empty; the first batch sets the shape of the places."""
        self.shape = None

    def _facts(self) -> list[tuple[str, str]]:
        if self.shape is None:
            return [("observations", "none yet")]
        counts = self._finite + self._infinite + self._undefined
        taken = int(counts.flatten()[0]) if counts.numel() else 0
        return [("places", str(list(self.shape))), ("observations", f"{taken} a place")]

    def update(self, values: Float[Tensor, "batch *place"]) -> "Moments":
        """Take a batch in; returns itself.

        Raises:
            TypeError: If the observations are complex.
            ValueError: If there is no batch axis or the places differ from those before.
        """
        _check_batch(values, self.shape)
        wide = _double(values)
        part = Moments()
        part.shape = wide.shape[1:]
        finite = wide.isfinite()
        part._finite = finite.sum(0)
        part._undefined = wide.isnan().sum(0)
        part._infinite = wide.shape[0] - part._finite - part._undefined
        part._mean = torch.where(finite, wide, 0.0).sum(0) / part._finite.clamp(min=1)
        part._m2 = torch.where(finite, wide - part._mean, 0.0).square().sum(0)
        if wide.shape[0]:
            part._min = torch.where(wide.isnan(), torch.inf, wide).amin(0)
            part._max = torch.where(wide.isnan(), -torch.inf, wide).amax(0)
        else:
            part._min = torch.full(part.shape, torch.inf, dtype=torch.float64)
            part._max = -part._min
        return self.merge(part)

    def merge(self, other: "Moments") -> "Moments":
        """Take another accumulator's observations in, leaving the other as it is; returns itself.

        Raises:
            ValueError: If the places of the two differ.
        """
        if other.shape is None:
            return self
        if self.shape is None:
            self.shape = other.shape
            for name in ("_finite", "_undefined", "_infinite", "_mean", "_m2", "_min", "_max"):
                setattr(self, name, getattr(other, name).clone())
            return self
        if self.shape != other.shape:
            raise ValueError(
                f"only accumulators of the same places can be merged; got {list(self.shape)} and "
                f"{list(other.shape)}"
            )
        count = self._finite + other._finite
        share = other._finite.double() / count.clamp(min=1)  # whole / whole would be float32
        step = other._mean - self._mean
        self._mean = self._mean + step * share
        self._m2 = self._m2 + other._m2 + step.square() * self._finite * share
        self._finite = count
        self._undefined = self._undefined + other._undefined
        self._infinite = self._infinite + other._infinite
        self._min = torch.minimum(self._min, other._min)
        self._max = torch.maximum(self._max, other._max)
        return self

    def result(self) -> Summary:
        """Return what was accumulated.

        Raises:
            ValueError: If nothing was taken in.
        """
        if self.shape is None:
            raise ValueError("nothing was accumulated: call update before result")
        count = self._finite + self._infinite
        none, nan = count == 0, torch.nan
        mean = torch.where(none, nan, self._mean)
        mean = torch.where(self._max == torch.inf, torch.inf, mean)
        low = (self._min == -torch.inf) & ~none
        mean = torch.where(low, torch.where(self._max == torch.inf, nan, -torch.inf), mean)
        mean = torch.where(none, nan, mean)
        known = (self._finite > 1) & (self._infinite == 0)
        variance = self._m2 / (self._finite - 1).clamp(min=1)
        sem = torch.where(known, (variance / self._finite.clamp(min=1)).sqrt(), nan)
        lowest, highest = (torch.where(none, nan, value) for value in (self._min, self._max))
        return Summary(mean, sem, count, lowest, highest, self._undefined.clone())


class VectorVariance(Facts):
    """Variance over the batch of each coordinate, averaged over coordinates, with its error.

    With ``N`` vectors and ``q_b = mean_c (x_bc - mean_b x_bc)**2 * N / (N - 1)``, the mean of ``q``
    is exactly :func:`resharpen.interp.measures.output_variance`, and its spread gives the standard
    error, which a running covariance would give only at ``d_model**2`` memory. So the vectors
    themselves are kept, ``N * d_model`` float64 numbers a place, however long the inputs were.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._parts: list[Tensor] = []

    def _facts(self) -> list[tuple[str, str]]:
        if not self._parts:
            return [("vectors", "none yet")]
        count, *axes = torch.cat(self._parts).shape
        return [("vectors", f"{count} of {axes}")]

    def update(self, vectors: Float[Tensor, "batch *place d_model"]) -> "VectorVariance":
        """Take a batch of vectors in; returns itself.

        Raises:
            TypeError: If the vectors are complex.
            ValueError: If there are fewer than two axes or they differ from those before.
        """
        _check_batch(vectors, self._parts[0].shape[1:] if self._parts else None)
        if vectors.ndim < 2:
            raise ValueError(f"vectors must be [batch, ..., d_model]; got {list(vectors.shape)}")
        self._parts.append(_double(vectors))
        return self

    def merge(self, other: "VectorVariance") -> "VectorVariance":
        """Take another accumulator's vectors in, leaving the other as it is; returns itself.

        Raises:
            ValueError: If the shapes of the two differ.
        """
        for part in list(other._parts):
            self.update(part)
        return self

    def result(self) -> Summary:
        """Return what was accumulated; NaN with fewer than two vectors. ``min``/``max`` are of q.

        Vectors that hold a NaN are skipped and counted as undefined.

        Raises:
            ValueError: If nothing was taken in.
        """
        if not self._parts:
            raise ValueError("nothing was accumulated: call update before result")
        vectors = torch.cat(self._parts)
        known = ~vectors.isnan().any(-1, keepdim=True)
        count = known.sum(0).double()
        mean = torch.where(known, vectors, 0.0).sum(0) / count
        enough = torch.where(count > 1, count / (count - 1), math.nan)
        deviation = (vectors - mean).square().mean(-1) * enough.squeeze(-1)
        summary = Moments().update(deviation).result()
        undefined = (~known).sum(0).squeeze(-1)
        return Summary(
            summary.mean, summary.sem, summary.n_obs, summary.min, summary.max, undefined
        )
