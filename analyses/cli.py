"""The command line. ``resharpen --help`` imports neither torch nor transformer_lens.

Exit status: 0 done; 1 an audit's verdict is at or past ``--fail-on``; 2 it could not be done, with
one sentence on the standard error; 130 interrupted, with one that says what was kept; 141
nobody reads what it prints.

Little is imported before :func:`main` runs, so that an interrupt is answered from the start.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent
"""Where the rooms of the toolkit lie: a warning from here is for the user."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    with _own_lines():
        try:
            status = _run(given)
            sys.stdout.flush()
        except KeyboardInterrupt:
            _complain("interrupted before anything was begun")
            status = 130
        except BrokenPipeError:  # `resharpen ... | head`: nobody reads on.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 141
    sys.exit(status)


def _run(given: Sequence[str]) -> int:
    if given == ["--version"]:
        from importlib.metadata import version

        print(f"resharpen {version('resharpen')}")
        return 0
    from .command_options import parse

    try:
        command = parse(given)
    except ValueError as error:  # a value that parses and that the configuration refuses
        _complain(str(error))
        return 2
    return execute(command)


def execute(command: Any) -> int:
    """Carry a command out and return its exit status; errors become one sentence."""
    from . import command_options as options
    from . import commands, study_commands
    from .diagnose_command import run_diagnose
    from .limits_command import run_limits
    from .notebook_command import run_notebook
    from .search_command import run_search

    run = {
        options.Train: commands.run_train,
        options.Construct: commands.run_construct,
        options.Audit: commands.run_audit,
        options.Diagnose: run_diagnose,
        options.Limits: run_limits,
        options.Compare: commands.run_compare,
        options.Study: study_commands.run_study,
        options.Search: run_search,
        options.Notebook: run_notebook,
        options.Checkpoints: commands.run_checkpoints,
    }[type(command)]
    try:
        with _plain_warnings():
            return run(command, print)
    except KeyboardInterrupt as stop:
        notes = getattr(stop, "__notes__", [])
        _complain(str(stop) or next(iter(notes), "interrupted before anything was written"))
        return 130
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError, MemoryError, commands.TrainingDiverged) as error:
        # Python's own MemoryError has no message.
        _complain(str(error) or "not enough memory")
        return 2


def _complain(sentence: str) -> None:
    """Say one sentence on the standard error, on a line of its own."""
    if getattr(sys.stderr, "is_within_line", False):
        print(file=sys.stderr)
    print(f"resharpen: {sentence}", file=sys.stderr)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """What the toolkit warns of is one plain line; other packages' warnings stay as they are."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Any, category: Any, filename: str, lineno: int, *more: Any) -> None:
            if issubclass(category, UserWarning) and _PACKAGE in Path(filename).resolve().parents:
                _complain(str(message))
            else:
                others(message, category, filename, lineno, *more)

        warnings.filterwarnings("always", category=UserWarning, module=r"resharpen\.")
        warnings.showwarning = show
        yield


class _Lines:
    """A stream that knows whether its last line was ended, as a progress bar leaves it open."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._last = "\n"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Pass the text on."""
        if text:
            self._last = text[-1]
        return self._stream.write(text)

    @property
    def is_within_line(self) -> bool:
        """Whether the next text would stand behind another; a terminal is back at its start."""
        return self._last != "\n" and not (self._last == "\r" and self._stream.isatty())


@contextmanager
def _own_lines() -> Iterator[None]:
    """Watch what is written to the standard error."""
    before, sys.stderr = sys.stderr, _Lines(sys.stderr)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stderr = before
