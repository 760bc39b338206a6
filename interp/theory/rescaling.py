"""What a norm does to the displacement: closed forms for each placement (theory 1.1).

After uniform attention over s distinct tokens the logits hold the pattern x = -(p/s) 1_t: equal
displacements p/s, which fall as 1/s. A norm after the aggregation divides by the scale of what it
sees, and that scale falls too: the displacement is brought back ("resharpened").

| here | theory 1.1 |
| --- | --- |
| `length`, `p` | s, p |
| `width` | D, coordinates that the norm averages over (v if the stream is the logit space) |
| `residual` | b, l2 norm of residual content orthogonal to the pattern (LayerNorm: and to 1) |
| `scale` | sqrt(mean(x^2) + eps), of the centred x for LayerNorm: the `hook_scale` of the norm |
| `gain` | one number multiplying the output of the norm |

`SCALE_LAWS` is the table; `predict_scale`, `predict_gap` and `predict_rescale_gain` read it.
Common hypotheses: one block, attention only, one head; balanced structured solution of strength p;
uniform attention; logit directions orthonormal. `eps` is the norm's own: it acts exactly as more
residual content, b^2 + D eps, and sets the numerical floor of the remedy.
Everything in this file is derived here (theory 1.1).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import check_choice, check_numbers, check_real, check_whole

ScaleLaw = Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike, ArrayLike], NDArray[np.float64]]
"""(length, p, width, residual, eps) -> scale of the norm after the aggregation."""

NORMALIZATION_FAMILIES = {"LN": "LN", "LNPre": "LN", "RMS": "RMS", "RMSPre": "RMS"}
"""TransformerLens's normalization types, with or without learned gain, and the law they obey."""


def _check_pattern(
    length: ArrayLike, p: ArrayLike, width: ArrayLike, residual: ArrayLike, eps: ArrayLike
) -> tuple[NDArray[np.float64], ...]:
    """The five checked arguments of a scale law; the pattern must fit into the width."""
    lengths, widths = check_whole("length", length), check_whole("width", width)
    if (lengths > widths).any():
        raise ValueError(
            f"length must be at most width (one logit direction a token), got {lengths.max():g} "
            f"against {widths.min():g}."
        )
    return (
        lengths,
        check_real("p", p, 0.0, open_low=True),
        widths,
        check_real("residual", residual, 0.0),
        check_real("eps", eps, 0.0),
    )


def predict_unit_scale(
    length: ArrayLike, p: ArrayLike, width: ArrayLike, residual: ArrayLike, eps: ArrayLike
) -> NDArray[np.float64]:
    """Scale when no norm follows the aggregation: 1 at every length (gap p / s).

    Placements "none" and "pre" without a final norm. Arguments (checked, of no effect), returns,
    errors: those of `predict_post_rms_scale`. Source: derived here (theory 1.1, table).
    """
    return np.ones(np.broadcast(*_check_pattern(length, p, width, residual, eps)).shape)


def predict_post_rms_scale(
    length: ArrayLike, p: ArrayLike, width: ArrayLike, residual: ArrayLike, eps: ArrayLike
) -> NDArray[np.float64]:
    """Scale of an RMSNorm on residual plus attention output: sqrt((b^2 + p^2/s) / D + eps).

    Placement "post"; also any placement without a norm of its own, followed by a final RMSNorm.
    b = 0, D = v gives the gap sqrt(v/s).

    Args:
        length: s, whole numbers, 1 <= s <= width.
        p: logit, > 0.
        width: D, whole numbers.
        residual: b, l2, >= 0.
        eps: of the norm, >= 0. All broadcast.

    Returns:
        1 (a scale), >= 0, the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 1.1, table).
    """
    s, strength, d, b, floor = _check_pattern(length, p, width, residual, eps)
    return np.sqrt((b**2 + strength**2 / s) / d + floor)


def predict_post_layer_scale(
    length: ArrayLike, p: ArrayLike, width: ArrayLike, residual: ArrayLike, eps: ArrayLike
) -> NDArray[np.float64]:
    """Scale of a LayerNorm there: sqrt((p/s)^2 (s/D) (1 - s/D) + b^2 / D + eps).

    Placement "post"; also any placement without a norm of its own, followed by a final LayerNorm.
    b = 0, D = v gives the gap v / sqrt(s (v - s)) >= 2. The residual content must be orthogonal to
    the all-ones direction as well.

    Arguments, returns, errors: those of `predict_post_rms_scale`. The scale is 0 at s = D if b and
    eps are. Source: derived here (theory 1.1, table; the term in b extends it).
    """
    s, strength, d, b, floor = _check_pattern(length, p, width, residual, eps)
    return np.sqrt((strength / s) ** 2 * (s / d) * (1.0 - s / d) + b**2 / d + floor)


