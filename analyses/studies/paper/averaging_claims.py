"""Claims 4 and 6: averaging where many tokens are legal, Othello, and dropout on attention.

Every average is held against the raw weights of its own run, seed by seed:
``gain = log(raw error / averaged error)`` in nats, positive where averaging helps. Dropout is held
against the same model trained without it, seed by seed, as a difference of errors.

The paper's words are known second-hand, its schedule and hyper-parameters are not: each claim is
asked at more than one schedule.
"""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from ....models.config import TransformerConfig
from ....models.tasks import SetComplement
from ...rows import rows_where
from ...seeds import Interval
from ...trials import Trial
from ...wording import format_interval, format_number
from ..averaging.config import RAW, Cell
from ..averaging.gains import (
    LEARNED,
    Gain,
    contrast,
    find_gains,
    log_ratios,
    slope_over_seeds,
)
from ..averaging.noise import TaskFacts, task_facts, task_of
from ..averaging.study import trial_of
from .averaging_plan import AveragingPlan
from .claim import ClaimRow, Rule, claim_row
from .seed_values import mean_of, paired_difference, seed_values, why_not_learned

__all__ = [
    "averaging_claims",
    "averaging_trials",
    "dropout_claims",
    "othello_claims",
]

_ERROR = "mean_total_variation"
_HELPS = Rule(0.0, source="a smaller error than the raw weights'")
_GROWS = Rule(0.0, source="a gain that grows")
_MORE = Rule(0.0, source="a larger gain than with exact targets")
_SMALLER = Rule(high=0.0, source="a smaller error than without dropout")
_SCHEDULES = {
    "constant": "at a constant rate",
    "cosine": "with a cosine to zero",
    "linear": "with a linear decay to zero",
}


def averaging_trials(plan: AveragingPlan) -> dict[str, Trial]:
    """Everything that claims 4 and 6 need, by name; claim 4's are the averaging study's own."""
    return {
        **{_name(cell): trial_of(plan.averaging, cell) for cell in plan.cells()},
        **_othello_trials(plan),
        **_dropout_trials(plan),
    }


def averaging_claims(plan: AveragingPlan, frame: pd.DataFrame) -> list[ClaimRow]:
    """Claim 4: averaging helps where many tokens are legal.

    Args:
        plan: What was run.
        frame: Rows of :func:`averaging_trials`, ``checkpoint`` ``<name of the trial> / <weights>``.
    """
    facts = {setting.name: task_facts(setting) for setting in plan.graded}
    frames = {cell: _rows(frame, _name(cell)) for cell in plan.cells()}
    gains = [
        item
        for item in find_gains(plan.averaging, frames, facts)
        if item.quantity == _ERROR and item.average == plan.average and not item.longer
    ]
    letters = iter("abcdefghijkl")
    rows = []
    for schedule in plan.schedules:
        line = [
            item
            for item in gains
            if (item.cell.schedule, item.cell.targets) == (schedule, "sampled")
        ]
        rows += _averaging_rows(plan, line, schedule, letters)
    return [*rows, _label_row(plan, gains, f"4{next(letters)}")]


def othello_claims(plan: AveragingPlan, frame: pd.DataFrame) -> list[ClaimRow]:
    """Claim 6, Othello: averaging helps there too.

    Args:
        plan: What was run.
        frame: As for :func:`averaging_claims`.
    """
    facts = task_facts(plan.othello)
    rows = []
    for letter, schedule in zip("abc", plan.schedules, strict=False):
        name, recipe = _othello_name(schedule), plan.othello_recipe(schedule)
        raw, averaged = (
            seed_values(frame, f"{name} / {weights}", _ERROR, plan.othello_length)
            for weights in (RAW, plan.average)
        )
        rows.append(
            claim_row(
                key=f"6{letter}",
                statement=f"On Othello, {plan.average} has a smaller error than the raw weights, "
                f"{_SCHEDULES[schedule]}",
                version="v1",
                ran="one block with MLP, post-LN, learned positions; prefixes of up to "
                f"{plan.othello_length} moves of random games, "
                f"{recipe.n_steps * recipe.batch_size} games, sampled targets",
                task=f"Othello, {format_number(facts.legal)} legal moves",
                seeds=len(plan.averaging.seeds),
                effect_name="gain: log of raw over averaged mean total variation",
                unit="nats",
                effect=mean_of(log_ratios(raw, averaged)),
                rule=_HELPS,
                in_the_way=why_not_learned(
                    frame,
                    [f"{name} / {plan.average}"],
                    plan.othello_length,
                    plan.othello_learned * facts.blind,
                    _ERROR,
                ),
                note=_othello_note(plan, frame, name, facts),
            )
        )
    return rows


