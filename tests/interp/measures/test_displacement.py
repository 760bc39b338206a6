"""Displacement and oscillation against hand-computed rows and the definition."""

import math

import numpy as np
import pytest
import torch

from resharpen.interp.measures import (
    displacement,
    displacement_rescale,
    min_displacement,
    oscillation,
)

PRESENT = torch.tensor([True, True, False, False, False])
LOGITS = torch.tensor([-3.0, -1.0, 2.0, 1.0, 3.0])


def test_hand_computed_row():
    # Mean absent logit 2; displacements 5 and 3.
    assert displacement(LOGITS, PRESENT).item() == 4.0
    assert min_displacement(LOGITS, PRESENT).item() == 3.0
    assert oscillation(LOGITS, ~PRESENT).item() == 2.0
    assert displacement_rescale(3 * LOGITS, LOGITS, PRESENT).item() == pytest.approx(3.0)


def test_rows_equal_a_float64_loop():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((4, 6, 10))
    present = rng.random((4, 6, 10)) < 0.4
    absent = ~present & (rng.random((4, 6, 10)) < 0.8)
    present[..., 0], absent[..., 0] = True, False
    present[..., 1], absent[..., 1] = False, True
    arrays = [torch.from_numpy(array) for array in (logits, present, absent)]
    mean, least = displacement(*arrays), min_displacement(*arrays)
    spread = oscillation(arrays[0], arrays[2])
    for index in np.ndindex(4, 6):
        row, here, gone = logits[index], present[index], absent[index]
        each = [row[gone].mean() - row[i] for i in np.flatnonzero(here)]
        assert float(mean[index]) == pytest.approx(np.mean(each), rel=1e-12)
        assert float(least[index]) == pytest.approx(min(each), rel=1e-12)
        assert float(spread[index]) == pytest.approx(np.ptp(row[gone]), rel=1e-12)


def test_tokens_in_neither_set_are_not_read():
    absent = torch.tensor([False, False, True, False, True])
    spoiled = torch.where(PRESENT | absent, LOGITS, torch.nan)
    assert displacement(spoiled, PRESENT, absent).item() == 4.5
    assert min_displacement(spoiled, PRESENT, absent).item() == 3.5
    assert oscillation(spoiled, absent).item() == 1.0


def test_adding_a_constant_to_the_logits_changes_nothing():
    for measure in (displacement, min_displacement):
        torch.testing.assert_close(measure(LOGITS + 7, PRESENT), measure(LOGITS, PRESENT))


@pytest.mark.parametrize("present", [torch.zeros(5).bool(), torch.ones(5).bool()])
def test_nothing_present_or_nothing_absent_is_nan(present):
    assert math.isnan(displacement(LOGITS, present).item())
    assert math.isnan(min_displacement(LOGITS, present).item())
    assert math.isnan(displacement_rescale(LOGITS, LOGITS, present).item())


def test_one_absent_token_does_not_oscillate_and_none_is_nan():
    assert oscillation(LOGITS, torch.tensor([False, False, False, False, True])).item() == 0.0
    assert math.isnan(oscillation(LOGITS, torch.zeros(5).bool()).item())


def test_ratio_to_a_zero_displacement_is_nan_not_infinite():
    assert math.isnan(displacement_rescale(LOGITS, torch.zeros(5), PRESENT).item())


def test_half_precision_is_widened():
    logits = (LOGITS * 100).to(torch.float16)
    assert displacement(logits, PRESENT).dtype == torch.float32
    assert displacement(logits, PRESENT).item() == pytest.approx(400.0)


def test_a_mask_that_is_not_boolean_is_refused():
    with pytest.raises(TypeError, match="present must be a boolean"):
        displacement(LOGITS, PRESENT.float())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="absent must broadcast"):
        oscillation(LOGITS, torch.ones(3).bool())
