"""Progress of long work: a bar in the terminal or the notebook, or the caller's own function."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm

Progress = Callable[[int, int, int], None]
"""``progress(done, total, length)``."""


@contextmanager
def advancing(progress: bool | Progress | None, title: str, unit: str) -> Iterator[Progress | None]:
    """Yield what to call as work goes on.

    Args:
        progress: ``True`` for a bar, a function of your own, or ``False`` or ``None`` for nothing.
        title: What the bar says.
        unit: What it counts.
    """
    if not progress:
        yield None
    elif callable(progress):
        yield progress
    else:
        with tqdm(desc=title, unit=unit, leave=False) as bar:

            def advance(done: int, total: int, length: int) -> None:
                shown: Any = bar
                shown.total = total
                shown.set_postfix_str(f"length {length}", refresh=False)
                shown.update(done - shown.n)

            yield advance
