"""The adapter: one model, shown to an observer, left as it was.

A model of your own takes about ten lines. Say how attention's inputs are had; everything else
(evaluation mode, streams, norms, restoring the model) is done here. What the observer returns goes
in place of attention's output: that is how the records are checked, and how a remedy is tried::

    class MyAdapter(Adapter):
        def watch(self, observer):
            for layer, block in enumerate(self.module.layers):
                def look(attention, args, output, layer=layer):
                    query, key, value = attention.project(args[0])
                    seen = AttentionSeen(layer, query, key, value, scale=0.125, causal=True)
                    z = observer.attention(seen)  # what the record stands for, or None
                    return None if z is None else attention.merge(z)
                yield block.attention.register_forward_hook(look)

    facts = describe(model, n_layers=2, n_heads=4, d_vocab=50)
    adapter = adapt(MyAdapter(model, facts, blocks=model.layers))
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from ..facts import Facts, facts_table, layers_by_heads
from ..observed import Observer
from .blocks import BlockWatch
from .description import Description
from .layout import Layout, find_layout
from .undisturbed import evaluating


@dataclass(frozen=True, repr=False)
class Feed(Facts):
    """What one run is given, checked.

    Attributes:
        tokens: Token ids.
        attention_mask: True where there is a token, or ``None`` without padding.
        documents: Number of each position's document, or ``None`` without packing.
        last_only: Whether only the last position's outputs are wanted.
    """

    tokens: Int[Tensor, "batch pos"]
    attention_mask: Bool[Tensor, "batch pos"] | None = None
    documents: Int[Tensor, "batch pos"] | None = None
    last_only: bool = False

    @property
    def positions(self) -> Int[Tensor, "batch pos"] | None:
        """Position of each token in its own sequence or document; ``None`` if that is its index."""
        if self.documents is not None:
            index = torch.arange(self.documents.shape[1], device=self.documents.device)
            begins = torch.nn.functional.pad(self.documents.diff(dim=-1) != 0, (1, 0), value=True)
            first = torch.where(begins, index, 0).cummax(-1).values
            return index - first
        if self.attention_mask is None:
            return None
        return (self.attention_mask.long().cumsum(-1) - 1).clamp_min(0)


class Handle(Protocol):
    """Anything that is undone by ``remove()``, such as what ``register_forward_hook`` returns."""

    def remove(self) -> None:
        """Undo it."""
        ...


class Adapter:
    """Shows a model to observers.

    Attributes:
        module: The model.
        description: What is known of it.
        blocks: Its blocks, in order; empty if unknown (then no streams and no norms are seen).
        attention: Modules of ``blocks`` that hold the attention, to tell its norms from the MLP's.
        roots: The modules whose mode is set for a run; more than ``module`` if it is a wrapper.
        layout: Where the norms were found to stand.
        describes_itself: Whether the class finds the description in the model, so that nothing in
            it is a user's claim; false for adapters of your own.
    """

    describes_itself: ClassVar[bool] = False

    def __init__(
        self,
        module: nn.Module,
        description: Description,
        *,
        blocks: Sequence[nn.Module] = (),
        attention: Sequence[nn.Module] = (),
    ) -> None:
        """Keep the model; nothing is run yet (:func:`adapt` checks the adapter before use).

        Raises:
            TypeError: If the model or a block is no module, or the description is none.
        """
        blocks = tuple(blocks)
        for what, given, kind in (
            ("module", module, nn.Module),
            ("description", description, Description),
            *(("each of blocks", block, nn.Module) for block in blocks),
        ):
            if not isinstance(given, kind):
                made = "describe(module, ...)" if kind is Description else "a torch.nn.Module"
                raise TypeError(
                    f"{what} of {type(self).__name__} must be {made}; got {type(given).__name__}"
                )
        self.module = module
        self.roots: tuple[nn.Module, ...] = (module,)
        self.description = description
        self.blocks = blocks
        self.attention = tuple(attention)
        self.layout = Layout()
        self._blocks_seen = BlockWatch(self.blocks, self.layout, stack="decoder")

    @property
    def max_length(self) -> int | None:
        """Longest input that the model was made for, or ``None`` for no limit."""
        return self.description.max_positions

    @property
    def placement(self) -> str:
        """Where the norms stand, found from what feeds what: see :class:`Description`."""
        return self.description.placement

    @property
    def parallel(self) -> bool:
        """Whether attention and MLP read the same stream and are added together."""
        return self.description.parallel

    @property
    def layer(self) -> int:
        """Block that is running now; for :meth:`watch`."""
        return self._blocks_seen.layer

    def watch(self, observer: Observer) -> Iterable[Handle]:
        """Yield handles, each showing attention to the observer until it is removed.

        Override this; the handles are removed after the run, also when it fails. The output
        ``[batch, head, query, d_value]`` that ``observer.attention`` returns, if it is not
        ``None``, must go on as the layer's: an adapter that drops it is refused.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define watch(observer), which yields the handles of hooks "
            "that show attention to the observer"
        )

    def forward(self, feed: Feed) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Run the model; override it for a model that takes more than ``model(tokens)``."""
        if feed.attention_mask is not None or feed.documents is not None:
            raise ValueError(
                f"{self.description.architecture} takes neither padding nor packed documents: give "
                "whole sequences of one length"
            )
        output = self.module(feed.tokens)
        return output[:, -1:] if feed.last_only else output

    def observe(
        self,
        tokens: Int[Tensor, "batch pos"],
        observer: Observer,
        attention_mask: Shaped[Tensor, "batch pos"] | None = None,
        *,
        documents: Int[Tensor, "batch pos"] | None = None,
        past_positions: bool = False,
        last_only: bool = False,
    ) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Run the model in evaluation and inference mode and show the observer what happens.

        The model's mode, hooks and attention implementation are restored, also when the run fails.

        Args:
            tokens: Token ids.
            observer: What looks on.
            attention_mask: True or 1 where there is a token, false or 0 where there is padding,
                on either side; positions count tokens, not padding. ``None`` means no padding.
            documents: Number of each position's document, for several documents packed into one
                sequence: none sees another, and positions count from each one's beginning.
            past_positions: Run past :attr:`max_length` where the model can.
            last_only: Return the outputs of the last position alone (saves the memory of all).

        Returns:
            Logits, or the last hidden state of a model that has none.

        Raises:
            TypeError: If tokens or mask are not integer tensors.
            ValueError: If their shapes do not fit, the input is too long, or the model was not
                found to be exact with padding or packed documents.
        """
        tokens = self._check_tokens(tokens, past_positions)
        mask = self._check_mask(tokens, attention_mask)
        feed = Feed(tokens, mask, self._check_documents(tokens, mask, documents), last_only)
        with ExitStack() as stack:
            stack.enter_context(evaluating(*self.roots))
            stack.enter_context(torch.inference_mode())
            for handle in self._blocks_seen.watch(observer):
                stack.callback(handle.remove)
            for handle in self._watched(observer):
                stack.callback(handle.remove)
            return self.forward(feed)

    def _watched(self, observer: Observer) -> Iterator[Handle]:
        """The handles of :meth:`watch`, which a user wrote: what is none gets a sentence."""
        handles = self.watch(observer)
        if not isinstance(handles, Iterable):
            raise TypeError(
                f"{type(self).__name__}.watch must yield or return the handles of its hooks; got "
                f"{type(handles).__name__}"
            )
        for handle in handles:
            if not callable(getattr(handle, "remove", None)):
                raise TypeError(
                    f"{type(self).__name__}.watch must yield handles with remove(), such as "
                    f"register_forward_hook returns; got {type(handle).__name__}"
                )
            yield handle

    def run_plain(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Run the model unobserved, in evaluation and inference mode."""
        with evaluating(*self.roots), torch.inference_mode():
            return self.forward(Feed(tokens))

    def find_norms(self, tokens: Int[Tensor, "batch pos"]) -> None:
        """Find where the norms stand by running the tokens once, and say so in the description."""
        with evaluating(*self.roots), torch.inference_mode():
            self.layout = find_layout(
                self.module,
                self.blocks,
                self.attention,
                lambda: self.forward(Feed(tokens)),
            )
        self._blocks_seen = BlockWatch(self.blocks, self.layout, self._blocks_seen.stack)
        self.description = replace(
            self.description, placement=self.layout.placement, parallel=self.layout.parallel
        )

    def _check_tokens(self, tokens: Tensor, past_positions: bool) -> Tensor:
        if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.is_complex():
            got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
            raise TypeError(f"tokens must be an integer tensor [batch, pos]; got {got}")
        if tokens.ndim != 2 or 0 in tokens.shape:
            raise ValueError(
                f"tokens must have shape [batch, pos], not empty; got {tuple(tokens.shape)}"
            )
        lowest, highest = int(tokens.min()), int(tokens.max())
        if lowest < 0 or highest >= self.description.d_vocab:
            raise ValueError(
                f"token ids must lie in 0..{self.description.d_vocab - 1}; got values from "
                f"{lowest} to {highest}"
            )
        limit, length = self.max_length, tokens.shape[1]
        if limit is not None and length > limit:
            if self.description.positions_fixed:
                raise ValueError(
                    f"the input has {length} positions, but the model has learned {limit}: "
                    "give a shorter input"
                )
            if not past_positions:
                raise ValueError(
                    f"the input has {length} positions, but the model was made for at most {limit}:"
                    " give a shorter input, or allow more with past_positions=True"
                )
        return tokens

    def _check_mask(self, tokens: Tensor, mask: Tensor | None) -> Tensor | None:
        if mask is None:
            return None
        if not isinstance(mask, Tensor) or mask.is_floating_point():
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"attention_mask must be a bool or integer tensor; got {got}")
        if mask.shape != tokens.shape:
            raise ValueError(
                f"attention_mask must have the tokens' shape {tuple(tokens.shape)}; got "
                f"{tuple(mask.shape)}"
            )
        mask = mask.bool()
        if not bool(mask.any(-1).all()):
            raise ValueError("attention_mask hides a whole sequence: leave that sequence out")
        if bool(mask.all()):
            return None
        if bool((mask.int().diff(dim=-1).abs().sum(-1) > 1).any()):
            raise ValueError(
                "attention_mask has a gap: each sequence must be one stretch of tokens, with "
                "padding before it or after it"
            )
        if not self.description.padding:
            raise ValueError(
                f"{self.description.architecture} was not found to give the same outputs with "
                "padding as without: give sequences of one length"
            )
        return mask

    def _check_documents(
        self, tokens: Tensor, mask: Tensor | None, documents: Tensor | None
    ) -> Tensor | None:
        if documents is None:
            return None
        if not isinstance(documents, Tensor) or documents.is_floating_point():
            got = documents.dtype if isinstance(documents, Tensor) else type(documents).__name__
            raise TypeError(f"documents must be an integer tensor; got {got}")
        if documents.shape != tokens.shape or mask is not None:
            raise ValueError(
                f"documents must have the tokens' shape {tuple(tokens.shape)} and come without "
                f"padding; got {tuple(documents.shape)}"
            )
        if not self.description.packing:
            raise ValueError(
                f"{self.description.architecture} was not found to keep packed documents apart: "
                "give one document a sequence"
            )
        return documents

    def _repr_html_(self) -> str:
        """What the adapter says of the model, as a table for a notebook."""
        return facts_table(type(self).__name__, self.description._facts())

    def __repr__(self) -> str:
        """Say what is adapted in one line."""
        facts = self.description
        return (
            f"{type(self).__name__}({facts.architecture}, "
            f"{layers_by_heads(facts.n_layers, facts.n_heads)}, norms: {facts.placement}, "
            f"sees: {facts.capture}, {facts.n_parameters:,} weights)"
        )
