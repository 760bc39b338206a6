"""Train and construct, measure over lengths, confront with theory, conclude."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from ....interp.capturing import capture
from ....interp.sweeping import sweep
from ....interp.tables import concatenate, table
from ....interp.theory import Curve
from ....models.checkpoint import Checkpoint
from ....models.constructed import construct_set_complement
from ....models.tasks import SetComplement, seeded_generator
from ...bounds import compare_everywhere
from ...comparing import Tolerance
from ...expectations import (
    attention_expectations,
    constructed_expectations,
    short_expectations,
)
from ...findings import Finding, Verdict
from ...judgement import judge
from ...provenance import provenance
from ...result import StudyResult
from ...rows import pick
from ...runs import cached_train, default_cache
from ...thresholds import Thresholds
from ...two_body import predict_from_short_inputs
from .config import SetComplementConfig
from .sentences import conclude

STUDY = "set-complement"

TWO_BODY_TOLERANCE = Tolerance(
    1e-4, 0.0, 0.0, "float32 rounding of logits up to about 100 (theory 1.1: the identity is exact)"
)
CONSTRUCTED_TOLERANCE = Tolerance(
    1e-5, 1e-5, 0.0, "float32 rounding of a closed-form model, which has no sampling error"
)
_N_TWO_BODY = 64

Say = Callable[[str], None]


@dataclass(frozen=True)
class Member:
    """One model of the study.

    Attributes:
        label: What the table's ``checkpoint`` column says: a placement, or
            ``"<placement> (constructed)"``.
        checkpoint: The model.
        digest_name: Name under which its hash is recorded.
    """

    label: str
    checkpoint: Checkpoint
    digest_name: str


@dataclass(frozen=True)
class SetComplementStudy:
    """What the study leaves: the result, and patterns for the figure.

    Attributes:
        result: Table, curves, findings, verdicts, sentences.
        patterns: By placement and length, weights ``[head, query, key]`` of one sequence in the
            first seed's model.
    """

    result: StudyResult
    patterns: Mapping[str, Mapping[int, np.ndarray]]


def run(
    config: SetComplementConfig,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    say: Say = lambda message: None,
    asked: Mapping[str, object] | None = None,
) -> SetComplementStudy:
    """Run the study.

    Args:
        config: What to do.
        cache: Folder of the cache of training runs; ``None`` for the default one.
        jobs: Placements trained, and models measured, side by side, one thread each; ``None`` for
            one a core. With 1 everything runs in this process, with a progress bar.
        say: Called with one line as each part is done.
        asked: What the user asked for, for the record; the configuration by default.

    Returns:
        The result and the patterns to draw.
    """
    task = SetComplement(config.vocabulary)
    workers = jobs or os.cpu_count() or 1
    side_by_side: Any = Parallel(n_jobs=workers, return_as="generator")
    members = _members(config, task, cache or default_cache(), side_by_side, say)
    frames: list[pd.DataFrame] = []
    for member, measured in zip(
        members,
        side_by_side(delayed(_measure)(config, task, member) for member in members),
        strict=True,
    ):
        frames.append(measured)
        if member is members[-1] or member.label != members[len(frames)].label:
            say(f"measured {member.label} ({len(frames)} of {len(members)} models)")
    measured = concatenate(frames)
    curves, findings = _confront(config, measured, members)
    verdicts = _judge(config, measured, curves)
    result = StudyResult(
        table=measured,
        curves=tuple(curves),
        findings=tuple(findings),
        verdicts=tuple(verdicts),
        provenance=provenance(
            dict(asked or config.to_dict()),
            {**config.to_dict(), "thresholds": asdict(Thresholds())},
            seeds=config.seeds,
            checkpoints={m.digest_name: m.checkpoint.digest for m in members},
        ),
        sentences=tuple(conclude(config, measured, findings)),
    )
    return SetComplementStudy(result, _patterns(config, task, members))


def constructed_label(placement: str) -> str:
    """Label of the closed-form model with a placement."""
    return f"{placement} (constructed)"


def _members(
    config: SetComplementConfig, task: SetComplement, cache: Path, side_by_side: Any, say: Say
) -> list[Member]:
    members = []
    recipe = f"{len(config.seeds)} seeds x {config.training.n_steps} steps"
    say(f"training {len(config.placements)} placements, {recipe} each (once: kept in {cache})")
    runs = side_by_side(
        delayed(cached_train)(
            config.model(placement),
            task,
            config.training,
            config.seeds,
            cache,
            progress=side_by_side.n_jobs == 1,
        )
        for placement in config.placements
    )
    for placement, (checkpoints, cached) in zip(config.placements, runs, strict=True):
        say(f"{'found' if cached else 'trained'} {placement}")
        members += [
            Member(placement, checkpoint, f"{placement} seed {checkpoint.seed}")
            for checkpoint in checkpoints
        ]
    for placement in config.placements:
        has_gain = placement not in ("none", "pre") and not config.normalization_type.endswith(
            "Pre"
        )
        constructed = construct_set_complement(
            config.vocabulary,
            norm_placement=placement,
            normalization_type=config.normalization_type,
            p=config.p,
            residual=config.residual,
            gain=config.gain if has_gain else 1.0,
        )
        label = constructed_label(placement)
        members.append(Member(label, constructed, label))
    return members


def _measure(config: SetComplementConfig, task: SetComplement, member: Member) -> pd.DataFrame:
    model = member.checkpoint.model()
    labels = {
        "study": STUDY,
        "checkpoint": member.label,
        "task": task.name,
        "seed": member.checkpoint.seed,
    }
    swept = sweep(
        model,
        task.sample,
        config.lengths,
        batch=min(config.n_sequences, 512),
        n_batches=-(-config.n_sequences // 512),
        labels=labels,
    )
    rows = []
    for length in config.lengths:
        tokens = task.sample(seeded_generator(1, length), _N_TWO_BODY, length).tokens
        prediction = predict_from_short_inputs(model, tokens)
        predictions = {"two_body_error": prediction.from_outputs}
        if prediction.from_logits is not None:
            predictions["two_body_logit_error"] = prediction.from_logits
        for quantity, predicted in predictions.items():
            errors = (predicted - prediction.measured).abs().amax(-1)
            rows.append(
                {
                    **labels,
                    "length": length,
                    "n_key": length,
                    "site": "logits",
                    "quantity": quantity,
                    "unit": "logit",
                    "mean": float(errors.mean()),
                    "sem": float(errors.std() / len(errors) ** 0.5),
                    "n_obs": len(errors),
                    "min": float(errors.min()),
                    "max": float(errors.max()),
                    "status": "ok",
                }
            )
    return concatenate([swept, table(rows)])


def _confront(
    config: SetComplementConfig, measured: pd.DataFrame, members: Sequence[Member]
) -> tuple[list[Curve], list[Finding]]:
    lengths = np.array(sorted(config.lengths), dtype=np.float64)
    first = {member.label: member for member in reversed(members)}
    curves: list[Curve] = []
    findings: list[Finding] = []
    for label in dict.fromkeys(member.label for member in members):
        checkpoint = first[label].checkpoint
        bounds = attention_expectations(measured, label)
        if checkpoint.constructed is not None:
            laws = constructed_expectations(
                label, checkpoint.config, checkpoint.constructed, lengths
            )
        else:
            laws = short_expectations(measured, label, checkpoint.config, checkpoint.task, lengths)
        identities = _two_body_curves(measured, label, lengths)
        curves += [*bounds, *laws, *identities]
        findings += [compare_everywhere(measured, curve) for curve in bounds]
        findings += [
            compare_everywhere(
                measured, curve, CONSTRUCTED_TOLERANCE if curve.kind == "exact" else None
            )
            for curve in laws
        ]
        findings += [compare_everywhere(measured, c, TWO_BODY_TOLERANCE) for c in identities]
    return curves, findings


def _two_body_curves(measured: pd.DataFrame, label: str, lengths: np.ndarray) -> list[Curve]:
    """The identity says that the prediction error is zero; every sequence is held to it."""
    curve = Curve(
        name="two-body identity",
        quantity="two_body_error",
        unit="logit",
        x=lengths,
        values=np.zeros_like(lengths),
        kind="upper_bound",
        hypotheses=("one block", "no positions", "softmax attention"),
        source="derived here for the model of arXiv 2510.08341 (theory 1.1, two-body identity)",
        domain=(1.0, float(lengths.max())),
        checkpoint=label,
    )
    curves = [curve]
    if not pick(measured, checkpoint=label, quantity="two_body_logit_error").empty:
        hypotheses = (*curve.hypotheses, "one head", "attention only", "no norm after attention")
        curves.append(
            replace(
                curve,
                name="two-body identity of the logits",
                quantity="two_body_logit_error",
                hypotheses=hypotheses,
            )
        )
    return curves


def _judge(
    config: SetComplementConfig, measured: pd.DataFrame, curves: Sequence[Curve]
) -> list[Verdict]:
    """One verdict a placement: the trained models', with the length that theory predicts."""
    return [
        verdict
        for placement in config.placements
        for verdict in judge(measured, curves, placement)
        if verdict.level == "model"
    ]


def _patterns(
    config: SetComplementConfig, task: SetComplement, members: Sequence[Member]
) -> dict[str, dict[int, np.ndarray]]:
    patterns: dict[str, dict[int, np.ndarray]] = {}
    for member in members:
        if member.checkpoint.seed != config.seeds[0]:
            continue
        model = member.checkpoint.model()
        for length in config.pattern_lengths:
            tokens = task.sample(seeded_generator(0, length), 1, length).tokens
            found = capture(
                model,
                tokens,
                {"blocks.0.attn.hook_pattern": lambda pattern: pattern[0].to(torch.float64)},
            )
            weights = found.values["blocks.0.attn.hook_pattern"].cpu().numpy()
            patterns.setdefault(member.label, {})[length] = weights
    return patterns
