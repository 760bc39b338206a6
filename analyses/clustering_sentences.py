"""What an audit says of its model's tokens: whether they draw together, and what misleads there."""

import math

import numpy as np

from .clustering_layers import GROWS, LayerShapes, Turning, predict_turning
from .wording import format_interval, format_number

__all__ = ["headline", "section_sentences"]

MOVED = 0.05
"""Change of the mean cosine from which tokens are said to draw together, or apart."""

ONE_COORDINATE = 0.5
"""Share of the squared sum of directions from which one coordinate is named."""

HUGE_TOKENS = 0.5
"""Effective rank over that of the directions below which a few huge tokens are named."""

VARIES = 1.5
"""Largest over smallest speed factor from which an exponent is said."""


def headline(shapes: LayerShapes) -> str:
    """One sentence: from where to where the mean cosine goes, over layers and lengths."""
    cosine = shapes.at("mean_cosine")
    first, last = float(cosine[0]), float(cosine[-1])
    peak = int(np.nanargmax(cosine))
    change = last - first
    verb = "draw together" if change >= MOVED else "move apart" if change <= -MOVED else "keep"
    ends = f"mean cosine {format_number(first)} before the first block, {format_number(last)} after"
    parts = [f"{ends} the last"]
    if 0 < peak < shapes.n_layers and cosine[peak] >= max(first, last) + MOVED:
        parts.append(f"at most {format_number(float(cosine[peak]))}, {_place(shapes, peak)}")
    rank = _rank(shapes)
    if rank is not None:
        parts.append(
            f"effective rank {format_number(float(rank[0]))} to {format_number(float(rank[-1]))}"
        )
    said = "keep their distance" if verb == "keep" else verb
    return f"Clustering: at {shapes.n_tokens[-1]} tokens, tokens {said} ({'; '.join(parts)})."


def section_sentences(shapes: LayerShapes, placement: str | None, causal: bool) -> list[str]:
    """Everything that the section says, most important first.

    Args:
        shapes: What was measured.
        placement: Where the norms stand, or `None` if unknown.
        causal: Whether tokens see no later ones.
    """
    turning = predict_turning(shapes, placement)
    said = [
        headline(shapes),
        _where(shapes),
        _lengths(shapes),
        _one_coordinate(shapes),
        _huge_tokens(shapes),
        _clusters(shapes),
        _speed(shapes, placement, turning),
        _assumptions(shapes, causal),
    ]
    return [sentence for sentence in said if sentence]


def _rank(shapes: LayerShapes) -> np.ndarray | None:
    """Rank with every token counted once, else that of the stream; `None` if neither is there."""
    for quantity in ("direction_rank", "effective_rank"):
        found = shapes.at(quantity)
        if np.isfinite(found[[0, -1]]).all():
            return found
    return None


def _place(shapes: LayerShapes, boundary: int) -> str:
    return "after the last block" if boundary == shapes.n_layers else f"before block {boundary}"


def _where(shapes: LayerShapes) -> str:
    """Where most of the way to the largest mean cosine is gone."""
    cosine = shapes.at("mean_cosine")
    peak = int(np.nanargmax(cosine))
    rise = float(cosine[peak] - cosine[0])
    if not rise >= MOVED:
        return ""
    half = int(np.argmax(cosine >= cosine[0] + 0.5 * rise))
    return (
        f"The mean cosine is largest {_place(shapes, peak)}; half of its rise to there is done "
        f"{_place(shapes, half)}."
    )


def _lengths(shapes: LayerShapes) -> str:
    """How the end depends on the length."""
    if len(shapes.n_tokens) < 2:
        return ""
    short, long = (float(shapes.boundary["mean_cosine"][row, -1]) for row in (0, -1))
    if math.isnan(short) or math.isnan(long):
        return ""
    return (
        f"After the last block the mean cosine is {format_number(short)} at {shapes.n_tokens[0]} "
        f"tokens and {format_number(long)} at {shapes.n_tokens[-1]}."
    )


def _one_coordinate(shapes: LayerShapes) -> str:
    """Cosines that one coordinate makes, large in every token: no sign that tokens are alike."""
    cosine, trimmed = shapes.at("mean_cosine"), shapes.at("trimmed_cosine")
    share = np.where(cosine > MOVED, shapes.at("top_coordinate_share"), np.nan)
    if not np.nanmax(share, initial=0.0) >= ONE_COORDINATE:
        return ""
    at = int(np.nanargmax(share))
    count = int(np.sum(share >= ONE_COORDINATE))
    return (
        f"At {count} of {shapes.n_layers + 1} boundaries most of the mean cosine comes from one "
        f"coordinate that is large in every token, most of all {_place(shapes, at)}: without it "
        f"the mean cosine there is {format_number(float(trimmed[at]))}, not "
        f"{format_number(float(cosine[at]))}, so it says little of how alike the tokens are."
    )


