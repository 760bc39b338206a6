"""What the study of remedies is asked to do: its remedies, its tasks, its cells and its presets.

Imports no torch, so that help texts are quick.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ....models.config import NormalizationType, NormPlacement, TransformerConfig
from ....models.sites import WEIGHT_RULES, WeightRule
from ....models.training.config import TrainingConfig

Part = Literal["remedies", "placements", "post-norm"]

REMEDIES: Mapping[str, Mapping[str, Any]] = {
    "softmax": {},
    "temperature": {"normalizer": "temperature", "inverse_temperature": 2.0},
    "sqrt_log_n": {"normalizer": "sqrt_log_n"},
    "log_n": {"normalizer": "log_n"},
    "ssmax": {"normalizer": "ssmax"},
    "ssmax_bias": {"normalizer": "ssmax_bias"},
    "adaptive": {"normalizer": "adaptive"},
    "selective": {"normalizer": "selective"},
    "qk_norm": {"qk_norm": "fixed"},
    "qk_norm_learned": {"qk_norm": "learned"},
    "sigma_reparam": {"sigma_reparam": True},
    "entmax": {"normalizer": "entmax"},
    "asentmax": {"normalizer": "asentmax"},
    "softmax1": {"normalizer": "softmax1"},
    "sigmoid": {"normalizer": "sigmoid"},
    "differential": {"normalizer": "differential"},
    "linear": {"normalizer": "linear"},
    "hardmax": {"normalizer": "hardmax"},
}
"""What each remedy changes in the model's configuration. ``hardmax`` has no gradient: the weights
are those of ``softmax``, evaluated with it."""

EVALUATED_ONLY: Mapping[str, str] = {"hardmax": "softmax"}
"""Remedies that are tried on the trained weights of another."""


@dataclass(frozen=True)
class TaskSetting:
    """A task and the smallest model that learns it.

    Attributes:
        parameters: Of the task.
        model: Fields of the configuration that differ from one attention-only layer with one head.
        length: Training length.
        multiples: Evaluation lengths over the training length, as far as the task allows.
        short: Further lengths, from which a theorem predicts the others.
        training: Fields of the recipe that differ.
        max_seeds: At most this many seeds, for the tasks that take long.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    length: int = 8
    multiples: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    short: tuple[int, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    max_seeds: int | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Evaluation lengths."""
        return tuple(self.length * multiple for multiple in self.multiples)


_WITH_MLP = {"attn_only": False, "d_model": 32, "d_mlp": 64}
_ORDERED = {
    "n_heads": 4,
    "d_model": 64,
    "positional_embedding_type": "alibi",
}
_TWO_LAYERS = {**_ORDERED, "n_layers": 2, "attn_only": False, "d_mlp": 128}

TASK_SETTINGS: Mapping[str, TaskSetting] = {
    # Its longest input is the vocabulary less one token.
    "set-complement": TaskSetting(
        {"vocabulary": 52},
        {"d_model": 104},
        length=6,
        multiples=(1, 2, 4, 8),
        short=(1, 2),
        training={"n_steps": 1000},
    ),
    "majority": TaskSetting(model=_WITH_MLP),
    "counting": TaskSetting(model=_WITH_MLP),
    "mean": TaskSetting({"alphabet": 4}, _WITH_MLP, training={"n_steps": 1000}),
    "first": TaskSetting(model={"d_model": 32}),
    "argmax-retrieval": TaskSetting(),
    "dictionary-lookup": TaskSetting(),
    "flip-flop": TaskSetting(model=_ORDERED),
    "associative-recall": TaskSetting(
        {"key_tokens": 1, "value_tokens": 1, "key_alphabet": 128, "queries": 1},
        _TWO_LAYERS,
        length=4,
        training={"n_steps": 1500},
        max_seeds=3,
    ),
    "copy": TaskSetting(model=_TWO_LAYERS, training={"n_steps": 1000}, max_seeds=3),
    "sort": TaskSetting(
        model={**_TWO_LAYERS, "positional_embedding_type": "none"},
        training={"n_steps": 1000},
        max_seeds=3,
    ),
}
"""Every task of the map, aggregation first, then needle, then mixed."""


@dataclass(frozen=True)
class Cell:
    """One model of the map: a remedy, a placement and a task, and what the fair test varies.

    Attributes:
        remedy: Name in :data:`REMEDIES`.
        placement: Where the norms stand.
        task: Name in :data:`TASK_SETTINGS`.
        normalization_type: Type of the norms.
        final_norm: Whether a norm stands before the unembedding.
        n_layers: Number of blocks, ``None`` for the task's own.
        mlp: Whether blocks have an MLP, ``None`` for the task's own.
    """

    remedy: str
    placement: NormPlacement
    task: str
    normalization_type: NormalizationType = "RMS"
    final_norm: bool = False
    n_layers: int | None = None
    mlp: bool | None = None

    @property
    def label(self) -> str:
        """What the table's ``checkpoint`` column says."""
        parts = [f"{self.remedy} / {self.placement}"]
        if self.normalization_type != "RMS":
            parts.append(self.normalization_type)
        if self.final_norm:
            parts.append("final norm")
        if self.n_layers is not None:
            parts.append(f"{self.n_layers} layer{'s' if self.n_layers > 1 else ''}")
        if self.mlp is not None:
            parts.append("MLP" if self.mlp else "attention only")
        return ", ".join(parts)

    def model(self, d_vocab: int, d_vocab_out: int, trained: bool = False) -> TransformerConfig:
        """Configuration of the model, for training or (the same but for hardmax) evaluation.

        Raises:
            ValueError: If remedy, placement and positions do not go together.
        """
        remedy = EVALUATED_ONLY.get(self.remedy, self.remedy) if trained else self.remedy
        fields: dict[str, Any] = {
            "d_model": 64,
            "n_ctx": 4096,
            "norm_placement": self.placement,
            "normalization_type": self.normalization_type,
            "final_norm": self.final_norm,
            **TASK_SETTINGS[self.task].model,
            **REMEDIES[remedy],
        }
        if self.n_layers is not None:
            fields["n_layers"] = self.n_layers
        if self.mlp is not None:
            fields["attn_only"] = not self.mlp
        return TransformerConfig(d_vocab=d_vocab, d_vocab_out=d_vocab_out, **fields)

    @property
    def is_softmax(self) -> bool:
        """Whether its weights are the softmax of its scores, after the remedy."""
        name = REMEDIES[self.remedy].get("normalizer", "softmax")
        return WEIGHT_RULES.get(name, WeightRule()).softmax

    def why_not(self) -> str | None:
        """Why there is no such model, or ``None`` if there is."""
        try:
            self.model(4, 4)
        except ValueError as error:
            return str(error)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class RemediesConfig:
    """The study's configuration.

    Attributes:
        tasks: Columns of the map.
        remedies: Rows of the map, each with every one of `remedy_placements`.
        remedy_placements: Norm placements under every remedy.
        placements: Placements compared under every one of `placement_remedies`.
        placement_remedies: Remedies of that comparison.
        fair_tasks: Tasks of the fair test of post-norm: with and without the final norm, one and
            two layers, with and without MLP, RMSNorm and LayerNorm.
        seeds: One trained model each, for every cell.
        n_sequences: Sequences a length and model.
        training: The recipe, before what a task changes in it.
        threshold: Total variation up to which a length counts as solved.
        learned: Total variation up to which the training length counts as learned. It is stricter:
            a model that sees the last token alone is within 0.1 on short set-complement inputs.
    """

    tasks: tuple[str, ...] = ("set-complement", "counting", "argmax-retrieval", "dictionary-lookup")
    remedies: tuple[str, ...] = (
        "softmax",
        "log_n",
        "ssmax",
        "adaptive",
        "asentmax",
        "sigmoid",
        "differential",
    )
    remedy_placements: tuple[NormPlacement, ...] = ("none", "res_post")
    mixed_placements: tuple[NormPlacement, ...] = ("none",)
    placements: tuple[NormPlacement, ...] = ("none", "pre", "post", "res_post", "peri")
    placement_tasks: tuple[str, ...] = ("set-complement", "argmax-retrieval")
    fair_tasks: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n_sequences: int = 64
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            length=8, n_steps=500, batch_size=32, targets="exact", ema_decays=()
        )
    )
    threshold: float = 0.1
    learned: float = 0.05

    def __post_init__(self) -> None:
        """Check what the parts do not check themselves."""
        for name, known in (
            ("tasks", TASK_SETTINGS),
            ("placement_tasks", TASK_SETTINGS),
            ("fair_tasks", TASK_SETTINGS),
            ("remedies", REMEDIES),
        ):
            unknown = [value for value in getattr(self, name) if value not in known]
            if unknown:
                raise ValueError(
                    f"{name} must be among {', '.join(known)}; got {unknown[0]!r}: leave it out or "
                    "correct it"
                )
        for name in (
            "tasks",
            "remedies",
            "remedy_placements",
            "mixed_placements",
            "placements",
            "seeds",
        ):
            value = tuple(getattr(self, name))
            object.__setattr__(self, name, value)
            if not value or len(set(value)) != len(value):
                raise ValueError(f"{name} must hold at least one value, all different; got {value}")
        if "softmax" not in self.remedies or "none" not in self.remedy_placements:
            raise ValueError(
                "the map is read against softmax without norms: keep 'softmax' among remedies and "
                "'none' among remedy_placements"
            )
        if self.n_sequences < 2:
            raise ValueError(f"n_sequences must be at least 2; got {self.n_sequences}")
        if not 0 < self.learned <= self.threshold < 1:
            raise ValueError(
                "learned and threshold must satisfy 0 < learned <= threshold < 1; got "
                f"learned={self.learned}, threshold={self.threshold}"
            )

    def recipe(self, task: str) -> TrainingConfig:
        """The recipe of one task."""
        setting = TASK_SETTINGS[task]
        return dataclasses.replace(self.training, **{"length": setting.length, **setting.training})

    def seeds_of(self, task: str) -> tuple[int, ...]:
        """Seeds of one task: the first few where the task takes long."""
        return self.seeds[: TASK_SETTINGS[task].max_seeds]

    def cells(self) -> list[Cell]:
        """Every cell once, in the order of the map."""
        return list(dict.fromkeys(itertools.chain(self._map_cells(), self._fair_cells())))

    def _map_cells(self) -> Iterator[Cell]:
        for task in self.tasks:
            mixed = TASK_SETTINGS[task].max_seeds is not None
            placements = self.mixed_placements if mixed else self.remedy_placements
            for remedy, placement in itertools.product(self.remedies, placements):
                yield Cell(remedy, placement, task)
            if task in self.placement_tasks:
                yield from (Cell("softmax", placement, task) for placement in self.placements)

    def _fair_cells(self) -> Iterator[Cell]:
        for task, placement, norm, final, layers, mlp in itertools.product(
            self.fair_tasks,
            ("none", "pre", "post", "res_post"),
            ("RMS", "LN"),
            (False, True),
            (1, 2),
            (False, True),
        ):
            if placement == "none" and norm == "LN" and not final:
                continue  # No norm, so no type of norm.
            yield Cell("softmax", placement, task, norm, final, layers, mlp)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain values."""
        return dataclasses.asdict(self)


PRESETS: Mapping[str, RemediesConfig] = {
    "quick": RemediesConfig(),
    "full": RemediesConfig(
        tasks=tuple(task for task in TASK_SETTINGS if task not in ("associative-recall", "sort")),
        remedies=tuple(REMEDIES),
        placements=(
            "none",
            "pre",
            "post",
            "res_post",
            "peri",
            "attn_out",
            "sandwich",
            "mix",
            "ln_scaling",
            "deepnorm",
            "ngpt",
        ),
        placement_tasks=tuple(
            task for task, setting in TASK_SETTINGS.items() if setting.max_seeds is None
        ),
        fair_tasks=("set-complement",),
    ),
}
"""Configurations by the name that ``--preset`` takes."""
