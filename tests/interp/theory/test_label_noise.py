import itertools

import numpy as np
import pytest

from resharpen.interp.theory.label_noise import label_noise_curve, predict_label_noise


@pytest.mark.parametrize("legal", [1, 2, 3, 8])
def test_it_is_the_variance_of_a_label_over_all_labels(legal: int) -> None:
    target = np.full(legal, 1 / legal)
    corners = np.eye(legal)
    variance = np.mean([np.sum((corner - target) ** 2) for corner in corners])
    assert predict_label_noise(legal) == pytest.approx(variance, abs=1e-12)


def test_of_any_target_it_takes_the_inverse_collision_probability() -> None:
    target = np.array([0.5, 0.3, 0.2])
    pairs = itertools.product(range(3), repeat=2)
    # Half the mean squared distance of two independent labels is the variance.
    variance = 0.5 * sum(target[i] * target[j] * 2 * (i != j) for i, j in pairs)
    assert predict_label_noise(1 / np.sum(target**2)) == pytest.approx(variance)


def test_it_saturates() -> None:
    values = predict_label_noise([1, 2, 8, 64, 1e12])
    assert (np.diff(values) > 0).all() and values[0] == 0 and values[-1] < 1


def test_the_curve_counts_what_was_not_seen() -> None:
    curve = label_noise_curve([1, 3, 7], 8, checkpoint="any")
    np.testing.assert_allclose(curve.values, [1 - 1 / 7, 1 - 1 / 5, 0.0])
    assert (curve.kind, curve.quantity, curve.checkpoint) == ("exact", "logit_label_noise", "any")


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="legal"):
        predict_label_noise(0.5)
    with pytest.raises(ValueError, match="less than the vocabulary"):
        label_noise_curve([1, 8], 8)
    with pytest.raises(ValueError, match="whole"):
        label_noise_curve([1.5], 8)
