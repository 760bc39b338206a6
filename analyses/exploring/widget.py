"""The explorer in a notebook: controls around the figure; it computes nothing itself.

ipywidgets hold the controls, plotly's FigureWidget (on anywidget) the figure: the two widget layers
that JupyterLab 4, Notebook 7 and VS Code all run; our own is only what :mod:`.fitting` says. A
change is sent while a slider moves; ipywidgets holds back the next one until the last is
answered, so moves do not pile up.
"""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..figures.embed import figure_bundle
from ..figures.explorer import MAP, explorer_data, explorer_layout, plot_explorer
from ..figures.live import change_figure, listen, live_figure
from .circuitsvis import show_in_circuitsvis
from .fitting import fitting_widget
from .page import page_place, render_page
from .state import ExplorerState
from .views import COLOURED_BY, HeadMap, HeadView
from .what_if_setting import WhatIfSetting

__all__ = ["Explorer", "check_widgets"]

SETTLED = 0.8
"""Seconds without a change after which the still figure of the notebook is renewed."""

_MARK = "resharpen-explorer"
_FENCE = "resharpen-fence"

# A cell's outputs are the live view, a fence of no height, and the still figure. Where the page
# runs the live view, the still figure is not shown (the second rule is VS Code's).
_STYLE = f"""<style>
.jp-OutputArea-child:has(.{_MARK}) + .jp-OutputArea-child + .jp-OutputArea-child,
.output_container:has(.{_MARK}) + .output_container + .output_container > * {{ display: none; }}
.{_MARK} .widget-label {{ color: var(--jp-ui-font-color1, inherit); }}
</style>"""

# Where it does not, what JupyterLab puts in its place ("Loading widget...") is not shown either.
_FENCE_HTML = f"""<div class="{_FENCE}"></div><style>
.jp-OutputArea-child:has(.{_FENCE}),
.jp-OutputArea-child:not(:has(.{_MARK})):has(+ .jp-OutputArea-child .{_FENCE})
{{ display: none; }}
</style>"""


def check_widgets() -> None:
    """Refuse to go on where the widgets of a notebook are not installed.

    Raises:
        ModuleNotFoundError: ipywidgets or anywidget is missing; the sentence says what to do.
    """
    missing = [name for name in ("ipywidgets", "anywidget") if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f'the explorer needs {" and ".join(missing)}: pip install ".[notebook]" in a checkout'
        )


