"""Ask a question of a model, confront the answer with theory, say what follows.

Names are loaded when first used, so that the command line's help is quick.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
