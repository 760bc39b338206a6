"""The study's figures, in the order of the report."""

from typing import TYPE_CHECKING

from ...figures import plot_remedy_map, retitle
from ...rows import rows_where
from .config import RemediesConfig
from .mapping import map_frame
from .study import RemediesStudy

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def study_figures(config: RemediesConfig, study: RemediesStudy) -> "dict[str, Figure]":
    """Draw everything the report shows, by name."""
    frame = map_frame(study.cells)
    plain = frame["model"] == frame["remedy"] + " / " + frame["placement"]
    of_map = {
        "remedies": frame["placement"].isin(config.remedy_placements) & plain,
        "placements": frame["remedy"].eq("softmax") & plain,
    }
    titles = {
        "remedies": "Which remedy cures which dispersion",
        "placements": "Which norm placement cures which dispersion",
    }
    figures = {}
    for name, chosen in of_map.items():
        rows = rows_where(frame, chosen)
        if len(rows):
            figures[name] = retitle(plot_remedy_map(rows, threshold=config.threshold), titles[name])
    return figures
