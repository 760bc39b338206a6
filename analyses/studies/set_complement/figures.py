"""The study's figures, in the order of the report."""

from typing import TYPE_CHECKING

from ...figures import (
    plot_dispersion,
    plot_displacement,
    plot_error,
    plot_patterns,
    plot_rescaling,
    retitle,
)
from .config import SetComplementConfig
from .study import SetComplementStudy, constructed_label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def study_figures(config: SetComplementConfig, study: SetComplementStudy) -> "dict[str, Figure]":
    """Draw everything the report shows, by name."""
    measured, curves = study.result.table, study.result.curves
    trained = list(config.placements)
    constructed = [constructed_label(placement) for placement in trained]
    last = trained[-1]
    figures = {
        "error": plot_error(
            measured, curves, train_length=config.training.length, checkpoints=trained
        ),
        "displacement": plot_displacement(measured, curves, checkpoints=trained),
        "rescaling": plot_rescaling(measured, curves, checkpoints=trained),
        "entropy": plot_dispersion(measured, curves, quantity="entropy", checkpoints=trained),
        "max_weight": plot_dispersion(measured, curves, quantity="max_weight", checkpoints=trained),
        "constructed displacement": retitle(
            plot_displacement(measured, curves, checkpoints=constructed),
            "Closed-form models: displacement and its two factors",
        ),
        "constructed error": retitle(
            plot_error(measured, curves, checkpoints=constructed),
            "Closed-form models: total variation against length",
        ),
    }
    if study.patterns:
        figures["patterns"] = plot_patterns(
            study.patterns[last],
            title=f"Attention patterns: {last}, seed {config.seeds[0]}",
        )
    return figures
