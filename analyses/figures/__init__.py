"""Figures of measurements with theory laid over them; the only package that imports plotly.

Every function takes computed numbers (the tidy table, curves, arrays), returns a
`plotly.graph_objects.Figure` and never shows it. Measured is markers, a solid line and its 95 %
interval; theory is always dashed, in the colour of the series it speaks about, with its name,
hypotheses and source on hover. What a reader needs to know stands in `figure.layout.meta`
(`title`, `caption`), from which the report takes it.
"""

from .animation import plot_token_paths
from .clustering import SECTION, plot_clustering
from .dispersion import plot_dispersion
from .displacement import plot_displacement
from .embed import figure_height, figure_json, figure_meta, plotly_script
from .error import plot_error
from .head_map import plot_head_map
from .limits import plot_limits, plot_sampling_error
from .patterns import plot_patterns
from .remedy_map import plot_remedy_map
from .rescaling import plot_rescaling
from .score_laws import plot_score_laws
from .theme import in_section, retitle

__all__ = [
    "SECTION",
    "figure_height",
    "figure_json",
    "figure_meta",
    "in_section",
    "plot_clustering",
    "plot_dispersion",
    "plot_displacement",
    "plot_error",
    "plot_head_map",
    "plot_limits",
    "plot_patterns",
    "plot_remedy_map",
    "plot_rescaling",
    "plot_sampling_error",
    "plot_score_laws",
    "plot_token_paths",
    "plotly_script",
    "retitle",
]
