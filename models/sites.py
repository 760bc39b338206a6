"""Where to look: the hook points of a model, what they hold, and the words for their axes.

This is the axis glossary of the whole toolkit, and the only module of ``resharpen.models`` that
``resharpen.interp`` imports: a measurement knows names and shapes, never a model class.

==========  =====================================================================================
axis        meaning
==========  =====================================================================================
batch       independent sequences
pos         position in the sequence, from 0; the beginning-of-sequence token, if any, is at 0
query       position that attends (the row of a pattern)
key         position attended to (the column of a pattern)
head        attention head within a layer, from 0
layer       block, from 0
d_model     coordinate of the residual stream
d_head      coordinate inside one head
d_mlp       hidden coordinate of the multi-layer perceptron
d_vocab     token id on the input side; ``d_vocab_out`` on the output side
==========  =====================================================================================

Hook names follow TransformerLens. Norms are named after the place where they stand, so that a
name never means two things:

==================  =====================================  =====================================
name                stands                                 placements that have it
==================  =====================================  =====================================
``ln1``, ``ln2``    on the input of attention, of the MLP  ``pre``, ``peri``, ``sandwich``,
                                                           ``ln_scaling``, ``mix`` (later blocks)
``ln1_post``,       on the output of the sub-layer,        ``res_post``, ``peri``, ``sandwich``,
``ln2_post``        before it is added to the stream       ``ngpt``, ``attn_out`` (attention only)
``ln1_resid``,      on the stream, after the addition      ``post``, ``deepnorm``, ``ngpt``, ``mix``
``ln2_resid``                                              (first blocks)
``ln_embed``        on the embedding of the token          ``sandwich``
``ln_final``        before the unembedding                 any, with ``final_norm``
==================  =====================================  =====================================

``ln1``/``ln2`` and ``ln1_post``/``ln2_post`` are TransformerLens 4's names. ``ln1_resid`` is ours:
TransformerLens's own encoders call that norm ``ln1``, which its ``ActivationCache`` helpers would
read as an input norm.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .facts import Facts

NORMS_BEFORE = ("ln1", "ln2")
"""Norms on the input of a sub-layer."""

NORMS_AFTER = ("ln1_post", "ln2_post")
"""Norms on the output of a sub-layer, before the addition."""

NORMS_ON_STREAM = ("ln1_resid", "ln2_resid")
"""Norms on the residual stream, after the addition."""

AXES: dict[str, tuple[str, ...]] = {
    "scores": ("batch", "head", "query", "key"),
    "raw_scores": ("batch", "head", "query", "key"),
    "score_factor": ("#batch", "#head", "query", "1"),
    "pattern": ("batch", "head", "query", "key"),
    "query": ("batch", "pos", "head", "d_head"),
    "key": ("batch", "pos", "head", "d_head"),
    "value": ("batch", "pos", "head", "d_head"),
    "z": ("batch", "pos", "head", "d_head"),
    "result": ("batch", "pos", "head", "d_model"),
    "stream": ("batch", "pos", "d_model"),
    "contribution": ("batch", "pos", "d_model"),
    "norm_scale": ("batch", "pos", "1"),
    "norm_normalized": ("batch", "pos", "d_model"),
    "mlp_hidden": ("batch", "pos", "d_mlp"),
}
"""Axes of the activation at a site, by kind of site."""

# Matched against the whole name in this order; `(?P<layer>...)` where the site belongs to a block.
_BLOCK = r"blocks\.(?P<layer>\d+)\."
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("scores", _BLOCK + r"attn\.hook_attn_scores"),
    ("pattern", _BLOCK + r"attn\.hook_pattern"),
    ("query", _BLOCK + r"attn\.hook_(rot_)?q"),
    ("key", _BLOCK + r"attn\.hook_(rot_)?k"),
    ("value", _BLOCK + r"attn\.hook_v"),
    ("z", _BLOCK + r"attn\.hook_z"),
    ("result", _BLOCK + r"attn\.hook_result"),
    ("contribution", _BLOCK + r"hook_(attn|mlp)_out"),
    ("stream", _BLOCK + r"hook_resid_(pre|mid|post)"),
    ("stream", r"hook_(embed|pos_embed)"),
    ("norm_scale", r"(" + _BLOCK + r"\w+|ln_embed|ln_final)\.hook_scale"),
    ("norm_normalized", r"(" + _BLOCK + r"\w+|ln_embed|ln_final)\.hook_normalized"),
    ("raw_scores", _BLOCK + r"attn\.hook_raw_scores"),
    ("score_factor", _BLOCK + r"attn\.hook_score_factor"),
    ("mlp_hidden", _BLOCK + r"mlp\.hook_(pre|post)"),
)


@dataclass(frozen=True)
class Site(Facts):
    """One hook point: its name, what kind of activation it holds, its axes and its block.

    Attributes:
        name: Full hook name, such as ``"blocks.0.attn.hook_pattern"``.
        axes: Axis words of the activation, from the glossary above.
        layer: Block it belongs to, or ``None`` (embedding, final norm).
        kind: One of the keys of :data:`AXES`.
    """

    name: str
    axes: tuple[str, ...]
    layer: int | None
    kind: str


class HasHooks(Protocol):
    """Anything that lists its hook points by name, as ``HookedRootModule`` does."""

    @property
    def hook_dict(self) -> Mapping[str, Any]: ...  # noqa: D102


@dataclass(frozen=True)
class WeightRule:
    """What the rows of a model's attention pattern are.

    Attributes:
        row_sum: What the weights of a row sum to; ``None`` where that depends on the scores.
        softmax: Whether they are the softmax of ``hook_attn_scores``.
        signed: Whether a weight may be negative.
    """

    row_sum: float | None = 1.0
    softmax: bool = True
    signed: bool = False


WEIGHT_RULES: dict[str, WeightRule] = {
    "entmax": WeightRule(softmax=False),
    "asentmax": WeightRule(softmax=False),
    "hardmax": WeightRule(softmax=False),
    "softmax1": WeightRule(row_sum=None, softmax=False),
    "sigmoid": WeightRule(row_sum=None, softmax=False),
    "differential": WeightRule(row_sum=None, softmax=False, signed=True),
}
"""Rules by ``cfg.normalizer`` of the models whose weights are not a softmax of their scores."""


def weight_rule(model: object) -> WeightRule:
    """What the rows of this model's patterns are: softmax unless its configuration says else."""
    name = getattr(getattr(model, "cfg", None), "normalizer", "softmax")
    return WEIGHT_RULES.get(name, WeightRule())


