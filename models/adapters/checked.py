"""The check that every adapter passes: observing changes nothing, and the records are exact."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..observed import AttentionSeen, NormSeen, PatternSeen, StreamSeen
from .adapter import Adapter
from .claims import Sighting, check_claims, check_runs
from .exactness import attend, largest_error, relative_tolerance
from .probe import probe_tokens
from .wrappers import check_weights_present


class _Null:
    """An observer that only counts and notes sizes."""

    def __init__(self) -> None:
        self.attention_seen = self.patterns_seen = 0
        self.sighting = Sighting()

    def attention(self, seen: AttentionSeen) -> Tensor | None:
        self.attention_seen += 1
        self.sighting.attention(seen)
        return None

    def pattern(self, seen: PatternSeen) -> None:
        self.patterns_seen += 1
        self.sighting.pattern(seen)
        visible = seen.visible.expand_as(seen.weights)
        stray = seen.weights.masked_fill(visible, 0.0)
        rows = visible.any(-1)
        total = seen.weights.float().sum(-1)[rows]
        too_much = seen.normalised and not bool((total < 1.02).all())
        if bool(stray[rows].any()) or too_much:
            raise ValueError(
                f"the weights of layer {seen.layer} are no attention pattern: rows sum to "
                f"{float(total.max()):.3f} at most, and "
                f"{float(stray.sum()):.3g} lies on keys that cannot be seen"
            )

    def norm(self, seen: NormSeen) -> None:
        return None

    def stream(self, seen: StreamSeen) -> None:
        self.sighting.stream(seen)


class _Formula(_Null):
    """An observer that puts the formula of :class:`AttentionSeen` in place of attention."""

    def attention(self, seen: AttentionSeen) -> Tensor | None:
        self.attention_seen += 1
        return attend(seen)[0].to(seen.query.dtype)


class _Nothing(_Null):
    """An observer that returns no number, which any use of attention's output would spread."""

    def attention(self, seen: AttentionSeen) -> Tensor | None:
        value = seen.value
        shape = (*seen.query.shape[:3], value.shape[-1])
        return torch.full(shape, torch.nan, dtype=seen.query.dtype, device=value.device)


def check_adapter(adapter: Adapter) -> Adapter:
    """Check an adapter on a few tokens, find its padding behaviour, and return it.

    Outputs must be the same observed and unobserved, and the same again when each layer's attention
    is replaced by the formula that the records stand for. What a user's description says of layers,
    heads, stream and vocabulary must be what is seen; what it leaves open is filled in.

    Raises:
        TypeError: If what a user's ``watch`` gives is no handle.
        ValueError: If the weights are not there, the description is wrong, observing changes the
            outputs, what the observer returns does not reach them, or the records do not explain
            them.
    """
    check_weights_present(adapter.module)
    if not adapter.describes_itself:
        check_runs(adapter)
    facts = adapter.description
    tokens = probe_tokens(facts)
    plain = adapter.run_plain(tokens)
    if adapter.blocks and not adapter.layout.n_calls:
        adapter.find_norms(tokens)
    observer = _Null()
    observed = adapter.observe(tokens, observer)
    everything = torch.ones(plain.shape[:-1], dtype=torch.bool, device=plain.device)
    tolerance = 5 * relative_tolerance(plain.dtype)
    if not bool(plain.isfinite().all()):
        raise ValueError(f"{facts.architecture} returns NaN or infinity on ordinary tokens")
    if observer.attention_seen + observer.patterns_seen == 0:
        raise ValueError(f"{facts.architecture} showed no attention while it ran")
    if not adapter.describes_itself:
        check_claims(adapter, observer.sighting)
    error = largest_error(plain, observed, everything)
    if not error < tolerance:
        raise ValueError(
            f"observing {facts.architecture} changes its outputs (by {error:.2g} of the largest), "
            "so what would be measured is not the model"
        )
    if observer.attention_seen and bool(adapter.observe(tokens, _Nothing()).isfinite().all()):
        raise ValueError(
            f"{type(adapter).__name__} drops what observer.attention(seen) returns, so that its "
            "records cannot be checked and a remedy would change nothing: let the hook return it "
            "as attention's output"
        )
    formula = adapter.observe(tokens, _Formula())
    error = largest_error(plain, formula, everything)
    if not error < tolerance:
        raise ValueError(
            f"{facts.architecture} computes its attention in a way that this toolkit does not "
            f"know: softmax of what it was given moves the outputs by {error:.2g} of the largest"
        )
    padding, packing = _shorter_inputs_are_exact(adapter, tokens, plain)
    adapter.description = replace(adapter.description, padding=padding, packing=packing)
    return adapter


def _shorter_inputs_are_exact(adapter: Adapter, tokens: Tensor, plain: Tensor) -> tuple[bool, bool]:
    """Whether a shorter sequence gives, padded on either side or packed, what it gives alone."""
    n_long, n_short = tokens.shape[1], max(1, tokens.shape[1] - 4)
    if plain.ndim != 3 or n_long == n_short:
        return False, False
    adapter.description = replace(adapter.description, padding=True, packing=True)
    short, rest = tokens[:, :n_short], tokens[:, n_short:]
    alone, rest_alone = adapter.run_plain(short), adapter.run_plain(rest)
    gap = torch.zeros_like(rest)
    shown, hidden = torch.ones_like(short).bool(), torch.zeros_like(rest).bool()

    def agrees(fed: Tensor, given: dict[str, Any], wanted: Sequence[tuple[int, Tensor]]) -> bool:
        try:
            found = adapter.observe(fed, _Formula(), **given)
        except (ValueError, TypeError, RuntimeError):
            return False
        return all(_equal(part, found[:, start : start + part.shape[1]]) for start, part in wanted)

    hidden_first = {"attention_mask": torch.cat([hidden, shown], 1)}
    hidden_last = {"attention_mask": torch.cat([shown, hidden], 1)}
    documents = {"documents": torch.cat([short * 0, rest * 0 + 1], 1)}
    padding = agrees(
        torch.cat([gap, short], 1), hidden_first, [(n_long - n_short, alone)]
    ) and agrees(torch.cat([short, gap], 1), hidden_last, [(0, alone)])
    return padding, agrees(tokens, documents, [(0, alone), (n_short, rest_alone)])


def _equal(wanted: Tensor, found: Tensor) -> bool:
    rows = torch.ones(wanted.shape[:-1], dtype=torch.bool, device=wanted.device)
    return largest_error(wanted, found, rows) < 5 * relative_tolerance(wanted.dtype)
