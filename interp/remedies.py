"""Remedies to try on a finished model, without retraining: what if its scores were sharper?

A remedy changes what each attention layer is given (an
:class:`~resharpen.models.observed.AttentionSeen`) and returns the changed copy; a profile runs the
model on what the changed record gives. Each multiplies the scores of a query row, before any
soft-cap and bias, by an inverse temperature:

==================  ==========================================  ==================================
name                inverse temperature of a row of n keys      source
==================  ==========================================  ==================================
``temperature``     ``strength``                                fixed
``log_n``           ``max(1, log n / log reference)``           log-n scaling (theory 4, as Qwen)
``sqrt_log_n``      ``max(1, sqrt(log n / log reference))``     random energies (theory 0, 5)
``ssmax``           ``strength * log n``                        Nakanishi 2025, arXiv 2501.19399
``adaptive``        the polynomial of the row's own entropy     Veličković et al., arXiv 2410.01104
``qk_norm``         ``strength`` times the cosine of q and k    Henry et al. 2020, 2010.04245
``fp32``            1; query, key and value widened to float32  precision of the softmax alone
==================  ==========================================  ==================================

``n`` is the number of keys that the row sees, never the sequence length.

:class:`Reweigh` gives other weights than softmax (entmax, sigmoid, ...), from the same scores.

:class:`NormGain` is the other kind: it multiplies what the norms after attention give, wherever the
model has such norms (``norm_gain`` with a factor).
"""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..models.facts import Facts, Registry
from ..models.observed import AttentionSeen
from .attention_statistics import RowStatus, row_statistics
from .profiling.attention_rows import attention_rule
from .profiling.reweighed import Weigh

ADAPTIVE_POLYNOMIAL = (-0.037, 0.481, -2.3, 4.917, -1.791)
"""Coefficients of the adaptive temperature, highest power first (theory section 2)."""

ADAPTIVE_THRESHOLD = 0.5
"""Entropy (nats) up to which the adaptive temperature leaves a row alone."""


