"""Laws of the set-complement model as `Curve`s over length (theory 1.1).

Every builder takes `lengths` `[point]` (whole numbers, increasing), the parameters of its law, and
the keywords of `Place` (`checkpoint`, `seed`, `layer`, `head`, `site`) that say which rows of the
table the curve belongs to. Formula, range and errors are those of the function that each builder
names; what does not make a `Curve` raises its ValueError.
"""

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_choice, check_real, check_whole
from .curve import Curve, Place
from .displacement import (
    minimum_displacement_bound,
    oscillation_bound,
    predict_balanced_displacement,
)
from .error import predict_illegal_mass, predict_kl_divergence, predict_total_variation
from .rescaling import predict_gap, predict_rescale_gain, predict_scale
from .short_scales import predict_rescale_gain_from_short, predict_scale_from_short

BALANCED = "balanced structured solution (both tokens of a pair displaced equally at length 2)"
UNIFORM = "uniform attention over distinct tokens"
ONE_BLOCK = "one block, one head, attention only, no positional encoding"
UNNORMED = "no norm after the attention"
ORTHONORMAL = "orthonormal logit directions; residual content orthogonal to them"
EQUAL_ABSENT = "all absent tokens have the same logit"
EQUAL_PRESENT = "all present tokens have the same displacement"


def balanced_displacement_curve(
    lengths: ArrayLike,
    displacement: float,
    reference_length: int = 2,
    **place: Unpack[Place],
) -> Curve:
    """`predict_balanced_displacement`: the 2/s law (or 1/s from length 1) of `displacement`."""
    x = check_whole("lengths", lengths)
    return Curve(
        name=f"{reference_length}/s law",
        quantity="displacement",
        unit="logit",
        x=x,
        values=predict_balanced_displacement(x, displacement, reference_length),
        kind="exact",
        hypotheses=(BALANCED, UNIFORM, ONE_BLOCK, UNNORMED),
        source="derived here (theory 1.1, structure)",
        domain=(1.0, np.inf),
        **place,
    )


def minimum_displacement_bound_curve(
    lengths: ArrayLike, p: ArrayLike, **place: Unpack[Place]
) -> Curve:
    """`minimum_displacement_bound` of `min_displacement`, for whatever tokens are present.

    `p` (logit, > 0, `[d_vocab]`) are the strengths of the whole vocabulary: at length s the bound
    is that of the s strongest tokens, the largest over all choices.
    """
    x = check_whole("lengths", lengths)
    strengths = np.sort(check_real("p", p, 0.0, open_low=True).ravel())[::-1]
    if x.max(initial=0.0) > strengths.size:
        raise ValueError(
            f"lengths must be at most the number of strengths in p, got {x.max():g} against "
            f"{strengths.size}."
        )
    bounds = [minimum_displacement_bound(strengths[: int(length)]) for length in x.ravel()]
    return Curve(
        name="largest least displacement of any attention",
        quantity="min_displacement",
        unit="logit",
        x=x,
        values=np.array(bounds).reshape(x.shape),
        kind="upper_bound",
        hypotheses=(BALANCED, "attention weights sum to one", ONE_BLOCK, UNNORMED),
        source="derived here (theory 1.1, no temperature can help)",
        domain=(1.0, float(strengths.size)),
        **place,
    )


def oscillation_bound_curve(
    lengths: ArrayLike,
    own_weight: ArrayLike,
    oscillation_at_1: float,
    oscillation_at_2: float,
    **place: Unpack[Place],
) -> Curve:
    """`oscillation_bound` of `oscillation`; `own_weight` `[point]` or one ratio for all lengths."""
    x = check_whole("lengths", lengths)
    return Curve(
        name="bound of the oscillation from lengths 1 and 2",
        quantity="oscillation",
        unit="logit",
        x=x,
        values=oscillation_bound(x, own_weight, oscillation_at_1, oscillation_at_2),
        kind="upper_bound",
        hypotheses=(
            ONE_BLOCK,
            UNNORMED,
            "the oscillations at lengths 1 and 2 are the largest over the inputs, and the query's "
            "own weight at most the one given",
        ),
        source="derived here (theory 1.1, noise does not grow)",
        domain=(1.0, np.inf),
        **place,
    )


