"""Values of a stream, one a sequence: against loops over pairs, and with positions left out."""

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components

from resharpen.interp.stream_values import (
    BOUNDARY_UNITS,
    STEP_UNITS,
    boundary_values,
    step_values,
)


def some_stream(batch=3, pos=9, d_model=5, seed=0, shift=0.6):
    x = np.random.default_rng(seed).standard_normal((batch, pos, d_model)) + shift
    return torch.from_numpy(x)


def brute_force(x: np.ndarray, threshold: float) -> dict[str, float]:
    """Every value of one sequence, from its full matrix of cosines and its singular values."""
    unit = x / np.sqrt((x**2).sum(1, keepdims=True))
    cosines = unit @ unit.T
    pairs = cosines[np.triu_indices(len(x), 1)]
    count, labels = connected_components(cosines >= threshold, directed=False)
    sigma = np.linalg.svd(x, compute_uv=False)
    share = sigma / sigma.sum()
    return {
        "mean_cosine": pairs.mean(),
        "mean_square_cosine": (pairs**2).mean(),
        "effective_rank": np.exp(-(share * np.log(share)).sum()),
        "stable_rank": (sigma**2).sum() / sigma[0] ** 2,
        "cluster_count": count,
        "largest_cluster_share": np.bincount(labels).max() / len(x),
        "residual_norm": np.sqrt((x**2).sum(1)).mean(),
    }


@pytest.mark.parametrize("threshold", [0.2, 0.7, 0.95])
def test_a_boundary_equals_brute_force(threshold):
    stream = some_stream()
    values = boundary_values(stream, threshold=threshold)
    assert set(values) == set(BOUNDARY_UNITS)
    for index, x in enumerate(stream.numpy()):
        for name, expected in brute_force(x, threshold).items():
            assert values[name][index].item() == pytest.approx(expected, rel=1e-10), name


def test_a_step_equals_brute_force_and_growth_multiplies():
    first, second, third = (some_stream(seed=seed) for seed in range(3))
    values = step_values(first, second)
    assert set(values) == set(STEP_UNITS)
    a, b = first.numpy(), second.numpy()
    lengths = [np.sqrt((x**2).sum(-1)) for x in (a, b)]
    angles = np.arccos((a * b).sum(-1) / (lengths[0] * lengths[1]))
    np.testing.assert_allclose(values["angular_speed"], angles.mean(1), rtol=1e-10)
    product = values["norm_growth"] * step_values(second, third)["norm_growth"]
    np.testing.assert_allclose(step_values(first, third)["norm_growth"], product, rtol=1e-12)
    still = step_values(first, 3.0 * first)
    assert still["angular_speed"].abs().max() < 1e-12
    np.testing.assert_allclose(still["norm_growth"], 3.0)


def test_positions_that_do_not_count_are_as_if_they_were_not_there():
    stream, after = some_stream(), some_stream(seed=1)
    shown = torch.ones(3, 9, dtype=torch.bool)
    shown[0, 4:] = False
    shown[1, 0] = False
    stream[0, 4:] = torch.nan
    after[0, 4:] = 0.0
    values = boundary_values(stream, shown=shown) | step_values(stream, after, shown=shown)
    for index in range(3):
        rows, later = (x[index, shown[index]][None] for x in (stream, after))
        alone = boundary_values(rows) | step_values(rows, later)
        for name, value in alone.items():
            assert values[name][index].item() == pytest.approx(value.item(), rel=1e-12), name
    shown[2] = False
    nothing = boundary_values(stream, shown=shown) | step_values(stream, after, shown=shown)
    assert all(value[2].isnan() and value[:2].isfinite().all() for value in nothing.values())


def test_only_what_is_asked_for_is_measured(monkeypatch):
    monkeypatch.setattr("resharpen.interp.stream_values.cluster_labels", None)  # would raise
    stream = some_stream()
    assert list(boundary_values(stream, quantities=["stable_rank"])) == ["stable_rank"]
    assert list(step_values(stream, stream, quantities=["norm_growth"])) == ["norm_growth"]
    assert boundary_values(stream, quantities=[]) == {}


def test_bad_input_is_refused():
    stream = some_stream()
    with pytest.raises(ValueError, match="quantities must be among mean_cosine"):
        boundary_values(stream, quantities=["entropy"])
    with pytest.raises(ValueError, match="quantities must be among angular_speed"):
        step_values(stream, stream, quantities=["mean_cosine"])
    with pytest.raises(ValueError, match=r"shown must be \[batch, pos\], here \(3, 9\)"):
        boundary_values(stream, shown=torch.ones(3, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="same shape"):
        step_values(stream, stream[:, :4])
    with pytest.raises(ValueError, match="batch, pos, d_model"):
        boundary_values(stream[0])
    with pytest.raises(ValueError, match="threshold must be a cosine"):
        boundary_values(stream, threshold=1.0)
