"""Remedies of the models as what-ifs of an audit: the same functions, tried without retraining."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from torch import Tensor

from ..interp.remedies import REMEDIES, NormGain, Remedy, Reweigh, heads_words, parse_remedy
from ..models.config import TransformerConfig
from ..models.normalizers import NORMALIZERS

WhatIf = Remedy | NormGain | Reweigh
"""What can be tried on a finished model."""

REWEIGHING = ("entmax", "softmax1", "sigmoid", "hardmax")
"""Normalizers that need nothing but the scores that a model has."""

KINDS = (*REMEDIES, *REWEIGHING, "norm_gain")
"""Every kind that can be tried, as :func:`parse_what_if` reads it."""

_LEARNED = ("ssmax_bias", "selective", "asentmax", "differential")


def parse_what_if(text: str, heads: Collection[tuple[int, int]] | None = None) -> WhatIf:
    """Read a remedy as a flag gives it: ``temperature:1.5``, ``log_n:512``, ``entmax:1.5``.

    Args:
        text: ``kind`` or ``kind:number``.
        heads: Heads to apply it to; ``None`` for all.

    Raises:
        ValueError: If the kind is unknown or needs training, or its number is missing, none, or not
            taken.
    """
    kind, _, number = text.partition(":")
    if kind in _LEARNED or kind == "linear":
        raise ValueError(
            f"{kind} cannot be tried on a finished model, which was not trained with it; what can "
            f"be tried: {', '.join(KINDS)}"
        )
    if kind not in KINDS:
        raise ValueError(f"unknown remedy {kind!r}: expected one of {', '.join(KINDS)}")
    if kind not in REWEIGHING:
        return parse_remedy(text, heads)
    config = TransformerConfig(d_vocab=2)
    name = kind
    if number:
        if kind != "entmax":
            raise ValueError(f"{kind} takes no number; got {text!r}")
        try:
            config = replace(config, entmax_alpha=float(number))
        except ValueError as error:
            raise ValueError(
                f"entmax is written entmax or entmax:ALPHA, such as entmax:1.5; got {text!r} "
                f"({error})"
            ) from None
    if kind == "entmax":
        name = f"entmax {config.entmax_alpha:g}"
    weights = NORMALIZERS[kind].weights

    def function(scores: Tensor, n_key: Tensor) -> Tensor:
        return weights(scores, n_key, config)

    chosen = None if heads is None else frozenset(heads)
    return Reweigh(name + heads_words(chosen), function, chosen)


def read_what_ifs(given: str | WhatIf | Iterable[str | WhatIf]) -> tuple[WhatIf, ...]:
    """What is to be tried, from one or several: remedies, or texts as a flag gives them.

    Raises:
        TypeError: If one is neither.
        ValueError: If a text cannot be read, or two have the same name, by which they are told
            apart.
    """
    several = [given] if isinstance(given, str | WhatIf) else list(given)
    found: list[WhatIf] = []
    for one in several:
        if not isinstance(one, str | WhatIf):
            raise TypeError(
                "what_if takes remedies (Remedy, NormGain, Reweigh) or texts such as "
                f"'temperature:1.5'; got {type(one).__name__}"
            )
        found.append(parse_what_if(one) if isinstance(one, str) else one)
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"what_if names {twice[0]!r} twice: leave one out")
    return tuple(found)


def check_places(what_if: Iterable[WhatIf], n_layers: int, n_heads: int) -> None:
    """Refuse heads and layers that a model does not have, which would change nothing.

    Raises:
        ValueError: If there are such, or none at all.
    """
    for one in what_if:
        if isinstance(one, NormGain):
            places, missing = one.layers, [
                f"layer {layer}" for layer in sorted(one.layers or ()) if not 0 <= layer < n_layers
            ]  # fmt: skip
        else:
            places, missing = one.heads, [
                f"head {layer}.{head}"
                for layer, head in sorted(one.heads or ())
                if not (0 <= layer < n_layers and 0 <= head < n_heads)
            ]  # fmt: skip
        if missing:
            raise ValueError(
                f"there is no {missing[0]} for {one.name.split(' on ')[0]} to change: this model "
                f"has layers 0 to {n_layers - 1} with heads 0 to {n_heads - 1} each"
            )
        if places is not None and not places:
            raise ValueError(f"{one.name} names no head: give heads, or None for all of them")


def recorded_heads(what_if: Iterable[WhatIf]) -> dict[str, list[list[int]]]:
    """By the name of each remedy that is not for all heads, its ``[layer, head]`` pairs."""
    return {
        one.name: [list(place) for place in sorted(one.heads)]
        for one in what_if
        if not isinstance(one, NormGain) and one.heads is not None
    }
