"""Streaming capture: each activation is reduced when it fires, and only the reduction is kept.

Works on anything with HookedTransformer-compatible hook points. The model is left as it was: its
own hooks, the train or eval mode of every module, also after an exception or an interrupt.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..models.facts import Facts
from ..models.sites import check_hook_names

T = TypeVar("T")

Hook = Callable[..., Tensor | None]
"""A forward hook, called as ``hook(activation, hook=point)``; what it returns replaces it."""


@runtime_checkable
class HookedModel(Protocol):
    """What a model has to offer: ``HookedRootModule`` and ``TransformerBridge`` do."""

    @property
    def hook_dict(self) -> Mapping[str, Any]:
        """Hook points by name."""
        ...

    def run_with_hooks(self, *model_args: Any, fwd_hooks: Any, **model_kwargs: Any) -> Any:
        """Run once with temporary forward hooks, a list of ``(name, hook)``."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """Every module, as ``nn.Module.modules``."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Every parameter, as ``nn.Module.parameters``."""
        ...


@dataclass(frozen=True, repr=False)
class Capture(Facts, Generic[T]):
    """What one forward pass gave.

    Attributes:
        logits: The model's output ``[batch, pos, d_vocab_out]``.
        values: What each reader returned, by hook name.
    """

    logits: Float[Tensor, "batch pos d_vocab_out"]
    values: Mapping[str, T]


@contextmanager
def evaluating(model: HookedModel | nn.Module) -> Iterator[None]:
    """Hold the model in eval mode without gradients; restore each module's own mode afterwards.

    Gradients are off through ``torch.no_grad``, not ``torch.inference_mode``: a model that fills a
    cache of its own during the forward (rotary tables, ALiBi biases) would keep inference tensors
    in it, and its next training step would fail.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def capture(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    readers: Mapping[str, Callable[[Tensor], T]],
    *,
    edits: Sequence[tuple[str, Hook]] = (),
) -> Capture[T]:
    """Run the model once; hand each named activation to its reader as it fires.

    Args:
        model: The model; run in eval mode, without gradients, and restored.
        tokens: Token ids ``[batch, pos]``, moved to the model's device.
        readers: By hook name, a function of the activation. What it returns is kept, the activation
            is not: return a reduction, not a view of the activation (a view keeps it whole).
        edits: ``(hook name, hook)`` pairs that run before the readers, in order.

    Returns:
        The logits and what the readers returned.

    Raises:
        ValueError: If a name is no hook point of the model, or a hook point was declared but never
            fired, or fired more than once.
        TypeError: If the model's output is not a tensor of logits.
    """
    check_hook_names(model, [*readers, *(name for name, _ in edits)])
    values: dict[str, T] = {}
    repeated: set[str] = set()
    fired: set[str] = set()

    def listen(name: str, read: Callable[[Tensor], T]) -> Hook:
        def hook_function(activation: Tensor, hook: Any) -> None:
            if name in values:
                repeated.add(name)
            values[name] = read(activation.detach())

        return hook_function

    def note(name: str) -> Hook:
        def hook_function(activation: Tensor, hook: Any) -> None:
            fired.add(name)

        return hook_function

    hooks = [
        *((name, note(name)) for name, _ in edits),
        *edits,
        *((name, listen(name, read)) for name, read in readers.items()),
    ]
    with evaluating(model):
        logits = model.run_with_hooks(_on_device(model, tokens), fwd_hooks=hooks)
    if not isinstance(logits, Tensor):
        raise TypeError(
            "the model must return its logits as one tensor [batch, pos, d_vocab_out]; got "
            f"{type(logits).__name__}"
        )
    silent = [name for name in dict(hooks) if name not in values and name not in fired]
    if silent:
        raise ValueError(
            f"hook point {silent[0]!r} is declared but never fired in this forward pass "
            f"({len(silent)} of {len(dict(hooks))} asked for): what it should show is not computed "
            "there"
        )
    if repeated:
        raise ValueError(
            f"hook point {min(repeated)!r} fired more than once in one forward pass: it does not "
            "name one place of the model"
        )
    return Capture(logits.detach(), values)


def _on_device(model: HookedModel, tokens: Tensor) -> Tensor:
    parameter = next(model.parameters(), None)
    return tokens if parameter is None else tokens.to(parameter.device)
