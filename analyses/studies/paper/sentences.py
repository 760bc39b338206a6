"""What the study says of its claims, and what disagrees with the paper."""

from collections.abc import Mapping, Sequence

from ...wording import plural
from .claim import OWN, ClaimRow, format_effect
from .language_claims import LanguageEffect

__all__ = ["conclude", "listed"]


def conclude(claims: Sequence[ClaimRow]) -> list[str]:
    """How many claims hold, and one sentence for each of the paper's that does not."""
    of_paper = [row for row in claims if row.version != OWN]
    own = [row for row in claims if row.version == OWN]
    sentences = [f"{plural(len(of_paper), 'statement')} of the paper: {_counts(of_paper)}."]
    sentences += [row.sentence for row in of_paper if row.verdict == "does not hold"]
    if own:
        sentences.append(f"{plural(len(own), 'statement')} derived here: {_counts(own)}.")
    return sentences


def listed(
    claims: Sequence[ClaimRow], effects: Sequence[LanguageEffect], left_out: Mapping[str, str]
) -> dict[str, list[str]]:
    """What the report lists after its figures: each claim, claim 5 by language, what failed."""
    lists = {f"Claim {number}": [] for number in dict.fromkeys(row.claim for row in claims)}
    for row in claims:
        lists[f"Claim {row.claim}"].append(f"{row.sentence} {row.reason}. {row.note}".rstrip())
    lists["Claim 5, language by language"] = [_effect(effect) for effect in effects]
    lists["What could not be run"] = [f"{name}: {why}" for name, why in left_out.items()]
    return lists


def _effect(effect: LanguageEffect) -> str:
    if effect.not_learned:
        return f"({effect.key}) {effect.language}: {effect.not_learned}"
    difference, one, other = effect.difference, effect.one, effect.other
    return (
        f"({effect.key}) {effect.language}: "
        f"{format_effect(difference.mean, difference.low, difference.high)} "
        f"({one.mean:.3f} against {other.mean:.3f})"
    )


def _counts(rows: Sequence[ClaimRow]) -> str:
    """`holds 3 (1a, 1b, 2a); does not hold 1 (3c); undecided 0`."""
    parts = []
    for verdict in ("holds", "does not hold", "undecided"):
        keys = [row.key for row in rows if row.verdict == verdict]
        parts.append(f"{verdict} {len(keys)}" + (f" ({', '.join(keys)})" if keys else ""))
    return "; ".join(parts)
