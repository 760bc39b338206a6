"""Claim 5: post-norm and averaging carry over to the formal languages.

Each language is learned at one length and measured at multiples of it; the error is the total
variation to the exact distribution over what may follow, mean over positions. Placements are
compared with the averaged weights, averages with the last weights of the same run. A comparison is
made in each language, paired over seeds; the pooled effect is the mean over languages of the mean
over seeds, and its interval is over languages: the languages are a sample of tasks, not the seeds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd

from ....models.config import TransformerConfig
from ....models.tasks.language import LanguageTask
from ....models.tasks.languages import find_language
from ...rows import rows_where
from ...seeds import Interval
from ...trials import Trial
from ...wording import format_number, plural
from ..averaging.config import TaskSetting
from ..averaging.noise import task_facts
from .claim import ClaimRow, Rule, claim_row, format_effect, judge_claim
from .config import LANGUAGE_VARIANTS, PaperConfig
from .seed_values import mean_of, paired_difference, seed_values, why_not_learned

__all__ = [
    "LanguageEffect",
    "language_claims",
    "language_effects",
    "language_frame",
    "language_lengths",
    "language_trials",
]

_BETTER = Rule(high=0.0, source="a smaller error than the other")

_ERROR = "mean_total_variation"


@dataclass(frozen=True)
class Comparison:
    """One model against another, at one multiple of the training length.

    Attributes:
        key: Of its claim.
        statement: What is claimed.
        one, other: Variants in :data:`~.config.LANGUAGE_VARIANTS`.
        averaged: Whether the averaged weights of each are compared, or the last ones.
        growth: Whether the error at the training length is subtracted from each first.
        trained: Whether the error is that at the training length instead of at the longest.
    """

    key: str
    statement: str
    one: str
    other: str
    averaged: tuple[bool, bool] = (True, True)
    growth: bool = False
    trained: bool = False

    @property
    def error(self) -> str:
        """Which error is compared, in words."""
        if self.trained:
            return "error at the training length"
        return "growth of the error beyond the training length" if self.growth else "error"


COMPARISONS = (
    Comparison(
        "5a", "Post-norm has the smaller error on long strings than pre-norm", "post", "pre"
    ),
    Comparison(
        "5b",
        "Post-norm loses less than pre-norm from the training length to long strings",
        "post",
        "pre",
        growth=True,
    ),
    Comparison(
        "5c",
        "Post-norm has the smaller error on long strings than pre-norm with its final norm",
        "post",
        "pre + final norm",
    ),
    Comparison(
        "5d",
        "Post-norm loses less than pre-norm with its final norm from the training length to long "
        "strings",
        "post",
        "pre + final norm",
        growth=True,
    ),
    Comparison(
        "5e",
        "EMA has the smaller error than the last weights at the training length",
        "pre + final norm",
        "pre + final norm",
        averaged=(True, False),
        trained=True,
    ),
    Comparison(
        "5f",
        "EMA has the smaller error than the last weights on long strings",
        "pre + final norm",
        "pre + final norm",
        averaged=(True, False),
    ),
    Comparison(
        "5g",
        "With post-norm, too, EMA has the smaller error than the last weights on long strings",
        "post",
        "post",
        averaged=(True, False),
    ),
)
"""Every comparison of claim 5."""


@dataclass(frozen=True)
class LanguageEffect:
    """One comparison in one language.

    Attributes:
        key: Of the claim.
        comparison: What is compared with what.
        language: Where.
        difference: ``one - other`` of the error, paired over seeds.
        one, other: Their errors.
        illegal: The same difference of the mass on illegal symbols.
        legal_sets: The same difference of the share of strings whose legal sets are all right.
        not_learned: Why nothing follows here; empty if something does.
    """

    key: str
    comparison: str
    language: str
    difference: Interval
    one: Interval
    other: Interval
    illegal: Interval
    legal_sets: Interval
    not_learned: str


def language_lengths(config: PaperConfig, language: str) -> tuple[int, ...]:
    """Training length and its multiples, each moved down to the next that the language has."""
    found = find_language(language)

    def at_most(length: int) -> int:
        return length if found.has(length) else found.nearest(length)[0]

    return tuple(at_most(config.language_length * m) for m in config.language_multiples)


def language_trials(config: PaperConfig) -> dict[str, Trial]:
    """Every variant on every language, by ``<language> / <variant>``."""
    trials = {}
    for language in config.languages:
        task = LanguageTask(language)
        lengths = language_lengths(config, language)
        for variant in config.language_variants:
            placement, final_norm = LANGUAGE_VARIANTS[variant]
            model = TransformerConfig(
                d_vocab=task.d_vocab,
                d_vocab_out=task.d_vocab_out,
                norm_placement=placement,
                final_norm=final_norm,
                normalization_type=config.normalization_type,
                **config.language_model,
            )
            trials[f"{language} / {variant}"] = Trial(
                model,
                task,
                config.language_recipe(lengths[0]),
                config.seeds,
                lengths,
                config.language_sequences,
            )
    return trials


def language_effects(config: PaperConfig, frame: pd.DataFrame) -> list[LanguageEffect]:
    """Every comparison in every language that was run.

    Args:
        config: The study.
        frame: Rows of the trials, ``checkpoint`` ``<language> / <variant> / <weights>``.
    """
    labels = frame["checkpoint"].str
    own = {
        language: rows_where(frame, labels.startswith(f"{language} / "))
        for language in config.languages
    }
    return [
        _effect(config, own[language], comparison, language)
        for comparison in _asked(config)
        for language in config.languages
    ]


def language_claims(config: PaperConfig, effects: Sequence[LanguageEffect]) -> list[ClaimRow]:
    """Each comparison pooled over the languages that both of its models learned."""
    return [
        _claim(config, comparison, [effect for effect in effects if effect.key == comparison.key])
        for comparison in _asked(config)
    ]


def language_frame(effects: Iterable[LanguageEffect]) -> pd.DataFrame:
    """One row a comparison and language: ``languages.csv``, and what the figure draws.

    The columns are those of :func:`~.claim.claim_frame`, with the claim's key for ``claim`` and the
    language for ``key``, and the errors that were compared.
    """
    return pd.DataFrame(
        [
            {
                "claim": effect.key,
                "key": effect.language,
                "statement": effect.comparison,
                "seeds": effect.difference.n_seeds,
                "effect": "mean total variation, difference",
                "unit": "ratio",
                "value": effect.difference.mean,
                "low": effect.difference.low,
                "high": effect.difference.high,
                "one": effect.one.mean,
                "other": effect.other.mean,
                "illegal mass difference": effect.illegal.mean,
                "legal set rate difference": effect.legal_sets.mean,
                "asked for": str(_BETTER),
                "asked above": _BETTER.low,
                "asked below": _BETTER.high,
                "verdict": judged.verdict,
                "reason": judged.reason,
            }
            for effect in effects
            for judged in [judge_claim(effect.difference, _BETTER, effect.not_learned)]
        ]
    )


def _asked(config: PaperConfig) -> list[Comparison]:
    return [
        comparison
        for comparison in COMPARISONS
        if {comparison.one, comparison.other} <= set(config.language_variants)
    ]


def _labels(config: PaperConfig, comparison: Comparison, language: str) -> tuple[str, str]:
    weights = [f"ema-{config.ema_decay}" if averaged else "raw" for averaged in comparison.averaged]
    return (
        f"{language} / {comparison.one} / {weights[0]}",
        f"{language} / {comparison.other} / {weights[1]}",
    )


def _effect(
    config: PaperConfig, frame: pd.DataFrame, comparison: Comparison, language: str
) -> LanguageEffect:
    labels = _labels(config, comparison, language)
    lengths = language_lengths(config, language)
    long = lengths[0] if comparison.trained else lengths[-1]

    def values(label: str, quantity: str) -> dict[int, float]:
        found = seed_values(frame, label, quantity, long)
        if not comparison.growth:
            return found
        start = seed_values(frame, label, quantity, lengths[0])
        return {seed: found[seed] - start[seed] for seed in found if seed in start}

    one, other = (values(label, _ERROR) for label in labels)
    return LanguageEffect(
        key=comparison.key,
        comparison=comparison.statement,
        language=language,
        difference=paired_difference(one, other),
        one=mean_of(one),
        other=mean_of(other),
        illegal=paired_difference(*(values(label, "mean_illegal_mass") for label in labels)),
        legal_sets=paired_difference(*(values(label, "legal_set_rate") for label in labels)),
        not_learned=_why_not_learned(config, frame, comparison, language, lengths[0]),
    )


def _why_not_learned(
    config: PaperConfig, frame: pd.DataFrame, comparison: Comparison, language: str, length: int
) -> str:
    """With the averaged weights: whether the last ones are worse is what is asked."""
    averaged = [
        f"{language} / {variant} / ema-{config.ema_decay}"
        for variant in dict.fromkeys((comparison.one, comparison.other))
    ]
    threshold = config.language_learned * _blind_error(language, length)
    return why_not_learned(frame, averaged, length, threshold, _ERROR)


@lru_cache
def _blind_error(language: str, length: int) -> float:
    """Error of the best guess that looks at nothing but the position."""
    parameters = LanguageTask(language).to_dict()
    return task_facts(TaskSetting(language, "language", parameters, lengths=(length,))).blind


def _claim(
    config: PaperConfig, comparison: Comparison, effects: Sequence[LanguageEffect]
) -> ClaimRow:
    learned = [effect for effect in effects if not effect.not_learned]
    left_out = [effect.language for effect in effects if effect.not_learned]
    by_sign = [
        sum(effect.difference.high < 0 for effect in learned),
        sum(effect.difference.low > 0 for effect in learned),
    ]
    illegal = Interval.of([effect.illegal.mean for effect in learned])
    sets = Interval.of([effect.legal_sets.mean for effect in learned])
    sides = [
        Interval.of([e.one.mean for e in learned]),
        Interval.of([e.other.mean for e in learned]),
    ]
    note = (
        f"Over the languages {format_number(sides[0].mean)} against "
        f"{format_number(sides[1].mean)}; "
        f"in {plural(by_sign[0], 'language')} surely smaller, in {by_sign[1]} surely larger. The "
        f"mass on illegal symbols differs by {_shown(illegal)}, the share of strings with every "
        f"legal set right by {_shown(sets)}."
    )
    if left_out:
        note += f" Left out, since not learned by both: {', '.join(left_out)}."
    longest = config.language_multiples[0 if comparison.trained else -1]
    recipe = config.language_training
    return claim_row(
        key=comparison.key,
        statement=comparison.statement,
        version="v2",
        ran=f"{plural(config.language_model.get('n_layers', 1), 'block')} with MLP, no positions; "
        f"{recipe.targets} targets, {recipe.schedule} rate, trained at {config.language_length}, "
        f"measured at {longest} times that",
        task=f"{plural(len(effects), 'formal language')}",
        seeds=len(config.seeds),
        effect_name=f"{comparison.error} (mean total variation), difference",
        unit="ratio",
        effect=Interval.of([effect.difference.mean for effect in learned]),
        rule=_BETTER,
        runs_of="languages",
        note=note,
    )


def _shown(interval: Interval) -> str:
    return format_effect(interval.mean, interval.low, interval.high)
