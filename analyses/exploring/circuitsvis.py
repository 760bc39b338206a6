"""One head handed over to CircuitsVis, which shows attention token by token."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .state import ExplorerState

__all__ = ["show_in_circuitsvis"]

MOST_TOKENS = 256
"""Longer sequences cannot be read token by token, and their weights would fill the notebook."""


def show_in_circuitsvis(
    state: ExplorerState, row: int, head: int, length: int | None = None
) -> Any:
    """The attention of the first sequence of a length on one head, as CircuitsVis shows it.

    Tokens are named by their ids. CircuitsVis looks by itself whether there is a network, and takes
    its script from there if there is.

    Args:
        state: The model.
        row: Row of the map; the layer, where there is one stack.
        head: Which head.
        length: Which length; the longest by default.

    Returns:
        What ``circuitsvis.attention.attention_heads`` returns.

    Raises:
        ModuleNotFoundError: CircuitsVis is not installed.
        ValueError: There is no such layer, head or length, or more than 256 tokens.
    """
    if find_spec("circuitsvis") is None:
        raise ModuleNotFoundError(
            'the hand-over needs CircuitsVis: pip install ".[circuitsvis]" in a checkout'
        )
    tokens, weights = state.weights(row, head, length)
    if len(tokens) > MOST_TOKENS:
        raise ValueError(
            f"CircuitsVis shows up to {MOST_TOKENS} tokens; the sequence has {len(tokens)}: choose "
            "a shorter length"
        )
    show: Any = import_module("circuitsvis").attention.attention_heads
    return show(
        attention=weights[None],
        tokens=[str(token) for token in tokens.tolist()],
        attention_head_names=[f"{state.rows[row]} H{head}"],
    )
