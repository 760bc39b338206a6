"""Training: one loop for every model, task and recipe. Names are loaded when first used."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
