"""Turn (model, tokens) into numbers: capture, measures, sweeps over lengths, theory.

Names are loaded when first used, so that importing the package costs nothing.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
