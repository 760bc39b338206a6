"""How results of the theory show themselves: one line, arrays by their shape and range."""

from dataclasses import fields, is_dataclass
from html import escape

import numpy as np


class Shown:
    """Gives a dataclass of arrays a short repr (declare it with ``repr=False``), and its HTML."""

    def __repr__(self) -> str:
        """Every field: an array as its shape and the range of its values."""
        assert is_dataclass(self)
        told = (f"{field.name} {_brief(getattr(self, field.name))}" for field in fields(self))
        return f"{type(self).__name__}({'; '.join(told)})"

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return f"<p><code>{escape(repr(self))}</code></p>"


def _brief(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    shape = f"[{', '.join(map(str, value.shape))}]"
    if not value.size or value.dtype == np.bool_:
        return shape
    return f"{shape} from {value.min():.6g} to {value.max():.6g}"
