"""Board-like tasks: which moves are legal after the moves so far, none of which comes twice."""

from .othello import Othello
from .self_avoiding_walk import SelfAvoidingWalk

__all__ = ["Othello", "SelfAvoidingWalk"]
