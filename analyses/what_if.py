"""Remedies of the models as what-ifs of an audit: the same functions, tried without retraining."""

from collections.abc import Collection
from dataclasses import replace

from torch import Tensor

from ..interp.remedies import REMEDIES, NormGain, Remedy, Reweigh, parse_remedy
from ..models.config import TransformerConfig
from ..models.normalizers import NORMALIZERS

WhatIf = Remedy | NormGain | Reweigh
"""What can be tried on a finished model."""

REWEIGHING = ("entmax", "softmax1", "sigmoid", "hardmax")
"""Normalizers that need nothing but the scores that a model has."""

_LEARNED = ("ssmax_bias", "selective", "asentmax", "differential")


def parse_what_if(text: str, heads: Collection[tuple[int, int]] | None = None) -> WhatIf:
    """Read a remedy as a flag gives it: ``temperature:1.5``, ``log_n:512``, ``entmax:1.5``.

    Args:
        text: ``kind`` or ``kind:number``.
        heads: Heads to apply it to; ``None`` for all.

    Raises:
        ValueError: If the kind is unknown, needs training, or the number is none.
    """
    kind, _, number = text.partition(":")
    if kind in _LEARNED or kind == "linear":
        known = ", ".join((*REMEDIES, *REWEIGHING, "norm_gain"))
        raise ValueError(
            f"{kind} cannot be tried on a finished model, which was not trained with it; what can "
            f"be tried: {known}"
        )
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

    return Reweigh(name, function, None if heads is None else frozenset(heads))
