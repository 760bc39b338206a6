"""Streams read off the table, beside theory's factor, and in words."""

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.clustering_layers import predict_turning, read_layer_shapes
from resharpen.analyses.clustering_sentences import headline, section_sentences
from resharpen.analyses.figures import plot_clustering
from resharpen.interp.tables import table

N_LAYERS = 8


def make(
    radius: np.ndarray,
    angle: np.ndarray,
    cosine: np.ndarray | None = None,
    hooks: bool = False,
    **boundary: np.ndarray,
) -> pd.DataFrame:
    """A table of boundary and block quantities at 16 and 64 tokens, as an audit leaves it."""
    cosine = np.linspace(0.1, 0.8, N_LAYERS + 1) if cosine is None else cosine
    rows = []

    def add(site: str, layer: int | None, quantity: str, n: int, n_key: int, mean: float) -> None:
        place = {"checkpoint": "m", "length": n, "n_key": n_key, "layer": layer, "site": site}
        given = {"quantity": quantity, "unit": "1", "mean": mean, "n_obs": 2, "status": "ok"}
        rows.append({"study": "audit", **place, **given})

    for n in (16, 64):
        for depth in range(N_LAYERS + 1):
            if hooks:
                site = f"blocks.{depth - 1}.hook_resid_post" if depth else "blocks.0.hook_resid_pre"
            else:
                site = f"blocks.{depth}.resid_pre" if depth < N_LAYERS else "final"
            share = n / 64
            for name, values in {"mean_cosine": cosine, **boundary}.items():
                add(site, None, name, n, n, share * float(values[depth]))
            # Means over rows stand at another number of keys than the length.
            add(site, None, "residual_norm", n, n - 1, float(radius[depth]))
            if depth:
                block = site if hooks else f"blocks.{depth - 1}"
                add(block, depth - 1, "angular_speed", n, n - 1, float(angle[depth - 1]))
    return table(rows)


RADIUS = 2.0 ** np.arange(N_LAYERS + 1)
OVER = np.log(RADIUS[1:] / RADIUS[:-1]) / (RADIUS[1:] - RADIUS[:-1])  # mean of 1 / r


@pytest.mark.parametrize("hooks", [False, True])
def test_places_and_lengths_are_read_whatever_the_sites_are_called(hooks: bool) -> None:
    shapes = read_layer_shapes(make(RADIUS, OVER, hooks=hooks))
    assert shapes is not None and shapes.n_layers == N_LAYERS and shapes.n_tokens == (16, 64)
    np.testing.assert_allclose(shapes.at("mean_cosine"), np.linspace(0.1, 0.8, 9))
    np.testing.assert_allclose(shapes.boundary["mean_cosine"][0], np.linspace(0.1, 0.8, 9) / 4)
    np.testing.assert_allclose(shapes.at("residual_norm"), RADIUS)
    np.testing.assert_allclose(shapes.at("angular_speed"), OVER)
    assert np.isnan(shapes.at("effective_rank")).all()


@pytest.mark.parametrize(
    ("placement", "factor"),
    [
        ("pre", OVER),
        ("peri", OVER),
        ("sandwich", OVER),
        ("ln_scaling", OVER / np.sqrt(np.arange(1, N_LAYERS + 1))),
        ("mix", np.where(np.arange(N_LAYERS) < 2, OVER[2], OVER)),
        ("post", np.ones(N_LAYERS)),
        ("deepnorm", np.ones(N_LAYERS)),
        ("ngpt", np.ones(N_LAYERS)),
    ],
)
def test_angles_that_follow_the_factor_are_found_to(placement: str, factor: np.ndarray) -> None:
    shapes = read_layer_shapes(make(RADIUS, 0.3 * factor))
    assert shapes is not None
    turning = predict_turning(shapes, placement)
    assert turning is not None
    np.testing.assert_allclose(turning.predicted, 0.3 * factor)
    assert turning.ratio == pytest.approx((1.0, 1.0))
    if placement in ("post", "deepnorm", "ngpt"):
        assert turning.variation == 1.0 and turning.exponent.status == "undefined"
    else:
        assert turning.exponent.value == pytest.approx(-1.0)
    others = predict_turning(shapes, "pre" if turning.variation == 1.0 else "post")
    assert others is not None and others.ratio[1] > 1.5 > 1 / 1.5 > others.ratio[0]


