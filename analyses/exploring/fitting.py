"""What the page does for the explorer: its figure as wide as the cell, its sliders moved by key."""

from typing import Any

__all__ = ["fitting_widget"]

# Plotly draws before it is attached, so it does not know how wide it may be; it asks again when the
# window changes. Notebook 7 takes the arrow keys for itself, but not under this attribute.
_ESM = """
export default {
  render({ el }) {
    const watch = new ResizeObserver(() => {
      window.dispatchEvent(new Event("resize"));
      for (const handle of box.querySelectorAll(".noUi-handle")) {
        handle.setAttribute("data-lm-suppress-shortcuts", "");
      }
    });
    let box, asked;
    const begin = () => {
      box = el.closest(".MARK");
      if (box) watch.observe(box);
      else asked = requestAnimationFrame(begin);
    };
    begin();
    return () => {
      cancelAnimationFrame(asked);
      watch.disconnect();
    };
  },
};
"""


def fitting_widget(mark: str) -> Any:
    """A widget that shows nothing and looks after the box around it.

    Args:
        mark: Class of that box.
    """
    import anywidget

    class Fitting(anywidget.AnyWidget):
        _esm = _ESM.replace("MARK", mark)

    return Fitting()
