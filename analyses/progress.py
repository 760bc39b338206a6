"""Progress of long work, as :mod:`resharpen.interp.progress` has it."""

from ..interp.progress import Advance, Progress, advancing

__all__ = ["Advance", "Progress", "advancing"]
