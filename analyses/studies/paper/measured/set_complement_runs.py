"""Set-complement models, trained once and measured over lengths: what claims 1, 2, 3 and 7 read.

Per length and sequence, from the logits ``f`` at the last position (theory section 1.1):

======================= ===== ====================================================================
quantity                unit  of one sequence
======================= ===== ====================================================================
total_variation         ratio to the exact distribution
displacement            logit mean absent logit minus mean present logit
margin                  logit smallest absent logit minus largest present logit: positive if and
                              only if every absent token stands above every present one
outweighing             ratio length of attention's output over that of the stream it is added to
frozen_*                      the first two with every norm's scale held at that of the token alone
log_weight              nats  mean over the keys but the query's own of ``log a_i``
log_displacement        nats  mean over the same keys of ``log Delta_i``
factor_error            ratio largest ``|Delta_i / (a_i p_i) - 1|`` over the same keys
balance                 ratio displacement of the query's own token over the mean of the others
two_body_error          logit largest error of the logits predicted from one and two tokens
======================= ===== ====================================================================

``outweighing`` for models of one block; the last five for those of them without norms, where
``p_i`` is read off inputs of two tokens (:mod:`.factors`). The interventions of
:mod:`.interventions` add ``total_variation`` under a label of their own.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .....interp.capturing import HookedModel, capture
from .....interp.drawing import draw
from .....interp.frozen import AloneScales, alone_scales, frozen_logits
from .....interp.measures import displacement, total_variation
from .....interp.reduce import Moments
from .....interp.tables import table
from .....models.config import TransformerConfig
from .....models.tasks import SetComplement
from .....models.training import TrainingConfig
from ....cached_rows import cached_rows
from ....runs import cached_train, code_digest, key_of, run_key
from ....two_body import predict_from_short_inputs, why_not_two_body
from .factors import factorise, pair_strengths
from .interventions import INTERVENTIONS

STUDY = "paper"

_UNITS = {
    "total_variation": "ratio",
    "displacement": "logit",
    "margin": "logit",
    "outweighing": "ratio",
    "frozen_total_variation": "ratio",
    "frozen_displacement": "logit",
    "log_weight": "nats",
    "log_displacement": "nats",
    "factor_error": "ratio",
    "balance": "ratio",
    "two_body_error": "logit",
}

_ATTENTION, _STREAM = "blocks.0.hook_attn_out", "blocks.0.hook_resid_pre"

_N_TWO_BODY = 64
_CHUNK = 4096


@dataclass(frozen=True)
class SetComplementRun:
    """One model to train, with several seeds, and what to measure on it.

    Attributes:
        model: The model.
        training: The recipe.
        seeds: One model each.
        lengths: Where to measure.
        n_sequences: Sequences a length.
        dissect: Whether to factorise the displacement: for one block without norms.
        interventions: Names of :data:`~.interventions.INTERVENTIONS`; for one block.
        every_input: Measure on every set of tokens behind every query instead of on a sample; for
            small vocabularies.

    Raises:
        ValueError: If a model cannot be dissected, or has too many inputs to run every one.
    """

    model: TransformerConfig
    training: TrainingConfig
    seeds: tuple[int, ...]
    lengths: tuple[int, ...]
    n_sequences: int = 256
    dissect: bool = False
    interventions: tuple[str, ...] = ()
    every_input: bool = False

    def __post_init__(self) -> None:
        """Check what can be asked of the model."""
        cfg = self.model
        plain = cfg.n_layers == cfg.n_heads == 1 and cfg.attn_only and not cfg.final_norm
        if self.dissect and not (plain and cfg.norm_placement == "none"):
            raise ValueError(
                "only one attention-only block with one head and without norms can be dissected; "
                f"got n_layers={cfg.n_layers}, n_heads={cfg.n_heads}, attn_only={cfg.attn_only}, "
                f"norm_placement={cfg.norm_placement!r}, final_norm={cfg.final_norm}"
            )
        if self.interventions and cfg.n_layers != 1:
            raise ValueError(f"interventions are made on one block; got n_layers={cfg.n_layers}")
        if self.every_input and cfg.d_vocab > 16:
            raise ValueError(
                f"{cfg.d_vocab} tokens have too many sets to run every one: take at most 16"
            )

    @property
    def task(self) -> SetComplement:
        """What the model learns."""
        return SetComplement(self.model.d_vocab)

    @property
    def key(self) -> str:
        """Hash of all that the rows depend on, 16 hexadecimal digits."""
        asked = {
            "run": run_key(self.model, self.task, self.training, self.seeds),
            "lengths": list(self.lengths),
            "n_sequences": self.n_sequences,
            "dissect": self.dissect,
            "interventions": list(self.interventions),
            "every_input": self.every_input,
            "code": [code_digest("interp"), code_digest("analyses/studies/paper/measured")],
        }
        return key_of(asked)


def run_set_complement(run: SetComplementRun, label: str, cache: Path) -> tuple[pd.DataFrame, bool]:
    """Train and measure, or read what an earlier call found.

    Args:
        run: What to train and measure.
        label: What the table's ``checkpoint`` column says.
        cache: Folder of what is kept.

    Returns:
        The rows, and whether they came from the cache.
    """
    place = cache / "paper" / f"{run.key}-{hashlib.sha256(label.encode()).hexdigest()[:8]}.parquet"
    return cached_rows(place, partial(_train_and_measure, run, label, cache))


def _train_and_measure(run: SetComplementRun, label: str, cache: Path) -> pd.DataFrame:
    checkpoints, _ = cached_train(run.model, run.task, run.training, run.seeds, cache)
    rows: list[dict[str, Any]] = []
    for checkpoint in checkpoints:
        rows += measure_model(run, checkpoint.model(), label, checkpoint.seed)
    return table(rows)


def measure_model(
    run: SetComplementRun, model: HookedModel, label: str, seed: int | None
) -> Iterator[dict[str, Any]]:
    """The rows of one model; see the module."""
    tokens = torch.arange(run.model.d_vocab)
    has_norms = run.model.norm_placement != "none" or run.model.final_norm
    alone = alone_scales(model, tokens) if has_norms else None
    strengths = pair_strengths(model, run.model.d_vocab) if run.dissect else None
    for length in run.lengths:
        found: dict[tuple[str, str], Moments] = {}
        for inputs in _inputs(run, length):
            for name, values in _values(run, model, inputs, alone, strengths).items():
                found.setdefault(name, Moments()).update(values.double())
        for (suffix, quantity), moments in found.items():
            yield {
                "study": STUDY,
                "checkpoint": f"{label}, {suffix}" if suffix else label,
                "task": run.task.name,
                "seed": seed,
                "length": length,
                "n_key": length,
                "site": "logits",
                "quantity": quantity,
                "unit": _UNITS[quantity],
                **moments.result().cells(),
            }


def _inputs(run: SetComplementRun, length: int) -> Iterator[Int[Tensor, "batch pos"]]:
    if not run.every_input:
        yield draw(run.task.sample, 0, length, run.n_sequences).tokens
        return
    every = torch.tensor(list(every_input(run.model.d_vocab, length)))
    yield from every.split(_CHUNK)


def every_input(vocabulary: int, length: int) -> Iterator[tuple[int, ...]]:
    """Every set of ``length`` tokens with each of its tokens last, in turn.

    To a model without positions these are all its inputs: the order of the others is nothing to it.
    """
    for chosen in itertools.combinations(range(vocabulary), length):
        for last in chosen:
            yield (*(token for token in chosen if token != last), last)


def _values(
    run: SetComplementRun,
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    alone: AloneScales | None,
    strengths: Float[Tensor, "token query"] | None,
) -> Mapping[tuple[str, str], Float[Tensor, " batch"]]:
    target = run.task.exact_targets(tokens)[:, -1]
    present = target == 0
    readers: dict[str, Callable[[Tensor], Tensor]] = {}
    if run.model.n_layers == 1:
        readers = {_ATTENTION: _last_length, _STREAM: _last_length}
    found = capture(model, tokens, readers)
    logits = found.logits[:, -1]
    values = {
        ("", "total_variation"): total_variation(logits, target),
        ("", "displacement"): displacement(logits, present),
        ("", "margin"): margin(logits, present),
    }
    if readers:
        values["", "outweighing"] = found.values[_ATTENTION] / found.values[_STREAM]
    if alone is not None:
        frozen = frozen_logits(model, tokens, alone=alone)[:, -1]
        values["", "frozen_total_variation"] = total_variation(frozen, target)
        values["", "frozen_displacement"] = displacement(frozen, present)
    if strengths is not None:
        factors = factorise(model, tokens, strengths)
        values["", "log_weight"] = factors.log_weight
        values["", "log_displacement"] = factors.log_displacement
        values["", "factor_error"] = factors.error
        values["", "balance"] = factors.balance
    for name in run.interventions:
        edit = INTERVENTIONS[name](tokens.shape[1])
        edited = capture(model, tokens, {}, edits=[edit]).logits[:, -1]
        values[name, "total_variation"] = total_variation(edited, target)
    if run.dissect and why_not_two_body(model) is None:
        some = tokens[:_N_TWO_BODY]
        prediction = predict_from_short_inputs(model, some)
        error = (prediction.from_outputs - prediction.measured).abs().amax(-1)
        values["", "two_body_error"] = error
    return values


def margin(
    logits: Float[Tensor, "*row token"], present: Float[Tensor, "*row token"]
) -> Float[Tensor, "*row"]:
    """``min over absent f - max over present f``, unit logit: positive if the order is right."""
    wide = logits.double()
    lowest = torch.where(present, torch.inf, wide).amin(-1)
    highest = torch.where(present, wide, -torch.inf).amax(-1)
    return lowest - highest


def _last_length(activation: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, " batch"]:
    return activation[:, -1].double().norm(dim=-1)
