"""The search's figures, in the order of the report."""

from typing import TYPE_CHECKING

from ..figures.search import plot_effects, plot_marginals, plot_winners
from .effects import effects_frame
from .marginals import marginals
from .sentences import objective_words
from .study import SearchStudy
from .winners import winners_frame

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def search_figures(search: SearchStudy) -> "dict[str, Figure]":
    """Draw everything the report shows, by name."""
    what = objective_words(search.space)
    figures = {"effects": plot_effects(effects_frame(search.effects), objective=what)}
    if search.winners:
        figures["winners"] = plot_winners(winners_frame(search.winners), objective=what)
    figures["marginals"] = plot_marginals(marginals(search.space, search.trials), objective=what)
    return figures