class Explorer:
    """An interactive view of a model's heads; made by :func:`resharpen.analyses.explore`.

    Attributes:
        state: The model and what was measured.
        view: The head that is shown, as arrays.
        head_map: The map that is shown, as arrays.
        message: The last sentence about a change that could not be shown; empty if all went well.
    """

    def __init__(self, state: ExplorerState) -> None:
        """Show the head with the largest slope at the longest length."""
        self.state = state
        self.view, self.head_map = state.view(*state.steepest)
        self.message = ""
        self._widget: Any = None
        self._figure: Any = None
        self._controls: dict[str, Any] = {}
        self._holding = False
        self._still: Any = None
        self._timer: Any = None

    @property
    def layer(self) -> int:
        """Row of the map that is chosen; the layer, where there is one stack."""
        return self.view.row

    @property
    def head(self) -> int:
        """The head that is chosen."""
        return self.view.head

    @property
    def length(self) -> int:
        """The length that is chosen."""
        return self.view.length

    def select(
        self,
        layer: int | None = None,
        head: int | None = None,
        *,
        length: int | None = None,
        temperature: float | None = None,
        norm_gain: float | None = None,
        everywhere: bool | None = None,
        by: str | None = None,
    ) -> HeadView:
        """Choose from code what the controls choose; what is not given stays as it is.

        Args:
            layer: Row of the map; the layer, where there is one stack.
            head: Which head.
            length: One of the lengths that were run.
            temperature: Inverse temperature that the scores are multiplied by.
            norm_gain: What the norms that attention's output meets are multiplied by.
            everywhere: Whether the change is made to every head, or to the chosen one.
            by: What the map shows: ``"slope"`` or ``"normalised_entropy"``.

        Returns:
            What is then shown.

        Raises:
            ValueError: There is no such layer, head or length, or the change is not possible.
        """
        old = self.view.what_if
        setting = WhatIfSetting(
            old.temperature if temperature is None else temperature,
            old.norm_gain if norm_gain is None else norm_gain,
            old.everywhere if everywhere is None else everywhere,
        )
        view, head_map = self.state.view(
            self.layer if layer is None else layer,
            self.head if head is None else head,
            self.length if length is None else length,
            setting,
            self.head_map.by if by is None else by,
        )
        self._show(view, head_map)
        return view

    def figure(self) -> Any:
        """What is shown, as a plotly figure that needs no kernel."""
        return plot_explorer(self.view, self.head_map, self.state.label)

    def save_html(self, path: str | Path) -> Path:
        """Write the view as one HTML file that opens offline, with every head to choose from.

        The lengths can be chosen where their weights fit; the sliders need a kernel and are left
        out, as the page says.

        Args:
            path: File to write, ``.html``; an earlier one is replaced.

        Raises:
            ValueError: The name does not end in ``.html``.
            FileNotFoundError: The folder that it should stand in does not exist.
            IsADirectoryError: It is a folder.
        """
        place = page_place(path)
        place.write_text(render_page(self.state, self.view, self.head_map.by), encoding="utf-8")
        return place

    def to_circuitsvis(
        self, layer: int | None = None, head: int | None = None, length: int | None = None
    ) -> Any:
        """The attention of one sequence on one head, as CircuitsVis shows it.

        Args:
            layer: Row of the map; the chosen one by default.
            head: Which head; the chosen one by default.
            length: Which length; the chosen one by default.

        Raises:
            ModuleNotFoundError: CircuitsVis is not installed; the sentence says what to do.
            ValueError: There is no such layer, head or length, or it is too long to be read.
        """
        return show_in_circuitsvis(
            self.state,
            self.layer if layer is None else layer,
            self.head if head is None else head,
            self.length if length is None else length,
        )

    def __repr__(self) -> str:
        """The model, and what is shown."""
        return f"Explorer({self.state!r}, showing {self.view!r})"

    @property
    def widget(self) -> Any:
        """The view as a widget, made when it is first asked for.

        Raises:
            ModuleNotFoundError: The widgets of a notebook are not installed.
        """
        if self._widget is None:
            check_widgets()
            self._widget = self._build()
        return self._widget

    def _ipython_display_(self) -> None:
        """The widget, and behind it the figure as it stands, for when there is no kernel."""
        from IPython.display import HTML, display

        display(self.widget)
        display(HTML(_FENCE_HTML))
        self._still = display(figure_bundle(self.figure()), raw=True, display_id=True)

    def _build(self) -> Any:
        import ipywidgets as widgets

        state, narrow = self.state, {"description_width": "initial"}
        heads = [(f"H{head}", head) for head in range(state.columns)]
        rows = [(name, row) for row, name in enumerate(state.rows)]
        factor: dict[str, Any] = {
            "value": 1.0, "base": 2, "min": -3, "max": 3, "step": 0.125, "readout_format": ".2f",
            "style": narrow,
        }  # fmt: skip
        small = widgets.Layout(width="150px")
        controls: dict[str, Any] = {
            "row": widgets.Dropdown(
                options=rows, value=self.layer, description="layer", style=narrow, layout=small
            ),
            "head": widgets.Dropdown(
                options=heads, value=self.head, description="head", style=narrow, layout=small
            ),
            "by": widgets.Dropdown(
                options=[("slope", COLOURED_BY[0]), ("entropy / log n", COLOURED_BY[1])],
                value=self.head_map.by, description="map", style=narrow,
                layout=widgets.Layout(width="200px"),
            ),
            "length": widgets.SelectionSlider(
                options=list(state.lengths), value=self.length, description="length", style=narrow,
                layout=widgets.Layout(width="300px"),
            ),
            "temperature": widgets.FloatLogSlider(
                description="inverse temperature", layout=widgets.Layout(width="340px"), **factor
            ),
            "norm_gain": widgets.FloatLogSlider(
                description="norm gain", layout=widgets.Layout(width="270px"), **factor
            ),
            "everywhere": widgets.Dropdown(
                options=[("this head", False), ("all heads", True)], value=False,
                description="change", style=narrow, layout=widgets.Layout(width="155px"),
            ),
            "reset": widgets.Button(
                description="reset", tooltip="undo the change", layout=widgets.Layout(width="70px")
            ),
        }  # fmt: skip
        for name, control in controls.items():
            if name != "reset":
                control.observe(self._moved, "value")
        controls["reset"].on_click(lambda _: self._reset())
        self._said = widgets.HTML(layout=widgets.Layout(margin="0 4px"))
        self._controls = controls
        self._figure = live_figure(self.figure())
        listen(self._figure, MAP, self._clicked)
        self._say()
        line = widgets.Layout(flex_flow="row wrap", align_items="center")
        box = widgets.VBox(
            [
                widgets.HTML(_STYLE, layout=widgets.Layout(display="none")),
                widgets.HBox(
                    [controls[name] for name in ("row", "head", "length", "by")], layout=line
                ),
                widgets.HBox(
                    [controls[name] for name in ("temperature", "norm_gain", "everywhere",
                                                 "reset")],
                    layout=line,
                ),
                self._said,
                self._figure,
                fitting_widget(_MARK),
            ]
        )  # fmt: skip
        box.add_class(_MARK)
        return box

    def _clicked(self, place: Any) -> None:
        row, head = (int(number) for number in place)
        self._set({"row": row, "head": head})
        self._moved(None)

    def _reset(self) -> None:
        self._set({"temperature": 1.0, "norm_gain": 1.0})
        self._moved(None)

    def _set(self, values: dict[str, Any]) -> None:
        """Move controls without answering each."""
        self._holding = True
        try:
            for name, value in values.items():
                self._controls[name].value = value
        finally:
            self._holding = False

    def _moved(self, _: Any) -> None:
        """Show what the controls say; if that fails, the last view stays, with one sentence."""
        if self._holding:
            return
        asked = {name: c.value for name, c in self._controls.items() if name != "reset"}
        setting = WhatIfSetting(asked["temperature"], asked["norm_gain"], asked["everywhere"])
        try:
            view, head_map = self.state.view(
                asked["row"], asked["head"], asked["length"], setting, asked["by"]
            )
        except KeyboardInterrupt:
            self._say("interrupted; the last view is shown")
        except Exception as error:
            reason = str(error).strip().splitlines()
            said = reason[0] if reason else type(error).__name__
            self._say(f"this could not be shown, the last view stays: {said}")
        else:
            self._show(view, head_map)

    def _show(self, view: HeadView, head_map: HeadMap) -> None:
        self.view, self.head_map = view, head_map
        if self._widget is None and self._figure is None:
            return
        setting = view.what_if
        self._set(
            {
                "row": view.row, "head": view.head, "length": view.length, "by": head_map.by,
                "temperature": setting.temperature, "norm_gain": setting.norm_gain,
                "everywhere": setting.everywhere,
            }
        )  # fmt: skip
        change_figure(self._figure, explorer_data(view, head_map), explorer_layout(view, head_map))
        self._say()
        self._renew_still()

    def _say(self, message: str = "") -> None:
        from html import escape

        self.message = message
        style = "color:#b8431b;font-weight:600" if message else ""
        text = message or self.view.summary
        self._said.value = f'<span style="{style}">{escape(text)}</span>'

    def _renew_still(self) -> None:
        """Renew the figure behind the widget, once the view has settled."""
        if self._still is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._update_still()
        else:
            self._timer = loop.call_later(SETTLED, self._update_still)

    def _update_still(self) -> None:
        self._still.update(figure_bundle(self.figure()), raw=True)
