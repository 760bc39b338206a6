import numpy as np
import pytest

from resharpen.interp.theory.averaging import predict_averaged_variance


@pytest.mark.parametrize("relaxation", [0.02, 0.5, 1.0, 1.6])
@pytest.mark.parametrize("decay", [0.0, 0.9, 0.99])
def test_it_is_the_variance_of_the_filtered_sequence(relaxation: float, decay: float) -> None:
    """By the impulse response: iterates and averages are sums of past noise with known weights."""
    lags = np.arange(6000)
    iterate = (1 - relaxation) ** lags
    averaged = np.convolve((1 - decay) * decay**lags, iterate)[: lags.size]
    expected = np.sum(averaged**2) / np.sum(iterate**2)
    assert predict_averaged_variance(relaxation, decay) == pytest.approx(expected, rel=1e-6)


def test_slow_directions_keep_their_noise_and_fast_ones_lose_it() -> None:
    left = predict_averaged_variance([1e-6, 1e-2, 1.0], 0.99)
    assert left[0] > 0.99 and left[2] == pytest.approx(0.01 / 1.99)
    assert (np.diff(left) < 0).all()


@pytest.mark.parametrize(("relaxation", "decay"), [(0.0, 0.9), (2.0, 0.9), (0.1, 1.0)])
def test_impossible_arguments_are_refused(relaxation: float, decay: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        predict_averaged_variance(relaxation, decay)
