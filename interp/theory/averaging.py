"""What an exponential moving average leaves of the noise of stochastic gradient descent.

Near a minimum of curvature ``h`` a constant rate ``η`` gives ``θ_{t+1} = (1 - a) θ_t + noise``,
``a = η h``: autocorrelation ``ρ = 1 - a``. The average ``E_t = d E_{t-1} + (1 - d) θ_t`` then has
the stationary variance

    Var E / Var θ = (1 - d) (1 + d ρ) / ((1 + d) (1 - d ρ))

Neither depends on how strong the noise is: a noisier gradient makes both errors larger, not the
gain. Directions that relax fast (``a >> 1 - d``) are averaged down to ``(1 - d) / (1 + d)``; those
that relax slower than the average forgets (``a << 1 - d``) keep all of their noise.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_real


def predict_averaged_variance(relaxation: ArrayLike, decay: ArrayLike) -> NDArray[np.float64]:
    """``(1 - d)(1 + d(1 - a)) / ((1 + d)(1 - d(1 - a)))``: variance an average leaves, a ratio.

    Hypotheses: one direction of a quadratic loss, a constant rate, white noise, a run much longer
    than ``1/a`` and ``1/(1 - d)``. Adam, several directions and the end of a run are outside.

    Args:
        relaxation: ``a``, rate times curvature, in (0, 2).
        decay: ``d`` of the average, in [0, 1); broadcasts.

    Returns:
        ratio, in (0, 1] for ``a <= 1``, the broadcast shape.

    Raises:
        TypeError: If an argument is not made of real numbers.
        ValueError: If one is out of range.

    Source: derived here (an AR(1) sequence through a first-order filter; theory 13 for averages).
    """
    a = check_real("relaxation", relaxation, 0.0, 2.0, open_low=True, open_high=True)
    d = check_real("decay", decay, 0.0, 1.0, open_high=True)
    correlation = 1 - a
    return (1 - d) * (1 + d * correlation) / ((1 + d) * (1 - d * correlation))
