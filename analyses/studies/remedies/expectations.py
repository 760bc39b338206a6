"""The predicted curve beside each cell, from what the cell does at short lengths.

Set complement: the theorem's curves from lengths 1 and 2. Needles: from the needle's weight at the
training length follows its margin, and from the margin and the law of the inverse temperature its
weight at every other length (theory 1.1, 3; one needle among equal distractors).
"""

from typing import Any

import numpy as np
import pandas as pd

from ....interp.theory import Curve, predict_needle_weight
from ....models.tasks import task_from_dict
from ...expectations import short_expectations
from ...rows import over, pick
from .config import TASK_SETTINGS, Cell

NEEDLES = ("first", "argmax-retrieval", "dictionary-lookup")
"""Tasks with one relevant key among others that do not matter, in one layer."""

_LAW = {
    "softmax": "fixed",
    "temperature": "fixed",
    "qk_norm": "fixed",
    "qk_norm_learned": "fixed",
    "sigma_reparam": "fixed",
    "sqrt_log_n": "sqrt_log_n",
    "log_n": "log_n",
    "ssmax": "log_n",
}
"""How the inverse temperature of a remedy grows, where it is a law of ``n`` alone."""


def expected_curves(table: pd.DataFrame, cell: Cell) -> list[Curve]:
    """Curves for the rows of one cell; none where no law speaks about it.

    Args:
        table: Rows of that cell alone.
        cell: Which it is.
    """
    setting = TASK_SETTINGS[cell.task]
    if cell.task == "set-complement":
        task = task_from_dict({"name": cell.task, **setting.parameters})
        lengths = np.array((*setting.short, *setting.lengths), dtype=np.float64)
        config = cell.model(task.d_vocab, task.d_vocab_out)
        return short_expectations(table, cell.label, config, task.to_dict(), lengths)
    if cell.task in NEEDLES and cell.remedy in _LAW:
        return _needle_curve(table, cell)
    return []


def _needle_curve(table: pd.DataFrame, cell: Cell) -> list[Curve]:
    rows = pick(table, quantity="relevant_mass", layer=0, head=0)
    if rows.empty:
        return []
    weights = over(rows, "n_key")
    n_key = weights.index.to_numpy(dtype=np.float64)
    first = float(weights.iloc[0])
    if not 0 < first < 1:
        return []
    margin = float(np.log(first * (n_key[0] - 1) / (1 - first)))
    if margin < 0:
        return []
    law = _LAW[cell.remedy]
    growth: Any = {
        "fixed": np.ones_like(n_key),
        "log_n": np.log(n_key) / np.log(n_key[0]),
        "sqrt_log_n": np.sqrt(np.log(n_key) / np.log(n_key[0])),
    }[law]
    curve = Curve(
        name="needle law from the training length",
        quantity="relevant_mass",
        unit="ratio",
        x=n_key,
        values=predict_needle_weight(n_key, margin, growth),
        kind="fit",
        hypotheses=(
            "one needle",
            "equal distractors",
            "scores that do not change with length",
            f"inverse temperature: {law}",
        ),
        source="derived here (theory 1.1, NEEDLE-NORM; 3, SSM-MARGIN)",
        domain=(float(n_key[0]), float(n_key[-1])),
        x_name="n_key",
        checkpoint=cell.label,
    )
    return [curve]
