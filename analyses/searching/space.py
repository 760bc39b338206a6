"""The space of a search, as a TOML file declares it. Imports no torch.

    seed = 0                   # of the draws and of the trainings; default 0
    trials = 24                # how many to draw; default 20
    lengths = [8, 16, 31]      # where every trial is evaluated
    n_sequences = 256          # sequences a length; default 512

    [objective]                # optional, and so is each of its keys
    quantity = "total_variation"   # any of QUANTITIES
    length = 31                # one of lengths; default the longest
    weights = "raw"            # or an average of the weights, such as "ema-0.99"

    [task]
    name = "set-complement"    # fixed: errors on two tasks do not compare
    vocabulary = 32            # parameters of the task

    [model]                    # fields of TransformerConfig
    norm_placement = {choice = ["pre", "post"], weights = [1, 2]}
    d_model = {int_log_uniform = [16, 64]}
    d_mlp = {same_as = "model.d_model"}

    [training]                 # fields of TrainingConfig
    length = 8
    learning_rate = {log_uniform = [1e-3, 1e-1]}
    ema_decays = [0.99]        # a list is a fixed value

    [rerun]                    # the best trials again, with fresh seeds
    top = 3                    # default 3; 0 leaves it out
    seeds = 5                  # default 5

A field is a value, or a table with one of `choice` (and `weights`), `uniform`, `log_uniform`,
`int_uniform`, `int_log_uniform` (both ends included) or `same_as`. A field that is not named has
its default. What is not known here is refused.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from ...models.task_names import TaskName
from .distributions import Choice, Field, Fixed, Range, SameAs, parse_field
from .known_fields import FROM_TASK, KNOWN, check_value

__all__ = [
    "MORE_IS_BETTER",
    "QUANTITIES",
    "Objective",
    "Rerun",
    "Space",
    "parse_space",
    "read_space",
]

QUANTITIES = (
    "total_variation",
    "kl_divergence",
    "illegal_mass",
    "mean_total_variation",
    "mean_kl_divergence",
    "mean_illegal_mass",
    "all_legal_rate",
    "legal_set_rate",
)
"""What can be the objective; the first by default."""

MORE_IS_BETTER = ("all_legal_rate", "legal_set_rate")
"""Objectives that are maximised; the others are errors."""

_TABLES = ("objective", "task", "model", "training", "rerun")
_KEYS = ("seed", "trials", "lengths", "n_sequences", *_TABLES)


@dataclass(frozen=True)
class Objective:
    """By which number trials are compared.

    Attributes:
        quantity: One of :data:`QUANTITIES`.
        length: Where it is taken.
        weights: Of which weights: `raw`, or an average such as `ema-0.99`.
    """

    quantity: str
    length: int
    weights: str = "raw"

    @property
    def sign(self) -> int:
        """1 where less is better, -1 where more is."""
        return -1 if self.quantity in MORE_IS_BETTER else 1


@dataclass(frozen=True)
class Rerun:
    """How many of the best trials are run again, each with how many fresh seeds."""

    top: int = 3
    seeds: int = 5


@dataclass(frozen=True)
class Space:
    """What to search.

    Attributes:
        seed: Of the draws and of the trainings.
        trials: How many to draw.
        lengths: Where every trial is evaluated, increasing.
        n_sequences: Sequences a length.
        objective: By which number trials are compared.
        task: Name of the task.
        fields: By `table.field`, in the order of the file, what each is.
        rerun: What is run again.
    """

    seed: int
    trials: int
    lengths: tuple[int, ...]
    n_sequences: int
    objective: Objective
    task: str
    fields: Mapping[str, Field]
    rerun: Rerun

    @property
    def drawn(self) -> dict[str, Choice | Range]:
        """The fields with a distribution of their own, in order."""
        return {key: one for key, one in self.fields.items() if not isinstance(one, Fixed | SameAs)}

    def with_trials(self, trials: int | None) -> "Space":
        """The same space with another number of trials; None keeps it.

        Raises:
            ValueError: Fewer than one.
        """
        return self if trials is None else replace(self, trials=_whole("trials", trials, 1))

    def to_dict(self) -> dict[str, Any]:
        """Everything, in the file's own words and with every default filled in."""
        tables: dict[str, dict[str, Any]] = {"task": {"name": self.task}, "model": {}}
        for key, one in self.fields.items():
            table, _, name = key.partition(".")
            tables.setdefault(table, {})[name] = one.to_dict()
        return {
            "seed": self.seed,
            "trials": self.trials,
            "lengths": list(self.lengths),
            "n_sequences": self.n_sequences,
            "objective": vars(self.objective),
            **tables,
            "rerun": vars(self.rerun),
        }