@dataclass(frozen=True, repr=False)
class Remedy(Facts):
    """A remedy for some heads of a model.

    Attributes:
        kind: One of :data:`REMEDIES`.
        strength: The number that ``temperature``, ``ssmax`` and ``qk_norm`` (its gain) take.
        reference: Number of keys at which ``log_n`` and ``sqrt_log_n`` begin to act: about the
            lengths that the model was trained on.
        heads: ``(layer, head)`` pairs to apply it to; ``None`` for every head.
    """

    kind: str
    strength: float = 1.0
    reference: int = 256
    heads: frozenset[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        """Check the kind and the numbers."""
        if self.kind not in REMEDIES:
            raise ValueError(f"unknown remedy {self.kind!r}: expected one of {', '.join(REMEDIES)}")
        if not 0 < self.strength < math.inf:
            raise ValueError(f"strength must be a positive number; got {self.strength}")
        if self.reference < 2:
            raise ValueError(f"reference must be at least 2 keys; got {self.reference}")
        if self.heads is not None:
            object.__setattr__(self, "heads", frozenset(self.heads))
        if self.kind == "fp32" and self.heads is not None:
            raise ValueError("fp32 widens whole layers and takes no heads: leave the heads out")

    @property
    def name(self) -> str:
        """With its numbers and heads: ``temperature 1.5``, ``log_n from 256 on head 3.4``."""
        told = self.kind
        if self.kind in ("temperature", "ssmax", "qk_norm"):
            told = f"{self.kind} {self.strength:g}"
        elif self.kind in ("log_n", "sqrt_log_n"):
            told = f"{self.kind} from {self.reference}"
        return told + heads_words(self.heads)

    def applied(self, adapter: Any) -> AbstractContextManager[None]:
        """Nothing to change in the model itself: the profile is given the remedy."""
        return nullcontext()

    def __call__(self, seen: AttentionSeen) -> AttentionSeen:
        """Return the record that the layer would be given."""
        if self.kind == "fp32":
            widened = (seen.query.float(), seen.key.float(), seen.value.float())
            return replace(seen, query=widened[0], key=widened[1], value=widened[2])
        chosen = _chosen_heads(self.heads, seen)
        if not chosen.any():
            return seen
        if self.kind == "qk_norm":
            return self._qk_normed(seen, chosen)
        factor = REMEDIES[self.kind](self, seen).to(seen.query.device)
        factor = torch.where(chosen[None, :, None], factor, 1.0)
        return replace(seen, query=(seen.query * factor[..., None]).to(seen.query.dtype))

    def _qk_normed(self, seen: AttentionSeen, chosen: Tensor) -> AttentionSeen:
        """Scores ``strength * cos(q, k)``; keys shared by heads keep their length in the others."""
        unit = torch.nn.functional.normalize(seen.query.float(), dim=-1)
        group = seen.query.shape[1] // seen.key.shape[1]
        if group > 1 and not chosen.all():
            raise ValueError(
                f"qk_norm changes the keys, which {group} heads of this model share: apply it to "
                "all heads"
            )
        query = torch.where(chosen[:, None, None], unit * (self.strength / seen.scale), seen.query)
        keys = torch.nn.functional.normalize(seen.key.float(), dim=-1)
        kept = chosen if group == 1 else chosen[::group]
        key = torch.where(kept[:, None, None], keys, seen.key)
        return replace(seen, query=query.to(seen.query.dtype), key=key.to(seen.key.dtype))


@dataclass(frozen=True)
class NormGain(Facts):
    """Multiply the gain of the norms that attention's output meets first.

    Those are the norms after attention, before the addition, and the norms on the stream right
    after attention; a model that has neither (pre-norm) is refused.

    Attributes:
        factor: What their outputs are multiplied by.
        layers: Layers to apply it to; ``None`` for every one.
    """

    factor: float
    layers: frozenset[int] | None = None

    def __post_init__(self) -> None:
        """Check the factor."""
        if not 0 < self.factor < math.inf:
            raise ValueError(f"the factor of a norm's gain must be positive; got {self.factor}")

    @property
    def name(self) -> str:
        """``norm_gain 2``, ``norm_gain 2 in layer 3``."""
        told = f"norm_gain {self.factor:g}"
        if self.layers is None:
            return told
        where = "layer" if len(self.layers) == 1 else "layers"
        return f"{told} in {where} {', '.join(map(str, sorted(self.layers)))}"

    @contextmanager
    def applied(self, adapter: Any) -> Iterator[None]:
        """Hold the gains multiplied while the block runs, and restore them.

        Args:
            adapter: An adapted model, whose ``layout`` says where its norms stand.

        Raises:
            ValueError: If no norm stands there.
        """
        chosen = [
            module
            for name, module in adapter.layout.modules.items()
            if (place := adapter.layout.norms[name]).position in ("after", "stream")
            and place.sublayer == "attention"
            and (self.layers is None or _layer_of(name) in self.layers)
        ]
        if not chosen:
            raise ValueError(
                "norm_gain needs a norm that attention's output meets (after attention, or on the "
                f"stream behind it); this model's norms are {adapter.layout.placement!r}"
            )
        handles = [module.register_forward_hook(self._scale) for module in chosen]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _scale(self, module: Any, args: Any, output: Tensor) -> Tensor:
        return output * self.factor


@dataclass(frozen=True)
class Reweigh:
    """Other weights than softmax, from the scores that the layer has.

    Attributes:
        name: What it is called, with its numbers, such as ``entmax 1.5``.
        function: From scores ``[batch, head, query, key]`` (hidden ones ``-inf``) and visible keys
            ``[batch, head, query, 1]`` to weights.
        heads: ``(layer, head)`` pairs to apply it to; ``None`` for every head.
    """

    name: str
    function: Weigh
    heads: frozenset[tuple[int, int]] | None = None

    def applied(self, adapter: Any) -> AbstractContextManager[None]:
        """Nothing to change in the model itself: the profile is given the remedy."""
        return nullcontext()

    def weigh(self, seen: AttentionSeen) -> Weigh | None:
        """How this layer's scores become weights; ``None`` where no head of it is chosen."""
        chosen = _chosen_heads(self.heads, seen)
        if chosen.all():
            return self.function
        if not chosen.any():
            return None

        def some_heads(scores: Tensor, n_key: Tensor) -> Tensor:
            return torch.where(
                chosen[:, None, None], self.function(scores, n_key), torch.softmax(scores, -1)
            )

        return some_heads


def heads_words(heads: Collection[tuple[int, int]] | None) -> str:
    """Heads as they follow a remedy's name: `` on head 3.4``; empty for all of them."""
    if heads is None:
        return ""
    told = [f"{layer}.{head}" for layer, head in sorted(heads)]
    return f" on {'head' if len(told) == 1 else 'heads'} {', '.join(told)}"


def _chosen_heads(heads: frozenset[tuple[int, int]] | None, seen: AttentionSeen) -> Tensor:
    """Which heads of the layer are among the chosen ones, bool ``[head]``; all of ``None``."""
    wanted = [heads is None or (seen.layer, head) in heads for head in range(seen.query.shape[1])]
    return torch.tensor(wanted, device=seen.query.device)


def _layer_of(name: str) -> int | None:
    """The first number in a module's name."""
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def adaptive_inverse_temperature(entropy: Float[Tensor, "*row"]) -> Float[Tensor, "*row"]:
    """``max(polynomial(H), 1)`` where ``H > 0.5`` nats, else 1.

    Exceeds 1 only for entropies from 0.849 to 5.944 nats (theory section 2): a row that is uniform
    over more than 381 keys gets no correction. NaN entropies (rows without keys) give 1.

    Source: Veličković et al., *softmax is not enough* (arXiv 2410.01104), coefficients in
    highest-power-first order.
    """
    value = torch.zeros_like(entropy)
    for coefficient in ADAPTIVE_POLYNOMIAL:
        value = value * entropy + coefficient
    return torch.where(entropy > ADAPTIVE_THRESHOLD, value.clamp_min(1.0), 1.0)


def _n_key(seen: AttentionSeen) -> Float[Tensor, "batch head query"]:
    """Visible keys of each row, at least 1."""
    rows = row_statistics(seen.query, seen.key, attention_rule(seen), statistics=("max_weight",))
    return rows.n_key.clamp_min(1).double()


def _temperature(remedy: Remedy, seen: AttentionSeen) -> Tensor:
    return torch.full(seen.query.shape[:3], remedy.strength, dtype=torch.float64)


def _log_n(remedy: Remedy, seen: AttentionSeen) -> Tensor:
    return (_n_key(seen).log() / math.log(remedy.reference)).clamp_min(1.0)


def _sqrt_log_n(remedy: Remedy, seen: AttentionSeen) -> Tensor:
    return _log_n(remedy, seen).sqrt()


def _ssmax(remedy: Remedy, seen: AttentionSeen) -> Tensor:
    # A single key has log n = 0, and one weight of 1 whatever the factor.
    return remedy.strength * _n_key(seen).log()


def _adaptive(remedy: Remedy, seen: AttentionSeen) -> Tensor:
    rows = row_statistics(seen.query, seen.key, attention_rule(seen), statistics=("entropy",))
    known = rows.status <= RowStatus.SINGLE_KEY
    return adaptive_inverse_temperature(torch.where(known, rows["entropy"], 0.0))


def _unchanged(remedy: Remedy, seen: AttentionSeen) -> Tensor:
    return torch.ones(seen.query.shape[:3], dtype=torch.float64)


_LINES = {
    "temperature": "the scores times a number",
    "log_n": "the scores times log n over log of a reference, at least 1",
    "sqrt_log_n": "the scores times the root of that",
    "ssmax": "the scores times a strength times log n (SSMax)",
    "adaptive": "the scores times a factor of the row's entropy (adaptive temperature)",
    "qk_norm": "queries and keys set to one length before the scores",
    "fp32": "the weights computed in float32",
}

_ENTRIES: dict[str, Callable[[Remedy, AttentionSeen], Tensor]] = {
    "temperature": _temperature,
    "log_n": _log_n,
    "sqrt_log_n": _sqrt_log_n,
    "ssmax": _ssmax,
    "adaptive": _adaptive,
    "qk_norm": _unchanged,
    "fp32": _unchanged,
}

REMEDIES: Registry[Callable[[Remedy, AttentionSeen], Tensor]] = Registry(_ENTRIES, _LINES)
"""Inverse temperature of each row, ``[batch, head, query]``, by kind of remedy."""


_NEED_NUMBER = {
    "temperature": "the inverse temperature by which the scores are multiplied",
    "norm_gain": "the factor by which the norms' outputs are multiplied",
}


def parse_remedy(text: str, heads: Collection[tuple[int, int]] | None = None) -> Remedy | NormGain:
    """Read ``kind`` or ``kind:number``, as a flag gives it: ``temperature:1.5``, ``log_n:512``.

    Args:
        text: The remedy.
        heads: Heads to apply it to (for ``norm_gain``, their layers); ``None`` for all.

    Raises:
        ValueError: If the kind is unknown, or its number is missing, none, or not taken.
    """
    kind, _, number = text.partition(":")
    chosen = None if heads is None else frozenset(heads)
    if not number:
        if kind in _NEED_NUMBER:
            raise ValueError(
                f"{kind} needs a number, {_NEED_NUMBER[kind]}: write {kind}:1.5; got {text!r}"
            )
        return Remedy(kind, heads=chosen)
    if kind in ("adaptive", "fp32"):
        raise ValueError(f"{kind} takes no number; got {text!r}")
    try:
        value = float(number)
    except ValueError as error:
        raise ValueError(
            f"a remedy is written kind or kind:number, such as temperature:1.5; got {text!r}"
        ) from error
    if kind == "norm_gain":
        return NormGain(value, None if chosen is None else frozenset(layer for layer, _ in chosen))
    if kind in ("log_n", "sqrt_log_n"):
        return Remedy(kind, reference=int(value), heads=chosen)
    return Remedy(kind, strength=value, heads=chosen)
