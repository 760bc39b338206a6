"""Profiles: any adapted model, fed a probe at several lengths, reduced to the tidy table.

:func:`profile` runs the model and returns a :class:`Profile`; :class:`ProfileObserver` is the
observer that it shows the model to (:class:`resharpen.models.observed.Observer`).
"""

from .attention_rows import (
    FAST_STATISTICS,
    FULL_STATISTICS,
    attention_rule,
    relevant_mass_of_rows,
)
from .ladder import Ladder, geometric_ladder, joined_ladder
from .observing import ProfileObserver, Reading
from .result import Observable, Probing, Profile
from .running import profile

__all__ = [
    "FAST_STATISTICS",
    "FULL_STATISTICS",
    "Ladder",
    "Observable",
    "Probing",
    "Profile",
    "ProfileObserver",
    "Reading",
    "attention_rule",
    "geometric_ladder",
    "joined_ladder",
    "profile",
    "relevant_mass_of_rows",
]
