"""The rules of Othello on bit boards, for many games at once.

A board is two unsigned 64-bit numbers, the discs of the player to move and those of the other; bit
``8 row + column`` is a square, row 0 at the top. Black begins with d5 and e4 against d4 and e5.
"""

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]

_NOT_LEFT = np.uint64(0xFEFEFEFEFEFEFEFE)
_NOT_RIGHT = np.uint64(0x7F7F7F7F7F7F7F7F)
_EVERYWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)
# Steps to the higher bit, and the squares that a step may land on.
_DIRECTIONS = (
    (np.uint64(1), _NOT_LEFT, _NOT_RIGHT),
    (np.uint64(7), _NOT_RIGHT, _NOT_LEFT),
    (np.uint64(8), _EVERYWHERE, _EVERYWHERE),
    (np.uint64(9), _NOT_LEFT, _NOT_RIGHT),
)
_STEPS = [
    step
    for size, up, down in _DIRECTIONS
    for step in ((np.left_shift, size, up), (np.right_shift, size, down))
]

START = (np.uint64((1 << 28) | (1 << 35)), np.uint64((1 << 27) | (1 << 36)))
"""Black's and white's discs at the start: e4 (row 3) and d5 (row 4), against d4 and e5."""


def legal_moves(own: Bits, other: Bits) -> Bits:
    """Squares where the player to move may place a disc, as bits."""
    empty = ~(own | other)
    found = np.zeros_like(own)
    for shift, size, mask in _STEPS:
        line = shift(own, size) & mask & other
        for _ in range(5):
            line |= shift(line, size) & mask & other
        found |= shift(line, size) & mask & empty
    return found


def play(own: Bits, other: Bits, move: Bits) -> tuple[Bits, Bits]:
    """Boards after a legal move, seen by the other player: ``(other's discs, own discs)``."""
    flipped = np.zeros_like(own)
    for shift, size, mask in _STEPS:
        line = shift(move, size) & mask & other
        for _ in range(5):
            line |= shift(line, size) & mask & other
        closed = (shift(line, size) & mask & own) != 0
        flipped |= np.where(closed, line, np.uint64(0))
    return other & ~flipped, own | move | flipped


def pass_if_stuck(own: Bits, other: Bits) -> tuple[Bits, Bits, Bits]:
    """Boards with the player to move who can move, and the legal moves; 0 once a game is over."""
    moves = legal_moves(own, other)
    stuck = moves == 0
    own, other = np.where(stuck, other, own), np.where(stuck, own, other)
    return own, other, np.where(stuck, legal_moves(own, other), moves)


def squares(bits: Bits) -> NDArray[np.bool_]:
    """The 64 squares of each board, ``[*board, 64]``."""
    return ((bits[..., None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).astype(bool)


def count_games(depth: int) -> int:
    """Number of sequences of ``depth`` moves from the start (perft), a pass counting as a move.

    4, 12, 56, 244, 1396, 8200, 55092, 390216, ... at depths 1, 2, 3, ...
    """
    own, other = (np.array([disc]) for disc in START)
    ways = np.ones(1, dtype=np.int64)
    for _ in range(depth):
        moves = legal_moves(own, other)
        board, square = np.nonzero(squares(moves))
        stuck = np.flatnonzero((moves == 0) & (legal_moves(other, own) != 0))
        played = play(own[board], other[board], np.uint64(1) << square.astype(np.uint64))
        boards = np.stack(
            [
                np.concatenate([played[0], other[stuck]]),
                np.concatenate([played[1], own[stuck]]),
            ],
            axis=1,
        )
        distinct, where = np.unique(boards, axis=0, return_inverse=True)
        counts = np.concatenate([ways[board], ways[stuck]])
        ways = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(ways, where.reshape(-1), counts)
        own, other = distinct[:, 0], distinct[:, 1]
    return int(ways.sum())
