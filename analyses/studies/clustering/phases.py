"""A length-scaled temperature on the tokens of a model: where the phase turns, and where it should.

One attention step with ``Q = K = V = I`` and inverse temperature ``gamma log n``, without residual,
on unit tokens of mean cosine rho: below ``gamma_c = 1 / (1 - rho)`` the tokens meet, above it they
stay (Chen et al., arXiv 2510.05554, Theorem 2.1 [second-hand], theory 4). On n equiangular tokens
the cosine after the step is known exactly at every n and gamma; the tokens of a model are not
equiangular, and how much that matters is what is measured here.

The turn is where the cosine after the step is half-way between 1 and what it was before: the
smallest such gamma, interpolated between the values of the sweep.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ....interp.measures import directions, mean_cosine, mean_square_cosine
from ....interp.theory import critical_gamma_threshold, predict_simplex_cosine


@dataclass(frozen=True, eq=False)
class PhaseSweep:
    """One sequence, or the mean over several, under the sweep.

    Attributes:
        n_key: Number of tokens n.
        cosine: rho, mean cosine before the step.
        spread: Standard deviation of the cosines of the pairs, 0 for equiangular tokens.
        critical: ``gamma_c``.
        share: Swept gamma over ``gamma_c``, increasing.
        measured: Mean cosine after the step, the same shape.
        predicted: That of n equiangular tokens of cosine rho, exact.
    """

    n_key: int
    cosine: float
    spread: float
    critical: float
    share: NDArray[np.float64]
    measured: NDArray[np.float64]
    predicted: NDArray[np.float64]

    @property
    def turn(self) -> float:
        """Gamma at which the measured cosine is half-way, over ``gamma_c``; NaN if it never is."""
        return half_way(self.share, self.measured, self.cosine)

    @property
    def predicted_turn(self) -> float:
        """The same of the equiangular tokens."""
        return half_way(self.share, self.predicted, self.cosine)


def half_way(share: NDArray[np.float64], after: NDArray[np.float64], before: float) -> float:
    """Where a falling curve first is at most half-way between 1 and where it ends, interpolated."""
    level = 0.5 * (1.0 + before)
    below = np.flatnonzero(after <= level)
    if not below.size:
        return math.nan
    last = int(below[0])
    if last == 0:
        return float(share[0])
    high, low = after[last - 1], after[last]
    step = (high - level) / (high - low) if high > low else 0.0
    return float(share[last - 1] + step * (share[last] - share[last - 1]))


def attention_step(
    unit: Float[Tensor, "batch pos d_model"], inverse_temperature: float
) -> Float[Tensor, "batch pos d_model"]:
    """One step of attention whose query, key and value matrices are the identity, all seen."""
    return torch.softmax(inverse_temperature * (unit @ unit.mT), dim=-1) @ unit


def sweep_phases(
    stream: Float[Tensor, "batch pos d_model"], n_gammas: int = 61, reach: float = 3.0
) -> PhaseSweep | None:
    """Sweep gamma from 0 to ``reach`` times the critical one; means over the sequences.

    Args:
        stream: Tokens of any length; their directions count.
        n_gammas: Values of gamma.
        reach: The largest, over ``gamma_c``.

    Returns:
        The sweep, or ``None`` where the mean cosine is not between 0 and 1 (to 1e-6): a stream
        that has collapsed, or whose tokens repel, has no critical gamma.
    """
    unit = directions(stream.double())
    n = unit.shape[1]
    rho = float(mean_cosine(unit).mean())
    if n < 2 or not 1e-6 < rho < 1.0 - 1e-6:
        return None
    second = float(mean_square_cosine(unit).mean())
    critical = float(critical_gamma_threshold(rho))
    share = np.linspace(0.0, reach, n_gammas)
    beta = share * critical * math.log(n)
    after = [float(mean_cosine(attention_step(unit, value)).mean()) for value in beta.tolist()]
    return PhaseSweep(
        n,
        rho,
        math.sqrt(max(second - rho**2, 0.0)),
        critical,
        share,
        np.array(after),
        np.asarray(predict_simplex_cosine(n, rho, beta)),
    )
