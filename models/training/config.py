"""What a training run is: everything but the model, the task and the seeds.

Imports no torch, so that the command line can build its flags from it.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..facts import Settings

Schedule = Literal["linear", "cosine", "constant"]
Targets = Literal["sampled", "exact"]


@dataclass(frozen=True, repr=False)
class TrainingConfig(Settings):
    """One training recipe.

    Attributes:
        length: Training length: every prefix of up to this many tokens is learned from.
        n_steps: Number of optimiser steps.
        batch_size: Sequences a step.
        learning_rate: Peak rate of AdamW.
        schedule: `"linear"` decay to zero (Bergsma et al., arXiv 2502.15938), `"cosine"` to
            zero, or `"constant"`; all after the warm-up.
        warmup_steps: Steps over which the rate rises linearly from zero.
        weight_decay: AdamW's decoupled weight decay.
        betas: AdamW's moment coefficients.
        targets: `"sampled"` next tokens, the noisy gradients of arXiv 2510.08341, or the
            `"exact"` next-token distribution.
        ema_decays: Decays of the exponential moving averages of the weights that are kept beside
            the raw weights, each in (0, 1).
        bema: Pairs of powers `κ` in (0, 1] and `η` (zero or more), one for each bias-corrected
            average kept beside them, such as `0.5 0.2` (the formula is in
            `resharpen.models.training.averaging`).
        uniform_average: Whether to keep the mean of the weights after the burn-in.
        burn_in: Steps before BEMA and the uniform average begin; `None` means `warmup_steps`.
        save_every: Steps between two saves of the training state that a killed run resumes from.
    """

    length: int = 8
    n_steps: int = 1000
    batch_size: int = 128
    learning_rate: float = 1e-2
    schedule: Schedule = "linear"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)
    targets: Targets = "sampled"
    ema_decays: tuple[float, ...] = (0.99,)
    bema: tuple[tuple[float, float], ...] = ()
    uniform_average: bool = False
    burn_in: int | None = None
    save_every: int = 500

    def __post_init__(self) -> None:
        """Check every field."""
        object.__setattr__(self, "betas", tuple(self.betas))
        object.__setattr__(self, "ema_decays", tuple(self.ema_decays))
        object.__setattr__(self, "bema", _pairs(self.bema))
        for name in ("length", "n_steps", "batch_size", "save_every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be a positive number; got {self.learning_rate}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be zero or more; got {self.weight_decay}")
        if not 0 <= self.warmup_steps <= self.n_steps:
            raise ValueError(
                f"warmup_steps must lie in 0..n_steps ({self.n_steps}); got {self.warmup_steps}"
            )
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers in [0, 1); got {self.betas}")
        self._check_averages()
        for name, choices in (("schedule", Schedule), ("targets", Targets)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(
                    f"{name} must be one of {', '.join(get_args(choices))}; "
                    f"got {getattr(self, name)!r}"
                )

    def _check_averages(self) -> None:
        if len(set(self.ema_decays)) != len(self.ema_decays) or not all(
            0 < decay < 1 for decay in self.ema_decays
        ):
            raise ValueError(f"ema_decays must be distinct, each in (0, 1); got {self.ema_decays}")
        if len(set(self.bema)) != len(self.bema) or not all(
            0 < kappa <= 1 and 0 <= eta < math.inf for kappa, eta in self.bema
        ):
            raise ValueError(
                "bema must be distinct pairs, kappa in (0, 1] and eta zero or more; "
                f"got {self.bema}"
            )
        if self.burn_in is not None and not (isinstance(self.burn_in, int) and self.burn_in >= 0):
            raise ValueError(f"burn_in must be a whole number, zero or more; got {self.burn_in}")
        if (self.bema or self.uniform_average) and self.burn_in_steps >= self.n_steps:
            raise ValueError(
                f"burn_in (or else warmup_steps) must be less than n_steps ({self.n_steps}) to "
                f"leave weights to average; got {self.burn_in_steps}"
            )

    @property
    def burn_in_steps(self) -> int:
        """`burn_in`, resolved."""
        return self.warmup_steps if self.burn_in is None else self.burn_in

    def rate_at(self, step: int) -> float:
        """Learning rate of step `0 <= step < n_steps`.

        With `w` warm-up steps: `(step + 1) / w` of the peak while `step < w`; then the
        schedule, as a function of the fraction `(step - w) / (n_steps - w)` done.
        """
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / (self.n_steps - self.warmup_steps)
        if self.schedule == "linear":
            return self.learning_rate * (1 - done)
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        return self.learning_rate

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingConfig":
        """Build a recipe from plain values.

        Raises:
            ValueError: If a key is unknown or a value out of range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(
                f"unknown training key {', '.join(map(repr, unknown))}; known keys are "
                f"{', '.join(known)}"
            )
        return cls(**values)


def _pairs(values: Any) -> tuple[tuple[float, float], ...]:
    try:
        return tuple((float(kappa), float(eta)) for kappa, eta in values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bema must be pairs of numbers (kappa, eta); got {values}") from error