def site_from_name(name: str) -> Site | None:
    """Return the site that a hook name denotes, or ``None`` for a name outside the glossary."""
    for kind, pattern in _PATTERNS:
        found = re.fullmatch(pattern, name)
        if found:
            layer = found.groupdict().get("layer")
            return Site(name, AXES[kind], None if layer is None else int(layer), kind)
    return None


def list_sites(model: HasHooks, kind: str | None = None) -> tuple[Site, ...]:
    """List the known sites of a model, in the order in which the model declares them.

    Args:
        model: A ``HookedRootModule`` or anything else with a ``hook_dict``.
        kind: Keep only this kind; one of the keys of :data:`AXES`.

    Raises:
        ValueError: If ``kind`` is not a kind of site.
    """
    if kind is not None and kind not in AXES:
        raise ValueError(f"kind of site must be one of {', '.join(AXES)}; got {kind!r}")
    found = (site_from_name(name) for name in model.hook_dict)
    return tuple(site for site in found if site and (kind is None or site.kind == kind))


def check_hook_names(model: HasHooks, names: Iterable[str]) -> None:
    """Refuse hook names that the model does not declare.

    TransformerLens answers an unknown name in a filter with an empty cache, without a word.

    Raises:
        ValueError: Naming the first unknown name and the closest known ones.
    """
    for name in names:
        if name not in model.hook_dict:
            close = difflib.get_close_matches(name, list(model.hook_dict), n=3, cutoff=0.0)
            raise ValueError(
                f"the model has no hook point {name!r}; the closest are "
                f"{', '.join(map(repr, close)) or 'none: it declares no hook points'}"
            )


def norm_position(name: str) -> str:
    """Say where a norm stands, from the name of the norm or of one of its hooks.

    Returns ``"before"``, ``"after"``, ``"stream"``, ``"embedding"``, ``"final"``, or ``"unknown"``.
    """
    module = name.removesuffix(".hook_scale").removesuffix(".hook_normalized").rsplit(".", 1)[-1]
    if module in NORMS_BEFORE:
        return "before"
    if module in NORMS_AFTER:
        return "after"
    if module in NORMS_ON_STREAM:
        return "stream"
    return {"ln_embed": "embedding", "ln_final": "final"}.get(module, "unknown")
