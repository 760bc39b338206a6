"""Does attention disperse as the input grows, and what brings it back?

Three rooms, loaded when first used: :mod:`resharpen.models` (make and load what is measured),
:mod:`resharpen.interp` (measure it; theory), :mod:`resharpen.analyses` (ask a question and say what
follows: ``audit``, ``explore``, ``diagnose``, studies, figures).
"""

from importlib.metadata import PackageNotFoundError, version

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)

try:
    __version__ = version("resharpen")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "unknown"
