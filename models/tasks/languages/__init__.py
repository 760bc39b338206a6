"""Formal languages with exact counts, uniform strings of one length, and what may follow."""

from .automata import Automaton, explore
from .brackets import Dyck, ShuffleDyck
from .catalogue import FAMILIES, LANGUAGES, find_language
from .counters import BinaryCounts, EqualBlocks
from .flare import FlareStrings, read_flare
from .language import Language, Machine
from .paths import Paths

__all__ = [
    "FAMILIES",
    "LANGUAGES",
    "Automaton",
    "BinaryCounts",
    "Dyck",
    "EqualBlocks",
    "FlareStrings",
    "Language",
    "Machine",
    "Paths",
    "ShuffleDyck",
    "explore",
    "find_language",
    "read_flare",
]