def read_space(path: Path | str) -> Space:
    """Read a space from its file.

    Raises:
        ValueError: It cannot be read, is no TOML, or says something that is not known; the message
            names the file and the key.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"could not read the space {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    try:
        return parse_space(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse_space(document: Mapping[str, Any]) -> Space:
    """Read a space from the tables of its file.

    Raises:
        ValueError: For the first thing that is wrong: the key, what came, and what is known.
    """
    _known("the space", document, _KEYS)
    for name in _TABLES:
        if not isinstance(document.get(name, {}), dict):
            raise ValueError(f"{name} must be a table; got {document[name]!r}")
    if "lengths" not in document:
        raise ValueError("lengths is missing: give the lengths to evaluate at, such as [8, 16]")
    given = document["lengths"]
    if not isinstance(given, list) or not given:
        raise ValueError(f"lengths must be a list of whole numbers of at least 1; got {given!r}")
    lengths = tuple(sorted(_whole("lengths", length, 1) for length in given))
    if len(set(lengths)) < len(lengths):
        raise ValueError(f"lengths must all be different; got {given!r}")
    task = dict(document.get("task", {}))
    name = task.pop("name", None)
    if name not in get_args(TaskName):
        raise ValueError(f"task.name must be one of {', '.join(get_args(TaskName))}; got {name!r}")
    fields = _fields({**document, "task": task})
    if not any(isinstance(one, Choice | Range) for one in fields.values()):
        raise ValueError("nothing is drawn: give at least one field a distribution")
    return Space(
        seed=_whole("seed", document.get("seed", 0), 0),
        trials=_whole("trials", document.get("trials", 20), 1),
        lengths=lengths,
        n_sequences=_whole("n_sequences", document.get("n_sequences", 512), 2),
        objective=_objective(document.get("objective", {}), lengths),
        task=name,
        fields=fields,
        rerun=_rerun(document.get("rerun", {})),
    )


def _fields(document: Mapping[str, Any]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for table in ("task", "model", "training"):
        given = document.get(table, {})
        if table in KNOWN:
            taken = [f"{table}.{name}" for name in given if name in FROM_TASK]
            if taken:
                raise ValueError(f"{taken[0]} is decided by the task: leave it out")
            _known(table, given, tuple(KNOWN[table]))
        for name, value in given.items():
            fields[f"{table}.{name}"] = parse_field(f"{table}.{name}", value)
    for key, one in fields.items():
        _check_field(key, one, fields)
    return fields


def _check_field(key: str, one: Field, fields: Mapping[str, Field]) -> None:
    if isinstance(one, SameAs):
        source = fields.get(one.other)
        if source is None or isinstance(source, SameAs):
            known = [name for name, other in fields.items() if not isinstance(other, SameAs)]
            raise ValueError(
                f"{key}: same_as must name a field with a value or distribution of its own "
                f"({', '.join(known)}); got {one.other!r}"
            )
    else:
        source = one
    table, _, name = key.partition(".")
    if table in KNOWN:
        for value in source.examples:
            check_value(key, KNOWN[table][name], value)


def _objective(given: Mapping[str, Any], lengths: tuple[int, ...]) -> Objective:
    _known("objective", given, ("quantity", "length", "weights"))
    quantity = given.get("quantity", QUANTITIES[0])
    if quantity not in QUANTITIES:
        raise ValueError(
            f"objective.quantity must be one of {', '.join(QUANTITIES)}; got {quantity!r}"
        )
    length = given.get("length", lengths[-1])
    if isinstance(length, bool) or length not in lengths:
        raise ValueError(
            f"objective.length must be one of lengths ({', '.join(map(str, lengths))}); "
            f"got {length!r}"
        )
    weights = given.get("weights", "raw")
    if not isinstance(weights, str) or not weights:
        raise ValueError(
            f"objective.weights names weights, such as 'raw' or 'ema-0.99'; got {weights!r}"
        )
    return Objective(quantity, int(length), weights)


def _rerun(given: Mapping[str, Any]) -> Rerun:
    _known("rerun", given, ("top", "seeds"))
    default = Rerun()
    return Rerun(
        top=_whole("rerun.top", given.get("top", default.top), 0),
        seeds=_whole("rerun.seeds", given.get("seeds", default.seeds), 2),
    )


def _known(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{what} has no {unknown[0]!r}; it has {', '.join(known)}")


def _whole(key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{key} must be a whole number of at least {least}; got {value!r}")
    return value
