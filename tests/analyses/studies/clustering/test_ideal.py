"""Models whose weights are the theory's assumptions follow its equations, ever closer."""

import numpy as np
import pytest

from resharpen.analyses.studies.clustering.config import IDEAL_PLACEMENTS
from resharpen.analyses.studies.clustering.ideal import Ideal, table_path
from resharpen.analyses.studies.clustering.study import STEP_ERROR, confront, measure_ideal
from resharpen.interp.theory import (
    SpeedScheme,
    initial_cosine_rate,
    predict_cosine_path,
    predict_equiangular_tokens,
    predict_particles,
)
from resharpen.models.placements import PLACEMENTS

WIDTH, TIME = 12, 4.0


def measured(placement, n_layers, beta=1.3, n=WIDTH):
    ideal = Ideal(placement, n_layers, TIME / n_layers, beta, WIDTH)
    frame = measure_ideal(ideal, n)
    cosines = frame[frame["quantity"] == "mean_cosine"]["mean"].to_numpy()
    return ideal, frame, cosines


@pytest.mark.parametrize("placement", IDEAL_PLACEMENTS)
def test_every_block_follows_the_equation_and_the_deviation_shrinks_with_the_step(placement):
    deviations = []
    for n_layers in (24, 48):
        ideal, frame, cosines = measured(placement, n_layers)
        path = ideal.path(WIDTH)
        assert len(cosines) == len(path.cosine) == n_layers + 1
        assert cosines[0] == pytest.approx(0.0, abs=1e-12)
        deviations.append(np.abs(cosines - path.cosine).max())
        assert deviations[-1] <= STEP_ERROR * ideal.step
        (curve,), (finding,) = confront(frame, [(ideal, path)], WIDTH)
        assert finding.outcome == "agrees" and curve.checkpoint == ideal.label
        assert finding.max_error == pytest.approx(deviations[-1], rel=1e-9)
    assert deviations[1] < 0.6 * deviations[0]


def test_the_confrontation_finds_a_model_that_is_not_the_theory():
    ideal, frame, _ = measured("pre", 16)
    wrong = Ideal("post", 16, ideal.step, ideal.beta, WIDTH).path(WIDTH)
    _, (finding,) = confront(frame, [(ideal, wrong)], WIDTH)
    assert finding.violated


@pytest.mark.parametrize("placement", ["pre", "peri"])
def test_blocks_of_a_growing_stream_are_the_euler_steps_of_the_particle_system(placement):
    """An independent implementation in the same steps; the norm of the others is not its step."""
    n_layers = 24
    ideal, _, cosines = measured(placement, n_layers, n=8)
    tokens = predict_equiangular_tokens(8, 0.0, WIDTH)
    times = ideal.step * np.arange(n_layers + 1)
    path = predict_particles(tokens, times, placement, ideal.beta, step=ideal.step, method="euler")
    np.testing.assert_allclose(cosines, path.mean_cosine, atol=1e-10)
    assert np.abs(cosines - ideal.path(8).cosine).max() > 1e-4  # not the equation itself


def test_angular_speed_of_a_block_is_that_of_the_equation():
    ideal, frame, _ = measured("pre", 96)
    speeds = frame[frame["quantity"] == "angular_speed"]["mean"].to_numpy() / ideal.step
    path = ideal.path(WIDTH)
    middle = 0.5 * (path.angular_speed[1:] + path.angular_speed[:-1])
    np.testing.assert_allclose(speeds, middle, rtol=0.04, atol=0.01)
    growth = frame[frame["quantity"] == "norm_growth"]["mean"].to_numpy()
    np.testing.assert_allclose(np.cumprod(growth), path.radius[1:], rtol=0.02)


@pytest.mark.parametrize("placement", list(PLACEMENTS))
def test_the_tabulated_system_starts_at_the_rate_of_its_row(placement):
    path = table_path(placement, 6, 20, 1.0, radius=0.7, alpha=0.3)
    assert path.cosine[0] == pytest.approx(0.0, abs=1e-12) and len(path.cosine) == 7
    row = {"none": "pre", "res_post": "peri", "attn_out": "peri", "sandwich": "peri"}
    scheme = row.get(placement, placement)
    slower = 1.0
    if placement == "mix":
        scheme = SpeedScheme("mix", 2.0)
    elif placement == "ngpt":
        scheme = SpeedScheme("ngpt", step_size=0.3)
    elif placement == "deepnorm":
        scheme, slower = "post", 12**0.25
    elif placement == "ln_scaling":
        scheme = "ln_scaling"
    expected = initial_cosine_rate(scheme, 20, 1.0, 0.7) / slower
    early = predict_cosine_path(scheme, [0.0, 1.0 / slower], 20, 1.0, radius=0.7)
    assert path.cosine_rate[0] * (1 / slower) == pytest.approx(float(expected), rel=1e-6)
    assert path.cosine[1] == pytest.approx(early.cosine[1], rel=1e-6)


def test_placements_without_a_system_are_refused():
    with pytest.raises(ValueError, match="no system of theory 11 belongs to placement 'res_post'"):
        Ideal("res_post", 4, 0.1, 1.0, 8)