def _huge_tokens(shapes: LayerShapes) -> str:
    """Ranks that a token of huge norm pulls down."""
    rank, once = shapes.at("effective_rank"), shapes.at("direction_rank")
    ratio = rank / once
    if not np.nanmin(ratio, initial=1.0) < HUGE_TOKENS:
        return ""
    at = int(np.nanargmin(ratio))
    return (
        f"A few tokens of huge norm (usually the first) make the stream look collapsed at "
        f"{int(np.sum(ratio < HUGE_TOKENS))} boundaries: {_place(shapes, at)} its effective rank "
        f"is {format_number(float(rank[at]))}, but {format_number(float(once[at]))} when every "
        "token counts once. The ranks above and in the figure count every token once."
    )


def _clusters(shapes: LayerShapes) -> str:
    share, count = shapes.at("largest_cluster_share"), shapes.at("cluster_count")
    if not np.isfinite([share[-1], count[-1]]).all():
        return ""
    return (
        f"At a cosine of 0.9 the tokens after the last block form {format_number(float(count[-1]))}"
        f" clusters, the largest with {format_number(100 * float(share[-1]))} % of them (of at "
        "most 256 tokens, evenly spaced)."
    )


def _speed(shapes: LayerShapes, placement: str | None, turning: Turning | None) -> str:
    """How the angles follow the factor that theory has for the placement."""
    measured = shapes.at("angular_speed")
    known = measured[np.isfinite(measured)]
    if not known.size:
        return ""
    ends = f"{format_number(float(known.min()))} to {format_number(float(known.max()))} radians"
    if turning is None:
        return (
            f"A block turns a token by {ends}. Theory 11 has no speed factor for norms placed "
            f"{placement or 'nowhere known'}."
        )
    low, high = turning.ratio
    least, most = (float(end(turning.predicted)) for end in (np.nanmin, np.nanmax))
    law = "as 1/r, r the norm of the stream" if placement in GROWS else "the same in every block"
    if placement == "ln_scaling":
        law = "as 1/(r sqrt(block)), r the norm of the stream"
    between = f", {format_number(most)} to {format_number(least)}" if most > least else ""
    said = (
        f"A block turns a token by {ends}; by theory 11 ({placement}) it would turn it {law}"
        f"{between}. Measured over predicted: {format_number(low)} to {format_number(high)}"
    )
    fit = turning.exponent
    if turning.variation >= VARIES and fit.status == "ok":
        interval = format_interval(fit.value, fit.low, fit.high)
        said += f"; the angle goes as the factor to the power {interval} (theory: -1)"
    return f"{said}."


def _assumptions(shapes: LayerShapes, causal: bool) -> str:
    """Which of theory's assumptions do not hold, and by how much."""
    cosine, square = shapes.at("mean_cosine")[0], shapes.at("mean_square_cosine")[0]
    parts = [f"tokens that start orthogonal (measured: mean cosine {format_number(float(cosine))}"]
    if np.isfinite(square) and np.isfinite(cosine):
        spread = math.sqrt(max(0.0, float(square - cosine**2)))
        parts[0] += f", standard deviation {format_number(spread)}"
    parts[0] += ")"
    weights = shapes.at("weight_cosine")
    known = weights[np.isfinite(weights)]
    parts.append(
        "weights that all blocks share"
        + (
            f" (cosine of the matrices of successive blocks: {format_number(float(known.mean()))}, "
            "1 if shared)"
            if known.size
            else ""
        )
    )
    scores = shapes.at("score_cosine_correlation")
    known = scores[np.isfinite(scores)]
    parts.append(
        "query, key and value matrices that are the identity"
        + (
            f" (correlation of the scores with the tokens' cosines: "
            f"{format_number(float(known.min()))} to {format_number(float(known.max()))} over "
            "layers, 1 if so)"
            if known.size
            else ""
        )
    )
    mask = ", no MLP and no causal mask" if causal else " and no MLP"
    return (
        f"Theory assumes {', '.join(parts[:-1])}, and {parts[-1]}; it has one head{mask}. Its "
        "factor is a reference, not a bound."
    )