def predict_output_rms_scale(
    length: ArrayLike, p: ArrayLike, width: ArrayLike, residual: ArrayLike, eps: ArrayLike
) -> NDArray[np.float64]:
    """Scale of an RMSNorm on the attention output before the add: sqrt(p^2 / (s D) + eps).

    Placements "res_post" and "peri" (Sandwich-LN, Swin-V2, the remedy of 2504.02827). The norm does
    not see the residual stream, so `residual` plays no part: the gap is sqrt(D/s) for every b, p.

    Arguments, returns, errors: those of `predict_post_rms_scale`. Source: derived here (theory 1.1,
    table).
    """
    check_real("residual", residual, 0.0)
    return predict_post_rms_scale(length, p, width, 0.0, eps)


def predict_output_layer_scale(
    length: ArrayLike, p: ArrayLike, width: ArrayLike, residual: ArrayLike, eps: ArrayLike
) -> NDArray[np.float64]:
    """Scale of a LayerNorm on the attention output before the add: the post law at b = 0.

    Placements "res_post" and "peri"; `residual` plays no part. Arguments, returns, errors: those of
    `predict_post_rms_scale`. Source: derived here (theory 1.1, table).
    """
    check_real("residual", residual, 0.0)
    return predict_post_layer_scale(length, p, width, 0.0, eps)


SCALE_LAWS: dict[tuple[str, str | None], ScaleLaw] = {
    ("none", None): predict_unit_scale,
    ("none", "RMS"): predict_unit_scale,
    ("none", "LN"): predict_unit_scale,
    ("pre", "RMS"): predict_unit_scale,
    ("pre", "LN"): predict_unit_scale,
    ("post", "RMS"): predict_post_rms_scale,
    ("post", "LN"): predict_post_layer_scale,
    ("res_post", "RMS"): predict_output_rms_scale,
    ("res_post", "LN"): predict_output_layer_scale,
    ("peri", "RMS"): predict_output_rms_scale,
    ("peri", "LN"): predict_output_layer_scale,
}
"""(norm placement, normalization family) -> scale of the norm that follows the aggregation."""


def _law(placement: str, normalization: str | None) -> ScaleLaw:
    """The entry of `SCALE_LAWS`, LNPre and RMSPre read as LN and RMS."""
    key = (placement, NORMALIZATION_FAMILIES.get(normalization or "", normalization))
    check_choice("(placement, normalization)", key, tuple(SCALE_LAWS))
    return SCALE_LAWS[key]


def _divide(numerator: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ratio, NaN where the scale is 0 (the norm of nothing is undefined)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0.0, numerator / scale, np.nan)


