"""A figure that a kernel can change while a notebook shows it, and that tells what was clicked."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

__all__ = ["change_figure", "listen", "live_figure"]


def live_figure(figure: go.Figure) -> Any:
    """The figure as a widget (needs anywidget); as wide as the cell."""
    widget = go.FigureWidget(figure)
    widget.layout.autosize = True
    widget._config = {**widget._config, "displaylogo": False, "responsive": True}
    return widget


def change_figure(
    widget: Any, data: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]
) -> None:
    """New numbers for the traces, in their order, and for the layout, in one message.

    A matrix is best given by :func:`~resharpen.analyses.figures.embed.pack_bytes`: plotly sends any
    other number by number, which takes 40 ms of the processor at 256 x 256.
    """
    with widget.batch_update():
        for trace, numbers in zip(widget.data, data, strict=True):
            trace.update(numbers)
        widget.update_layout(layout)


def listen(widget: Any, number: int, chosen: Callable[[Any], None]) -> None:
    """Call with the `customdata` of a cell of a heat map when it is clicked.

    Args:
        widget: From :func:`live_figure`.
        number: The number of the trace.
        chosen: Called with what the cell holds.
    """
    trace = widget.data[number]

    def clicked(_: Any, points: Any, __: Any) -> None:
        for row, column in points.point_inds:
            chosen(trace.customdata[row][column])

    trace.on_click(clicked)
