"""Averages of the weights along one run, all kept beside the raw weights.

With ``θ_t`` the weights after ``t`` of ``T`` optimiser steps and ``τ`` the burn-in:

    raw       θ_T
    ema-d     E_1 = θ_1,  E_t = d E_{t-1} + (1 - d) θ_t
    bema-κ-η  E_τ = θ_τ,  E_t = (1 - β_t) E_{t-1} + β_t θ_t,  β_t = (ρ + γ t)^-κ,
              μ_T = α_T (θ_T - θ_τ) + E_T,                    α_t = (ρ + γ t)^-η
    uniform   mean of θ_t over τ < t <= T

BEMA is Block and Zhang (arXiv 2508.00180; theory section 13), who take κ = 0.5, η = 0.2, ρ = 10,
γ = 1. Published implementations differ in the argument of the two powers. Ours is TRL's
``ρ + γ t``, where ``t`` counts optimiser steps from the start of the run, burn-in included; the
authors' offline class has ``1 + γ (t + ρ)`` and their callback ``1 + max(0, t - ρ)``. We update
after every step, where TRL does every 400 and the authors every 100: the ``β_t`` of a run of a few
thousand steps, taken that rarely, would not add up to one. With a large ``η`` the correction is
off, and BEMA is the average ``E`` whose memory grows with the run.

The weight vectors of nGPT have length one and their averages do not: they are put back on the
sphere when they are read out, while the averages themselves are of the iterates as they are.
"""

from collections.abc import Callable, Mapping

from torch import Tensor
from torch.optim.swa_utils import (
    PARAM_LIST,
    AveragedModel,
    get_ema_multi_avg_fn,
    get_swa_multi_avg_fn,
)

from ..ngpt import normalise_weights
from .config import TrainingConfig
from .stack import StackedTransformer

LAG = 10.0
"""``ρ`` of BEMA."""

MULTIPLIER = 1.0
"""``γ`` of BEMA."""

_Rule = Callable[[PARAM_LIST, PARAM_LIST, Tensor | int], None]
"""``rule(averaged, current, number of iterates averaged so far)``, in place."""


class Averages:
    """Every average that a recipe asks for.

    Attributes:
        names: Names of the averages, as a checkpoint's weights have them.
    """

    def __init__(
        self, training: TrainingConfig, stack: StackedTransformer, *, on_sphere: bool = False
    ) -> None:
        """Prepare the averages; none has seen anything yet.

        Args:
            training: Recipe.
            stack: The models, before the first step.
            on_sphere: Whether the weight vectors are kept at length one (nGPT).
        """
        self._on_sphere = on_sphere
        burn_in = training.burn_in_steps
        kept = [
            _Average(f"ema-{decay}", stack, get_ema_multi_avg_fn(decay), first=1)
            for decay in training.ema_decays
        ]
        kept += [_Bema(stack, kappa, eta, burn_in) for kappa, eta in training.bema]
        if training.uniform_average:
            kept.append(_Average("uniform", stack, get_swa_multi_avg_fn(), first=burn_in + 1))
        self._kept = kept
        self.names = tuple(average.name for average in kept)

    def update(self, stack: StackedTransformer, done: int) -> None:
        """Take the weights after ``done`` steps into account; ``done`` counts up from zero."""
        for average in self._kept:
            if done >= average.first:
                average.update(stack)

    def weights_of(self, stack: StackedTransformer, index: int) -> dict[str, dict[str, Tensor]]:
        """Read out one seed: each average's weights, as ``StackedTransformer.state_of`` gives them.

        Args:
            stack: The models, after the last step.
            index: Which seed.
        """
        found = {average.name: average.weights_of(stack, index) for average in self._kept}
        if self._on_sphere:
            for state in found.values():
                normalise_weights(state.items())
        return found

    def state(self) -> dict[str, Tensor]:
        """Everything the next update depends on, by name."""
        return {
            f"{average.key}.{name}": value
            for average in self._kept
            for name, value in average.running.state_dict().items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` gave.

        Raises:
            RuntimeError: If it is not the state of these averages.
        """
        for average in self._kept:
            prefix = f"{average.key}."
            average.running.load_state_dict(
                {
                    name.removeprefix(prefix): value
                    for name, value in state.items()
                    if name.startswith(prefix)
                }
            )


class _Average:
    """One average: its name, what it holds, and the number of steps after which it first looks."""

    def __init__(self, name: str, stack: StackedTransformer, rule: _Rule, first: int) -> None:
        self.name, self.first = name, first
        # Its first update copies the weights, every later one applies the rule.
        self.running = AveragedModel(stack, multi_avg_fn=rule)

    @property
    def key(self) -> str:
        """Name in the training state, where an EMA goes by its decay."""
        return self.name.removeprefix("ema-")

    def update(self, stack: StackedTransformer) -> None:
        """Take the next iterate into account."""
        self.running.update_parameters(stack)

    def weights_of(self, stack: StackedTransformer, index: int) -> dict[str, Tensor]:
        """Copy the averaged weights of one seed."""
        return self.running.module.state_of(index)  # type: ignore[operator]


class _Bema(_Average):
    """BEMA; see the module for the formula."""

    def __init__(self, stack: StackedTransformer, kappa: float, eta: float, burn_in: int) -> None:
        self._eta, self._burn_in = eta, burn_in

        def rule(averaged: PARAM_LIST, current: PARAM_LIST, seen: Tensor | int) -> None:
            decay = 1 - _power(burn_in + int(seen), kappa)
            get_ema_multi_avg_fn(decay)(averaged, current, seen)

        super().__init__(f"bema-{kappa}-{eta}", stack, rule, first=burn_in)
        # θ_τ, registered as buffers so that it is part of the state and restored in place.
        self._origin = [weight.detach().clone() for weight in stack.weights]
        for index, origin in enumerate(self._origin):
            self.running.register_buffer(f"origin_{index}", origin)

    def update(self, stack: StackedTransformer) -> None:
        if self.running.n_averaged == 0:
            for origin, weight in zip(self._origin, stack.weights, strict=True):
                origin.copy_(weight.detach())
        super().update(stack)

    def weights_of(self, stack: StackedTransformer, index: int) -> dict[str, Tensor]:
        # The first iterate it saw was that of the burn-in.
        step = self._burn_in + int(self.running.n_averaged) - 1
        state = super().weights_of(stack, index)
        moves = zip(state.values(), stack.weights, self._origin, strict=True)
        for averaged, weight, origin in moves:
            averaged.add_(weight[index].detach() - origin[index], alpha=_power(step, self._eta))
        return state


def _power(step: int, exponent: float) -> float:
    return (LAG + MULTIPLIER * step) ** -exponent
