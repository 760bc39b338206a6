"""What becomes of the error when attention's output, or its temperature, is changed by hand.

*Dispersion* (models without norms). If dispersion is what makes the error, then multiplying the
output of attention at length ``s`` by ``s / 2``, so that each of ``s`` tokens weighs what one of
two did, must bring the precision of length 2 back. Another temperature must not: whatever the
temperature, ``s`` weights share one unit (theory section 1.1, "No temperature can help").

*Residual content* (models with a norm on the stream). Where the stream is ``b + A(x)``, the norm
gives back what ``A`` lost only as long as ``A`` outweighs ``b`` (theory section 1.1, the row with
residual content). Multiplying ``A`` by a constant in front of the norm is, the norm being blind to
scale, the same as dividing ``b`` by it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import log

from torch import Tensor

from .....interp.capturing import Hook

Edit = tuple[str, Hook]

RESCALED = "output times s/2"
"""Name of the intervention that undoes dispersion."""

OUTWEIGHING = "output times 5"
"""Name of the intervention that lets attention outweigh what it is added to."""


def _times(name: str, factor: float) -> Edit:
    def multiply(activation: Tensor, hook: object) -> Tensor:
        return activation * factor

    return name, multiply


def _rescaled(length: int) -> Edit:
    return _times("blocks.0.attn.hook_z", length / 2)


def _outweighing(length: int) -> Edit:
    return _times("blocks.0.hook_attn_out", 5.0)


def _sharpened(factor: float, length: int) -> Edit:
    return _times("blocks.0.attn.hook_attn_scores", factor)


def _log_n(length: int) -> Edit:
    return _times("blocks.0.attn.hook_attn_scores", 1 + log(length))


TEMPERATURES: Mapping[str, Callable[[int], Edit]] = {
    "scores times 0": partial(_sharpened, 1e-6),
    "scores times 1/2": partial(_sharpened, 0.5),
    "scores times 2": partial(_sharpened, 2.0),
    "scores times 8": partial(_sharpened, 8.0),
    "scores times 1 + log s": _log_n,
}
"""Other temperatures, from uniform attention to sharp, and one that grows with the length."""

INTERVENTIONS: Mapping[str, Callable[[int], Edit]] = {
    RESCALED: _rescaled,
    OUTWEIGHING: _outweighing,
    **TEMPERATURES,
}
"""By name, the edit of a one-block model for inputs of a length."""
