"""The flags of every command. Imports neither torch nor transformer_lens, so that help is quick."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..models.config import NormalizationType, NormPlacement, TransformerConfig
from ..models.task_names import TaskName
from ..models.training.config import TrainingConfig
from .thresholds import HeadThresholds

PROBE_NAMES = ("needle", "random", "repeated", "task", "text")
"""Every probe, in the order of the alphabet."""

# None means that no probe is named, which is no choice of the flag.
ProbeName = Annotated[
    Any,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(PROBE_NAMES)}}}",
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: value is None or value in PROBE_NAMES,
        str_from_instance=lambda value: [value or "none named"],
        choices=PROBE_NAMES,
    ),
    tyro.conf.arg(help_behavior_hint="(default: its task, else repeated)"),
]

_FROM_TASK = ("d_vocab", "d_vocab_out")

# The model's flags are the configuration's own fields, but for what the task decides.
ModelOptions: Any = dataclasses.make_dataclass(
    "ModelOptions",
    [
        (item.name, item.type, field(default=item.default))
        for item in dataclasses.fields(TransformerConfig)
        if item.name not in _FROM_TASK
    ],
    frozen=True,
)
ModelOptions.__doc__ = TransformerConfig.__doc__


@dataclass(frozen=True)
class Train:
    """Train a model on a task; the same command resumes a run that was killed.

    Attributes:
        task: Name of the task.
        out: Folder of the checkpoint; with several seeds, one folder `seed-N` each inside it.
        seeds: One model each, trained together.
        lengths: Lengths at which the error is evaluated; by default a ladder over all of them.
        task_parameters: Parameters of the task that differ from its defaults, as NAME=VALUE, such
            as vocabulary=64 bos=true.
        model: The model.
        training: The recipe.
    """

    task: tyro.conf.Positional[TaskName]
    out: Path
    seeds: tuple[int, ...] = (0,)
    lengths: tuple[int, ...] = ()
    task_parameters: tuple[str, ...] = ()
    model: Annotated[ModelOptions, tyro.conf.arg(name="")] = field(  # type: ignore[valid-type]
        default_factory=ModelOptions
    )
    training: Annotated[TrainingConfig, tyro.conf.arg(name="")] = field(
        default_factory=TrainingConfig
    )


@dataclass(frozen=True)
class Construct:
    """Write a closed-form solution of set complement as a checkpoint.

    Attributes:
        out: Folder of the checkpoint.
        vocabulary: Number of tokens.
        norm_placement: Where the norms stand.
        normalization_type: Type of the norms.
        final_norm: Whether a norm stands before the unembedding (with none and pre only).
        p: Displacement of one token before any norm, in logits.
        residual: Norm of the residual content that the logits do not see.
        gain: Gain of the last norm.
    """

    out: Path
    vocabulary: int = 32
    norm_placement: NormPlacement = "none"
    normalization_type: NormalizationType = "RMS"
    final_norm: bool = False
    p: float = 40.0
    residual: float = 8.0
    gain: float = 1.0


@dataclass(frozen=True)
class Audit:
    """Audit a checkpoint: heads, layers, model; report, table and verdicts in a folder.

    A checkpoint of this toolkit is fed its own task, unless a probe is named. Any other model (a
    Hugging Face folder or name, a GGUF file, a state dict of HookedTransformer or nanoGPT) is fed a
    probe.

    Several checkpoints, or a folder that holds several, are audited into one folder each below
    `out`, once, with a page that shows the trend over steps; with `--watch` the folder is looked at
    again and again, and each new checkpoint is audited as it appears, until interrupted.

    Attributes:
        checkpoints: Folders, files or names; `resharpen checkpoints` lists what ships.
        out: Folder of the result.
        watch: Keep looking at the folder, and audit each new checkpoint once.
        poll_seconds: Seconds between two looks.
        jobs: Audits side by side.
        backend: Where they run: local processes, a Dask cluster, or Ray.
        address: Address of a running Dask scheduler or Ray head; by default one is started here.
        weights: Which weights of a checkpoint of ours: raw, or an average such as ema-0.99 or
            uniform.
        lengths: Lengths to measure at; by default every length of the task up to 64, or 32 to 1024
            for a probe, as far as the model allows.
        n_sequences: Sequences a length; by default 256 of a task, 8 of a probe.
        seed: Seed of the sequences.
        probe: What to feed it: repeated, needle, random, text, or the task of a checkpoint of ours.
        text: File for the text probe; by default a passage that ships.
        what_if: Remedies to try without retraining, such as temperature:1.5 (inverse: scores times
            1.5), log_n:512, ssmax:0.43, adaptive, entmax:1.5, softmax1, sigmoid, hardmax,
            qk_norm:10, fp32, norm_gain:2.
        what_if_heads: Heads to apply the remedies to, as LAYER.HEAD such as 3.4; by default all.
        past_positions: Run lengths that the model was not made for; the report says so.
        dtype: Dtype to load a Hugging Face model in; auto is the checkpoint's own.
        device_map: Where to put a Hugging Face model, as from_pretrained takes it.
        fail_on: The least bad verdict that makes the exit status 1.
        thresholds: Where the lines between verdicts are drawn.
    """

    checkpoints: tyro.conf.Positional[tuple[str, ...]]
    out: Path
    watch: bool = False
    poll_seconds: float = 30.0
    jobs: int = 1
    backend: Literal["local", "dask", "ray"] = "local"
    address: str | None = None
    weights: str = "raw"
    lengths: tuple[int, ...] = ()
    n_sequences: int | None = None
    seed: int = 0
    probe: ProbeName = None
    text: Path | None = None
    what_if: tuple[str, ...] = ()
    what_if_heads: tuple[str, ...] = ()
    past_positions: bool = False
    dtype: str = "auto"
    device_map: str | None = None
    fail_on: Literal["fail", "warn"] = "fail"
    thresholds: Annotated[HeadThresholds, tyro.conf.arg(name="")] = field(
        default_factory=HeadThresholds
    )


@dataclass(frozen=True)
class OneHead:
    """One head of a model, what it is fed, and where the result goes.

    Attributes:
        checkpoint: Folder, file or name; `resharpen checkpoints` lists what ships.
        layer: Which layer, from 0.
        head: Which head, from 0.
        out: Folder of the result, with a report; by default nothing is written.
        weights: Which weights of a checkpoint of ours: raw, or an average such as ema-0.99 or
            uniform.
        lengths: Lengths to measure at; by default one or two an octave up to 1024, as far as the
            model and the probe allow.
        n_sequences: Sequences a length; by default 64 of a task, 16 of a probe.
        seed: Seed of the sequences.
        probe: What to feed it; by default the task of a checkpoint of ours, repeated for others.
        text: File for the text probe; by default a passage that ships.
        past_positions: Run lengths that the model was not made for.
        dtype: Dtype to load a Hugging Face model in; auto is the checkpoint's own.
        device_map: Where to put a Hugging Face model, as from_pretrained takes it.
    """

    checkpoint: tyro.conf.Positional[str]
    layer: int
    head: int
    out: Path | None = None
    weights: str = "raw"
    lengths: tuple[int, ...] = ()
    n_sequences: int | None = None
    seed: int = 0
    probe: ProbeName = None
    text: Path | None = None
    past_positions: bool = False
    dtype: str = "auto"
    device_map: str | None = None


@dataclass(frozen=True)
class Diagnose(OneHead):
    """Diagnose one head: which law its scores follow as n grows, and what would bring it back."""


@dataclass(frozen=True)
class Limits(OneHead):
    """Measure what one head can select as n grows, and how fast its output settles, with the laws.

    The distance of the keys of largest weight from all others, the share of them that can be told
    apart, the slope of the weights in the scores with its bounds; and the error of the output over
    n sampled keys beside 1 / sqrt(n).

    Attributes:
        selected: How many keys are selected; below 1, as a share of the visible ones; by default
            0.06 of them.
    """

    selected: float | None = None


@dataclass(frozen=True)
class Compare:
    """Show what changed between two audits.

    Attributes:
        before: Result folder of the first audit.
        after: Result folder of the second.
    """

    before: tyro.conf.Positional[Path]
    after: tyro.conf.Positional[Path]


@dataclass(frozen=True)
class Study:
    """Run a study: train and construct models, measure, confront with theory, report.

    Attributes:
        study: Name of the study.
        out: Folder of the result.
        preset: How much to do: quick takes minutes, full hours.
        cache: Folder of what is made once; by default the user's cache folder. The same command
            goes on from there after an interrupt.
        jobs: Trainings and measurements side by side; by default one a core.
        backend: Where they run: local processes, a Dask cluster, or Ray (set-complement: local).
        address: Address of a running Dask scheduler or Ray head; by default one is started here.
    """

    study: tyro.conf.Positional[
        Literal["set-complement", "remedies", "averaging", "clustering", "paper"]
    ]
    out: Path
    preset: Literal["quick", "full"] = "quick"
    cache: Path | None = None
    jobs: int | None = None
    backend: Literal["local", "dask", "ray"] = "local"
    address: str | None = None


@dataclass(frozen=True)
class Search:
    """Search a space of models and recipes at random; the same command goes on where it stopped.

    Attributes:
        space: TOML file that declares the space: examples/search-space.toml is one, and
            docs/searching.md says what it can hold.
        out: Folder of the result.
        trials: How many to draw, where it is not what the file says; more extend the same list.
        jobs: Trials side by side; by default one a core, or all of a cluster.
        backend: Where they run: local processes, a Dask cluster, or Ray.
        address: Address of a running Dask scheduler or Ray head; by default one is started here.
        cache: Folder of the trials that are finished; by default the user's cache folder. The same
            command goes on from there after an interrupt.
    """

    space: tyro.conf.Positional[Path]
    out: Path
    trials: int | None = None
    jobs: int | None = None
    backend: Literal["local", "dask", "ray"] = "local"
    address: str | None = None
    cache: Path | None = None


@dataclass(frozen=True)
class Notebook:
    """Write a starter notebook: from a checkpoint to overlaid curves and the explorer.

    An existing file is never replaced.

    Attributes:
        path: File to write, or a folder for a file resharpen.ipynb in it.
    """

    path: tyro.conf.Positional[Path] = Path("resharpen.ipynb")


@dataclass(frozen=True)
class Checkpoints:
    """List the checkpoints that ship with the package."""


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Construct, tyro.conf.subcommand("construct")]
    | Annotated[Audit, tyro.conf.subcommand("audit")]
    | Annotated[Diagnose, tyro.conf.subcommand("diagnose")]
    | Annotated[Limits, tyro.conf.subcommand("limits")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Study, tyro.conf.subcommand("study")]
    | Annotated[Search, tyro.conf.subcommand("search")]
    | Annotated[Notebook, tyro.conf.subcommand("notebook")]
    | Annotated[Checkpoints, tyro.conf.subcommand("checkpoints")]
)


def parse(arguments: Sequence[str] | None = None) -> Any:
    """One of the commands above, read from flags.

    Args:
        arguments: The flags; ``None`` for those of this process.

    Raises:
        SystemExit: Help was asked for, or the flags do not parse; both were said.
        ValueError: A value that parses, and that a configuration refuses.
    """
    return tyro.cli(
        Command,  # type: ignore[arg-type]
        prog="resharpen",
        description="Does attention disperse as the input grows, and what brings it back? "
        "(`resharpen --version` says which version this is.)",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes,),
    )
