"""What theory predicts for an attention row, a norm and the set-complement model.

NumPy float64 only. A function whose name begins with `predict_` gives a value; one that ends in
`_bound`, `_bounds`, `_limit`, `_rate` or `_threshold` gives a side, an asymptote or a level; one
that ends in `_curve` or `_curves` gives `Curve`s ready to lay over the table.

| file | its laws |
| --- | --- |
| `displacement` | the two-body identity, the structured solution, the least width |
| `error` | from displacements to total variation, illegal mass and KL, and back |
| `rescaling` | closed forms of the scale and the gap for each norm placement |
| `short_scales` | the scale at every length from those at lengths 1 and 2 |
| `dispersion` | weights and entropy from the spread or the deviation of the scores |
| `norms` | norm and variance of the attention output |
| `length_curves`, `key_curves` | the same as `Curve`s over length and over n_key |
"""

from .curve import (
    KINDS,
    X_NAMES,
    Curve,
    Place,
)
from .dispersion import (
    Bounds,
    effective_support_limit,
    entropy_bound,
    entropy_limit,
    lemma_weight_bounds,
    max_weight_bounds,
    max_weight_limit,
    n_key_bound,
    predict_gaussian_entropy,
    predict_gaussian_support,
    qk_norm_weight_bounds,
    required_spread_bound,
    score_norm_entropy_bound,
    spread_bound,
    tight_entropy_bound,
    weight_bounds,
)
from .displacement import (
    last_token_threshold,
    minimum_displacement_bound,
    minimum_value_width_bound,
    minimum_width_bound,
    oscillation_bound,
    predict_balanced_displacement,
    predict_displacement,
    predict_two_body,
)
from .error import (
    displacement_threshold,
    predict_crossing_length,
    predict_illegal_mass,
    predict_kl_divergence,
    predict_total_variation,
)
from .key_curves import (
    average_norm_curve,
    deviation_entropy_bound_curve,
    dispersion_limit_curves,
    entropy_bound_curve,
    gaussian_entropy_curve,
    gaussian_support_curve,
    variance_bound_curve,
    variance_rate_curve,
    weight_bound_curves,
)
from .length_curves import (
    balanced_displacement_curve,
    displacement_rescale_curve,
    error_curve,
    gap_curve,
    minimum_displacement_bound_curve,
    oscillation_bound_curve,
    rescale_gain_curve,
    rescale_gain_from_short_curve,
    scale_curve,
    scale_from_short_curve,
)
from .norms import (
    output_variance_bound,
    output_variance_rate,
    peri_norm_bound,
    predict_average_norm,
)
from .rescaling import (
    NORMALIZATION_FAMILIES,
    SCALE_LAWS,
    ScaleLaw,
    predict_crossover_length,
    predict_gap,
    predict_output_layer_scale,
    predict_output_rms_scale,
    predict_pattern_scale,
    predict_post_layer_scale,
    predict_post_rms_scale,
    predict_rescale_gain,
    predict_scale,
    predict_unit_scale,
)
from .short_scales import (
    SCALE_HYPOTHESES,
    predict_crossover_from_short,
    predict_rescale_gain_from_short,
    predict_scale_from_short,
)

__all__ = [
    "KINDS",
    "NORMALIZATION_FAMILIES",
    "SCALE_HYPOTHESES",
    "SCALE_LAWS",
    "X_NAMES",
    "Bounds",
    "Curve",
    "Place",
    "ScaleLaw",
    "average_norm_curve",
    "balanced_displacement_curve",
    "deviation_entropy_bound_curve",
    "dispersion_limit_curves",
    "displacement_rescale_curve",
    "displacement_threshold",
    "effective_support_limit",
    "entropy_bound",
    "entropy_bound_curve",
    "entropy_limit",
    "error_curve",
    "gap_curve",
    "gaussian_entropy_curve",
    "gaussian_support_curve",
    "last_token_threshold",
    "lemma_weight_bounds",
    "max_weight_bounds",
    "max_weight_limit",
    "minimum_displacement_bound",
    "minimum_displacement_bound_curve",
    "minimum_value_width_bound",
    "minimum_width_bound",
    "n_key_bound",
    "oscillation_bound",
    "oscillation_bound_curve",
    "output_variance_bound",
    "output_variance_rate",
    "peri_norm_bound",
    "predict_average_norm",
    "predict_balanced_displacement",
    "predict_crossing_length",
    "predict_crossover_from_short",
    "predict_crossover_length",
    "predict_displacement",
    "predict_gap",
    "predict_gaussian_entropy",
    "predict_gaussian_support",
    "predict_illegal_mass",
    "predict_kl_divergence",
    "predict_output_layer_scale",
    "predict_output_rms_scale",
    "predict_pattern_scale",
    "predict_post_layer_scale",
    "predict_post_rms_scale",
    "predict_rescale_gain",
    "predict_rescale_gain_from_short",
    "predict_scale",
    "predict_scale_from_short",
    "predict_total_variation",
    "predict_two_body",
    "predict_unit_scale",
    "qk_norm_weight_bounds",
    "required_spread_bound",
    "rescale_gain_curve",
    "rescale_gain_from_short_curve",
    "scale_curve",
    "scale_from_short_curve",
    "score_norm_entropy_bound",
    "spread_bound",
    "tight_entropy_bound",
    "variance_bound_curve",
    "variance_rate_curve",
    "weight_bound_curves",
    "weight_bounds",
]
