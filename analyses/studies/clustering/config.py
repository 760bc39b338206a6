"""What the clustering study is asked to do. Imports no torch, so that help texts are quick."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ....models.config import NormPlacement, TransformerConfig
from ....models.placements import PLACEMENTS
from ....models.training.config import TrainingConfig

IDEAL_PLACEMENTS: tuple[NormPlacement, ...] = (
    "post",
    "pre",
    "peri",
    "ngpt",
    "mix",
    "ln_scaling",
    "sandwich",
    "deepnorm",
)
"""Placements that have an exact system. With the others (none, res_post, attn_out) attention is fed
the stream itself, whose length grows: its scores then grow, too, which no row of theory 11 has."""

TASK: Mapping[str, Any] = {"name": "dictionary-lookup", "keys": 8, "values": 4}
"""What the models are trained on and fed: a needle among repeated tokens, at every length."""


@dataclass(frozen=True)
class Case:
    """One configuration of a model, several seeds.

    Attributes:
        placement: Where the norms stand.
        n_layers: Number of blocks.
        mlp: Whether blocks have an MLP.
        trained: Whether it is trained, or measured as it is drawn.
    """

    placement: NormPlacement
    n_layers: int
    mlp: bool
    trained: bool

    @property
    def family(self) -> str:
        """What it shares with the same models of other placements."""
        kind = "with MLP" if self.mlp else "attention only"
        return f"{'trained' if self.trained else 'untrained'}, {self.n_layers} layers, {kind}"

    @property
    def label(self) -> str:
        """What the table's ``checkpoint`` column says."""
        return f"{self.placement} / {self.family}"

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class ClusteringConfig:
    """The study's configuration.

    Attributes:
        placements: Norm placements.
        untrained_depths: Blocks of the models that are measured as they are drawn.
        trained_depths: Blocks of the models that are trained.
        mlp: With and without MLP, or one of them.
        d_model: Width, one head.
        seeds: One model each, for every case.
        lengths: Lengths at which the stream is measured.
        profile_length: The one of them at which it is looked at layer by layer: turning against
            the speed factor, clusters, assumptions.
        n_sequences: Sequences a length and model.
        threshold: Cosine from which two positions belong to one cluster.
        collapsed: Mean cosine from which a stream counts as collapsed.
        training: The recipe.
        ideal_layers: Blocks of the models whose weights are the assumptions, each over the same
            time, so that the step of a block shrinks as the blocks become more.
        ideal_time: That time.
        ideal_length: Their number of tokens, orthogonal at the start, at most `ideal_width`.
        ideal_width: Their width.
        ideal_beta: Their inverse temperature.
        phase_length: Tokens under the sweep of the inverse temperature ``gamma log n``.
        n_gammas: Values of gamma, from 0 to `phase_reach` times the critical one.
        phase_reach: See there.
    """

    placements: tuple[NormPlacement, ...] = tuple(PLACEMENTS)  # type: ignore[assignment]
    untrained_depths: tuple[int, ...] = (8, 32)
    trained_depths: tuple[int, ...] = (8,)
    mlp: tuple[bool, ...] = (False, True)
    d_model: int = 32
    seeds: tuple[int, ...] = (0, 1, 2)
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    profile_length: int = 32
    n_sequences: int = 8
    threshold: float = 0.9
    collapsed: float = 0.5
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            length=16,
            n_steps=400,
            batch_size=32,
            learning_rate=5e-3,
            warmup_steps=40,
            targets="exact",
            ema_decays=(),
        )
    )
    ideal_layers: tuple[int, ...] = (32, 64)
    ideal_time: float = 6.0
    ideal_length: int = 32
    ideal_width: int = 32
    ideal_beta: float = 1.0
    phase_length: int = 128
    n_gammas: int = 61
    phase_reach: float = 3.0

    def __post_init__(self) -> None:
        """Check what the parts do not check themselves."""
        for name in ("placements", "mlp", "seeds", "lengths", "ideal_layers"):
            value = tuple(getattr(self, name))
            object.__setattr__(self, name, value)
            if not value or len(set(value)) != len(value):
                raise ValueError(f"{name} must hold at least one value, all different; got {value}")
        unknown = [name for name in self.placements if name not in PLACEMENTS]
        if unknown:
            raise ValueError(
                f"placements must be among {', '.join(PLACEMENTS)}; got {unknown[0]!r}"
            )
        if not (*self.untrained_depths, *self.trained_depths):
            raise ValueError("untrained_depths and trained_depths must not both be empty")
        for name in ("profile_length", "phase_length"):
            if getattr(self, name) not in self.lengths:
                raise ValueError(
                    f"{name} must be one of the lengths, {', '.join(map(str, self.lengths))}; got "
                    f"{getattr(self, name)}"
                )
        if not 2 <= self.ideal_length <= self.ideal_width:
            raise ValueError(
                "ideal_length must be from 2 to ideal_width, as many tokens as can be orthogonal; "
                f"got {self.ideal_length} and {self.ideal_width}"
            )
        for name in ("threshold", "collapsed"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be a cosine between 0 and 1")
        if self.n_sequences < 2 or self.n_gammas < 3:
            raise ValueError("n_sequences must be at least 2, and n_gammas at least 3")
        for name in ("ideal_time", "ideal_beta", "phase_reach"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a positive number; got {getattr(self, name)}")

    def cases(self) -> list[Case]:
        """Every case, a family after the other."""
        return list(self._cases())

    def _cases(self) -> Iterator[Case]:
        for trained, depths in ((False, self.untrained_depths), (True, self.trained_depths)):
            for depth, mlp, placement in product(depths, self.mlp, self.placements):
                yield Case(placement, depth, mlp, trained)

    def model(self, case: Case, d_vocab: int, d_vocab_out: int) -> TransformerConfig:
        """Configuration of a case's model.

        Norms have no learned gain, so that the sphere they set the stream to is the same
        everywhere; the last norm is there, as Pre-LN and Peri-LN are published.
        """
        return TransformerConfig(
            d_vocab=d_vocab,
            d_vocab_out=d_vocab_out,
            n_layers=case.n_layers,
            d_model=self.d_model,
            d_mlp=2 * self.d_model if case.mlp else None,
            attn_only=not case.mlp,
            norm_placement=case.placement,
            normalization_type="RMSPre",
            final_norm=True,
        )

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain values."""
        return dataclasses.asdict(self)


PRESETS: Mapping[str, ClusteringConfig] = {
    "quick": ClusteringConfig(),
    "full": ClusteringConfig(
        untrained_depths=(16, 32),
        trained_depths=(16, 32),
        d_model=64,
        seeds=(0, 1, 2, 3, 4),
        n_sequences=16,
        training=TrainingConfig(
            length=16,
            n_steps=500,
            batch_size=32,
            learning_rate=3e-3,
            warmup_steps=50,
            targets="exact",
            ema_decays=(),
        ),
        ideal_layers=(32, 64, 128),
    ),
}
"""Configurations by the name that ``--preset`` takes."""