def _norm_hypotheses(placement: str, residual: float) -> tuple[str, ...]:
    """What the closed forms of `rescaling` assume, for one placement."""
    content = f"residual content of norm {residual:g}"
    seen = (content,) if placement == "post" and residual > 0.0 else ()
    return (BALANCED, UNIFORM, ONE_BLOCK, ORTHONORMAL, *seen)


def _norm_domain(width: int) -> tuple[float, float]:
    """Lengths at which some token is present and some absent."""
    return 1.0, float(check_whole("width", width, 2)) - 1.0


def gap_curve(
    placement: str,
    normalization: str | None,
    lengths: ArrayLike,
    p: float,
    *,
    width: int,
    residual: float = 0.0,
    gain: float = 1.0,
    eps: float = 0.0,
    final_norm: bool = False,
    final_gain: float = 1.0,
    frozen: bool = False,
    **place: Unpack[Place],
) -> Curve:
    """`predict_gap` of `displacement`, or of `frozen_displacement` if `frozen`."""
    x = check_whole("lengths", lengths)
    norms = f"{placement} {normalization or ''}".strip() + (" + final norm" if final_norm else "")
    return Curve(
        name=f"closed form, {norms}{', scales frozen' if frozen else ''}",
        quantity="frozen_displacement" if frozen else "displacement",
        unit="logit",
        x=x,
        values=predict_gap(
            placement,
            normalization,
            x,
            p,
            width=width,
            residual=residual,
            gain=gain,
            eps=eps,
            final_norm=final_norm,
            final_gain=final_gain,
            frozen=frozen,
        ),
        kind="exact",
        hypotheses=_norm_hypotheses("post" if final_norm else placement, residual),
        source="derived here (theory 1.1, norm resharpens)",
        domain=_norm_domain(width),
        **place,
    )


def displacement_rescale_curve(
    placement: str,
    normalization: str | None,
    lengths: ArrayLike,
    p: float,
    *,
    width: int,
    residual: float = 0.0,
    eps: float = 0.0,
    final_norm: bool = False,
    gain: float = 1.0,
    **place: Unpack[Place],
) -> Curve:
    """`predict_gap` over its frozen self, of `displacement_rescale`: all norms together."""
    x = check_whole("lengths", lengths)
    live, frozen = (
        predict_gap(
            placement,
            normalization,
            x,
            p,
            width=width,
            residual=residual,
            gain=gain,
            eps=eps,
            final_norm=final_norm,
            frozen=held,
        )
        for held in (False, True)
    )
    return Curve(
        name=f"rescale of the displacement, {placement}",
        quantity="displacement_rescale",
        unit="ratio",
        x=x,
        values=live / frozen,
        kind="exact",
        hypotheses=_norm_hypotheses("post" if final_norm else placement, residual),
        source="derived here (theory 1.1, norm resharpens)",
        domain=_norm_domain(width),
        **place,
    )


def scale_curve(
    placement: str,
    normalization: str | None,
    lengths: ArrayLike,
    p: float,
    *,
    width: int,
    residual: float = 0.0,
    eps: float = 0.0,
    **place: Unpack[Place],
) -> Curve:
    """`predict_scale` of `norm_scale`, for the norm that follows the aggregation (give `site`)."""
    x = check_whole("lengths", lengths)
    return Curve(
        name=f"closed form of the scale, {placement}",
        quantity="norm_scale",
        unit="1",
        x=x,
        values=predict_scale(
            placement, normalization, x, p, width=width, residual=residual, eps=eps
        ),
        kind="exact",
        hypotheses=_norm_hypotheses(placement, residual),
        source="derived here (theory 1.1, norm resharpens)",
        domain=_norm_domain(width),
        **place,
    )


def rescale_gain_curve(
    placement: str,
    normalization: str | None,
    lengths: ArrayLike,
    p: float,
    *,
    width: int,
    residual: float = 0.0,
    eps: float = 0.0,
    **place: Unpack[Place],
) -> Curve:
    """`predict_rescale_gain` of `rescale_gain`, as `scale_curve` (give `site`)."""
    x = check_whole("lengths", lengths)
    return Curve(
        name=f"closed form of the gain, {placement}",
        quantity="rescale_gain",
        unit="ratio",
        x=x,
        values=predict_rescale_gain(
            placement, normalization, x, p, width=width, residual=residual, eps=eps
        ),
        kind="exact",
        hypotheses=_norm_hypotheses(placement, residual),
        source="derived here (theory 1.1, norm resharpens)",
        domain=_norm_domain(width),
        **place,
    )


