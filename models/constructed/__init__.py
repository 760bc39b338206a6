"""Closed-form solutions of the tasks: models whose every curve is known exactly."""

from .dictionary_lookup import construct_dictionary_lookup
from .first import construct_first
from .set_complement import construct_set_complement, construct_tight_set_complement

__all__ = [
    "construct_dictionary_lookup",
    "construct_first",
    "construct_set_complement",
    "construct_tight_set_complement",
]
