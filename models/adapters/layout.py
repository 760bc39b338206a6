"""Where the norms of a model stand, found from what feeds what in one short run.

Names do not say: Hugging Face's ``post_attention_layernorm`` is the norm before the MLP in Llama
and one on attention's output in Gemma. So a short run records the input and output of every module
of a block, and equalities between these tensors tell where a norm stands. With ``x`` the block's
input, ``a`` and ``b`` the input and output of a norm, and ``m`` the output of some module:

=============  ====================================================================================
position       holds
=============  ====================================================================================
``before``     ``a`` is on the stream (``x``, or ``x + c m``), and the stream goes on from ``a``
``stream``     ``a`` is on the stream, and the stream goes on from ``b``
``after``      ``a`` is the output ``m`` of a sub-layer, not on the stream
``query_key``  the norm runs inside attention, before queries meet keys
=============  ====================================================================================

The factor ``c`` allows for residual multipliers (Granite). Where attention and MLP are added to the
same stream, ``y = a + c1 m1 + c2 m2`` (GPT-NeoX, Phi), the block is parallel.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..placements import PLACEMENTS
from .block_equalities import BlockAnalysis, Call, equality_tolerance, plain_copy, relative_error
from .tensors import find_tensors, first_tensor

_NORM_CLASS = re.compile(r".*(RMSNorm|LayerNorm)(Pre)?|Norm|\w*NormalizationBridge")
_WRAPPER = "._original_component"


@dataclass(frozen=True)
class NormPlace:
    """Where one norm stands, and what it does.

    Attributes:
        position: As in :class:`resharpen.models.observed.NormSeen`.
        sublayer: ``"attention"``, ``"mlp"`` or ``None``.
        in_block: Whether it belongs to a block.
        centred: Whether it takes the mean off.
        eps: Its epsilon; NaN if the module does not say.
        heads_first: Whether its input is ``[batch, head, pos, width]``.
    """

    position: str
    sublayer: str | None
    in_block: bool
    centred: bool
    eps: float
    heads_first: bool = False


@dataclass(frozen=True)
class Layout:
    """The norms of a model.

    Attributes:
        placement: Key of :data:`~resharpen.models.placements.PLACEMENTS`, ``"mixed"`` or
            ``"unknown"``.
        parallel: Whether attention and MLP read the same stream in every block.
        norms: Place of each norm that runs, by its module name.
        modules: The norm modules, by the same names.
        n_calls: How often blocks are called in one run (once a layer).
    """

    placement: str = "unknown"
    parallel: bool = False
    norms: Mapping[str, NormPlace] = field(default_factory=dict)
    modules: Mapping[str, nn.Module] = field(default_factory=dict, repr=False)
    n_calls: int = 0


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a LayerNorm or RMSNorm, by its class name."""
    return _NORM_CLASS.fullmatch(type(module).__name__) is not None


def find_layout(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    attention: Sequence[nn.Module],
    run: Callable[[], Any],
) -> Layout:
    """Run the model once and find where its norms stand.

    Args:
        model: The model.
        blocks: Its blocks.
        attention: The modules in the blocks that hold the attention.
        run: Runs the model on a few random tokens, two sequences of one length.
    """
    recorder = _Recorder(model, blocks, attention)
    with recorder:
        run()
    return recorder.layout()


