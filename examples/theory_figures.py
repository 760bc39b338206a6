"""Draw the figures of docs/theory: what was measured or simulated, over its law.

Run by `make docs-figures`. Each panel below computes its points without the law that is drawn over
them: from a model's own numbers, or by simulating what the law speaks about. Needs the `static`
extra (kaleido) and a Chrome or Chromium that it can find.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import ArrayLike, NDArray

from resharpen.analyses import predict_from_short_inputs
from resharpen.analyses.figures.theme import COLOURS, MARKERS, log_axis, log_ladder
from resharpen.analyses.seeds import mean_over_seeds
from resharpen.interp.measures import displacement
from resharpen.interp.theory import (
    dispersed_jacobian_bound,
    max_weight_bounds,
    predict_balanced_displacement,
    predict_cosine_path,
    predict_entmax_needle_weight,
    predict_equiangular_tokens,
    predict_gap,
    predict_gaussian_entropy,
    predict_inverse_temperature,
    predict_needle_signal,
    predict_particles,
    predict_random_tokens,
    predict_simplex_cosine,
    predict_softmax_jacobian,
    simplex_cosine_limit,
)
from resharpen.models import (
    SetComplement,
    Transformer,
    construct_first,
    construct_set_complement,
    load_checkpoint,
    seeded_generator,
)

Numbers = NDArray[np.floating[Any]]
Law = Callable[[Numbers], ArrayLike]


@dataclass(frozen=True)
class Pair:
    """Points and the law drawn through them, or along their edge."""

    name: str
    x: Numbers
    points: Numbers
    law: Law
    half_width: Numbers | None = None  # of the 95 % interval
    law_name: str = "theory"


@dataclass(frozen=True)
class Panel:
    """One figure; `lines` are further curves, without points of their own."""

    title: str
    x_title: str
    y_title: str
    pairs: tuple[Pair, ...]
    lines: tuple[tuple[str, Law], ...] = ()
    log_x: bool = True
    log_y: bool = False
    whole: bool = True  # x counts tokens


def last_displacement(logits: torch.Tensor, tokens: torch.Tensor) -> float:
    """Mean displacement of the tokens seen, at the last position, over a batch."""
    present = torch.zeros(logits.shape, dtype=torch.bool).scatter(1, tokens, True)
    return float(displacement(logits.double(), present, ~present).mean())


def model_logits(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """Logits of the last position."""
    with torch.no_grad():
        return model(tokens)[:, -1]


def set_complement() -> Panel:
    """Displacement of a trained model without a norm, from its own inputs of one and two tokens."""
    model, task = load_checkpoint("set-complement-none").model(), SetComplement(32)
    lengths = np.array([1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 31])
    measured, predicted = [], []
    for length in lengths.tolist():
        tokens = task.sample(seeded_generator(0), 128, length).tokens
        found = predict_from_short_inputs(model, tokens)
        measured.append(last_displacement(found.measured, tokens))
        predicted.append(last_displacement(found.from_outputs, tokens))
    by_length = dict(zip(lengths.tolist(), predicted, strict=True))
    at_two = measured[1]
    return Panel(
        "Set complement, no norm, trained to length 8",
        "length",
        "displacement (logit)",
        (
            Pair(
                "measured",
                lengths.astype(float),
                np.array(measured),
                lambda x: np.interp(x, list(by_length), list(by_length.values())),
                law_name="two-body identity, from lengths 1 and 2",
            ),
        ),
        (("2/s law from length 2", lambda s: predict_balanced_displacement(s, at_two)),),
        log_y=True,
    )


def bounds() -> Panel:
    """Largest weight of rows whose scores lie within a spread of each other."""
    generator, keys = np.random.default_rng(0), 2.0 ** np.arange(1, 13)
    pairs = []
    for spread in (2.0, 4.0, 8.0):
        strongest = []
        for n in keys.astype(int).tolist():
            # Between one key and all of them at the top, the others spread out below.
            scores = spread * generator.random((256, n)) ** generator.uniform(0.2, 20.0, (256, 1))
            scores[:, 0] = spread
            weights = np.exp(scores - scores.max(1, keepdims=True))
            strongest.append(float((weights.max(1) / weights.sum(1)).max()))
        pairs.append(
            Pair(
                f"spread {spread:g}, strongest of 256 rows",
                keys,
                np.array(strongest),
                lambda n, spread=spread: max_weight_bounds(n, spread).upper,
                law_name="upper bound",
            )
        )
    return Panel(
        "Bounded scores disperse",
        "keys that the row sees, n",
        "largest weight",
        tuple(pairs),
        (("1/n: full dispersion", lambda n: 1 / n),),
        log_y=True,
    )


def critical_scaling() -> Panel:
    """Cosine of equiangular tokens after one attention step, at an inverse temperature g log n."""
    cosine, gammas = 0.5, np.linspace(0.0, 5.0, 21)
    pairs = []
    for n in (16, 128, 1024):
        tokens = predict_equiangular_tokens(n, cosine, n)
        scores = tokens @ tokens.T
        after = []
        for gamma in gammas:
            weights = np.exp(gamma * np.log(n) * (scores[:2] - 1.0))
            moved = weights / weights.sum(1, keepdims=True) @ tokens
            after.append(moved[0] @ moved[1] / np.linalg.norm(moved, axis=1).prod())

        def law(gamma: Numbers, n: int = n) -> ArrayLike:
            return predict_simplex_cosine(n, cosine, gamma * np.log(n))

        pairs.append(Pair(f"n = {n}, one step", gammas, np.array(after), law, law_name="exact"))
    return Panel(
        "One attention step on tokens of cosine 1/2: the transition at 2 log n",
        "inverse temperature over log n",
        "cosine after the step",
        tuple(pairs),
        (("limit of long inputs", lambda gamma: simplex_cosine_limit(gamma, cosine)),),
        log_x=False,
        whole=False,
    )


def norms() -> Panel:
    """Gap between absent and present tokens in closed-form models, one a norm placement."""
    v, p, b, lengths = 32, 20.0, 4.0, np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 31])
    pairs = []
    for placement in ("none", "post", "res_post"):
        model = construct_set_complement(v, norm_placement=placement, p=p, residual=b).model()
        gaps = []
        for length in lengths.tolist():
            tokens = SetComplement(v).sample(seeded_generator(0), 32, length).tokens
            gaps.append(last_displacement(model_logits(model, tokens), tokens))

        def law(s: Numbers, placement: str = placement) -> ArrayLike:
            kind = None if placement == "none" else "RMS"
            return predict_gap(placement, kind, s, p, width=3 * v, residual=b, eps=1e-5)

        pairs.append(Pair(placement, lengths.astype(float), np.array(gaps), law))
    return Panel(
        "What a norm gives back: closed-form models, RMSNorm, p = 20, b = 4",
        "length",
        "logit gap, absent less present",
        tuple(pairs),
        log_y=True,
    )


def needles() -> Panel:
    """Part of one relevant key in the attention output, under four ways to make weights."""
    margin, keys = 3.0, 2.0 ** np.arange(1, 13)
    shown = (("softmax", "fixed", 1.0), ("sqrt_log_n", "sqrt_log_n", 1.0), ("ssmax", "log_n", 0.43))
    pairs = []

    def weights_of(normalizer: str, n: int) -> Numbers:
        model = construct_first(margin=margin, normalizer=normalizer).model()  # type: ignore[arg-type]
        tokens = torch.tensor([[2] + [0] * (n - 1)])
        hook = "blocks.0.attn.hook_pattern"
        with torch.no_grad():
            _, cache = model.run_with_cache(tokens, names_filter=hook)
        return cache[hook][0, 0, -1].double().numpy()

    for name, form, strength in shown:
        points = np.array([weights_of(name, n)[0] for n in keys.astype(int).tolist()])

        def law(n: Numbers, form: str = form, strength: float = strength) -> ArrayLike:
            beta = predict_inverse_temperature(form, n, strength)
            return predict_needle_signal(n, margin, beta)

        pairs.append(Pair(name, keys, points, law))
    sparse = np.array([weights_of("entmax", n)[0] for n in keys.astype(int).tolist()])
    pairs.append(Pair("entmax", keys, sparse, lambda n: predict_entmax_needle_weight(n, margin)))
    normed = []
    for n in keys.astype(int).tolist():
        weights = weights_of("softmax", n)  # orthonormal values: the output has the weights' length
        normed.append(weights[0] / np.linalg.norm(weights))
    pairs.append(
        Pair(
            "softmax, norm after attention",
            keys,
            np.array(normed),
            lambda n: predict_needle_signal(n, margin, unit_norm=True),
        )
    )
    return Panel(
        "A needle of margin 3 among n - 1 equal keys",
        "keys that the row sees, n",
        "signal of the needle",
        tuple(pairs),
    )


def gaussian_rows() -> Panel:
    """Entropy of rows of independent Gaussian scores."""
    generator, keys = np.random.default_rng(0), 2.0 ** np.arange(3, 17)
    pairs = []
    for sigma in (1.0, 2.0, 4.0):
        lost, half = [], []
        for n in keys.astype(int).tolist():
            scores = sigma * generator.standard_normal((64, n))
            scores -= scores.max(1, keepdims=True)
            weights = np.exp(scores)
            total = weights.sum(1)
            entropy = np.log(total) - (weights * scores).sum(1) / total
            mean, _, width = mean_over_seeds(entropy)
            lost.append(mean)
            half.append(width)

        def law(n: Numbers, sigma: float = sigma) -> ArrayLike:
            return predict_gaussian_entropy(n, sigma)

        pairs.append(
            Pair(
                f"σ = {sigma:g}, 64 rows", keys, np.array(lost), law, np.array(half), "log n - σ²/2"
            )
        )
    return Panel(
        "Independent Gaussian scores: entropy, and where its law ends",
        "keys that the row sees, n",
        "entropy (nats)",
        tuple(pairs),
        (("log n", np.log),),
    )


def clustering() -> Panel:
    """Mean cosine of random tokens that attention moves, for four placements of the norm."""
    n, width, beta, times = 32, 512, 1.0, np.linspace(0.0, 12.0, 25)
    start = predict_random_tokens(n, width, np.random.default_rng(0))
    pairs = []
    for scheme in ("post", "pre", "peri", "ngpt"):
        path = predict_particles(start, times, scheme, beta)

        def law(time: Numbers, scheme: str = scheme) -> ArrayLike:
            return predict_cosine_path(scheme, time, n, beta).cosine

        name = f"{scheme}, {n} random tokens"
        pairs.append(Pair(name, times, path.mean_cosine, law, law_name="cosine equation"))
    return Panel(
        "Tokens that attend to each other draw together, as fast as the norm lets them",
        "time (layers, in the continuous picture)",
        "mean cosine of two tokens",
        tuple(pairs),
        log_x=False,
        whole=False,
    )


def averaging() -> Panel:
    """Mean error of averages of a noisy run that starts one away from its optimum."""
    runs, dt, last = 4000, 0.02, 12.0
    generator = np.random.default_rng(0)
    theta, total = np.ones(runs), np.zeros(runs)
    wanted = np.array([0.5, 1, 2, 3, 4, 6, 8, 10, 12])
    kept: dict[str, list[Numbers]] = {"raw": [], "uniform": [], "corrected": []}
    decay = np.exp(-dt)
    kick = 0.5 * np.sqrt(1 - decay**2)
    for step in range(1, round(last / dt) + 1):
        moved = decay * theta + kick * generator.standard_normal(runs)
        total += dt * (theta + moved) / 2
        theta, time = moved, step * dt
        if np.isclose(time, wanted).any():
            mean = total / time
            kept["raw"].append(theta)
            kept["uniform"].append(mean)
            kept["corrected"].append(mean + (theta - 1.0) / time)
    laws: dict[str, Law] = {
        "raw": lambda t: np.exp(-t),
        "uniform": lambda t: (1 - np.exp(-t)) / t,
        "corrected": lambda t: np.zeros_like(t),
    }
    names = {"raw": "last weights", "uniform": "uniform average", "corrected": "bias-corrected"}
    pairs = []
    for key, values in kept.items():
        stats = np.array([mean_over_seeds(np.asarray(value, np.float64)) for value in values])
        pairs.append(
            Pair(names[key], wanted, stats[:, 0], laws[key], stats[:, 2], law_name="exact")
        )
    return Panel(
        "An average lags behind; the correction takes the lag away (4000 runs)",
        "time (steps times rate of decay)",
        "mean error of the average",
        tuple(pairs),
        log_x=False,
        whole=False,
    )


def limits() -> Panel:
    """Slope of softmax rows in their scores, against their largest weight."""
    generator = np.random.default_rng(0)
    largest, slopes = [], []
    for _ in range(300):
        n = int(generator.integers(2, 33))
        scores = generator.uniform(0.0, 8.0) * generator.standard_normal(n)
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        slopes.append(np.linalg.eigvalsh(predict_softmax_jacobian(weights))[-1])
        largest.append(weights.max())
    order = np.argsort(largest)
    return Panel(
        "A row that disperses loses its gradient, too",
        "largest weight of the row",
        "largest slope of the row (T = 1)",
        (
            Pair(
                "300 random rows of 2 to 32 keys",
                np.array(largest)[order],
                np.array(slopes)[order],
                dispersed_jacobian_bound,
                law_name="upper bound",
            ),
        ),
        (("1/4: the bound as relayed, which is false", lambda a: np.full_like(a, 0.25)),),
        log_x=False,
        whole=False,
    )


PANELS: dict[str, Callable[[], Panel]] = {
    "set-complement": set_complement,
    "bounds": bounds,
    "critical-scaling": critical_scaling,
    "norms": norms,
    "needles": needles,
    "gaussian-rows": gaussian_rows,
    "clustering": clustering,
    "averaging": averaging,
    "limits": limits,
}


def draw(panel: Panel) -> go.Figure:
    """Points over their laws: markers for what was measured, dashes for theory."""
    figure = go.Figure()
    x = np.concatenate([pair.x for pair in panel.pairs]).astype(np.float64)
    grid = (np.geomspace if panel.log_x else np.linspace)(x.min(), x.max(), 400)
    if panel.whole:
        grid = np.unique(np.round(grid))
    for name, law in panel.lines:
        style = {"color": "#888", "dash": "dot", "width": 1.5}
        figure.add_scatter(x=grid, y=np.asarray(law(grid)), name=name, mode="lines", line=style)
    for index, pair in enumerate(panel.pairs):
        figure.add_scatter(
            x=grid,
            y=np.asarray(pair.law(grid)),
            name=pair.law_name,
            mode="lines",
            line={"color": COLOURS[index], "dash": "dash", "width": 2},
            showlegend=index == 0,
        )
    for index, pair in enumerate(panel.pairs):
        size = 8 if len(pair.x) < 40 else 4
        figure.add_scatter(
            x=pair.x,
            y=pair.points,
            error_y=None if pair.half_width is None else {"array": pair.half_width},
            name=pair.name,
            mode="markers",
            marker={"color": COLOURS[index], "symbol": MARKERS[index], "size": size},
        )
    axis = {"gridcolor": "#ddd", "zerolinecolor": "#ddd", "linecolor": "#888", "showline": True}
    y = np.concatenate([pair.points for pair in panel.pairs]).astype(np.float64)
    figure.update_xaxes(title=panel.x_title, **axis, **(log_ladder(x) if panel.log_x else {}))
    figure.update_yaxes(title=panel.y_title, **axis, **(log_axis(y) if panel.log_y else {}))
    # Legible on a light and on a dark page alike.
    figure.update_layout(
        title={"text": panel.title, "font_size": 16},
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"color": "#222", "size": 13},
        legend={"orientation": "v", "x": 1.01, "y": 1},
        margin={"l": 70, "r": 20, "t": 50, "b": 60},
    )
    return figure


def main(folder: str = "docs/theory/figures", *names: str) -> None:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name in names or PANELS:
        draw(PANELS[name]()).write_image(place / f"{name}.png", width=860, height=440)


if __name__ == "__main__":
    main(*sys.argv[1:])
