"""A tap is verified before it is read.

A hook point can lie: it may never fire, hold something else than its name says, or sit on a copy
that the model does not use. Every check here runs the model on a few short sequences and raises
one ``ValueError`` that says what is wrong; :func:`tap_status` and :func:`verify_taps` return it.

For a site to count as verified:

1. it fires, once, with the axes that the glossary gives it, and finite numbers (scores may be
   ``-inf`` where masked);
2. a pattern is non-negative, nothing lies on masked keys, and the rows sum to one over the visible
   keys; scores give the pattern when the softmax is taken over their visible keys;
3. observing does not change the logits, beyond rounding (observing may switch a fused kernel off);
4. editing does: the activation is replaced by NaN, which no live path can ignore, whatever the
   weights are. A zero projection, a norm that undoes a rescaling or a row with a single key would
   hide a finite edit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..models.facts import Facts
from ..models.sites import (
    Site,
    WeightRule,
    check_hook_names,
    list_sites,
    site_from_name,
    weight_rule,
)
from .capturing import Hook, HookedModel, capture

_TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
}
"""Relative rounding that observing may add, by dtype of the logits."""


@dataclass(frozen=True)
class TapStatus(Facts):
    """Whether a site can be read.

    Attributes:
        site: The site.
        status: ``"ok"`` or ``"unavailable"``.
        reason: Why it is unavailable, in one sentence; empty when ok.
    """

    site: Site
    status: str
    reason: str


def is_causal(model: HookedModel) -> bool:
    """Whether queries see no later keys: ``model.cfg.attention_dir``, causal if it is silent."""
    cfg = getattr(model, "cfg", None)
    return getattr(cfg, "attention_dir", "causal") != "bidirectional"


def causal_mask(
    n_query: int, n_key: int, device: torch.device | None = None
) -> Bool[Tensor, "query key"]:
    """Which keys each of the last ``n_query`` of ``n_key`` positions sees under a causal mask."""
    full = torch.ones(n_query, n_key, dtype=torch.bool, device=device)
    return full.tril(n_key - n_query)


def visible_keys(scores: Float[Tensor, "*row key"]) -> Bool[Tensor, "*row key"]:
    """Keys whose score is not masked: neither ``-inf`` nor the lowest number of the dtype.

    A NaN score is no mask: it stays visible, so that what is computed from it is NaN.
    """
    return ~(scores <= torch.finfo(scores.dtype).min)


def check_tap(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    site: Site | str,
    *,
    rule: WeightRule | None = None,
) -> None:
    """Check that a site shows what its name says, passively, and that the model uses it.

    Args:
        model: The model; restored afterwards.
        tokens: A few short sequences, ``[batch, pos]``; two positions or more for the checks on
            attention to mean something.
        site: The site, or its hook name.
        rule: What the rows of a pattern must be; by default what the model's configuration says
            (:func:`~resharpen.models.sites.weight_rule`), softmax where it says nothing.

    Raises:
        ValueError: Saying which check failed, with the number that was found.
    """
    place = _resolve(site)
    check_hook_names(model, [place.name])
    plain = capture(model, tokens, {}).logits
    check_activation(model, tokens, place, rule=rule)
    check_passive(model, tokens, [place], plain)
    check_live(model, tokens, place, plain)


def tap_status(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    site: Site | str,
    *,
    rule: WeightRule | None = None,
) -> TapStatus:
    """Run :func:`check_tap` and return what it found instead of raising.

    Raises:
        ValueError: Only if the name is not one of a known kind of site.
    """
    place = _resolve(site)
    reason = _reason(lambda: check_tap(model, tokens, place, rule=rule))
    return TapStatus(place, "unavailable" if reason else "ok", reason)


def verify_taps(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    sites: Iterable[Site] | None = None,
    *,
    rule: WeightRule | None = None,
) -> dict[str, TapStatus]:
    """Verify many sites, by name; all known sites of the model when none are given.

    Costs two forward passes and two more a site. Arguments as for :func:`check_tap`.
    """
    places = list(list_sites(model) if sites is None else sites)
    plain = capture(model, tokens, {}).logits
    reasons = {
        place.name: _reason(lambda place=place: check_activation(model, tokens, place, rule=rule))
        for place in places
    }
    sound = [place for place in places if not reasons[place.name]]
    if _reason(lambda: check_passive(model, tokens, sound, plain)):
        for place in sound:
            reasons[place.name] = _reason(
                lambda place=place: check_passive(model, tokens, [place], plain)
            )
    for place in sound:
        if not reasons[place.name]:
            reasons[place.name] = _reason(
                lambda place=place: check_live(model, tokens, place, plain)
            )
    return {
        place.name: TapStatus(
            place, "unavailable" if reasons[place.name] else "ok", reasons[place.name]
        )
        for place in places
    }


def _resolve(site: Site | str) -> Site:
    if isinstance(site, Site):
        return site
    found = site_from_name(site)
    if found is None:
        raise ValueError(f"{site!r} is no known kind of site: see resharpen.models.sites.AXES")
    return found


def _reason(check: Callable[[], None]) -> str:
    try:
        check()
    except ValueError as error:
        return str(error)
    return ""


def check_activation(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    site: Site,
    *,
    rule: WeightRule | None = None,
) -> None:
    """Check that the site fires with the right axes and plausible numbers.

    Arguments as for :func:`check_tap`.

    Raises:
        ValueError: If it does not.
    """
    sizes = _sizes(model, tokens)
    causal = is_causal(model)
    rows = weight_rule(model) if rule is None else rule

    def read(activation: Tensor) -> None:
        _check_shape(site, activation, sizes)
        if site.kind == "pattern":
            _check_pattern(site.name, activation, causal, rows)
        elif site.kind == "scores":
            _check_scores(site.name, activation, causal)
        elif not activation.isfinite().all():
            raise ValueError(f"{site.name} holds NaN or infinite numbers on the test input")

    pattern = site.name.replace("hook_attn_scores", "hook_pattern")
    if site.kind == "scores" and rows.softmax and pattern in model.hook_dict:
        _check_softmax(model, tokens, site.name, pattern, read)
    else:
        capture(model, tokens, {site.name: read})


def check_passive(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    sites: Iterable[Site],
    plain: Float[Tensor, "batch pos d_vocab_out"] | None = None,
) -> None:
    """Check that observing the sites, all at once, leaves the logits as they are.

    Raises:
        ValueError: If they move by more than rounding.
    """
    before = capture(model, tokens, {}).logits if plain is None else plain
    names = [site.name for site in sites]
    after = capture(model, tokens, {name: lambda _: None for name in names}).logits
    change, allowed = _change(before, after)
    if not change <= allowed:
        raise ValueError(
            f"observing {', '.join(names)} changes the logits by {change:.2g} "
            f"(rounding would be {allowed:.2g}): what is seen is not what the model does unseen"
        )


def check_live(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    site: Site,
    plain: Float[Tensor, "batch pos d_vocab_out"] | None = None,
) -> None:
    """Check that editing the site changes the logits: it is replaced by NaN.

    Raises:
        ValueError: If the logits stay: the hook sits on a copy that the model does not use.
    """
    before = capture(model, tokens, {}).logits if plain is None else plain

    def spoil(activation: Tensor, hook: Any) -> Tensor:
        return torch.full_like(activation, torch.nan)

    edits: list[tuple[str, Hook]] = [(site.name, spoil)]
    change, allowed = _change(before, capture(model, tokens, {}, edits=edits).logits)
    if change <= allowed:
        raise ValueError(
            f"editing {site.name} does not change the logits: the model does not use what the hook "
            "shows"
        )


def _change(before: Tensor, after: Tensor) -> tuple[float, float]:
    """Largest change of a logit (NaN if one became NaN) and what rounding allows."""
    allowed = _TOLERANCE.get(before.dtype, 3e-2) * max(1.0, float(before.double().abs().max()))
    return float((after.double() - before.double()).abs().max()), allowed


def _sizes(model: HookedModel, tokens: Tensor) -> dict[str, int]:
    """Known sizes by axis word."""
    batch, pos = tokens.shape
    sizes = {"batch": batch, "pos": pos, "query": pos, "key": pos, "1": 1}
    cfg = getattr(model, "cfg", None)
    for axis, field in (("head", "n_heads"), ("d_model", "d_model"), ("d_mlp", "d_mlp")):
        size = getattr(cfg, field, None)
        if isinstance(size, int):
            sizes[axis] = size
    return sizes


def _check_shape(site: Site, activation: Tensor, sizes: dict[str, int]) -> None:
    grouped = site.kind in ("key", "value")  # grouped-query models have fewer of these heads
    expected = [None if axis == "head" and grouped else sizes.get(axis) for axis in site.axes]
    fits = activation.ndim == len(expected) and all(
        size is None or size == got for size, got in zip(expected, activation.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(
            axis if size is None or axis == "1" else f"{axis}={size}"
            for axis, size in zip(site.axes, expected, strict=True)
        )
        raise ValueError(f"{site.name} must have axes [{wanted}]; got {list(activation.shape)}")


def _check_pattern(name: str, pattern: Tensor, causal: bool, rule: WeightRule) -> None:
    if not pattern.isfinite().all():
        raise ValueError(f"{name} holds NaN or infinite weights")
    lowest = float(pattern.min())
    if lowest < 0 and not rule.signed:
        raise ValueError(f"{name} holds a negative weight, {lowest:.2g}")
    wide = pattern.double()
    if causal:
        future = ~causal_mask(pattern.shape[-2], pattern.shape[-1], pattern.device)
        leaked = float(wide.masked_fill(~future, 0.0).abs().max())
        if leaked > 0:
            raise ValueError(f"{name} has weight {leaked:.2g} on a key after its query")
    if rule.row_sum is not None:
        allowed = _TOLERANCE.get(pattern.dtype, 3e-2)
        worst = float((wide.sum(-1) - rule.row_sum).abs().max())
        if worst > allowed:
            raise ValueError(
                f"the rows of {name} must sum to {rule.row_sum:g} over the visible keys; the worst "
                f"is off by {worst:.2g}"
            )


def _check_scores(name: str, scores: Tensor, causal: bool) -> None:
    if scores.isnan().any() or (scores == torch.inf).any():
        raise ValueError(f"{name} holds NaN or +inf")
    if causal:
        mask = causal_mask(scores.shape[-2], scores.shape[-1], scores.device)
        if (visible_keys(scores) & ~mask).any():
            raise ValueError(
                f"{name} does not mask the keys after the query: it is not what the softmax sees"
            )


def _check_softmax(
    model: HookedModel,
    tokens: Tensor,
    scores_name: str,
    pattern_name: str,
    read: Callable[[Tensor], None],
) -> None:
    def keep(scores: Tensor) -> Tensor:
        read(scores)
        masked = scores.double().masked_fill(~visible_keys(scores), -torch.inf)
        return torch.softmax(masked, dim=-1)

    def weights(pattern: Tensor) -> Tensor:
        return pattern.double()

    found = capture(model, tokens, {scores_name: keep, pattern_name: weights})
    expected, pattern = found.values[scores_name], found.values[pattern_name]
    if pattern.shape != expected.shape:
        raise ValueError(
            f"{scores_name} has shape {list(expected.shape)}, but {pattern_name} has "
            f"{list(pattern.shape)}"
        )
    rows = ~expected.isnan().any(-1)
    worst = float((expected - pattern)[rows].abs().max()) if rows.any() else 0.0
    if not worst <= _TOLERANCE.get(found.logits.dtype, 3e-2):
        raise ValueError(
            f"the softmax of {scores_name} is not {pattern_name}: a weight differs by {worst:.2g}"
        )
