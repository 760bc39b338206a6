"""What theory says of each remedy on each task, before anything is measured.

Three answers: a remedy ``cures`` (the error does not grow with length), ``shifts`` the length at
which the error comes (a law with the same end), or ``cannot`` cure. ``not needed`` where nothing
disperses that the task needs, ``open`` where no law of the reference speaks. Hypotheses: the model
has learned the task at short lengths, with scores that do not grow with the input.

Aggregation (theory 1.1): every key is relevant, so each one's share is at most ``1/s`` at any
temperature; only a rescale after the aggregation undoes it. Needle (theory 1.1, 3, 7): one key at a
margin ``Δ`` keeps its weight iff the inverse temperature grows like ``log n`` (or the projection is
sparse); a norm after attention moves the length at which it drowns from ``e^Δ`` to ``e^{2Δ}``.
Counting a few symbols among blanks obeys the needle laws: the count is the ratio of the symbols'
weight to the opening token's, and both drown together in the blanks.
"""

from dataclasses import dataclass
from typing import Literal

from ....models.placements import PLACEMENTS
from .config import Cell

Answer = Literal["cures", "shifts", "cannot", "not needed", "open"]

_GROWING = ("log_n", "ssmax", "ssmax_bias", "hardmax")
_SPARSE = ("entmax", "asentmax")
_BOUNDED_HELP = ("temperature", "sqrt_log_n", "adaptive")


@dataclass(frozen=True)
class Prediction:
    """What theory says of one cell.

    Attributes:
        answer: One of the answers above.
        reason: Why, in one sentence.
        source: Section of the theory.
    """

    answer: Answer
    reason: str
    source: str


def rescales_attention(cell: Cell) -> bool:
    """Whether a norm acts on the attention output alone, before it joins the stream."""
    return PLACEMENTS[cell.placement].after or cell.remedy == "differential"


def predict_cell(cell: Cell) -> Prediction:
    """What theory says of a cell of the map."""
    task = cell.task
    if task == "set-complement":
        return _aggregation(cell)
    if task in ("first", "argmax-retrieval", "dictionary-lookup", "counting"):
        return _needle(cell)
    if task in ("majority", "mean"):
        return Prediction(
            "not needed",
            "the mean of the values is itself the answer, and uniform attention gives it at every "
            "length",
            "0",
        )
    return Prediction(
        "open", "order and several layers are needed, of which no law here speaks", "-"
    )


def _aggregation(cell: Cell) -> Prediction:
    if cell.placement == "ngpt" or rescales_attention(cell):
        return Prediction(
            "cures",
            "a norm on the attention output gives the gap sqrt(v/s) back whatever is displaced",
            "1.1 (SC-PERIGAP)",
        )
    if PLACEMENTS[cell.placement].stream or cell.final_norm:
        return Prediction(
            "shifts",
            "a norm on the sum lets the gap fall as s^-1/2 up to s* = (p/b)^2, as 1/s after",
            "1.1 (SC-RESGAP)",
        )
    if cell.remedy == "sigmoid":
        return Prediction(
            "shifts",
            "weights need not share one unit of mass up to n = e^s; beyond, they fall as 1/n",
            "16 (SIG-MASS)",
        )
    return Prediction(
        "cannot",
        "weights that sum to one leave the smallest displacement at most max p/s whatever their "
        "temperature",
        "1.1 (SC-MINDISP)",
    )


def _needle(cell: Cell) -> Prediction:
    if (cell.remedy, cell.task) == ("hardmax", "counting"):
        return Prediction("cannot", "only the largest score is kept, and with it no ratio", "11")
    if cell.remedy in _GROWING:
        return Prediction(
            "cures",
            "an inverse temperature that grows as log n keeps the needle's weight if s times the "
            "margin exceeds 1 (1/2 with a norm)",
            "3 (SSM-PHASE), 1.1",
        )
    if cell.remedy in _SPARSE:
        return Prediction(
            "cures", "keys more than 1/(alpha-1) below the needle have no weight at any n", "7"
        )
    if cell.remedy == "selective":
        return Prediction(
            "shifts",
            "it grows as σ(α) log n from a small σ(α): a cure only at margins above 1/σ(α)",
            "9",
        )
    if cell.remedy in _BOUNDED_HELP:
        return Prediction(
            "shifts", "a larger but bounded (or slower) inverse temperature moves e^Δ up", "2, 3, 5"
        )
    normed = cell.placement == "ngpt" or rescales_attention(cell)
    if cell.task == "first" and normed:
        return Prediction(
            "cures",
            "distractors write nothing, so a norm gives the answer back at any weight",
            "14 (CC-LN)",
        )
    if normed or PLACEMENTS[cell.placement].stream or cell.final_norm:
        return Prediction(
            "shifts", "a norm moves the critical length from e^Δ to e^{2Δ}, no further", "1.1"
        )
    if cell.remedy == "linear":
        return Prediction("cannot", "the kernel has no margin that an exponential widens", "16")
    return Prediction("cannot", "with bounded scores every weight is of order 1/n", "2 (VEL-L2.1)")
