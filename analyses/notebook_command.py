"""What ``resharpen notebook`` does: put the starter notebook beside the user."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

__all__ = ["NAME", "run_notebook", "starter_notebook"]

NAME = "resharpen.ipynb"
"""What the notebook is called where only a folder is named."""


def starter_notebook() -> str:
    """The notebook that ships: nbformat's JSON, without outputs."""
    place = files(__package__ or "") / "templates" / "starter.ipynb"
    return place.read_text(encoding="utf-8")


def run_notebook(command: Any, say: Callable[[str], None]) -> int:
    """Write the starter notebook; what is there already is left alone.

    Args:
        command: ``path``: a file to write, or a folder for a file `resharpen.ipynb` in it.
        say: Told where it is and how to open it.

    Raises:
        FileExistsError: The file exists.
        FileNotFoundError: Its folder does not.
        ValueError: The name does not end in `.ipynb`.
    """
    place = Path(command.path)
    if place.is_dir():
        place = place / NAME
    if place.suffix != ".ipynb":
        raise ValueError(f"a notebook's name ends in .ipynb; got {str(place)!r}")
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(starter_notebook())
    except FileExistsError:
        raise FileExistsError(
            f"{place} exists and is left as it is: name another file, or move it away"
        ) from None
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no folder {str(place.parent)!r}: make it first"
        ) from None
    say(f"wrote {place}; open it with: jupyter lab {place}")
    return 0
