"""What the idealised system says of a case, and how far the case is from its assumptions."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ....interp.theory import CosinePath
from ...rows import rows_where
from .config import Case, ClusteringConfig
from .ideal import table_path
from .profiles import Estimate, Profile, over_depth


@dataclass(frozen=True)
class Departure:
    """How far a case is from the assumptions at the profile length: means over blocks and seeds.

    Attributes:
        qk: Cosine between W_Q W_K^T and the identity (assumed 1).
        ov: The same of W_V W_O.
        layers_qk: Distance of W_Q W_K^T between consecutive blocks (assumed 0; 1: unrelated).
        layers_ov: The same of W_V W_O.
        start: Mean cosine of two tokens at the start (assumed 0).
        start_spread: Root mean square of those cosines (assumed 0).
        radius: Length of the tokens at the start over what a norm gives (assumed 1 by post).
        visible: Share of the pairs of tokens that see each other (assumed 1).
        mlp: Share of the turning that is the MLP's (assumed 0).
        step: Turning that the speed factor explains, to first order, in all blocks but the first:
            measured over predicted (1 for small steps).
        first_step: The same in the first block.
    """

    qk: Estimate
    ov: Estimate
    layers_qk: Estimate
    layers_ov: Estimate
    start: Estimate
    start_spread: Estimate
    radius: Estimate
    visible: Estimate
    mlp: Estimate
    step: Estimate
    first_step: Estimate


def find_departure(config: ClusteringConfig, case: Case, table: pd.DataFrame) -> Departure:
    """Read a case's distance from the assumptions off the table of the study."""

    own = rows_where(table, table["checkpoint"] == case.label)

    def lines(quantity: str) -> Profile:
        return over_depth(own, case.label, quantity, config.profile_length)

    def over_blocks(quantity: str) -> Estimate:
        return lines(quantity).each_seed(lambda line: float(line.mean()))

    def first(quantity: str) -> Estimate:
        return lines(quantity).each_seed(lambda line: float(line[0]))

    ratio = lines("turn_ratio")
    mlp = Estimate(0.0, 0.0, 0.0, len(config.seeds))
    if case.mlp:
        its, other = lines("mlp_turn").seeds.mean(1), lines("attention_turn").seeds.mean(1)
        mlp = Estimate.of(its / (its + other))
    spread = lines("mean_square_cosine").each_seed(lambda line: float(line[0] ** 0.5))
    return Departure(
        over_blocks("identity_cosine_qk"),
        over_blocks("identity_cosine_ov"),
        over_blocks("layer_distance_qk"),
        over_blocks("layer_distance_ov"),
        first("mean_cosine"),
        spread,
        first("stream_radius"),
        first("visible_share"),
        mlp,
        ratio.each_seed(lambda line: float(line[1:].mean())),
        ratio.each_seed(lambda line: float(line[0])),
    )


def idealised(config: ClusteringConfig, case: Case, table: pd.DataFrame) -> CosinePath:
    """The idealised system beside a case: its placement's row of theory 11, a block a unit of time.

    What the system leaves free is measured: the inverse temperature is the slope of the scores
    against the cosines (at least 0), blocks weighted by the variance of their cosines, so that
    a block whose tokens have met, which has no slope to speak of, does not count; the radius at the
    start is that of the tokens, the step of nGPT the learned one.
    """

    own = rows_where(table, table["checkpoint"] == case.label)

    def values(quantity: str) -> NDArray[np.float64]:
        return over_depth(own, case.label, quantity, config.profile_length).mean

    entering = slice(0, case.n_layers)
    variance = values("mean_square_cosine")[entering] - values("mean_cosine")[entering] ** 2
    slope = float(np.average(values("score_slope"), weights=np.maximum(variance, 0.0)))

    alpha = 1.0
    if case.placement == "ngpt":
        alpha = float(values("output_norm").mean() / values("speed_factor").mean())
    return table_path(
        case.placement,
        case.n_layers,
        config.profile_length,
        max(0.0, slope),
        float(values("stream_radius")[0]),
        alpha,
    )
