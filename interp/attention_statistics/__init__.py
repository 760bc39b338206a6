"""Exact statistics of attention rows from query and key, in O(n) memory.

:func:`row_statistics` measures; :func:`attention_with_statistics` also returns the attention
output, for an observer that stands in for a model's attention call. How the model attends is an
:class:`AttentionRule`. Theory section 0.
"""

from .blockwise import Tile
from .catalogue import (
    ALL_STATISTICS,
    DEFAULT_STATISTICS,
    STATISTICS,
    Statistic,
    statistic_unit,
)
from .result import RowStatistics, RowStatus
from .rows import attention_with_statistics, row_statistics
from .rule import AttentionRule, BiasFunction, MaskFunction
from .scores import alibi_bias, relative_bias
from .visibility import documents_from_positions

__all__ = [
    "ALL_STATISTICS",
    "DEFAULT_STATISTICS",
    "STATISTICS",
    "AttentionRule",
    "BiasFunction",
    "MaskFunction",
    "RowStatistics",
    "RowStatus",
    "Statistic",
    "Tile",
    "alibi_bias",
    "attention_with_statistics",
    "documents_from_positions",
    "relative_bias",
    "row_statistics",
    "statistic_unit",
]
