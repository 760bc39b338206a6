"""Streams and norms while a model runs: forward hooks on its blocks and norm modules."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..observed import NormSeen, Observer, StreamSeen
from .layout import Layout
from .tensors import first_tensor


class BlockWatch:
    """Shows an observer the stream at every block boundary and every norm's input.

    Blocks are numbered by the order of their calls, so that a block whose weights serve several
    layers (ALBERT) is seen once a layer.

    Attributes:
        layer: Block that is running, or last ran.
        stack: What :class:`~resharpen.models.observed.StreamSeen` calls the stack.
    """

    def __init__(self, blocks: Sequence[nn.Module], layout: Layout, stack: str) -> None:
        """Keep what to watch."""
        self.blocks, self.layout, self.stack = tuple(blocks), layout, stack
        self.layer = 0
        self._next = 0

    def watch(self, observer: Observer) -> Iterator[RemovableHandle]:
        """Yield the handles of the hooks, which work until they are removed."""
        self.layer = self._next = 0
        n_layers = self.layout.n_calls or len(self.blocks)

        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            self.layer = self._next
            self._next += 1
            stream = first_tensor((args, kwargs))
            if stream is not None:
                name = f"blocks.{self.layer}.resid_pre"
                observer.stream(StreamSeen(name, self.layer, stream, self.stack))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            stream = first_tensor(output)
            if self._next == n_layers and stream is not None:
                observer.stream(StreamSeen("final", n_layers, stream, self.stack))

        for block in dict.fromkeys(self.blocks):
            yield block.register_forward_pre_hook(enter, with_kwargs=True)
            yield block.register_forward_hook(leave)
        for name, module in self.layout.modules.items():
            yield module.register_forward_pre_hook(
                self._norm_hook(name, observer), with_kwargs=True
            )

    def _norm_hook(self, name: str, observer: Observer) -> Any:
        place = self.layout.norms[name]

        def look(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            given = first_tensor((args, kwargs))
            if not isinstance(given, Tensor):
                return
            observer.norm(
                NormSeen(
                    name=name,
                    layer=self.layer if place.in_block else None,
                    position=place.position,
                    sublayer=place.sublayer,
                    input=given.transpose(1, 2) if place.heads_first else given,
                    centred=place.centred,
                    eps=place.eps,
                )
            )

        return look
