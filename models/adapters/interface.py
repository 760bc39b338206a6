"""Attention and mask functions of our own, registered with transformers' attention interface.

Every architecture that goes through the interface calls, in each layer, one function with its
rotated queries and keys, the mask, the scale and whatever else decides the weights. Ours shows that
to the observer and then hands over to the function that the model would have called, with the mask
that it would have had: so the outputs do not change. Masks reach it as a one-entry tensor that
holds a number: the model passes it through untouched, also across devices.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from ..observed import AttentionSeen
from .masks import MaskRule, read_finished_mask, read_mask_request

IMPLEMENTATION = "resharpen"
"""Name under which our functions are registered."""


@dataclass
class Session:
    """One observed run.

    Attributes:
        show: Called with the module and what it is given; may return attention's output
            ``[batch, head, query, d_value]``.
        layer: Says which block is running.
        stack: Name of the stack, for the records.
        original: Implementation that each configuration (by its ``id``) named before.
        calls: How often our attention function was called.
    """

    show: Callable[[nn.Module, AttentionSeen], Tensor | None]
    layer: Callable[[], int]
    stack: str = "decoder"
    original: Mapping[int, str] = field(default_factory=dict)
    calls: int = 0
    masks: list["_Mask"] = field(default_factory=list)


class _Mask:
    """One mask that the model asked for: its rule, and the array when somebody needs it."""

    def __init__(self, request: Mapping[str, Any], original: str) -> None:
        self.request, self.original = request, original
        self.rule = read_mask_request(request)
        self._built: Tensor | None = None
        self._is_built = False

    def build(self) -> Any:
        """The mask that the model's own implementation would have been given."""
        if not self._is_built:
            self._built = ALL_MASK_ATTENTION_FUNCTIONS[self.original](**self.request)
            self._is_built = True
        return self._built


_session: ContextVar[Session | None] = ContextVar("resharpen_session", default=None)


@contextmanager
def implementation_in_place(model: PreTrainedModel, name: str) -> Iterator[dict[int, str]]:
    """Let the model name another attention implementation; afterwards all is as it was.

    Yields:
        The implementation that each configuration (by its ``id``) named before.

    Raises:
        ValueError: If the model is already being observed.
    """
    configurations = _configurations(model)
    before = [(config, config._attn_implementation_internal) for config in configurations]
    if IMPLEMENTATION in (value for _, value in before):
        raise ValueError("the model is already being observed: finish that run first")
    try:
        for config in configurations:
            config._attn_implementation_internal = name
        yield {id(config): value or "eager" for config, value in before}
    finally:
        for config, value in before:
            config._attn_implementation_internal = value


@contextmanager
def interface_in_place(model: PreTrainedModel, session: Session) -> Iterator[None]:
    """Put our functions in place of the model's attention; afterwards all is as it was."""
    AttentionInterface.register(IMPLEMENTATION, _attention)
    AttentionMaskInterface.register(IMPLEMENTATION, _mask)
    with implementation_in_place(model, IMPLEMENTATION) as session.original:
        token = _session.set(session)
        try:
            yield
        finally:
            _session.reset(token)


def _configurations(model: nn.Module) -> list[Any]:
    found: dict[int, Any] = {}
    waiting: list[Any] = [part.config for part in model.modules() if hasattr(part, "config")]
    while waiting:
        config = waiting.pop()
        if id(config) in found or not hasattr(config, "_attn_implementation_internal"):
            continue
        found[id(config)] = config
        for name in getattr(config, "sub_configs", ()):
            waiting.append(getattr(config, name, None))
    return list(found.values())


def _mask(**request: Any) -> Tensor:
    session = _session.get()
    assert session is not None, "our mask function is in place only during a session"
    session.masks.append(_Mask(request, session.original[id(request["config"])]))
    number = len(session.masks) - 1
    return torch.full((1, 1, 1, 1), number, dtype=torch.int64, device=request.get("device", "cpu"))


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    session = _session.get()
    assert session is not None, "our attention function is in place only during a session"
    session.calls += 1
    rule, mask = _read_mask(session, module, query, key, attention_mask, kwargs.get("is_causal"))
    bias = kwargs.get("position_bias")
    if rule.bias is not None:
        bias = rule.bias if bias is None else bias + rule.bias
    sinks = kwargs.get("s_aux")
    seen = AttentionSeen(
        layer=session.layer(),
        query=query,
        key=key,
        value=value,
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        causal=rule.causal,
        window=rule.window,
        mask=rule.mask,
        bias=bias,
        soft_cap=kwargs.get("softcap"),
        sinks=None if sinks is None else sinks.detach().reshape(-1),
        stack=session.stack,
    )
    given = session.show(module, seen)
    if given is not None:
        return given.to(query.dtype).transpose(1, 2).contiguous(), None
    named = session.original.get(id(getattr(module, "config", None)))
    own = _own_function(module, named or next(iter(session.original.values())))
    return own(
        module,
        query,
        key,
        value,
        mask.build() if isinstance(mask, _Mask) else mask,
        scaling=scaling,
        dropout=dropout,
        **kwargs,
    )


def _read_mask(
    session: Session, module: nn.Module, query: Tensor, key: Tensor, mask: Any, is_causal: Any
) -> tuple[MaskRule, Any]:
    n_query, n_key = query.shape[2], key.shape[2]
    if mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        return MaskRule(causal=bool(causal) and n_query > 1), None
    if isinstance(mask, Tensor) and mask.numel() == 1 and mask.dtype is torch.int64:
        found = session.masks[int(mask)]
        return found.rule, found
    if not isinstance(mask, Tensor):
        raise ValueError(
            f"the model hands its attention a mask of type {type(mask).__name__}, which this "
            "toolkit cannot read"
        )
    return read_finished_mask(mask, n_query, n_key), mask


def _own_function(module: nn.Module, original: str) -> Callable[..., Any]:
    """The function that the model would have called."""
    for owner in type(module).__mro__:
        forward = owner.__dict__.get("forward")
        names = getattr(inspect.unwrap(forward), "__globals__", {}) if forward else {}
        # A modeling file may have its own instance of the interface, with functions of its own.
        functions = names.get("ALL_ATTENTION_FUNCTIONS")
        if isinstance(functions, AttentionInterface):
            eager = names.get("eager_attention_forward")
            found = eager if original == "eager" else functions.get(original)
            if found is not None:
                return found
    raise ValueError(
        f"the {original!r} attention function of {type(module).__name__} cannot be found to hand "
        "over to: load the model with attn_implementation='sdpa'"
    )
