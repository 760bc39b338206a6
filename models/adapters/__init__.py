"""Any model seen through our records: Hugging Face, TransformerLens 2 to 4, ours, your own.

:func:`adapt` takes a model or a path and returns an :class:`Adapter`, which shows an observer
(:class:`resharpen.models.observed.Observer`) everything a measurement needs, in the order in which
the model computes it, and leaves the model as it was. Names are loaded when first used, so that
importing the package costs nothing; transformers is imported only for models that need it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
