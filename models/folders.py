"""A folder that is written whole or not at all.

It is filled beside its destination and then renamed; a folder that was there is set aside first and
removed last. So a run killed at any moment leaves the whole old folder, the whole new one or none,
never a mixture: between the two renames, which follow each other at once, the old one lies under
``.NAME.previous``.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_writable", "previous_folder", "replaced_folder"]


def check_writable(target: Path) -> None:
    """Raise unless something can be written at ``target``: a folder is made beside it and removed.

    Asked before long work, which would else be lost at its end. Where the parents of ``target`` are
    not there yet, the folder is made in the first one that is.

    Raises:
        OSError: The system refuses; one sentence.
    """
    parent = target.resolve().parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(f"{target} cannot be written: {parent} is a file, not a folder")
    # Asking for permissions alone says yes to root where the file system itself says no.
    try:
        os.rmdir(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
    except OSError as error:
        raise type(error)(
            f"{target} cannot be written, since nothing can be made in {parent} "
            f"({error.strerror}): name a folder elsewhere"
        ) from None


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder that takes the place of ``target`` when the block succeeds.

    On any failure what was there is there again, and nothing else. Whether it may be replaced is
    the caller's to check, before.

    Args:
        target: Folder to write; parents are made.
    """
    target = target.resolve()
    fresh = target.with_name(f".{target.name}.partial-{uuid.uuid4().hex}")
    try:
        fresh.mkdir(parents=True)
        yield fresh
        _swap(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def previous_folder(target: Path) -> Path:
    """Where what stood at ``target`` lies if a run was killed between the two renames."""
    target = target.resolve()
    return target.with_name(f".{target.name}.previous")


def _swap(fresh: Path, target: Path) -> None:
    previous = previous_folder(target)
    if target.exists():
        shutil.rmtree(previous, ignore_errors=True)
        os.replace(target, previous)
    try:
        os.replace(fresh, target)
    except BaseException:
        if previous.exists() and not target.exists():
            os.replace(previous, target)
        raise
    shutil.rmtree(previous, ignore_errors=True)
