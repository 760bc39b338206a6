"""Laws of remedies as `Curve`s over the number of visible keys (theory 1.1, 3, 4, 7, 8, 12 to 16).

Every builder takes `n_key` `[point]` (whole numbers, increasing), the parameters of its law, and
the keywords of `Place` that say which rows of the table the curve belongs to. Formula, range and
errors are those of the function that each builder names; what does not make a `Curve` raises its
ValueError.

A needle's curve is about `relevant_mass` of a task with one relevant key. Quantities that no
measure of the table has: `needle_signal` (coordinate of the attention output along the needle's
value), `total_mass` (sum of a row's weights), `token_cosine` (cosine of two tokens after the step),
`influence` (change of an attention output when one token is replaced) and `sampling_error` (root
mean square of an attention output around its limit).
"""

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from .arguments import check_real, check_whole
from .curve import Curve, Place
from .dispersion import qk_norm_entropy_bound, qk_norm_weight_bounds
from .influence import influence_bound
from .needle import predict_remedy_signal, predict_remedy_weights
from .phases import predict_simplex_cosine, simplex_cosine_limit
from .scalable_softmax import ssmax_weight_bound
from .sigmoid import sigmoid_mass_bounds
from .sparse import entmax_entropy_bound

EVERYWHERE = (1.0, np.inf)
ONE_NEEDLE = "one relevant key, and every other key exactly the margin below it"
LEVEL = "the scores of the other keys are those given (the weights need not sum to one)"
ORTHONORMAL_VALUES = "the values of all keys are orthonormal"
NORMED = "a unit norm on the attention output, with no other content in what it norms"
SIMPLEX = "tokens of one norm, every pair at the cosine given, each seeing all n"
IDENTITY = "query, key and value matrices are the identity"

REMEDY_SOURCES = {
    "softmax": "derived here (theory 1.1)",
    "temperature": "derived here (theory 1.1)",
    "sqrt_log_n": "derived here (theory 3 and 5)",
    "log_n": "derived here (theory 3 and 14)",
    "ssmax": "derived here (theory 3); SSMax is arXiv 2501.19399",
    "adaptive": "derived here from the polynomial of arXiv 2410.01104 [second-hand] (theory 2)",
    "entmax": "derived here (theory 7)",
    "softmax1": "derived here (theory 16)",
    "sigmoid": "derived here (theory 16); sigmoid attention is arXiv 2409.04431",
    "hardmax": "elementary (theory 7)",
}
"""Where each remedy's needle curve comes from."""


def _needle_hypotheses(remedy: str) -> tuple[str, ...]:
    """What the needle's closed form assumes."""
    return (ONE_NEEDLE, LEVEL) if remedy in ("softmax1", "sigmoid") else (ONE_NEEDLE,)


