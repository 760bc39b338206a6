"""From measurements to verdicts: what each head, layer and model does as its input grows.

Judging computes no measurement and words no report: it reads the tidy table and the theory
curves, compares with :class:`Thresholds`, and returns verdicts that carry the threshold they were
judged by.
"""

import math
from collections.abc import Iterable

import pandas as pd

from ..interp.theory import Curve, n_key_bound
from ..models.sites import norm_position
from .findings import Exponent, Verdict
from .fits import fit_exponent, fit_slope
from .rows import distinct, over, pick, places
from .thresholds import SOURCE, Thresholds
from .wording import format_number

_UNKNOWN = math.nan


def judge(
    table: pd.DataFrame,
    curves: Iterable[Curve],
    checkpoint: str,
    thresholds: Thresholds | None = None,
    *,
    no_theorem: str | None = None,
) -> list[Verdict]:
    """Judge every head, every layer and the model.

    Args:
        table: The tidy table.
        curves: Theory curves; the model's predicted crossing is read off its total variation.
        checkpoint: Whose rows; several seeds are averaged.
        thresholds: Where the lines are drawn; ``None`` for the defaults.
        no_theorem: Why no length is predicted for the model, if none is.

    Returns:
        Verdicts: heads, then layers, then the model.
    """
    lines = thresholds or Thresholds()
    frame = pick(table, checkpoint=checkpoint)
    gains = _gain_exponents(frame)
    heads = [
        (layer, _judge_head(frame, layer, head, gains.get(layer), lines))
        for layer, head in places(pick(frame, quantity="entropy"))
    ]
    layers = [
        _judge_layer(layer, [v for at, v in heads if at == layer], gains.get(layer), lines)
        for layer in dict.fromkeys(layer for layer, _ in heads)
    ]
    return [
        *(verdict for _, verdict in heads),
        *layers,
        _judge_model(frame, checkpoint, curves, lines, no_theorem),
    ]


def classify_slope(slope: Exponent, lines: Thresholds) -> str:
    """Name what a dispersion slope says: disperses, holds, sharpens, or unknown.

    Certain means: the whole 95 % interval lies on one side of the line.
    """
    if slope.status != "ok":
        return "unknown"
    if slope.low > lines.disperses:
        return "disperses"
    if slope.high < lines.sharpens:
        return "sharpens"
    if slope.low >= lines.sharpens and slope.high <= lines.disperses:
        return "holds"
    # The interval crosses a line: undecided only if it is wide, else named by its middle.
    if slope.high - slope.low > lines.disperses - lines.sharpens:
        return "unknown"
    if slope.value > lines.disperses:
        return "disperses"
    return "sharpens" if slope.value < lines.sharpens else "holds"


def _judge_head(
    frame: pd.DataFrame, layer: int, head: int, gain: Exponent | None, lines: Thresholds
) -> Verdict:
    rows = pick(frame, layer=layer, head=head)
    entropy = _past_one(over(pick(rows, quantity="entropy"), "n_key"))
    slope = fit_slope(entropy.index.to_numpy(), entropy.to_numpy())
    label = classify_slope(slope, lines)
    measured = _first(over(pick(rows, quantity="max_weight"), "n_key") < lines.weight)
    spreads = over(pick(rows, quantity="score_spread"), "n_key", "max", "max")
    allowed = _UNKNOWN
    if len(spreads):
        # At every larger number of keys the strongest key must be below the threshold.
        allowed = float(n_key_bound(float(spreads.max()), lines.weight)) + 1
    restored = gain is not None and gain.status == "ok" and gain.low > lines.resharpens
    if label == "unknown":
        verdict = "UNKNOWN"
        reason = (
            f"the dispersion slope is not determined ({slope}): measure more lengths or sequences"
        )
    elif label == "disperses":
        verdict = "PASS" if restored else "WARN"
        remedy = (
            "a norm after it gives the signal back"
            if restored
            else "nothing after it gives the signal back"
        )
        reason = f"entropy grows by {slope} nats per unit of log n; {remedy}"
    else:
        verdict = "PASS"
        reason = f"entropy changes by {slope} nats per unit of log n"
    return Verdict(
        subject=f"L{layer} H{head}",
        level="head",
        label=label,
        verdict=verdict,
        value=slope.value,
        threshold=lines.disperses,
        length_measured=measured,
        length_predicted=allowed,
        reason=reason,
        unit="nats",
        threshold_source=SOURCE,
    )