SHORT_HYPOTHESES = {
    "orthogonal": (UNIFORM, ORTHONORMAL, "RMSNorm", "equal strengths"),
    "exchangeable": (
        "uniform attention over distinct tokens in random order",
        "the stream is the query's vector plus the mean of the keys' vectors",
        "scales are root mean squares over sequences",
    ),
}
"""The hypotheses of `predict_scale_from_short` in sentences."""


def _short_curve(
    values: NDArray[np.float64],
    x: NDArray[np.float64],
    quantity: str,
    unit: str,
    hypothesis: str,
    place: Place,
) -> Curve:
    """A fit from lengths 1 and 2; its domain ends before the first infeasible length."""
    finite = np.isfinite(values)
    if not finite.any():
        raise ValueError(
            f"The scales at lengths 1 and 2 do not fit the {hypothesis!r} law (it would need a "
            "negative square); try hypothesis='exchangeable' or draw no curve."
        )
    return Curve(
        name="from lengths 1 and 2",
        quantity=quantity,
        unit=unit,
        x=x,
        values=values,
        kind="fit",
        hypotheses=SHORT_HYPOTHESES[hypothesis],
        source="derived here (theory 1.1; the exchangeable form extends it)",
        domain=(1.0, np.inf if finite.all() else float(x[finite].max())),
        **place,
    )


def scale_from_short_curve(
    lengths: ArrayLike,
    scale_at_1: float,
    scale_at_2: float,
    *,
    hypothesis: str = "orthogonal",
    eps: float = 0.0,
    **place: Unpack[Place],
) -> Curve:
    """`predict_scale_from_short` of `norm_scale` (give `site`); ValueError if infeasible."""
    x = check_whole("lengths", lengths)
    values = predict_scale_from_short(x, scale_at_1, scale_at_2, hypothesis=hypothesis, eps=eps)
    return _short_curve(values, x, "norm_scale", "1", hypothesis, place)


def rescale_gain_from_short_curve(
    lengths: ArrayLike,
    scale_at_1: float,
    scale_at_2: float,
    *,
    hypothesis: str = "orthogonal",
    eps: float = 0.0,
    **place: Unpack[Place],
) -> Curve:
    """`predict_rescale_gain_from_short` of `rescale_gain`, as `scale_from_short_curve`."""
    x = check_whole("lengths", lengths)
    values = predict_rescale_gain_from_short(
        x, scale_at_1, scale_at_2, hypothesis=hypothesis, eps=eps
    )
    return _short_curve(values, x, "rescale_gain", "ratio", hypothesis, place)


ERROR_LAWS = {
    "total_variation": (predict_total_variation, "ratio"),
    "illegal_mass": (predict_illegal_mass, "ratio"),
    "kl_divergence": (predict_kl_divergence, "nats"),
}
"""Error quantity -> (law of the displacements, unit)."""


def error_curve(
    quantity: str,
    lengths: ArrayLike,
    displacement: ArrayLike,
    d_vocab: int,
    **place: Unpack[Place],
) -> Curve:
    """An error from the displacement `[point]` (logit) at each length, by `ERROR_LAWS`.

    `quantity` is "total_variation", "illegal_mass" or "kl_divergence". Feed it a `gap_curve`'s
    values for the error that theory predicts, or measured displacements for the error that they
    imply.
    """
    check_choice("quantity", quantity, tuple(ERROR_LAWS))
    law, unit = ERROR_LAWS[quantity]
    x = check_whole("lengths", lengths)
    return Curve(
        name="error from the displacement",
        quantity=quantity,
        unit=unit,
        x=x,
        values=law(displacement, check_whole("d_vocab", d_vocab, 2) - x, x),
        kind="exact",
        hypotheses=(EQUAL_PRESENT, EQUAL_ABSENT),
        source="derived here (theory 1.1, error metric)",
        domain=(1.0, float(d_vocab) - 1.0),
        **place,
    )
