"""What the study of the paper's claims is asked to do. Imports no torch: help texts are quick."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....models.config import NormalizationType, NormPlacement, TransformerConfig
from ....models.training.config import TrainingConfig
from .averaging_plan import AVERAGING_PLANS, AveragingPlan

LANGUAGE_VARIANTS: Mapping[str, tuple[NormPlacement, bool]] = {
    "none": ("none", False),
    "pre": ("pre", False),
    "pre + final norm": ("pre", True),
    "post": ("post", False),
}
"""What models of a formal language differ in: the norm placement, and whether there is a final
norm."""

NORM_PLACEMENTS: tuple[NormPlacement, ...] = ("none", "pre", "post", "res_post", "peri")
"""Norm placements that are compared on set complement."""


@dataclass(frozen=True)
class PaperConfig:
    """The study's configuration.

    Attributes:
        seeds: One trained model each, for everything that is trained.
        vocabulary: Number of tokens of set complement (claims 1 to 3).
        d_model: Width of its models.
        lengths: Where these are measured, in ``1..vocabulary - 1``; 2 and the longest must be
            among them.
        n_sequences: Sequences a length.
        theorem_lengths: Training lengths of the minimal model: the shortest that the theorem
            speaks of, 2, and a longer one.
        training: Recipe of set complement; its ``length`` is that of claim 3.
        depths: Numbers of blocks at which norm placements are compared.
        normalization_type: Type of the norms.
        narrow_vocabulary: Number of tokens where widths are compared (claim 7); every input is run.
        narrow_training: Their recipe.
        languages: Formal languages (claim 5).
        language_length: Training length; a language that has no string of it is trained at the
            next shorter length that it has.
        language_multiples: Where these are measured, in training lengths.
        language_variants: What is compared on them, names in
            :data:`LANGUAGE_VARIANTS`.
        language_model: Fields of their model.
        language_training: Their recipe.
        language_sequences: Strings a length.
        averaging: What is run for the claims on averaging, Othello and dropout (claims 4 and 6).
        ema_decay: Which average of the weights is compared with the last weights.
        learned: Largest total variation at the training length at which a model counts as having
            learned set complement.
        language_learned: The same for a language, mean over positions, as a share of the error of
            the best guess that looks at nothing but the position.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    vocabulary: int = 32
    d_model: int = 64
    lengths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 31)
    n_sequences: int = 256
    theorem_lengths: tuple[int, ...] = (2, 8)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            length=8, n_steps=600, batch_size=32, targets="exact", ema_decays=()
        )
    )
    depths: tuple[int, ...] = (1, 2)
    normalization_type: NormalizationType = "RMS"
    narrow_vocabulary: int = 8
    narrow_training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            length=3, n_steps=1500, batch_size=16, targets="exact", ema_decays=()
        )
    )
    languages: tuple[str, ...] = (
        "tomita-7",
        "ab-d-bc",
        "abcde-blocks",
        "majority",
        "shuffle-dyck-2",
        "dyck-2-3",
    )
    language_variants: tuple[str, ...] = ("pre", "pre + final norm", "post")
    language_length: int = 16
    language_multiples: tuple[int, ...] = (1, 2, 4)
    language_model: Mapping[str, Any] = field(
        default_factory=lambda: {
            "n_layers": 2,
            "n_heads": 4,
            "d_model": 32,
            "d_mlp": 64,
            "attn_only": False,
            "n_ctx": 1024,
        }
    )
    language_training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            length=16, n_steps=400, batch_size=32, schedule="constant", ema_decays=(0.99,)
        )
    )
    language_sequences: int = 128
    averaging: AveragingPlan = AVERAGING_PLANS["quick"]
    ema_decay: float = 0.99
    learned: float = 0.05
    language_learned: float = 0.5

    def __post_init__(self) -> None:
        """Check what the parts do not check themselves."""
        for name in (
            "seeds",
            "lengths",
            "theorem_lengths",
            "depths",
            "languages",
            "language_variants",
            "language_multiples",
        ):
            value = tuple(getattr(self, name))
            object.__setattr__(self, name, value)
            if not value or len(set(value)) != len(value):
                raise ValueError(f"{name} must hold at least one value, all different; got {value}")
        outside = [s for s in self.lengths if not 1 <= s < self.vocabulary]
        if outside:
            raise ValueError(
                f"lengths must lie in 1..{self.vocabulary - 1} for a vocabulary of "
                f"{self.vocabulary}; got {outside[0]}"
            )
        needed = {2, self.training.length, *self.theorem_lengths}
        if missing := sorted(needed - set(self.lengths)):
            raise ValueError(
                f"lengths must hold 2, which the 2/s starts from, and every training length; "
                f"{missing[0]} is missing"
            )
        if self.longest <= self.training.length:
            raise ValueError(
                f"lengths must go beyond the training length {self.training.length}; got at most "
                f"{self.longest}"
            )
        if self.training.targets != "exact":
            raise ValueError("training.targets must be 'exact' (sampled ones are claim 4's)")
        if not 5 <= self.narrow_vocabulary <= 12:
            raise ValueError(
                "narrow_vocabulary must lie in 5..12, so that every input can be run; got "
                f"{self.narrow_vocabulary}"
            )
        if self.language_multiples[0] != 1 or len(self.language_multiples) < 2:
            raise ValueError(
                "language_multiples must begin with 1, the training length, and go on; got "
                f"{self.language_multiples}"
            )
        unknown = [name for name in self.language_variants if name not in LANGUAGE_VARIANTS]
        if unknown:
            raise ValueError(
                f"language_variants must be among {', '.join(LANGUAGE_VARIANTS)}; got "
                f"{unknown[0]!r}"
            )
        if self.ema_decay not in self.language_training.ema_decays:
            raise ValueError(
                f"ema_decay {self.ema_decay} is not among the averages that are kept, "
                f"{self.language_training.ema_decays}"
            )

    @property
    def longest(self) -> int:
        """The longest input of set complement."""
        return max(self.lengths)

    def set_complement_model(
        self, placement: NormPlacement, n_layers: int = 1, final_norm: bool = False
    ) -> TransformerConfig:
        """An attention-only model of set complement with one head a block."""
        return TransformerConfig(
            d_vocab=self.vocabulary,
            d_model=self.d_model,
            n_layers=n_layers,
            n_ctx=self.vocabulary,
            norm_placement=placement,
            normalization_type=self.normalization_type,
            final_norm=final_norm,
        )

    def language_recipe(self, length: int) -> TrainingConfig:
        """The recipe of a language whose training length is this."""
        return dataclasses.replace(self.language_training, length=length)

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain values."""
        return dataclasses.asdict(self)


PRESETS: Mapping[str, PaperConfig] = {
    "quick": PaperConfig(),
    "full": PaperConfig(
        lengths=(1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 31),
        n_sequences=1024,
        training=TrainingConfig(
            length=8, n_steps=2000, batch_size=64, targets="exact", ema_decays=()
        ),
        narrow_vocabulary=10,
        narrow_training=TrainingConfig(
            length=3, n_steps=4000, batch_size=32, targets="exact", ema_decays=()
        ),
        languages=(
            *(f"tomita-{number}" for number in range(3, 8)),
            *("parity", "even-pairs", "abcde-blocks", "ab-d-bc", "012-0-2", "cycle-navigation"),
            *("modular-arithmetic-simple", "d-2", "d-4", "majority", "balance", "reset-dyck-1"),
            *("dyck-1", "dyck-2", "dyck-2-3", "dyck-3-2", "shuffle-dyck-2", "shuffle-dyck-4"),
        ),
        language_variants=("none", "pre", "pre + final norm", "post"),
        language_training=TrainingConfig(
            length=16, n_steps=600, batch_size=32, schedule="constant", ema_decays=(0.99,)
        ),
        language_sequences=256,
        averaging=AVERAGING_PLANS["full"],
    ),
}
"""Configurations by the name that ``--preset`` takes.

Languages in which the position alone tells what may follow, in strings of one length, are left out:
``first``, ``(aa)*`` and its like, and ``counter-k``, which has one string of each length.
"""
