"""The limits of normalisation as `Curve`s over the number of visible keys (theory 6).

As in `key_curves`: every builder takes `n_key` `[point]` (whole numbers, increasing), the
parameters of its law (one number, or one a point) and the keywords of `Place`. What the source is
only reported to state is a `conjecture`.
"""

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from .arguments import check_real, check_whole
from .curve import Curve, Place
from .dispersion import weight_bounds
from .key_curves import EVERYWHERE, SOFTMAX, SPREAD
from .limits_of_normalisation import (
    dispersed_jacobian_bound,
    jacobian_entry_bound,
    jacobian_norm_bound,
)

_SLOPE = "slopes in the scores as they enter the softmax (T = 1)"
_PAPER = "Mudarisov et al., arXiv 2508.17821"
_SHARE = "the selected keys are a fixed share of the visible ones"
_SPHERE = "embeddings uniform on a sphere"


def jacobian_bound_curves(
    n_key: ArrayLike, max_weight: ArrayLike, spread: ArrayLike, **place: Unpack[Place]
) -> tuple[Curve, Curve, Curve, Curve]:
    """Bounds of `jacobian_entry` (1/4) and `jacobian_norm` (1/2, by weight, by spread).

    `jacobian_entry_bound`, `jacobian_norm_bound`, and `dispersed_jacobian_bound` twice: of the
    largest weight measured (`max` of `max_weight`), and of the largest weight that the spread
    (`max` of `score_spread`) allows, which falls as 1/n.
    """
    x = check_whole("n_key", n_key)
    largest = check_real("max_weight", max_weight, 0.0, 1.0, open_low=True)
    allowed = np.minimum(weight_bounds(x, spread).upper, 1.0)
    here, paper = "derived here (theory 6)", f"derived here, in place of {_PAPER} (theory 6)"
    entry, norm, weight, by_spread = (
        Curve(
            name=name,
            quantity=quantity,
            unit="1",
            x=x,
            values=np.broadcast_to(values, x.shape),
            kind="upper_bound",
            hypotheses=(SOFTMAX, _SLOPE, *more),
            source=source,
            domain=EVERYWHERE,
            x_name="n_key",
            **place,
        )
        for name, quantity, values, more, source in (
            ("1/4, slope of one weight", "jacobian_entry", jacobian_entry_bound(), (), here),
            ("1/2, slope of a row", "jacobian_norm", jacobian_norm_bound(), (), paper),
            (
                "largest weight, slope of a row",
                "jacobian_norm",
                dispersed_jacobian_bound(largest),
                ("no weight exceeds the one given",),
                here,
            ),
            (
                "slope that the spread allows",
                "jacobian_norm",
                dispersed_jacobian_bound(allowed),
                (SPREAD,),
                here,
            ),
        )
    )
    return entry, norm, weight, by_spread


def relayed_jacobian_curve(n_key: ArrayLike, **place: Unpack[Place]) -> Curve:
    """1/4 of `jacobian_norm`, as the source's Lemma 2 is relayed: false at weights (1/2, 1/2)."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="1/4, slope of a row as relayed",
        quantity="jacobian_norm",
        unit="1",
        x=x,
        values=np.full(x.shape, 0.25),
        kind="conjecture",
        hypotheses=(
            SOFTMAX,
            _SLOPE,
            "false as a bound of every row: weights (1/2, 1/2) have slope 1/2",
        ),
        source=f"{_PAPER}, Lemma 2 as relayed [second-hand] (theory 6)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def selection_distance_bound_curve(
    n_key: ArrayLike, value_norm: ArrayLike, **place: Unpack[Place]
) -> Curve:
    """|sum of the rest - sum of the selection| <= max |x_i|: give the longest value of the rows."""
    x = check_whole("n_key", n_key)
    longest = check_real("value_norm", value_norm, 0.0)
    return Curve(
        name="longest value",
        quantity="selection_distance",
        unit="l2",
        x=x,
        values=np.broadcast_to(longest, x.shape),
        kind="upper_bound",
        hypotheses=("weights >= 0 that sum to one", "no value is longer than that given"),
        source="elementary: the triangle inequality (theory 6)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def relayed_selection_curves(n_key: ArrayLike, **place: Unpack[Place]) -> tuple[Curve, Curve]:
    """What is reported of a selection that grows with n: distance to 0, about 80 % separable.

    Both are conjectures: the formulas behind them are not established here, and `separable_share`
    is this project's own reading of what is counted.
    """
    x = check_whole("n_key", n_key)
    distance, share = (
        Curve(
            name=name,
            quantity=quantity,
            unit=unit,
            x=x,
            values=np.full(x.shape, value),
            kind="conjecture",
            hypotheses=(_SHARE, *more),
            source=f"{_PAPER}, {place_of} [second-hand]; formula not established (theory 6)",
            domain=EVERYWHERE,
            x_name="n_key",
            **place,
        )
        for name, quantity, unit, value, more, place_of in (
            (
                "0, distance of many keys",
                "selection_distance",
                "l2",
                0.0,
                ("scores in a fixed range, many keys",),
                "Theorem 1, qualitatively",
            ),
            (
                "about 80 % separable (70 to 85 % reported)",
                "separable_share",
                "ratio",
                0.8,
                (_SPHERE, "separable in the sense of the paper, which is not established here"),
                "Theorem 2",
            ),
        )
    )
    return distance, share
