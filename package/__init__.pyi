from . import analyses as analyses
from . import interp as interp
from . import models as models

__version__: str