class _Recorder:
    """Records the calls of one run and analyses each block as soon as it is left."""

    def __init__(
        self, model: nn.Module, blocks: Sequence[nn.Module], attention: Sequence[nn.Module]
    ) -> None:
        self.blocks = list(dict.fromkeys(blocks))
        self.attention = set(attention)
        self.norm_names = _outermost_norms(model)
        self.clock = itertools.count()
        self.calls: list[Call] = []
        self.open: list[tuple[nn.Module, int]] = []
        self.current: nn.Module | None = None
        self.kinds: list[set[str]] = []
        self.parallels: list[bool] = []
        self.places: dict[str, NormPlace] = {}
        self.start: Tensor | None = None
        self.last: Tensor | None = None
        self.handles: list[Any] = []

    def __enter__(self) -> None:
        inside: set[nn.Module] = set()
        for block in self.blocks:
            self.handles.append(block.register_forward_pre_hook(self._start, with_kwargs=True))
            parts = [part for part in block.modules() if part is not block]
            inside.update(parts)
            for part in dict.fromkeys(parts):
                self._listen(part)
            self.handles.append(block.register_forward_hook(self._finish, with_kwargs=True))
        for norm in self.norm_names:
            if norm not in inside:
                self.handles.append(norm.register_forward_hook(self._outside, with_kwargs=True))

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _listen(self, part: nn.Module) -> None:
        self.handles.append(part.register_forward_pre_hook(self._enter))
        self.handles.append(part.register_forward_hook(self._leave, with_kwargs=True))

    def _start(self, block: nn.Module, args: Any, kwargs: Any) -> None:
        stream = first_tensor((args, kwargs))
        self.current, self.calls, self.open = block, [], []
        self.start = None if stream is None else plain_copy(stream)

    def _enter(self, module: nn.Module, args: Any) -> None:
        self.open.append((module, next(self.clock)))

    def _leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        entered = 0
        while self.open:
            opened, entered = self.open.pop()
            if opened is module:
                break
        given = list(find_tensors((args, kwargs)))
        made = first_tensor(output)
        self.calls.append(
            Call(
                module,
                entered,
                next(self.clock),
                [plain_copy(tensor) for tensor in given[:3]],
                None if made is None else plain_copy(made),
                module in self.norm_names,
                given[0].data_ptr() if given else 0,
            )
        )

    def _outside(self, norm: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        given = first_tensor((args, kwargs))
        if given is None:
            return
        position = "embedding"
        if self.last is not None:
            position = (
                "final"
                if relative_error(plain_copy(given), self.last) < equality_tolerance(given)
                else ""
            )
        self._place(norm, position or "unknown", None, given, in_block=False)

    def _finish(self, block: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        made = first_tensor(output)
        if made is None or self.start is None:
            return
        self.last = plain_copy(made)
        analysis = BlockAnalysis(
            self.start, self.last, self.calls, self.attention, equality_tolerance(made)
        )
        found = analysis.places()
        for call, position, sublayer in found:
            self._place(call.module, position, sublayer, call.inputs[0], in_block=True)
        self.kinds.append({position for _, position, _ in found} - {"query_key"})
        self.parallels.append(analysis.parallel)
        self.calls = []

    def _place(
        self, norm: nn.Module, position: str, sublayer: str | None, given: Tensor, in_block: bool
    ) -> None:
        n_pos = None if self.last is None else self.last.shape[1]
        self.places.setdefault(
            self.norm_names[norm],
            NormPlace(
                position=position,
                sublayer=sublayer,
                in_block=in_block,
                centred=_is_centred(norm, given),
                eps=_epsilon(norm),
                heads_first=given.ndim == 4 and given.shape[1] != n_pos == given.shape[2],
            ),
        )

    def layout(self) -> Layout:
        modules = {name: module for module, name in self.norm_names.items() if name in self.places}
        return Layout(
            placement=_placement(self.kinds),
            parallel=bool(self.parallels) and all(self.parallels),
            norms=self.places,
            modules=modules,
            n_calls=len(self.kinds),
        )


def _placement(kinds: list[set[str]]) -> str:
    names: dict[frozenset[str], str] = {}
    for key, place in PLACEMENTS.items():
        # Schemes that differ from an earlier one in more than where norms stand cannot be told.
        where = frozenset(name for name in ("before", "after", "stream") if getattr(place, name))
        names.setdefault(where, key)
    found = {
        names.get(frozenset(kind), "unknown" if "unknown" in kind else "mixed") for kind in kinds
    }
    if not found:
        return "unknown"
    return found.pop() if len(found) == 1 else "mixed"


def _outermost_norms(model: nn.Module) -> dict[nn.Module, str]:
    norms = {module: name for name, module in model.named_modules() if is_norm(module)}
    names = set(norms.values())
    return {
        module: name.replace(_WRAPPER, "")
        for module, name in norms.items()
        if not any(name.startswith(other + ".") for other in names if other)
    }


def _is_centred(norm: nn.Module, given: Tensor) -> bool:
    """Whether adding a constant to the input leaves the output as it is."""
    parameter = next(norm.parameters(), None)
    like = given if parameter is None else parameter
    generator = torch.Generator().manual_seed(0)
    sample = torch.randn(1, 4, given.shape[-1], generator=generator).to(like.device, like.dtype)
    try:
        # `forward` itself, so that nobody's hooks fire on this sample.
        here, there = norm.forward(sample), norm.forward(sample + 4)
    except (RuntimeError, TypeError, ValueError):
        return "RMS" not in type(norm).__name__
    return relative_error(plain_copy(here), plain_copy(there)) < 0.1


def _epsilon(norm: nn.Module) -> float:
    for owner in (norm, getattr(norm, "original_component", None), getattr(norm, "cfg", None)):
        for name in ("eps", "variance_epsilon", "epsilon", "norm_eps"):
            value = getattr(owner, name, None)
            if isinstance(value, int | float):
                return float(value)
            if isinstance(value, Tensor) and value.numel() == 1:
                return float(value)
    return float("nan")
