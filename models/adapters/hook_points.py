"""Models with TransformerLens's hook points: bridges of 4, HookedTransformers of 2 and 3, your own.

Patterns are read where ``blocks.N.attn.hook_pattern`` fires, which is right on every version.
``hook_attn_scores`` is used only in layers where ``softmax(scores) == pattern`` was found to hold:
on several architectures it holds something else. Streams and norms come from forward hooks on the
blocks and norm modules, since the names of their hook points mean different things in different
versions.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..observed import Observer, PatternSeen
from .adapter import Adapter, Feed, Handle
from .description import Description
from .digest import check_finite, digest_weights
from .exactness import largest_error, relative_tolerance
from .probe import probe_tokens
from .wrappers import check_weights_present

_PATTERN = re.compile(r"(?P<blocks>(.*\.)?\w*blocks)\.(?P<layer>\d+)\.(?P<attn>\w+)\.hook_pattern")


@dataclass
class _Point:
    """One layer's hook points, and what the first look found about them."""

    layer: int
    name: str
    pattern: nn.Module
    scores: nn.Module | None
    fired: bool = False
    scores_hold: bool = False
    causal: bool = True
    n_heads: int = 0


class HookPointAdapter(Adapter):
    """Any module whose layers fire ``blocks.N.attn.hook_pattern``.

    Attributes:
        points: The hook points read, by layer.
    """

    describes_itself = True

    def __init__(self, model: nn.Module) -> None:
        """Find the hook points and run the model on a few tokens to see what they hold.

        Raises:
            CheckpointError: If a weight is not a finite number.
            ValueError: If the weights are not there, or patterns are missing or never fire; the
                message says which.
        """
        name = type(model).__name__
        check_weights_present(model)
        check_finite(model, name)
        digest = digest_weights(model)
        self.points, blocks, attention = _find_points(model)
        super().__init__(
            model, _first_description(model, digest), blocks=blocks, attention=attention
        )
        original = getattr(model, "original_model", None)
        if isinstance(original, nn.Module):
            self.roots = (model, original)
        self._parameters = set(inspect.signature(type(model).forward).parameters)
        self._mask: Tensor | None = None
        self._eager = False
        tokens = probe_tokens(self.description)
        self._first_look(tokens)
        if not all(point.fired for point in self.points) and self._can_be_eager():
            self._eager = True
            self._first_look(tokens)
        silent = [point.name for point in self.points if not point.fired]
        if silent:
            raise ValueError(
                f"{name} declares {silent[0]} but it never fires ({len(silent)} of "
                f"{len(self.points)} layers): load the model with attn_implementation='eager'"
            )
        causal = {point.causal for point in self.points}
        self.description = replace(
            self.description,
            n_layers=len(blocks),
            n_heads=max(point.n_heads for point in self.points),
            causal=causal.pop() if len(causal) == 1 else None,
        )
        if self.description.causal is False:
            self._blocks_seen.stack = "encoder"
        self.find_norms(tokens)

    def watch(self, observer: Observer) -> Iterator[Handle]:
        """Hook the points; each pattern is shown as it fires and then let go."""
        yield from self._in_eager_mode()
        stack = self._blocks_seen.stack
        held: dict[int, Tensor] = {}
        for point in self.points:

            def keep(module: nn.Module, args: Any, output: Tensor, point: _Point = point) -> None:
                held[point.layer] = output

            def look(module: nn.Module, args: Any, output: Tensor, point: _Point = point) -> None:
                scores = held.pop(point.layer, None)
                if scores is None:
                    visible = _visible(point, output, self._mask)
                else:
                    visible = scores > torch.finfo(scores.dtype).min / 2
                    scores = scores.masked_fill(~visible, -torch.inf)
                observer.pattern(PatternSeen(point.layer, output, visible, scores, stack))

            if point.scores is not None and point.scores_hold:
                yield point.scores.register_forward_hook(keep)
            yield point.pattern.register_forward_hook(look)

    def forward(self, feed: Feed) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Run the model; positions count tokens, not padding."""
        device = next(self.module.parameters()).device
        given: dict[str, Any] = {}
        self._mask = None
        if feed.attention_mask is not None:
            names = {"attention_mask", "one_zero_attention_mask"} & self._parameters
            if not names or feed.positions is None:
                return super().forward(feed)
            self._mask = feed.attention_mask.to(device)
            given[names.pop()] = self._mask.long()
            if isinstance(getattr(self.module, "original_model", None), nn.Module):
                given["position_ids"] = feed.positions.to(device)
        elif feed.documents is not None:
            return super().forward(feed)
        output = self.module(feed.tokens.to(device), **given)
        output = output if isinstance(output, Tensor) else output.logits
        return output[:, -1:] if feed.last_only else output

    def find_norms(self, tokens: Int[Tensor, "batch pos"]) -> None:
        """As in :class:`Adapter`."""
        handles = list(self._in_eager_mode())
        try:
            super().find_norms(tokens)
        finally:
            for handle in handles:
                handle.remove()

    def _first_look(self, tokens: Tensor) -> None:
        held: dict[int, Tensor] = {}
        handles = list(self._in_eager_mode())
        try:
            for point in self.points:

                def keep(
                    module: nn.Module, args: Any, output: Tensor, point: _Point = point
                ) -> None:
                    held[point.layer] = output

                def look(
                    module: nn.Module, args: Any, output: Tensor, point: _Point = point
                ) -> None:
                    _learn(point, output, held.pop(point.layer, None))

                if point.scores is not None:
                    handles.append(point.scores.register_forward_hook(keep))
                handles.append(point.pattern.register_forward_hook(look))
            self.run_plain(tokens)
        finally:
            for handle in handles:
                handle.remove()

    def _can_be_eager(self) -> bool:
        config = getattr(getattr(self.module, "original_model", None), "config", None)
        return hasattr(config, "_attn_implementation_internal")

    def _in_eager_mode(self) -> Iterator[Handle]:
        if self._eager:
            from .interface import implementation_in_place
            from .undo import Undo

            stack = ExitStack()
            original: Any = getattr(self.module, "original_model", None)
            stack.enter_context(implementation_in_place(original, "eager"))
            yield Undo(stack)


def has_pattern_hooks(model: nn.Module) -> bool:
    """Whether a module declares hook points of that name."""
    return any(_PATTERN.fullmatch(name) for name in _hook_points(model))


def _hook_points(model: nn.Module) -> Mapping[str, nn.Module]:
    declared = getattr(model, "hook_dict", None)
    if isinstance(declared, Mapping) and declared:
        return declared
    return {
        name: module
        for name, module in model.named_modules()
        if type(module).__name__ == "HookPoint"
    }


def _find_points(model: nn.Module) -> tuple[list[_Point], list[nn.Module], list[nn.Module]]:
    declared = _hook_points(model)
    found = [match for name in declared if (match := _PATTERN.fullmatch(name))]
    lists = sorted({match["blocks"] for match in found})
    if len(lists) != 1:
        raise ValueError(
            f"expected the hook points of one stack of blocks, such as blocks.0.attn.hook_pattern; "
            f"{type(model).__name__} has {', '.join(lists) or 'none'}"
        )
    blocks = list(model.get_submodule(lists[0]).children())
    points, attention = [], []
    for match in sorted(found, key=lambda match: int(match["layer"])):
        scores = match[0].replace("hook_pattern", "hook_attn_scores")
        layer = int(match["layer"])
        points.append(_Point(layer, match[0], declared[match[0]], declared.get(scores)))
        attention.append(getattr(blocks[layer], match["attn"]))
    if len({point.layer for point in points}) != len(points):
        raise ValueError(f"a block of {type(model).__name__} has two patterns: it cannot be read")
    return points, blocks, attention


def _learn(point: _Point, pattern: Tensor, scores: Tensor | None) -> None:
    """Note what a pattern and the scores before it show."""
    point.fired = True
    point.n_heads = pattern.shape[1]
    point.causal = not bool(pattern.triu(1).any())
    if scores is None or scores.shape != pattern.shape or bool((scores >= 0).all()):
        return
    weights = torch.softmax(scores.float(), dim=-1)
    rows = torch.ones(pattern.shape[:-1], dtype=torch.bool, device=pattern.device)
    point.scores_hold = largest_error(pattern, weights, rows) < relative_tolerance(pattern.dtype)


def _visible(point: _Point, pattern: Tensor, mask: Tensor | None) -> Bool[Tensor, "b h query key"]:
    """Which keys are visible, from causality, padding, and the distances that no weight reaches."""
    n_query, n_key = pattern.shape[-2:]
    allowed = torch.ones(1, 1, n_query, n_key, dtype=torch.bool, device=pattern.device)
    if point.causal:
        allowed = allowed.tril(n_key - n_query)
    reached = (pattern > 0).flatten(0, 1).any(0)
    query = torch.arange(n_key - n_query, n_key, device=pattern.device)[:, None]
    distance = query - torch.arange(n_key, device=pattern.device)[None, :]
    farthest = distance[reached]
    if farthest.numel():
        allowed = allowed & (distance <= farthest.max()) & (distance >= farthest.min())
    return allowed if mask is None else allowed & mask[:, None, None, :]


def _first_description(model: nn.Module, digest: str | None) -> Description:
    cfg = getattr(model, "cfg", None)

    def fact(name: str) -> Any:
        return cfg.get(name) if isinstance(cfg, Mapping) else getattr(cfg, name, None)

    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    vocabulary = fact("d_vocab") or (embeddings[0].num_embeddings if embeddings else None)
    if vocabulary is None:
        raise ValueError(
            f"{type(model).__name__} does not say how many tokens it knows: give it a cfg with "
            "d_vocab, or describe it in an Adapter of your own"
        )
    parameter = next(model.parameters())
    n_heads = int(fact("n_heads") or 0)
    return Description(
        architecture=str(fact("original_architecture") or type(model).__name__),
        n_layers=0,
        n_heads=n_heads,
        n_kv_heads=int(fact("n_key_value_heads") or n_heads),
        d_model=fact("d_model"),
        d_vocab=int(vocabulary),
        max_positions=fact("n_ctx"),
        positions_fixed=fact("positional_embedding_type") in ("standard", "shortformer"),
        dtype=str(parameter.dtype).removeprefix("torch."),
        n_parameters=sum(p.numel() for p in model.parameters()),
        digest=digest,
        capture="pattern",
    )
