"""What the set-complement study is asked to do. Imports no torch, so that help texts are quick."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....models.config import NormalizationType, NormPlacement, TransformerConfig
from ....models.training.config import TrainingConfig


@dataclass(frozen=True)
class SetComplementConfig:
    """The study's configuration.

    Attributes:
        vocabulary: Number ``v`` of tokens.
        placements: Norm placements to train and to construct. None of the models has a norm before
            the unembedding, so that placements differ in nothing else (theory 1.1, Confound).
        normalization_type: Type of the norms.
        d_model: Width of the trained models; one block, one head, attention only.
        seeds: One trained model each, for every placement.
        lengths: Lengths to measure at, in ``1..v-1``. Theory predicts from 1 and 2.
        n_sequences: Sequences a length and model.
        training: The recipe; its ``length`` is the training length.
        p: Displacement of one token in the constructed models, before any norm (logits).
        residual: Norm of the constructed models' residual content ``b``; the post-norm gap turns
            from ``s**-0.5`` to ``s**-1`` at ``s* = (p / b)**2``.
        gain: Gain of the constructed models' last norm.
        pattern_lengths: Lengths whose attention patterns are drawn.
    """

    vocabulary: int = 32
    placements: tuple[NormPlacement, ...] = ("none", "pre", "post", "res_post", "peri")
    normalization_type: NormalizationType = "RMS"
    d_model: int = 64
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    lengths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 31)
    n_sequences: int = 256
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            length=8, n_steps=1000, batch_size=64, targets="exact", ema_decays=()
        )
    )
    p: float = 40.0
    residual: float = 8.0
    gain: float = 2.0
    pattern_lengths: tuple[int, ...] = (4, 8, 16, 31)

    def __post_init__(self) -> None:
        """Check what the parts do not check themselves."""
        for name in ("placements", "seeds", "lengths", "pattern_lengths"):
            value = tuple(getattr(self, name))
            object.__setattr__(self, name, value)
            if not value or len(set(value)) != len(value):
                raise ValueError(f"{name} must hold at least one value, all different; got {value}")
        outside = [
            s for s in (*self.lengths, *self.pattern_lengths) if not 1 <= s < self.vocabulary
        ]
        if outside:
            raise ValueError(
                f"lengths must lie in 1..{self.vocabulary - 1} for a vocabulary of "
                f"{self.vocabulary}; got {outside[0]}"
            )
        if self.n_sequences < 2:
            raise ValueError(f"n_sequences must be at least 2; got {self.n_sequences}")

    def model(self, placement: NormPlacement) -> TransformerConfig:
        """Configuration of the trained model with one placement."""
        return TransformerConfig(
            d_vocab=self.vocabulary,
            d_model=self.d_model,
            n_ctx=self.vocabulary,
            norm_placement=placement,
            normalization_type=self.normalization_type,
        )

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain values."""
        return dataclasses.asdict(self)


PRESETS: Mapping[str, SetComplementConfig] = {
    "quick": SetComplementConfig(),
    "full": SetComplementConfig(
        seeds=tuple(range(10)),
        lengths=tuple(range(1, 32)),
        n_sequences=2048,
        training=TrainingConfig(
            length=8, n_steps=6000, batch_size=256, targets="sampled", ema_decays=(0.99, 0.999)
        ),
    ),
}
"""``quick``: exact targets, 5 seeds, minutes. ``full``: sampled targets, 10 seeds, hours."""
