"""Measures: pure functions of arrays, each with a unit and a range, and the registry of them."""

from functools import partial
from math import inf

from ...models.facts import Registry
from .clustering import (
    angular_speed,
    cluster_count,
    cluster_labels,
    cluster_sizes,
    cosine_histogram,
    directions,
    effective_rank,
    mean_cosine,
    mean_square_cosine,
    norm_growth,
    ranks,
    stable_rank,
)
from .dispersion import (
    effective_support,
    entropy,
    entropy_support,
    irrelevant_mass,
    key_count,
    max_weight,
    normalised_entropy,
    relevant_mass,
    score_deviation,
    score_spread,
    sink_mass,
    top_k_mass,
    total_mass,
)
from .displacement import displacement, displacement_rescale, min_displacement, oscillation
from .error import illegal_mass, kl_divergence, total_variation
from .limits import jacobian_entry, jacobian_norm, selection_distance, separable_share
from .measure import ARRAYS, UNITS, Measure
from .norms import contribution_norm, norm_scale, output_variance, residual_norm
from .rescaling import rescale_gain
from .sequences import all_legal_rate, legal_set_rate, mean_over_positions

_ROW = ("weights", "visible")
_SPLIT = ("weights", "relevant", "visible")
_SEEN = ("present", "absent")

_ENTRIES: dict[str, Measure] = {
    "entropy": Measure(
        "entropy", entropy, _ROW, "nats", (0.0, inf), "-sum a log a, at most log n_key"
    ),
    "normalised_entropy": Measure(
        "normalised_entropy",
        normalised_entropy,
        _ROW,
        "ratio",
        (0.0, 1.0),
        "entropy over log n_key",
    ),
    "effective_support": Measure(
        "effective_support", effective_support, _ROW, "1", (1.0, inf), "1 / sum a^2"
    ),
    "entropy_support": Measure(
        "entropy_support", entropy_support, _ROW, "1", (1.0, inf), "e to the entropy"
    ),
    "max_weight": Measure("max_weight", max_weight, _ROW, "ratio", (0.0, 1.0), "largest weight"),
    "total_mass": Measure(
        "total_mass",
        total_mass,
        ("unnormalised", "visible"),
        "1",
        (-inf, inf),
        "sum of the weights, where they need not sum to one",
    ),
    "top_4_mass": Measure(
        "top_4_mass", partial(top_k_mass, k=4), _ROW, "ratio", (0.0, 1.0), "sum of the 4 largest"
    ),
    "relevant_mass": Measure(
        "relevant_mass", relevant_mass, _SPLIT, "ratio", (0.0, 1.0), "mass on the relevant keys"
    ),
    "irrelevant_mass": Measure(
        "irrelevant_mass", irrelevant_mass, _SPLIT, "ratio", (0.0, 1.0), "mass on the other keys"
    ),
    "sink_mass": Measure(
        "sink_mass", sink_mass, _ROW, "ratio", (0.0, 1.0), "weight of the first visible key"
    ),
    "score_spread": Measure(
        "score_spread", score_spread, ("scores", "visible"), "1", (0.0, inf), "max s - min s"
    ),
    "score_deviation": Measure(
        "score_deviation",
        score_deviation,
        ("scores", "visible"),
        "1",
        (0.0, inf),
        "standard deviation of the scores over the visible keys",
    ),
    "residual_norm": Measure(
        "residual_norm", residual_norm, ("stream",), "l2", (0.0, inf), "length of the stream vector"
    ),
    "contribution_norm": Measure(
        "contribution_norm",
        contribution_norm,
        ("contribution",),
        "l2",
        (0.0, inf),
        "length of what a sub-layer adds to the stream",
    ),
    "norm_scale": Measure(
        "norm_scale", norm_scale, ("scale",), "1", (0.0, inf), "what a norm divides by"
    ),
    "output_variance": Measure(
        "output_variance",
        output_variance,
        ("outputs",),
        "1",
        (0.0, inf),
        "variance over sequences of the attention output, mean over coordinates",
    ),
    "rescale_gain": Measure(
        "rescale_gain",
        rescale_gain,
        ("scale_alone", "scale"),
        "ratio",
        (0.0, inf),
        "scale of the same token alone over its scale here",
    ),
    "displacement": Measure(
        "displacement",
        displacement,
        ("logits", *_SEEN),
        "logit",
        (-inf, inf),
        "mean absent logit minus present logit, mean over present tokens",
    ),
    "min_displacement": Measure(
        "min_displacement",
        min_displacement,
        ("logits", *_SEEN),
        "logit",
        (-inf, inf),
        "the same for the worst present token",
    ),
    "oscillation": Measure(
        "oscillation",
        oscillation,
        ("logits", "absent"),
        "logit",
        (0.0, inf),
        "max minus min over the absent tokens",
    ),
    "frozen_displacement": Measure(
        "frozen_displacement",
        displacement,
        ("frozen_logits", *_SEEN),
        "logit",
        (-inf, inf),
        "displacement with every norm's scale frozen at that of the token alone",
    ),
    "displacement_rescale": Measure(
        "displacement_rescale",
        displacement_rescale,
        ("logits", "frozen_logits", *_SEEN),
        "ratio",
        (-inf, inf),
        "displacement over frozen displacement: what the norms restore",
    ),
    "total_variation": Measure(
        "total_variation",
        total_variation,
        ("logits", "target"),
        "ratio",
        (0.0, 1.0),
        "half the summed difference to the exact distribution",
    ),
    "kl_divergence": Measure(
        "kl_divergence",
        kl_divergence,
        ("logits", "target"),
        "nats",
        (0.0, inf),
        "KL(target || model)",
    ),
    "illegal_mass": Measure(
        "illegal_mass",
        illegal_mass,
        ("logits", "target"),
        "ratio",
        (0.0, 1.0),
        "probability of tokens that may not follow",
    ),
}

MEASURES: Registry[Measure] = Registry(
    _ENTRIES, {name: f"{item.doc} ({item.unit})" for name, item in _ENTRIES.items()}
)
"""Every measure, by the name of its quantity."""


def get_measure(name: str) -> Measure:
    """Look a measure up by the name of its quantity.

    Raises:
        ValueError: If there is none of that name, listing those there are.
    """
    if name not in MEASURES:
        raise ValueError(f"unknown measure {name!r}; known measures are {', '.join(MEASURES)}")
    return MEASURES[name]


__all__ = [
    "ARRAYS",
    "MEASURES",
    "UNITS",
    "Measure",
    "all_legal_rate",
    "angular_speed",
    "cluster_count",
    "cluster_labels",
    "cluster_sizes",
    "contribution_norm",
    "cosine_histogram",
    "directions",
    "displacement",
    "displacement_rescale",
    "effective_rank",
    "effective_support",
    "entropy",
    "entropy_support",
    "get_measure",
    "illegal_mass",
    "irrelevant_mass",
    "jacobian_entry",
    "jacobian_norm",
    "key_count",
    "kl_divergence",
    "legal_set_rate",
    "max_weight",
    "mean_cosine",
    "mean_over_positions",
    "mean_square_cosine",
    "min_displacement",
    "norm_growth",
    "norm_scale",
    "normalised_entropy",
    "oscillation",
    "output_variance",
    "ranks",
    "relevant_mass",
    "rescale_gain",
    "residual_norm",
    "score_deviation",
    "score_spread",
    "selection_distance",
    "separable_share",
    "sink_mass",
    "stable_rank",
    "top_k_mass",
    "total_mass",
    "total_variation",
]