def test_a_steady_radius_has_no_mean_to_go_wrong() -> None:
    shapes = read_layer_shapes(make(np.full(N_LAYERS + 1, 5.0), np.full(N_LAYERS, 0.2)))
    assert shapes is not None
    turning = predict_turning(shapes, "pre")
    assert turning is not None
    np.testing.assert_allclose(turning.predicted, 0.2)


@pytest.mark.parametrize("placement", ["none", "res_post", "attn_out", "mixed", "unknown", None])
def test_placements_that_theory_does_not_have_get_no_factor(placement: str | None) -> None:
    shapes = read_layer_shapes(make(RADIUS, OVER))
    assert shapes is not None and predict_turning(shapes, placement) is None
    said = " ".join(section_sentences(shapes, placement, True))
    assert "Theory 11 has no speed factor" in said
    assert len(plot_clustering(shapes).data) == 4


def test_nothing_is_said_of_tables_without_a_cosine() -> None:
    frame = make(RADIUS, OVER)
    assert read_layer_shapes(frame[frame["quantity"] != "mean_cosine"]) is None
    assert read_layer_shapes(table([])) is None
    undefined = frame.assign(status="undefined", mean=np.nan)
    assert read_layer_shapes(undefined) is None
    assert read_layer_shapes(frame, "another") is None


def test_the_sentences_name_what_misleads() -> None:
    flat = np.full(N_LAYERS + 1, 0.5)
    huge = np.where(np.arange(N_LAYERS + 1) == 3, 2.0, 40.0)
    frame = make(
        RADIUS,
        OVER,
        trimmed_cosine=np.linspace(0.1, 0.05, N_LAYERS + 1),
        top_coordinate_share=np.linspace(0.1, 0.9, N_LAYERS + 1),
        effective_rank=huge,
        direction_rank=np.full(N_LAYERS + 1, 40.0),
        mean_square_cosine=np.full(N_LAYERS + 1, 0.05),
    )
    shapes = read_layer_shapes(frame)
    assert shapes is not None
    said = section_sentences(shapes, "pre", causal=True)
    assert said[0] == headline(shapes)
    assert "at 64 tokens, tokens draw together (mean cosine 0.1 before" in said[0]
    text = " ".join(said)
    assert "0.2 at 16 tokens and 0.8 at 64" in text
    assert "without it the mean cosine there is 0.05, not 0.8" in text
    assert "before block 3 its effective rank is 2, but 40 when every token counts once" in text
    assert "to the power -1.00" in text and "(theory: -1)" in text
    assert "mean cosine 0.1, standard deviation 0.2" in text and "causal mask" in text
    assert "causal mask" not in " ".join(section_sentences(shapes, "pre", causal=False))
    still = read_layer_shapes(make(RADIUS, OVER, cosine=flat, effective_rank=flat + 9))
    assert still is not None and "tokens keep their distance" in headline(still)
    apart = read_layer_shapes(make(RADIUS, OVER, cosine=np.linspace(0.8, 0.1, N_LAYERS + 1)))
    assert apart is not None and "tokens move apart" in headline(apart)


def test_the_figure_has_a_line_a_length_and_the_factor_dashed() -> None:
    rank = np.linspace(30, 10, N_LAYERS + 1)
    shapes = read_layer_shapes(make(RADIUS, OVER, direction_rank=rank, trimmed_cosine=rank / 100))
    assert shapes is not None
    turning = predict_turning(shapes, "pre")
    figure = plot_clustering(shapes, turning, placement="pre")
    names = [trace.name for trace in figure.data]
    assert names.count("16 tokens") == names.count("64 tokens") == 3
    dashed = [
        trace for trace in figure.data if trace.line.dash == "dash" and trace.x[0] is not None
    ]
    assert len(dashed) == 1
    np.testing.assert_allclose(dashed[0].y, OVER, atol=1e-5)
    np.testing.assert_allclose(dashed[0].x, np.arange(N_LAYERS) + 0.5)
    assert figure.layout.meta["section"] == "Clustering"
    assert "norms placed pre" in figure.layout.meta["caption"]
