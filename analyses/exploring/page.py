"""The explorer as one HTML page that opens offline: every head can be chosen, nothing is live."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...models.facts import layers_by_heads
from ..figures.embed import figure_height, json_in_html, plotly_script
from ..figures.explorer import MAP, explorer_data, explorer_layout, plot_explorer
from ..figures.patterns import MAX_KEYS
from ..wording import plural
from .state import ExplorerState
from .views import HeadMap, HeadView

__all__ = ["page_place", "render_page"]

ROOM = 4_500_000
"""Bytes of a page for its heads; plotly.js takes 4.9 million more of the 10 million it may have."""

PER_VIEW = 4_000
"""Bytes of one head at one length without its weights, about."""

_MOST_VIEWS = 200
"""Views (a head at a length) up to which every length is kept."""

_FEW_VIEWS = 64
"""Views up to which short patterns have their weights as hover text."""

_FEWEST = 16
"""Rows that a pattern keeps in any case; past about a thousand heads the page grows with them."""

_LEAST_SIDE = 48
"""Weights of every length are kept only where each pattern keeps at least so many rows."""


def page_place(path: str | Path) -> Path:
    """Where a page is to be written, refused before it is made if that cannot be.

    Raises:
        ValueError: The name does not end in ``.html``.
        FileNotFoundError: The folder that it should stand in does not exist.
        IsADirectoryError: It is a folder.
    """
    place = Path(path)
    if place.is_dir():
        raise IsADirectoryError(
            f"{place} is a folder: name a file in it, such as {place / 'explorer.html'}"
        )
    if place.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"the view is written as an HTML page, to a name that ends in .html; got {place}"
        )
    if not place.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {place.parent} to write {place.name} into")
    return place


def render_page(state: ExplorerState, shown: HeadView, by: str) -> str:
    """The view as a page, with every head, and with every length where its weights fit.

    Above 256 keys, or where many heads are to fit, weights are means over blocks. A change that
    was tried is not in the page.

    Args:
        state: The model.
        shown: The head and length that the page opens with.
        by: What the map shows.
    """
    n_heads = len(state.classes)
    lengths, side = state.lengths, _side(n_heads * len(state.lengths))
    if n_heads * len(lengths) > _MOST_VIEWS or side < min(_LEAST_SIDE, max(lengths)):
        lengths, side = (shown.length,), _side(n_heads)
    maps = [state.head_map(by, length) for length in lengths]
    looked = [state.look(length, side) for length in lengths]
    views = [
        [state.plain_view(index, length, seen[index])
         for length, seen in zip(lengths, looked, strict=True)]
        for index in range(n_heads)
    ]  # fmt: skip
    few = n_heads * len(lengths) <= _FEW_VIEWS
    heads = [
        [_part(view, head_map, few) for view, head_map in zip(each, maps, strict=True)]
        for each in views
    ]
    start = lengths.index(shown.length)
    base = next(
        index for index, (view, *_) in enumerate(views)
        if (view.row, view.head) == (shown.row, shown.head)
    )  # fmt: skip
    figure = plot_explorer(views[base][start], maps[start], state.label)
    coloured = [explorer_data(views[base][start], head_map)[MAP] for head_map in maps]
    numbers = {f"{state.row_of(i)},{item.head}": i for i, item in enumerate(state.classes)}
    environment = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0].rpartition(".")[0]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("explorer.html.j2").render(
        title=f"{state.label}: heads",
        holds=(
            f"{layers_by_heads(len(state.rows), state.columns)}, fed {state.probe.name}, lengths "
            f"{state.lengths[0]} to {state.lengths[-1]}, "
            f"{plural(state.n_sequences, 'sequence')} a length, seed {state.seed}"
        ),
        names=[view.name for view, *_ in views],
        lengths=lengths,
        head=base,
        length=start,
        height=figure_height(figure),
        map=MAP,
        figure=Markup(json_in_html(figure)),
        heads=Markup(json_in_html({"heads": heads, "maps": coloured, "numbers": numbers})),
        plotly=Markup(plotly_script()),
    )


def _side(views: int) -> int:
    """Rows and columns of each pattern, so that all fit; one byte a weight, four thirds in JSON."""
    room = max(0, ROOM - views * PER_VIEW) * 3 // 4
    return min(MAX_KEYS, max(_FEWEST, int((room / views) ** 0.5)))


def _part(view: HeadView, head_map: HeadMap, words: bool) -> dict[str, Any]:
    """What the page changes for one head at one length; the map is the same for every head."""
    data = explorer_data(view, head_map, words)
    data[MAP] = {}
    return {"data": data, "layout": explorer_layout(view, head_map), "summary": view.summary}
