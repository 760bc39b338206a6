"""A figure as data for a web page, and the one script that draws all of them."""

from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

__all__ = ["figure_height", "figure_json", "figure_meta", "plotly_script"]


def figure_json(figure: go.Figure) -> str:
    """The figure as JSON that may stand inside an HTML script element: no `<`, `>` or `&`."""
    text = figure.to_json(validate=False)
    assert text is not None
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def figure_height(figure: go.Figure) -> int:
    """The height of the figure in pixels; 450, plotly's own, where none is set."""
    return int(figure.layout.height or 450)


def figure_meta(figure: go.Figure) -> dict[str, Any]:
    """Title and caption that `new_figure` kept in the layout; empty for other figures."""
    meta = figure.layout.meta
    return dict(meta) if isinstance(meta, dict) else {}


def plotly_script() -> str:
    """The source of plotly.js, about 4.6 MiB: once a page."""
    return get_plotlyjs()