def predict_scale(
    placement: str,
    normalization: str | None,
    length: ArrayLike,
    p: ArrayLike,
    *,
    width: ArrayLike,
    residual: ArrayLike = 0.0,
    eps: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Scale of the norm that follows the aggregation, by `SCALE_LAWS`; 1 where there is none.

    Args:
        placement: "none", "pre", "post", "res_post" or "peri".
        normalization: "RMS", "RMSPre", "LN", "LNPre"; None with "none".
        length: s, whole numbers, 1 <= s <= width.
        p: logit, > 0, displacement at length 1 before any norm.
        width: D, whole numbers.
        residual: b, l2, >= 0.
        eps: of the norm, >= 0. All broadcast.

    Returns:
        1 (a scale), the broadcast shape.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the pair is unknown or an argument out of range.

    Source: derived here (theory 1.1, table).
    """
    return _law(placement, normalization)(length, p, width, residual, eps)


def predict_rescale_gain(
    placement: str,
    normalization: str | None,
    length: ArrayLike,
    p: ArrayLike,
    *,
    width: ArrayLike,
    residual: ArrayLike = 0.0,
    eps: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Rescale gain scale(1) / scale(s): how much more the norm multiplies than at length 1.

    1 where no norm follows the aggregation; sqrt(s) for RMSNorm with b = eps = 0; at most
    sqrt(1 + (p/b)^2) with residual content b.

    Arguments and errors: those of `predict_scale`. Returns ratio, the broadcast shape; NaN where
    the scale is 0. Source: derived here (theory 1.1, table).
    """
    law = _law(placement, normalization)
    alone = np.ones_like(check_whole("length", length))
    first = law(alone, p, width, residual, eps)
    return _divide(first, law(length, p, width, residual, eps))


def predict_gap(
    placement: str,
    normalization: str | None,
    length: ArrayLike,
    p: ArrayLike,
    *,
    width: ArrayLike,
    residual: ArrayLike = 0.0,
    gain: ArrayLike = 1.0,
    eps: ArrayLike = 0.0,
    final_norm: bool = False,
    final_gain: ArrayLike = 1.0,
    frozen: bool = False,
) -> NDArray[np.float64]:
    """Logit gap absent - present at length s: gain (p/s) / scale, and once more for a final norm.

    | placement | gap at gain 1, eps 0, no final norm |
    | --- | --- |
    | none, pre | p/s |
    | post, LayerNorm, b = 0 | D / sqrt(s (D - s)) >= 2 |
    | post, RMSNorm | sqrt(D) (p/s) / sqrt(b^2 + p^2/s): s^(-1/2) up to (p/b)^2, s^(-1) after |
    | res_post, peri, RMSNorm | sqrt(D/s), whatever b and p |

    "none" or "pre" with a final norm is "post" without one. A final norm has the same eps, width
    and normalization; it sees the pattern that the block leaves, and the residual content as it
    then is (b after "res_post" and "peri", gain b / scale after "post").

    Args:
        placement: "none", "pre", "post", "res_post" or "peri".
        normalization: "RMS", "RMSPre", "LN", "LNPre"; None with "none" and no final norm.
        length: s, whole numbers, 1 <= s <= width.
        p: logit, > 0, displacement at length 1 before any norm.
        width: D, whole numbers.
        residual: b, l2, >= 0.
        gain: of the block's norm, > 0; ignored where no norm follows the aggregation.
        eps: of the norms, >= 0. All broadcast.
        final_norm: whether a norm of the same kind stands before the unembedding.
        final_gain: of the final norm, > 0.
        frozen: hold every scale at its value at length 1 (the part of the loss that is dispersion).

    Returns:
        logit, the broadcast shape; NaN where a scale is 0.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the pair is unknown or an argument out of range.

    Source: derived here (theory 1.1, table; the final norm by applying it twice).
    """
    law = _law(placement, normalization)
    post = _law("post", normalization) if final_norm else None
    s, strength, d, content, floor = _check_pattern(length, p, width, residual, eps)
    block_gain = check_real("gain", gain, 0.0, open_low=True)
    last_gain = check_real("final_gain", final_gain, 0.0, open_low=True)
    seen = np.ones_like(s) if frozen else s
    scale = law(seen, strength, d, content, floor)
    defined = scale > 0.0
    multiplier = np.where(defined, 1.0 if law is predict_unit_scale else block_gain, 1.0)
    multiplier = multiplier / np.where(defined, scale, 1.0)
    gap = np.where(defined, multiplier * strength / s, np.nan)
    if post is None:
        return gap
    left = content * multiplier if placement == "post" else content
    return last_gain * _divide(gap, post(seen, multiplier * strength, d, left, floor))


def predict_pattern_scale(
    displacements: ArrayLike,
    width: ArrayLike,
    normalization: str = "RMS",
    residual: ArrayLike = 0.0,
    eps: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Scale of a norm that sees any displacement pattern: unequal strengths, any attention weights.

    RMSNorm: sqrt((b^2 + sum_i Delta_i^2) / D + eps); LayerNorm: minus (sum_i Delta_i / D)^2 inside.
    The norm turns displacement Delta_i into gain Delta_i / scale. `predict_displacement` gives the
    pattern of the structured solution after the add; before it (res_post, peri) it is a_i p_i.

    Hypotheses: absent tokens all at logit 0, logit directions orthonormal, other content of norm b
    orthogonal to them (LayerNorm: and to the all-ones direction).

    Args:
        displacements: logit, `[*row, s]`, s <= width.
        width: D, whole numbers.
        normalization: "RMS", "RMSPre", "LN" or "LNPre".
        residual: b, l2, >= 0.
        eps: of the norm, >= 0. All broadcast against `[*row]`.

    Returns:
        1 (a scale), `[*row]`.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if the normalization is unknown or an argument out of range.

    Source: derived here (theory 1.1).
    """
    check_choice("normalization", normalization, tuple(NORMALIZATION_FAMILIES))
    pattern = check_numbers("displacements", displacements)
    d = check_whole("width", width)
    b, floor = check_real("residual", residual, 0.0), check_real("eps", eps, 0.0)
    if pattern.ndim == 0 or not 1 <= pattern.shape[-1] <= d.min(initial=np.inf):
        raise ValueError(
            f"displacements must have shape [*row, s] with 1 <= s <= width, got {pattern.shape}."
        )
    mean = pattern.sum(axis=-1) / d if NORMALIZATION_FAMILIES[normalization] == "LN" else 0.0
    return np.sqrt(np.maximum(((pattern**2).sum(axis=-1) + b**2) / d - mean**2, 0.0) + floor)


def predict_crossover_length(
    p: ArrayLike, residual: ArrayLike, width: ArrayLike = 1, eps: ArrayLike = 0.0
) -> NDArray[np.float64]:
    """Length up to which a post RMSNorm resharpens: s* = p^2 / (b^2 + D eps).

    The gap falls as s^(-1/2) before it and as s^(-1) after it; at s* it is sqrt(1/2) of the gap
    without residual content.

    Args:
        p: logit, > 0.
        residual: b, l2, >= 0.
        width: D, whole numbers; only matters with eps.
        eps: of the norm, >= 0. All broadcast.

    Returns:
        1 (a length, real), the broadcast shape; infinite if b and eps are 0.

    Raises:
        TypeError: if an argument is not made of real numbers.
        ValueError: if an argument is out of range.

    Source: derived here (theory 1.1, crossover; eps as residual content).
    """
    strength, b = check_real("p", p, 0.0, open_low=True), check_real("residual", residual, 0.0)
    content = b**2 + check_whole("width", width) * check_real("eps", eps, 0.0)
    with np.errstate(divide="ignore"):
        return strength**2 / content
