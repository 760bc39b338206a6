"""An exit stack as a handle: what was entered is left by ``remove()``."""

from contextlib import ExitStack


class Undo:
    """Leaves a stack of contexts when removed."""

    def __init__(self, stack: ExitStack) -> None:
        """Keep the stack, which must have been entered."""
        self._stack = stack

    def remove(self) -> None:
        """Leave what the stack entered."""
        self._stack.close()
