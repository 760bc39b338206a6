"""Probes: what a model is fed, and which key each query needs. Names are loaded when first used.

``PROBES`` is the registry; reading it imports no torch. ``get_probe(name)`` gives the class.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
