"""How many sequences fit into one forward pass: what they materialise is bounded.

A pass that listens to attention materialises scores and patterns, ``batch * head * pos * pos``
numbers each, several at a time; at 2048 positions a batch of 256 would take gigabytes for a model
of some kilobytes. Means over sequences do not depend on how the sequences were split
(:mod:`resharpen.interp.reduce`), so a batch is run in parts that fit.
"""

from typing import Any

PASS_ELEMENTS = 2**23
"""Numbers in the largest array of one forward pass, at most (32 MiB in float32), unless a single
sequence has more. Larger passes are also slower: every array is fetched from the system anew."""


def fitting_batch(model: Any, batch: int, pos: int) -> int:
    """Sequences to run at once, from 1 to ``batch``.

    Args:
        model: The model; the sizes are what its ``cfg`` says (``n_heads``, ``d_vocab_out``,
            ``d_mlp``, ``d_model``), and one head where it has none.
        batch: Sequences wanted.
        pos: Positions of a sequence.
    """
    cfg = getattr(model, "cfg", None)
    heads = _size(cfg, "n_heads") or 1
    widths = (_size(cfg, name) for name in ("d_vocab_out", "d_vocab", "d_mlp", "d_model"))
    largest = max(1, pos) * max(heads * pos, *widths)
    return max(1, min(batch, PASS_ELEMENTS // largest))


def _size(cfg: Any, name: str) -> int:
    value = getattr(cfg, name, None)
    return value if isinstance(value, int) and value > 0 else 0