def needle_weight_curve(
    remedy: str,
    n_key: ArrayLike,
    margin: ArrayLike,
    *,
    strength: ArrayLike = 1.0,
    distractor_score: ArrayLike = 0.0,
    alpha: ArrayLike = 1.5,
    bias: ArrayLike | None = None,
    **place: Unpack[Place],
) -> Curve:
    """`predict_remedy_weights` of `relevant_mass`: the needle's weight under a remedy."""
    x = check_whole("n_key", n_key)
    weights = predict_remedy_weights(
        remedy,
        x,
        margin,
        strength=strength,
        distractor_score=distractor_score,
        alpha=alpha,
        bias=bias,
    )
    return Curve(
        name=f"weight of a needle, {remedy}",
        quantity="relevant_mass",
        unit="ratio",
        x=x,
        values=weights.needle,
        kind="exact",
        hypotheses=_needle_hypotheses(remedy),
        source=REMEDY_SOURCES[remedy],
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def needle_signal_curve(
    remedy: str,
    n_key: ArrayLike,
    margin: ArrayLike,
    *,
    unit_norm: bool = False,
    strength: ArrayLike = 1.0,
    distractor_score: ArrayLike = 0.0,
    alpha: ArrayLike = 1.5,
    bias: ArrayLike | None = None,
    **place: Unpack[Place],
) -> Curve:
    """`predict_remedy_signal` of `needle_signal`, with or without a norm after the attention."""
    x = check_whole("n_key", n_key)
    signal = predict_remedy_signal(
        remedy,
        x,
        margin,
        unit_norm=unit_norm,
        strength=strength,
        distractor_score=distractor_score,
        alpha=alpha,
        bias=bias,
    )
    hypotheses = (*_needle_hypotheses(remedy), ORTHONORMAL_VALUES)
    return Curve(
        name=f"signal of a needle, {remedy}{' and a norm' if unit_norm else ''}",
        quantity="needle_signal",
        unit="ratio",
        x=x,
        values=signal,
        kind="exact",
        hypotheses=(*hypotheses, NORMED) if unit_norm else hypotheses,
        source=REMEDY_SOURCES[remedy],
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def ssmax_weight_bound_curve(
    n_key: ArrayLike, margin: ArrayLike, strength: ArrayLike, **place: Unpack[Place]
) -> Curve:
    """`ssmax_weight_bound` of `max_weight`: give the smallest margin of the rows."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="least weight of the largest score, SSMax",
        quantity="max_weight",
        unit="ratio",
        x=x,
        values=ssmax_weight_bound(x, margin, strength),
        kind="lower_bound",
        hypotheses=("every other score lies at least the margin below the row's largest",),
        source=REMEDY_SOURCES["ssmax"],
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def qk_norm_bound_curves(
    n_key: ArrayLike, gain: ArrayLike, **place: Unpack[Place]
) -> tuple[Curve, Curve]:
    """What a fixed gain allows: largest `max_weight` and least `entropy` under QK-norm."""
    x = check_whole("n_key", n_key)
    weight, entropy = (
        Curve(
            name=name,
            quantity=quantity,
            unit=unit,
            x=x,
            values=values,
            kind=kind,
            hypotheses=("softmax of scores g cos(q, k), with g at most the gain given",),
            source="derived here (theory 2 and 12)",
            domain=EVERYWHERE,
            x_name="n_key",
            **place,
        )
        for name, quantity, unit, values, kind in (
            (
                "largest weight that the gain allows",
                "max_weight",
                "ratio",
                qk_norm_weight_bounds(x, gain).upper,
                "upper_bound",
            ),
            (
                "least entropy that the gain allows",
                "entropy",
                "nats",
                qk_norm_entropy_bound(x, gain),
                "lower_bound",
            ),
        )
    )
    return weight, entropy


def entmax_entropy_bound_curve(
    n_key: ArrayLike, support: ArrayLike, **place: Unpack[Place]
) -> Curve:
    """`entmax_entropy_bound` of `entropy`: give the largest support of the rows, one a point."""
    x = check_whole("n_key", n_key)
    keys = check_whole("support", support)
    if (keys > x).any():
        raise ValueError(
            f"support must be at most n_key at every point, got {keys.max():g} against {x.min():g}."
        )
    return Curve(
        name="log of the support",
        quantity="entropy",
        unit="nats",
        x=x,
        values=np.broadcast_to(entmax_entropy_bound(keys), x.shape),
        kind="upper_bound",
        hypotheses=("every row has at most the support given",),
        source="standard; arXiv 2506.16640 [second-hand] (theory 7)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def sigmoid_mass_bound_curves(
    n_key: ArrayLike,
    score_limit: ArrayLike,
    bias: ArrayLike | None = None,
    **place: Unpack[Place],
) -> tuple[Curve, Curve]:
    """`sigmoid_mass_bounds` of `total_mass`: the lower and the upper curve."""
    x = check_whole("n_key", n_key)
    bounds = sigmoid_mass_bounds(x, score_limit, bias)
    lower, upper = (
        Curve(
            name=f"{side} mass of a sigmoid row",
            quantity="total_mass",
            unit="ratio",
            x=x,
            values=values,
            kind=kind,
            hypotheses=("|score| <= A", f"bias {'-log n' if bias is None else 'as given'}"),
            source=REMEDY_SOURCES["sigmoid"],
            domain=EVERYWHERE,
            x_name="n_key",
            **place,
        )
        for side, values, kind in (
            ("least", bounds.lower, "lower_bound"),
            ("largest", bounds.upper, "upper_bound"),
        )
    )
    return lower, upper


def simplex_cosine_curves(
    n_key: ArrayLike,
    cosine: float,
    gamma: float,
    residual: float = 0.0,
    **place: Unpack[Place],
) -> tuple[Curve, Curve]:
    """`predict_simplex_cosine` at beta = gamma log n (n >= 2), and `simplex_cosine_limit`."""
    x = check_whole("n_key", n_key, 2)
    beta = check_real("gamma", gamma, 0.0) * np.log(x)
    limit = np.full(x.shape, simplex_cosine_limit(gamma, cosine, residual))
    exact, asymptote = (
        Curve(
            name=f"cosine after the step, {name}",
            quantity="token_cosine",
            unit="ratio",
            x=x,
            values=values,
            kind=kind,
            hypotheses=(SIMPLEX, IDENTITY, "inverse temperature gamma log n", *more),
            source=source,
            domain=(2.0, np.inf),
            x_name="n_key",
            **place,
        )
        for name, values, kind, more, source in (
            (
                "n tokens",
                predict_simplex_cosine(x, cosine, beta, residual),
                "exact",
                (),
                "derived here (theory 4)",
            ),
            (
                "many tokens",
                limit,
                "limit",
                ("many tokens",),
                "Chen et al., arXiv 2510.05554, Theorem 2.1 [second-hand]; with a residual derived "
                "here (theory 4)",
            ),
        )
    )
    return exact, asymptote


def influence_bound_curve(
    n_key: ArrayLike, score_limit: ArrayLike, value_limit: ArrayLike, **place: Unpack[Place]
) -> Curve:
    """`influence_bound` of `influence`."""
    x = check_whole("n_key", n_key)
    return Curve(
        name="influence of one token, 4 V e^(2A) / n",
        quantity="influence",
        unit="l2",
        x=x,
        values=influence_bound(x, score_limit, value_limit),
        kind="upper_bound",
        hypotheses=(
            "one layer, |score| <= A and |value| <= V",
            "the replaced token is not the query's own",
        ),
        source="derived here (theory 14); O(1/n) is Hahn 2020, Lemma 5 [second-hand]",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )


def sampling_error_curve(
    n_key: ArrayLike, rate: float, *, uniform: bool = False, **place: Unpack[Place]
) -> Curve:
    """rate / sqrt(n) of `sampling_error`: a limit for one query, a conjecture over a ball of them.

    For one query the rate (>= 0) is `sampling_error_rate`. With `uniform` it is whatever constant
    was fitted: only the exponent is the paper's, and the curve is a conjecture.
    """
    x = check_whole("n_key", n_key)
    keys_drawn = "keys drawn i.i.d. (with replacement)"
    return Curve(
        name=f"sampling error, C / sqrt(n){' over a ball of queries' if uniform else ''}",
        quantity="sampling_error",
        unit="1",
        x=x,
        values=check_real("rate", rate, 0.0) / np.sqrt(x),
        kind="conjecture" if uniform else "limit",
        hypotheses=(keys_drawn, "compact or sub-Gaussian tokens", "largest error over a ball")
        if uniform
        else (keys_drawn, "finite vocabulary, one fixed query", "many keys"),
        source="Bohbot et al., arXiv 2512.10656, abstract; constant not known (theory 8)"
        if uniform
        else "derived here (theory 10)",
        domain=EVERYWHERE,
        x_name="n_key",
        **place,
    )