def _judge_layer(
    layer: int, heads: list[Verdict], gain: Exponent | None, lines: Thresholds
) -> Verdict:
    dispersing = sum(head.label == "disperses" for head in heads)
    unknown = sum(head.label == "unknown" for head in heads)
    count = f"{dispersing} of {len(heads)} heads disperse"
    value = _UNKNOWN if gain is None else gain.value
    if gain is None:
        label, restored = "no norm after attention", False
        what = "no norm rescales what attention writes"
    elif gain.status != "ok":
        label, restored = "unknown", False
        what = f"the gain of its norm is not determined ({gain.reason})"
    else:
        restored = gain.low > lines.resharpens
        label = "resharpens" if restored else "does not resharpen"
        what = f"its norm's gain grows as length to the power {gain}"
    if unknown or label == "unknown":
        verdict = "UNKNOWN"
    else:
        verdict = "PASS" if restored or not dispersing else "WARN"
    if verdict == "PASS" and math.isnan(value):
        value = 0.0
    return Verdict(
        subject=f"layer {layer}",
        level="layer",
        label=label,
        verdict=verdict,
        value=value,
        threshold=lines.resharpens,
        length_measured=_UNKNOWN,
        length_predicted=_UNKNOWN,
        reason=f"{count}; {what}",
        unit="1",
        threshold_source=SOURCE,
    )


def _judge_model(
    frame: pd.DataFrame,
    checkpoint: str,
    curves: Iterable[Curve],
    lines: Thresholds,
    no_theorem: str | None,
) -> Verdict:
    errors = over(pick(frame, quantity="total_variation"), "length")
    predicted = [
        curve
        for curve in curves
        if curve.quantity == "total_variation" and curve.checkpoint == checkpoint
    ]
    foretold = _UNKNOWN
    if predicted:
        curve = predicted[0]
        foretold = _first(pd.Series(curve.values, index=curve.x) >= lines.error_warn)
    if errors.empty:
        return Verdict(
            subject=checkpoint,
            level="model",
            label="no exact target",
            verdict="UNKNOWN",
            value=_UNKNOWN,
            threshold=lines.error_warn,
            length_measured=_UNKNOWN,
            length_predicted=foretold,
            reason="its input came without exact next-token distributions, so there is no error",
            unit="ratio",
            threshold_source=SOURCE,
        )
    worst = float(errors.max())
    crossing = _first(errors >= lines.error_warn)
    if worst >= lines.error_fail:
        verdict, label = "FAIL", "loses precision"
    elif worst >= lines.error_warn:
        verdict, label = "WARN", "loses precision"
    else:
        verdict, label = "PASS", "keeps precision"
    where = int(errors.index[int(errors.to_numpy().argmax())])
    level = format_number(lines.error_warn)
    if math.isnan(crossing):
        reason = (
            f"the total variation stays below {level}: at most {format_number(worst)}, at length "
            f"{where}"
        )
    else:
        reason = (
            f"the total variation reaches {format_number(worst)} at length {where}; it passes "
            f"{level} at length {crossing:g}"
        )
    if no_theorem is not None:
        reason += f" (no length is predicted: {no_theorem})"
    elif math.isnan(foretold) and predicted:
        reason += " (theory predicts no crossing)"
    elif predicted:
        reason += f" (theory predicts length {foretold:g})"
    return Verdict(
        subject=checkpoint,
        level="model",
        label=label,
        verdict=verdict,
        value=worst,
        threshold=lines.error_warn,
        length_measured=crossing,
        length_predicted=foretold,
        reason=reason,
        unit="ratio",
        threshold_source=SOURCE,
    )


def _gain_exponents(frame: pd.DataFrame) -> dict[int, Exponent]:
    """By layer, how the gain of the norm that attention's output meets grows with length.

    That norm stands after attention or on the stream behind it; in the last layer, if there is
    none, the final norm.
    """
    gains = pick(frame, quantity="rescale_gain")
    found: dict[int, Exponent] = {}
    for site in distinct(gains, "site"):
        if norm_position(site) in ("after", "stream") and ".ln1" in site:
            rows = pick(gains, site=site)
            found[int(rows["layer"].tolist()[0])] = _gain_exponent(rows)
    final = pick(gains, site="ln_final.hook_scale")
    layers = distinct(frame, "layer")
    if not final.empty and layers:
        found.setdefault(max(layers), _gain_exponent(final))
    return found


def _gain_exponent(rows: pd.DataFrame) -> Exponent:
    means = _past_one(over(rows, "length"))
    return fit_exponent(means.index.to_numpy(), means.to_numpy())


def _past_one(values: pd.Series) -> pd.Series:
    """Without the first point: one key has no dispersion, and its gain is one by definition."""
    keep = values.index.to_numpy() > 1
    return pd.Series(values.to_numpy()[keep], index=values.index.to_numpy()[keep])


def _first(reached: pd.Series) -> float:
    """The first place on the axis where a condition holds; NaN if nowhere."""
    where = reached.index.to_numpy()[reached.to_numpy(dtype=bool)]
    return float(where[0]) if len(where) else _UNKNOWN