def dropout_claims(plan: AveragingPlan, frame: pd.DataFrame) -> list[ClaimRow]:
    """Claim 6, dropout: dropping attention weights in training counters dispersion.

    Args:
        plan: What was run.
        frame: As for :func:`averaging_claims`.
    """
    short, long = plan.dropout_lengths[0], plan.dropout_lengths[-1]
    letters = iter("abcdefghijkl"[len(plan.schedules) :])
    rows = []
    for placement in plan.dropout_placements:
        plain = f"{_dropout_name(placement, 0.0)} / {RAW}"
        for dropout in plan.dropouts[1:]:
            dropped = f"{_dropout_name(placement, dropout)} / {RAW}"
            values = {
                (label, length): seed_values(frame, label, "total_variation", length)
                for label in (plain, dropped)
                for length in plan.dropout_lengths
            }
            shorter = "; ".join(
                f"{_shown(paired_difference(values[dropped, length], values[plain, length]))} at "
                f"length {length}"
                for length in plan.dropout_lengths[:-1]
            )
            rows.append(
                claim_row(
                    key=f"6{next(letters)}",
                    statement=f"Dropout {dropout:g} on attention counters dispersion, norms: "
                    f"{placement}",
                    version="v1",
                    ran="one attention-only block, one head; "
                    f"{plan.dropout_training.targets} targets, trained at {short}, raw weights",
                    task=f"set complement, {plan.dropout_vocabulary} tokens",
                    seeds=len(plan.averaging.seeds),
                    effect_name=f"total variation at length {long}, difference",
                    unit="ratio",
                    effect=paired_difference(values[dropped, long], values[plain, long]),
                    rule=_SMALLER,
                    in_the_way=why_not_learned(frame, [plain, dropped], short, plan.learned),
                    note=f"{format_number(mean_of(values[dropped, long]).mean)} with dropout, "
                    f"{format_number(mean_of(values[plain, long]).mean)} without; difference "
                    f"{shorter}.",
                )
            )
    return rows


def _averaging_rows(
    plan: AveragingPlan, line: list[Gain], schedule: str, letters: Iterator[str]
) -> list[ClaimRow]:
    """Whether the average helps where most tokens are legal, and whether that grows with them."""
    learned = [item for item in line if item.learned]
    most = max(learned or line, key=lambda item: item.legal, default=None)
    when = _SCHEDULES[schedule]
    shared = {
        "version": "v1 and v2",
        "ran": f"one attention-only block, post-norm; sampled targets, {when}, trained at length "
        f"{plan.graded[0].length}",
        "seeds": len(plan.averaging.seeds),
        "unit": "nats",
    }
    all_gains = "; ".join(
        f"{format_number(item.legal)} legal: {_shown(item.gain)}" for item in line
    )
    error = "gain: log of raw over averaged mean total variation"
    return [
        claim_row(
            key=f"4{next(letters)}",
            statement=f"Where many next tokens are legal {plan.average} has a smaller error than "
            f"the raw weights, {when}",
            task=most.cell.setting if most else "set complement",
            effect_name=error,
            effect=most.gain if most else Interval.of([]),
            rule=_HELPS,
            in_the_way="" if learned else _not_learned(plan),
            note=f"By number of legal tokens: {all_gains}." if line else "",
            **shared,
        ),
        claim_row(
            key=f"4{next(letters)}",
            statement=f"The gain of {plan.average} grows with the number of legal tokens, {when}",
            task=", ".join(str(setting.parameters["vocabulary"]) for setting in plan.graded)
            + " tokens of set complement",
            effect_name="change of that gain for each factor e in their number",
            effect=slope_over_seeds(learned) if len(learned) > 2 else Interval.of([]),
            rule=_GROWS,
            in_the_way="" if len(learned) > 2 else _not_learned(plan),
            note="The input length is fixed, so that nothing else changes but the vocabulary.",
            **shared,
        ),
    ]


