"""Attention that only returns its finished weights (BLOOM, MPT), seen as each layer returns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..observed import Observer, PatternSeen


@dataclass(frozen=True)
class PatternModule:
    """A module that returns attention weights.

    Attributes:
        module: The module.
        index: Where in its output the weights are.
        n_heads: Number of heads.
        causal: Whether no query sees a later key.
    """

    module: nn.Module
    index: int
    n_heads: int
    causal: bool


def find_pattern_modules(
    model: nn.Module, run: Callable[[], Any], shape: Sequence[int]
) -> tuple[PatternModule, ...]:
    """Find the innermost modules that return ``[batch, head, pos, pos]`` rows that sum to one."""
    batch, length = shape
    found: dict[nn.Module, PatternModule] = {}
    claimed: list[Tensor] = []

    def look(module: nn.Module, args: Any, output: Any) -> None:
        if not isinstance(output, tuple | list):
            return
        for index, part in enumerate(output):
            is_pattern = (
                isinstance(part, Tensor)
                and part.is_floating_point()
                and part.ndim == 4
                and part.shape[0] == batch
                and tuple(part.shape[2:]) == (length, length)
                and bool((part >= 0).all())
                and bool(((part.float().sum(-1) - 1).abs() < 0.02).all())
            )
            # The innermost module returns first; whoever passes the tensor on comes later.
            if is_pattern and not any(part is other for other in claimed):
                claimed.append(part)
                causal = not bool(part.triu(1).any())
                found[module] = PatternModule(module, index, part.shape[1], causal)
                return

    handles = [module.register_forward_hook(look) for module in model.modules()]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return tuple(found.values())


def watch_patterns(
    patterns: Sequence[PatternModule], observer: Observer, layer: Callable[[], int], stack: str
) -> Iterator[RemovableHandle]:
    """Yield the handles of hooks that show each pattern as it is returned."""
    for pattern in patterns:

        def look(
            module: nn.Module, args: Any, kwargs: Any, output: Any, pattern: PatternModule = pattern
        ) -> None:
            weights = output[pattern.index]
            if not isinstance(weights, Tensor) or weights.ndim != 4:
                raise ValueError(
                    f"{type(module).__name__} returns no attention weights for this input, so what "
                    "it attends to cannot be seen"
                )
            visible = _visible(pattern, weights, kwargs.get("attention_mask"))
            observer.pattern(PatternSeen(layer(), weights, visible, stack=stack))

        yield pattern.module.register_forward_hook(look, with_kwargs=True)


def _visible(pattern: PatternModule, weights: Tensor, mask: Any) -> Tensor:
    n_query, n_key = weights.shape[2:]
    visible = torch.ones(1, 1, n_query, n_key, dtype=torch.bool, device=weights.device)
    if pattern.causal:
        visible = visible.tril(n_key - n_query)
    if not isinstance(mask, Tensor) or mask.ndim != 4:
        return visible
    # Additive masks hide with large negative numbers; of the two meanings of a bool mask, the
    # weights tell which the module follows.
    allowed = mask == 0 if mask.is_floating_point() else mask.bool()
    for candidate in (allowed, ~allowed):
        kept = candidate & visible
        stray = weights.masked_fill(kept | ~kept.any(-1, keepdim=True), 0.0)
        if not bool(stray.any()):
            return kept
    raise ValueError(
        f"{type(pattern.module).__name__} gives weight to keys that its mask hides, so what each "
        "query sees cannot be told"
    )
