"""Bounds are claims about every row, so they are compared with the extremes, not with the mean."""

import pandas as pd

from ..interp.theory import Curve
from .comparing import Tolerance, compare
from .findings import Finding


def compare_everywhere(
    frame: pd.DataFrame, curve: Curve, tolerance: Tolerance | None = None
) -> Finding:
    """As :func:`~resharpen.analyses.comparing.compare`, but for a bound against the extreme row.

    A lower bound is held against the smallest value that was seen at each place, an upper bound
    against the largest: a mean inside the bound would hide a row outside it. Other kinds of curve
    are compared with the mean.
    """
    column = {"lower_bound": "min", "upper_bound": "max"}.get(curve.kind)
    if column is None:
        return compare(frame, curve, tolerance)
    extreme = frame.copy()
    extreme["mean"] = extreme[column].where(extreme["status"] == "ok", extreme["mean"])
    return compare(extreme, curve, tolerance)
