"""The Dyck grammar of Bhattamishra et al. (arXiv 2009.11264; theory section 15), symbol by symbol.

    S → (_i S )_i   with probability p / k for each of the k types,  p = 1/2
    S → S S         with probability q = 1/4
    S → empty       with probability 1 - p - q

``S`` becomes a row of ``N`` blocks ``(_i S )_i``, each with an ``S`` of its own inside. With
``F(t) = E t^N`` the rules say ``F = p t + q F² + 1 - p - q``, so that

    F(t) = (1 - √(1 - 4 q (1 - p - q) - 4 p q t)) / (2 q) = 2 - √(3 - 2 t)

A string is thus a tree in which the numbers of children are independent, ``N`` each. ``E N = 1``,
so it ends with probability one (its expected length is infinite), whatever is open: the
probability of a prefix, over all strings that begin with it, is that of what has been decided in
it. Behind ``j`` whole blocks at the current depth the next symbol is

    an opener of each type     P(N > j | N >= j) / k
    the matching closer, or    P(N = j | N >= j)
    the end at depth 0

which holds exactly: nothing is cut off, no length is given. ``P(N = 0) = 2 - √3``, and behind it

    P(N = n + 1) / P(N = n) = x (2 n - 1) / (2 n + 2),   x = 4 p q / (1 - 4 q (1 - p - q)) = 2/3

so that with ``s_j = P(N >= j) / P(N = j) = 1 + P(N = j + 1) / P(N = j) s_{j+1}``, from which every
ratio follows without a difference of numbers that are nearly the same, an opener has the
probability ``1 - 1 / s_j``: 0.73, 0.21, 0.38, 0.45, .. behind 0, 1, 2, 3, .. blocks, 2/3 behind
many.

(Derived here from the three rules.)
"""

from functools import lru_cache
from math import sqrt

import numpy as np
from jaxtyping import Float, Int

_RATIO = 2 / 3
_BEYOND = 200
"""Blocks behind which the error of the first ``s`` has shrunk by ``(2/3)^200``."""


@lru_cache(maxsize=64)
def going_on(blocks: int) -> Float[np.ndarray, " block"]:
    """``P(N > j | N >= j)`` for ``j = 0 .. blocks``: whether another block follows."""
    s = 1 / (1 - _RATIO)
    found = np.empty(blocks + 1)
    for j in range(blocks + _BEYOND, 0, -1):
        s = 1 + _RATIO * (2 * j - 1) / (2 * j + 2) * s
        if j <= blocks:
            found[j] = 1 - 1 / s
    found[0] = sqrt(3) - 1
    return found


def closed_blocks(
    opens: np.ndarray, depth: Int[np.ndarray, "batch pos_and_start"]
) -> Int[np.ndarray, "batch pos_and_start"]:
    """How many whole blocks stand at the current depth before each symbol and at the end.

    Args:
        opens: Whether each symbol opens, ``[batch, pos]``.
        depth: How many brackets are open before each symbol and at the end, 0 or more.
    """
    rows = np.arange(len(opens))
    whole = np.zeros((len(opens), int(depth.max(initial=0)) + 1), dtype=np.int64)
    found = np.zeros_like(depth)
    for place in range(opens.shape[1]):
        after = depth[:, place + 1]
        # An opener begins a row of its own; a closer ends a block of the row outside.
        whole[rows, after] = np.where(opens[:, place], 0, whole[rows, after] + 1)
        found[:, place + 1] = whole[rows, after]
    return found
