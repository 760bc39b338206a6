"""The study's figures, in the order of the report."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from ...figures import retitle
from ...figures.averaging import plot_averaging_errors, plot_averaging_gains, plot_label_noise
from ...rows import distinct, pick, rows_where
from ...seeds import Interval
from .config import AveragingConfig
from .gains import QUANTITIES, gain_frame
from .noise import AT_LOGITS, TaskFacts, progress_label
from .sentences import MAIN
from .study import AveragingStudy

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def study_figures(config: AveragingConfig, study: AveragingStudy) -> "dict[str, Figure]":
    """Draw everything the report shows, by name."""
    frame = gain_frame(item for item in study.gains if item.learned)
    words = QUANTITIES[MAIN]
    figures: dict[str, Figure] = {}
    for factor in config.rate_factors:
        shown = rows_where(frame, (frame["quantity"] == MAIN) & (frame["rate_factor"] == factor))
        suffix = "" if factor == 1 else f", {factor:g} times the learning rate"
        for longer, where in ((False, "at the training length"), (True, "at longer inputs")):
            rows = rows_where(shown, shown["longer"] == longer)
            if len(rows):
                title = f"What averaging gains {where}{suffix}"
                figures[f"gains {where}{suffix}"] = retitle(
                    plot_averaging_gains(rows, error=words), title
                )
    main = rows_where(
        frame, (frame["quantity"] == MAIN) & ~frame["longer"] & (frame["rate_factor"] == 1)
    )
    if len(main):
        figures["errors"] = plot_averaging_errors(main, error=words)
    noise = noise_frame(study.result.table, study.facts)
    for step in _drawn(config):
        if step in set(noise["step"].tolist()):
            figures[f"noise, {step}"] = retitle(
                plot_label_noise(noise, step=step), f"Noise of the gradient at {step}"
            )
    return figures


def noise_frame(table: pd.DataFrame, facts: Mapping[str, TaskFacts]) -> pd.DataFrame:
    """The noise over seeds, one row a task, step and quantity; positions are averaged."""
    rows = []
    noise = rows_where(table, table["site"].isin(["weights"]) | (table["quantity"] == AT_LOGITS))
    for task in distinct(noise, "task"):
        own = pick(noise, task=task)
        for step in distinct(own, "checkpoint"):
            at = pick(own, checkpoint=step)
            for quantity in distinct(at, "quantity"):
                own_rows = pick(at, quantity=quantity)
                found = Interval.of(
                    [
                        float(pick(own_rows, seed=seed)["mean"].to_numpy(float).mean())
                        for seed in distinct(own_rows, "seed")
                    ]
                )
                rows.append(
                    {
                        "task": task,
                        "legal": facts[task].legal,
                        "step": step,
                        "quantity": quantity,
                        "mean": found.mean,
                        "low": found.low,
                        "high": found.high,
                        "n_seeds": found.n_seeds,
                    }
                )
    return pd.DataFrame(rows)


def _drawn(config: AveragingConfig) -> list[str]:
    """An early point of the run and the last one."""
    fractions = sorted(config.noise_steps)
    return [progress_label(step) for step in dict.fromkeys([fractions[:2][-1], fractions[-1]])]
