"""Exploring a model's heads: choose one on a map, see it in full, and try what would change it.

In layers: :mod:`.measuring` audits, :mod:`.state` runs the model and gives arrays (:mod:`.views`),
`figures.explorer` draws them, :mod:`.widget` puts controls around the figure, :mod:`.page` writes
it as HTML.
"""

from .measuring import open_explorer
from .opening import explore
from .state import ExplorerState
from .views import HeadMap, HeadView
from .what_if_setting import WhatIfSetting
from .widget import Explorer

__all__ = [
    "Explorer",
    "ExplorerState",
    "HeadMap",
    "HeadView",
    "WhatIfSetting",
    "explore",
    "open_explorer",
]
