"""What the study of averaging is asked to do: its tasks, its recipes, its averages and its presets.

Imports no torch, so that help texts are quick.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from ....models.config import TransformerConfig
from ....models.training.config import Schedule, Targets, TrainingConfig

RAW = "raw"
"""Name of the weights that are not averaged."""


@dataclass(frozen=True)
class TaskSetting:
    """A task and the model that learns it.

    Attributes:
        name: What tables and figures call it.
        family: Tasks of one family differ in the number of legal tokens alone: the scaling is
            fitted within a family.
        parameters: Of the task, with its `name`.
        model: Fields of the configuration that differ from one attention-only layer with one head.
        lengths: Where errors are evaluated: the training length, then a longer one if there is.
        training: Fields of the recipe that differ.
    """

    name: str
    family: str
    parameters: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = (4, 7)
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Training length."""
        return self.lengths[0]

    def architecture(self, d_vocab: int, d_vocab_out: int) -> TransformerConfig:
        """Configuration of the model, for the task's vocabulary."""
        fields: dict[str, Any] = {"norm_placement": "post", **self.model}
        return TransformerConfig(d_vocab=d_vocab, d_vocab_out=d_vocab_out, **fields)


@dataclass(frozen=True)
class Cell:
    """One training run: a task, a recipe, all seeds and all averages.

    Attributes:
        setting: Name of the task's setting.
        schedule: Schedule of the learning rate.
        learning_rate: Its peak, over that of the task's recipe.
        targets: Sampled or exact.
    """

    setting: str
    schedule: Schedule
    learning_rate: float
    targets: Targets

    @property
    def recipe(self) -> str:
        """All but the task: `constant, sampled`, `constant at 0.3, sampled`."""
        rate = "" if self.learning_rate == 1 else f" at {self.learning_rate:g}"
        return f"{self.schedule}{rate}, {self.targets}"

    @property
    def label(self) -> str:
        """Task and recipe."""
        return f"{self.setting}: {self.recipe}"


