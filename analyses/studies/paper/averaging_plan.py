"""What is run for the claims on averaging, Othello and dropout. Imports no torch."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....models.config import NormPlacement
from ....models.training.config import Schedule, TrainingConfig
from ..averaging.config import PRESETS as AVERAGING_PRESETS
from ..averaging.config import AveragingConfig, Cell, TaskSetting, othello

__all__ = ["AVERAGING_PLANS", "AveragingPlan"]


def _othello_recipe() -> TrainingConfig:
    return TrainingConfig(
        n_steps=800,
        batch_size=32,
        learning_rate=5e-3,
        warmup_steps=50,
        burn_in=400,
        ema_decays=(0.99,),
        bema=((0.5, 0.2),),
        uniform_average=True,
    )


def _dropout_recipe() -> TrainingConfig:
    return TrainingConfig(length=8, n_steps=600, batch_size=32, targets="exact", ema_decays=())


@dataclass(frozen=True)
class AveragingPlan:
    """The models behind claims 4 and 6.

    Attributes:
        averaging: The study of averaging whose set-complement cells are used (claim 4).
        average: Which average is held against the raw weights of its run.
        schedules: Schedules at which the claims on averaging are asked.
        othello_length: Moves of the games that Othello is learned from (claim 6).
        othello_training: Its recipe, at each of ``schedules``.
        othello_learned: Share of the error of the best guess that does not look at the game, up to
            which Othello counts as learned.
        dropouts: Probabilities with which attention weights are dropped, 0 first (claim 6).
        dropout_placements: Norm placements of the models that are trained so.
        dropout_vocabulary: Tokens of their set complement.
        dropout_training: Their recipe.
        dropout_lengths: The training length and longer ones; the last is judged.
        learned: Largest total variation at the training length that counts as learned.
    """

    averaging: AveragingConfig
    average: str = "ema-0.99"
    schedules: tuple[Schedule, ...] = ("constant", "linear")
    othello_length: int = 12
    othello_training: TrainingConfig = field(default_factory=_othello_recipe)
    othello_learned: float = 0.75
    dropouts: tuple[float, ...] = (0.0, 0.1, 0.3)
    dropout_placements: tuple[NormPlacement, ...] = ("none", "post")
    dropout_vocabulary: int = 32
    dropout_training: TrainingConfig = field(default_factory=_dropout_recipe)
    dropout_lengths: tuple[int, ...] = (8, 16, 31)
    learned: float = 0.05

    def __post_init__(self) -> None:
        """Check that the models which are compared are among those that are trained."""
        for name in ("schedules", "dropouts", "dropout_placements", "dropout_lengths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.average not in self.averaging.averages:
            raise ValueError(
                f"average must be one that is kept, {', '.join(self.averaging.averages)}; got "
                f"{self.average!r}"
            )
        if "constant" not in self.schedules:
            raise ValueError(
                "schedules must hold 'constant', where averaging is expected to help; got "
                f"{self.schedules}"
            )
        missing = [name for name in self.schedules if name not in self.averaging.schedules]
        if missing:
            raise ValueError(f"schedules must be the averaging study's; got {missing[0]!r}")
        if self.dropouts[:1] != (0.0,) or len(self.dropouts) < 2:
            raise ValueError(f"dropouts must begin with 0 and go on; got {self.dropouts}")
        trained = self.dropout_training.length
        if self.dropout_lengths[:1] != (trained,) or max(self.dropout_lengths) == trained:
            raise ValueError(
                f"dropout_lengths must begin with the training length, {trained}, and go on; got "
                f"{self.dropout_lengths}"
            )

    @property
    def graded(self) -> tuple[TaskSetting, ...]:
        """Set complement over more and more tokens, fewest first."""
        found = [s for s in self.averaging.settings if s.family == "set complement"]
        return tuple(sorted(found, key=lambda setting: setting.parameters["vocabulary"]))

    def cells(self) -> list[Cell]:
        """The training runs of claim 4: those of the averaging study, so that both share them."""
        names = {setting.name for setting in self.graded}
        return [
            cell
            for cell in self.averaging.cells()
            if cell.setting in names
            and cell.learning_rate == 1
            and cell.schedule in self.schedules
            and (cell.targets == "sampled" or cell.schedule == "constant")
        ]

    @property
    def othello(self) -> TaskSetting:
        """Othello and its GPT-1 style model."""
        return othello(self.othello_length)

    def othello_recipe(self, schedule: Schedule) -> TrainingConfig:
        """Recipe of Othello at one schedule."""
        return dataclasses.replace(
            self.othello_training, length=self.othello_length, schedule=schedule
        )

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain values."""
        return dataclasses.asdict(self)


AVERAGING_PLANS: Mapping[str, AveragingPlan] = {
    "quick": AveragingPlan(AVERAGING_PRESETS["quick"]),
    "full": AveragingPlan(
        AVERAGING_PRESETS["full"],
        schedules=("constant", "cosine", "linear"),
        othello_training=dataclasses.replace(
            _othello_recipe(), n_steps=4000, batch_size=64, burn_in=2000
        ),
        dropout_training=dataclasses.replace(_dropout_recipe(), n_steps=2000, batch_size=64),
    ),
}
"""Plans by the preset of the study of the paper's claims."""