def _label_row(plan: AveragingPlan, gains: list[Gain], key: str) -> ClaimRow:
    """Whether the noise of sampled labels is why averaging helps."""
    found = {
        (item.cell.setting, item.cell.targets): item
        for item in gains
        if item.cell.schedule == "constant" and item.learned
    }
    pairs = {
        name: contrast(item, found[name, "exact"])
        for (name, targets), item in found.items()
        if targets == "sampled" and (name, "exact") in found
    }
    per_seed = [
        [
            found[name, "sampled"].by_seed[seed] - found[name, "exact"].by_seed[seed]
            for name in pairs
        ]
        for seed in plan.averaging.seeds
        if all(seed in found[name, kind].by_seed for name in pairs for kind in ("sampled", "exact"))
    ]
    by_task = "; ".join(f"{name}: {_shown(interval)}" for name, interval in pairs.items())
    return claim_row(
        key=key,
        statement="The noise of sampled targets is why averaging helps: with exact targets "
        f"{plan.average} gains less, at a constant rate",
        version="v1 and v2",
        ran="the same models with sampled and with exact targets, mean over the vocabularies",
        task="set complement",
        seeds=len(plan.averaging.seeds),
        effect_name="gain with sampled less gain with exact targets",
        unit="nats",
        effect=Interval.of([sum(values) / len(values) for values in per_seed if values]),
        rule=_MORE,
        in_the_way="" if pairs else _not_learned(plan),
        note=f"By task: {by_task}. With exact targets the inputs are still sampled, and a constant "
        "rate leaves Adam's steps as large as ever."
        if pairs
        else "",
    )


def _othello_trials(plan: AveragingPlan) -> dict[str, Trial]:
    setting = plan.othello
    task = task_of(setting)
    model = setting.architecture(task.d_vocab, task.d_vocab_out)
    return {
        _othello_name(schedule): Trial(
            model,
            task,
            plan.othello_recipe(schedule),
            plan.averaging.seeds,
            setting.lengths,
            plan.averaging.n_sequences,
        )
        for schedule in plan.schedules
    }


def _dropout_trials(plan: AveragingPlan) -> dict[str, Trial]:
    task = SetComplement(plan.dropout_vocabulary)
    return {
        _dropout_name(placement, dropout): Trial(
            TransformerConfig(
                d_vocab=task.d_vocab,
                n_ctx=task.d_vocab,
                norm_placement=placement,
                attn_dropout=dropout,
            ),
            task,
            replace(plan.dropout_training, length=plan.dropout_lengths[0]),
            plan.averaging.seeds,
            plan.dropout_lengths,
            plan.averaging.n_sequences,
        )
        for placement in plan.dropout_placements
        for dropout in plan.dropouts
    }


def _name(cell: Cell) -> str:
    return f"averaging, {cell.label}"


def _othello_name(schedule: str) -> str:
    return f"othello, {schedule}"


def _dropout_name(placement: str, dropout: float) -> str:
    return f"dropout {dropout:g}, {placement}"


def _rows(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows of one trial, ``checkpoint`` the name of the weights again."""
    start = f"{name} / "
    labels: list[str] = frame["checkpoint"].tolist()
    own = rows_where(frame, [label.startswith(start) for label in labels])
    return own.assign(checkpoint=[label.removeprefix(start) for label in own["checkpoint"]])


def _othello_note(plan: AveragingPlan, frame: pd.DataFrame, name: str, facts: TaskFacts) -> str:
    """Both weights in every metric."""
    parts = []
    for quantity, words in (
        (_ERROR, "total variation"),
        ("mean_illegal_mass", "illegal mass"),
        ("all_legal_rate", "rate of all positions legal"),
    ):
        raw, averaged = (
            seed_values(frame, f"{name} / {weights}", quantity, plan.othello_length)
            for weights in (RAW, plan.average)
        )
        parts.append(
            f"{words} {format_number(mean_of(raw).mean)} raw, "
            f"{format_number(mean_of(averaged).mean)} averaged, "
            f"difference {_shown(paired_difference(averaged, raw))}"
        )
    return (
        f"{'; '.join(parts)}. The best guess that does not look at the game is off by "
        f"{format_number(facts.blind)}."
    )


def _not_learned(plan: AveragingPlan) -> str:
    return (
        "not learned: no weights came below "
        f"{format_number(LEARNED)} of the error of the best guess that does not look at the input"
    )


def _shown(interval: Interval) -> str:
    return format_interval(interval.mean, interval.low, interval.high)
