"""A figure as data for a web page, and the one script that draws all of them."""

import base64
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.io import to_html, to_json
from plotly.offline import get_plotlyjs

__all__ = [
    "figure_bundle",
    "figure_height",
    "figure_json",
    "figure_meta",
    "json_in_html",
    "pack_bytes",
    "plotly_script",
]


def figure_json(figure: go.Figure) -> str:
    """The figure as JSON that may stand inside an HTML script element: no `<`, `>` or `&`."""
    return json_in_html(figure)


def json_in_html(content: Any) -> str:
    """Figures and arrays as JSON that may stand inside an HTML script element."""
    text = to_json(content, validate=False)
    assert text is not None
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def figure_height(figure: go.Figure) -> int:
    """The height of the figure in pixels; 450, plotly's own, where none is set."""
    return int(figure.layout.height or 450)


def figure_meta(figure: go.Figure) -> dict[str, Any]:
    """Title and caption that `new_figure` kept in the layout; empty for other figures."""
    meta = figure.layout.meta
    return dict(meta) if isinstance(meta, dict) else {}


def pack_bytes(levels: NDArray[np.uint8]) -> dict[str, str]:
    """A matrix of bytes as plotly.js reads it from JSON, four thirds of a character each."""
    data = base64.b64encode(np.ascontiguousarray(levels).tobytes()).decode("ascii")
    return {"dtype": "u1", "bdata": data, "shape": ", ".join(map(str, levels.shape))}


def figure_bundle(figure: go.Figure) -> dict[str, Any]:
    """The figure as a notebook's output: for what draws plotly, for HTML (from the network), words.

    Outputs of this kind are shown without a kernel.
    """
    text = figure.to_json(validate=False)
    assert text is not None
    network: Any = "cdn"  # plotly declares a bool
    return {
        "application/vnd.plotly.v1+json": {**json.loads(text), "config": {"displaylogo": False}},
        "text/html": to_html(figure, include_plotlyjs=network, full_html=False, validate=False),
        "text/plain": str(figure_meta(figure).get("title", "figure")),
    }


def plotly_script() -> str:
    """The source of plotly.js, about 4.6 MiB: once a page."""
    return get_plotlyjs()
