"""Run a model in evaluation mode and give it back in the mode in which it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(*roots: nn.Module) -> Iterator[None]:
    """Put every submodule into evaluation mode; afterwards each is as it was before."""
    modes = [(part, part.training) for root in roots for part in root.modules()]
    try:
        for part, _ in modes:
            part.training = False
        yield
    finally:
        for part, training in reversed(modes):
            part.training = training
