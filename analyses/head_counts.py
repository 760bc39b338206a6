"""Verdicts on many heads, told layer by layer instead of head by head."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .findings import Verdict
from .head_records import CLASSES

__all__ = ["MANY", "LayerCounts", "count_heads", "has_many_heads"]

MANY = 16
"""Up to this many heads are told one by one."""


@dataclass(frozen=True)
class LayerCounts:
    """What the heads of one layer do.

    Args:
        layer: the layer, as its verdict calls it: `layer 3`, `decoder layer 3`.
        labels: how many of its heads have each label.
        verdict: the verdict on the layer; None if it was not judged.
    """

    layer: str
    labels: Counter[str]
    verdict: Verdict | None

    def row(self, labels: Sequence[str]) -> dict[str, str]:
        """The counts as the cells of a table, all text; a label that no head has is blank."""
        own = {} if self.verdict is None else self.verdict.row()
        return {
            "layer": self.layer,
            "verdict": own.get("verdict", ""),
            **{label: str(self.labels[label] or "") for label in labels},
            "first below": own.get("length measured", ""),
        }


def has_many_heads(verdicts: Iterable[Verdict]) -> bool:
    """Whether there are too many heads to tell them one by one."""
    return sum(verdict.level == "head" for verdict in verdicts) > MANY


def count_heads(verdicts: Iterable[Verdict]) -> tuple[list[LayerCounts], list[str]]:
    """The head verdicts counted by layer, and the labels, in the order of the classes of heads.

    A head is called as its layer is, with `L3 H4` for head 4 of `layer 3`.
    """
    given = list(verdicts)
    layers = {verdict.subject: verdict for verdict in given if verdict.level == "layer"}
    groups: dict[str, list[Verdict]] = {}
    for verdict in given:
        if verdict.level == "head":
            groups.setdefault(_layer_of(verdict.subject), []).append(verdict)
    total = Counter(verdict.label for verdict in given if verdict.level == "head")
    counts = [
        LayerCounts(
            layer,
            Counter(head.label for head in heads),
            layers.get(layer),
        )
        for layer, heads in groups.items()
    ]
    rank = {label: place for place, label in enumerate(CLASSES)}
    return counts, sorted(total, key=lambda label: (rank.get(label, len(rank)), label))


def _layer_of(subject: str) -> str:
    """`decoder L3 H4` as `decoder layer 3`."""
    prefix, _, number = subject.rpartition(" H")[0].rpartition("L")
    return f"{prefix}layer {number}"