@dataclass(frozen=True)
class AveragingConfig:
    """The study's configuration.

    Attributes:
        settings: The tasks, graded by the number of legal next tokens.
        schedules: Schedules of the learning rate.
        exact_schedules: Those of them under which exact targets are trained on too, for comparison.
        rate_factors: Factors on every task's learning rate; 1 must be among them.
        seeds: One model each, trained together; every average comes from the same run.
        training: The recipe, before what a task changes in it. Its averages are those compared.
        n_sequences: Sequences a length on which errors are evaluated.
        noise_steps: Steps of the run with a constant rate and sampled targets at whose weights the
            noise of the gradient is measured, as fractions of the run; 0 is before training.
        noise_sequences: Sequences on which it is measured.
    """

    settings: tuple[TaskSetting, ...]
    schedules: tuple[Schedule, ...] = ("constant", "cosine", "linear")
    exact_schedules: tuple[Schedule, ...] = ("constant",)
    rate_factors: tuple[float, ...] = (1.0,)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            n_steps=1000,
            batch_size=64,
            learning_rate=1e-2,
            warmup_steps=20,
            burn_in=500,
            ema_decays=(0.9, 0.99, 0.999),
            bema=((0.5, 0.2),),
            uniform_average=True,
        )
    )
    n_sequences: int = 256
    noise_steps: tuple[float, ...] = (0.0, 0.05, 0.25, 1.0)
    noise_sequences: int = 256

    def __post_init__(self) -> None:
        """Check what the parts do not check themselves."""
        object.__setattr__(self, "exact_schedules", tuple(self.exact_schedules))
        for name in ("settings", "schedules", "rate_factors", "seeds", "noise_steps"):
            value = tuple(getattr(self, name))
            object.__setattr__(self, name, value)
            names = [getattr(item, "name", item) for item in value]
            if not names or len(set(names)) != len(names):
                raise ValueError(f"{name} must hold at least one value, all different; got {names}")
        known = get_args(Schedule)
        for name, among in (("schedules", known), ("exact_schedules", self.schedules)):
            unknown = [value for value in getattr(self, name) if value not in among]
            if unknown:
                raise ValueError(f"{name} must be among {', '.join(among)}; got {unknown[0]!r}")
        if 1.0 not in self.rate_factors or min(self.rate_factors) <= 0:
            raise ValueError(
                "rate_factors must be positive, 1 among them: the noise is measured there; got "
                f"{self.rate_factors}"
            )
        for setting, step in itertools.product(self.settings, self.noise_steps):
            recipe = self.recipe(Cell(setting.name, "constant", 1.0, "sampled"))
            if not (
                step == 0 or (recipe.warmup_steps <= round(step * recipe.n_steps) and step <= 1)
            ):
                raise ValueError(
                    "noise_steps are fractions of the run: 0, or from the end of the warm-up "
                    f"({recipe.warmup_steps} steps) to 1; got {step}"
                )
        for name in ("n_sequences", "noise_sequences"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} must be at least 2; got {getattr(self, name)}")
        if not self.averages:
            raise ValueError(
                "there is no average to compare: set ema_decays, bema or uniform_average of the "
                "recipe"
            )

    @property
    def averages(self) -> tuple[str, ...]:
        """Names of the averages, as a checkpoint's weights have them."""
        recipe = self.training
        return (
            *(f"ema-{decay}" for decay in recipe.ema_decays),
            *(f"bema-{kappa}-{eta}" for kappa, eta in recipe.bema),
            *(("uniform",) if recipe.uniform_average else ()),
        )

    def setting(self, name: str) -> TaskSetting:
        """The setting of that name."""
        return next(setting for setting in self.settings if setting.name == name)

    def cells(self) -> list[Cell]:
        """Every training run, the tasks outermost."""
        grid = itertools.product(self.settings, self.rate_factors, get_args(Targets))
        return [
            Cell(setting.name, schedule, rate, targets)
            for setting, rate, targets in grid
            for schedule in (self.schedules if targets == "sampled" else self.exact_schedules)
        ]

    def recipe(self, cell: Cell) -> TrainingConfig:
        """The recipe of one cell."""
        setting = self.setting(cell.setting)
        recipe = dataclasses.replace(self.training, length=setting.length, **setting.training)
        return dataclasses.replace(
            recipe,
            learning_rate=recipe.learning_rate * cell.learning_rate,
            schedule=cell.schedule,
            targets=cell.targets,
        )

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain values."""
        return dataclasses.asdict(self)


def set_complement(vocabulary: int, **training: Any) -> TaskSetting:
    """Set complement over so many tokens: after ``s`` of them ``vocabulary - s`` are legal."""
    return TaskSetting(
        f"set complement, {vocabulary} tokens",
        "set complement",
        {"name": "set-complement", "vocabulary": vocabulary},
        training=training,
    )


def language(name: str, length: int = 12, longer: int = 24, **training: Any) -> TaskSetting:
    """A formal language whose next symbols are uniform over the legal ones: few are."""
    return TaskSetting(
        name,
        name,
        {"name": "language", "language": name},
        {
            "n_layers": 2,
            "n_heads": 2,
            "d_model": 32,
            "attn_only": False,
            "positional_embedding_type": "alibi",
        },
        (length, longer),
        {"n_steps": 600, "batch_size": 16, "burn_in": 300, **training},
    )


def othello(length: int = 16, n_layers: int = 1, **training: Any) -> TaskSetting:
    """Prefixes of random Othello games for a GPT-1 style model: post-LN, learned positions."""
    return TaskSetting(
        "othello",
        "othello",
        {"name": "othello"},
        {
            "n_layers": n_layers,
            "n_heads": 4,
            "d_model": 64,
            "attn_only": False,
            "normalization_type": "LN",
            "positional_embedding_type": "standard",
            "n_ctx": 60,
        },
        # Learned positions end with the training length.
        (length,),
        {"batch_size": 32, "learning_rate": 5e-3, **training},
    )


_FEW_LEGAL = {"n_steps": 400, "burn_in": 200}

PRESETS: Mapping[str, AveragingConfig] = {
    "quick": AveragingConfig(
        settings=(
            *(set_complement(vocabulary) for vocabulary in (8, 12, 16, 24)),
            language("tomita-4", **_FEW_LEGAL),
            language("dyck-1", **_FEW_LEGAL),
        )
    ),
    "full": AveragingConfig(
        settings=(
            *(
                set_complement(vocabulary, n_steps=1500, batch_size=256, burn_in=750)
                for vocabulary in (8, 16, 32, 64)
            ),
            language("tomita-3"),
            language("dyck-1"),
            othello(),
        ),
        rate_factors=(1.0, 0.3),
        n_sequences=1024,
        noise_sequences=1024,
    ),
}
"""Configurations by the name that ``--preset`` takes: ``quick`` takes minutes."""
