"""Where a monitor's numbers go besides its own history: TensorBoard, Weights & Biases, a function.

A target is told apart by what it can do, so that neither package has to be installed:

===============================  ===============================================================
target                           is called as
===============================  ===============================================================
TensorBoard's ``SummaryWriter``  ``target.add_scalar(name, value, step)`` for each number
a Weights & Biases run           ``target.log({name: value, ...})`` once, with the step as
                                 ``dispersion/step``: a run refuses steps that go back, which two
                                 writers to one run would make happen
a function                       ``target(step, {name: value, ...})``
===============================  ===============================================================
"""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["STEP", "Log", "find_log"]

Log = Callable[[int, Mapping[str, float]], object]
"""``log(step, numbers)``."""

STEP = "dispersion/step"
"""Name under which a Weights & Biases run is told the step."""


def find_log(target: Any) -> Log:
    """How to tell a target the numbers of a step.

    Raises:
        TypeError: the target is nothing of the above.
    """
    if hasattr(target, "add_scalar"):

        def to_tensorboard(step: int, numbers: Mapping[str, float]) -> None:
            for name, value in numbers.items():
                target.add_scalar(name, value, step)

        return to_tensorboard
    if hasattr(target, "log"):

        def to_run(step: int, numbers: Mapping[str, float]) -> None:
            target.log({**numbers, STEP: step})

        return to_run
    if callable(target):
        return target
    raise TypeError(
        "log must be a TensorBoard SummaryWriter, a Weights & Biases run, or a function of the "
        f"step and a dictionary of numbers; got {type(target).__name__}"
    )
