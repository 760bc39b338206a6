"""Progress of long work: a bar in the terminal or the notebook, or the caller's own function."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

Progress = Callable[[int, int, int], None]
"""``progress(done, total, length)``."""


@dataclass
class Advance:
    """What long work calls as it goes on; remembers how far it came.

    Attributes:
        tell: What is told of it.
        done: Parts that are done.
        total: Parts that there are, or ``None`` before the first call.
    """

    tell: Progress | None
    done: int = 0
    total: int | None = None

    def __call__(self, done: int, total: int, length: int) -> None:
        """Take the numbers down, then pass them on: what is told may raise."""
        self.done, self.total = done, total
        if self.tell is not None:
            self.tell(done, total, length)

    @property
    def complete(self) -> bool:
        """Whether everything was done; false once an interrupt has ended the work early."""
        return self.done == self.total


def is_watched() -> bool:
    """Whether a bar would be seen: by a notebook, or by a terminal that errors are written to."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if hasattr(shell, "kernel"):
        return True
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def advancing(progress: bool | Progress | None, title: str, unit: str) -> Iterator[Advance]:
    """Yield what to call as work goes on.

    Args:
        progress: ``True`` for a bar, a function of your own, or ``False`` or ``None`` for nothing.
        title: What the bar says.
        unit: What it counts.
    """
    if not progress:
        yield Advance(None)
    elif callable(progress):
        yield Advance(progress)
    else:
        with tqdm(desc=title, unit=f" {unit}", leave=False) as bar:

            def advance(done: int, total: int, length: int) -> None:
                shown: Any = bar
                shown.total = total
                shown.set_postfix_str(f"length {length}", refresh=False)
                shown.update(done - shown.n)

            yield Advance(advance)
