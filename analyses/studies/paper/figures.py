"""The study's figures, in the order of the report."""

from typing import TYPE_CHECKING

from ...figures import plot_error, retitle
from ...figures.paper import plot_claims, plot_length_law
from .claim import claim_frame
from .config import NORM_PLACEMENTS, PaperConfig
from .language_claims import language_frame
from .length_claims import minimal_label
from .placement_claims import placement_label
from .study import PaperStudy

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def study_figures(config: PaperConfig, study: PaperStudy) -> "dict[str, Figure]":
    """Draw everything the report shows, by name."""
    table, curves = study.result.table, study.result.curves
    known = set(table["checkpoint"].tolist())
    minimal = [name for name in map(minimal_label, config.theorem_lengths) if name in known]
    figures = {"claims": plot_claims(claim_frame(study.claims))}
    if minimal:
        figures["law"] = plot_length_law(table, curves, checkpoints=minimal)
    for depth in config.depths:
        variants = [(name, False) for name in NORM_PLACEMENTS] + [("pre", True)]
        labels = [placement_label(name, depth, final) for name, final in variants]
        labels = [label for label in labels if label in known]
        if labels:
            drawn = plot_error(table, train_length=config.training.length, checkpoints=labels)
            title = f"Claim 3: total variation of norm placements, {labels[0].split(', ')[1]}"
            figures[f"placements {depth}"] = retitle(drawn, title)
    by_language = language_frame(study.effects)
    if len(by_language):
        drawn = plot_claims(by_language, title="Claim 5, language by language")
        figures["languages"] = drawn
    return figures
