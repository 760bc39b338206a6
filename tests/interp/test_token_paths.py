import numpy as np
import pytest
import torch

from resharpen.interp.token_paths import MOST_TOKENS, follow_tokens, project_paths
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.adapters import adapt


def test_the_plane_of_tokens_that_lie_in_one_is_theirs() -> None:
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((7, 2)))[0].T
    angle = rng.uniform(-0.8, 0.8, (3, 20))
    flat = np.stack([np.cos(angle), np.sin(angle)], -1)
    found = project_paths(rng.uniform(0.1, 9.0, (3, 20, 1)) * (flat @ axes), ["a", "b", "c"])
    assert sum(found.shares) == pytest.approx(1.0)
    assert found.labels == ("a", "b", "c") and found.n_tokens == 20
    np.testing.assert_allclose(np.linalg.norm(found.coordinates, axis=2), 1.0)
    # The same angles between tokens, whatever the basis and the lengths.
    for mine, wanted in zip(found.coordinates, flat, strict=True):
        np.testing.assert_allclose(mine @ mine.T, wanted @ wanted.T, atol=1e-12)
    assert (found.coordinates[-1].sum(0) >= 0).all()


def test_shares_are_what_the_plane_shows_of_the_squared_length() -> None:
    rng = np.random.default_rng(1)
    found = project_paths(rng.standard_normal((4, 50, 6)))
    assert sum(found.shares) == pytest.approx(float((found.coordinates**2).sum(2).mean()))
    assert found.shares[0] >= found.shares[1] > 0
    many = project_paths(rng.standard_normal((2, 1000, 3)))
    assert many.coordinates.shape == (2, MOST_TOKENS, 2) and many.n_tokens == 1000
    assert many.position[0] == 0 and many.position[-1] == 999
    line = project_paths(rng.uniform(1, 2, (2, 5, 1)))
    np.testing.assert_allclose(line.coordinates, np.broadcast_to([1.0, 0.0], (2, 5, 2)))


def test_a_model_is_followed_boundary_by_boundary() -> None:
    model = Transformer(TransformerConfig(d_vocab=9, n_layers=3, d_model=8, d_mlp=16), seed=2)
    tokens = torch.arange(9)[None]
    found = follow_tokens(adapt(model), tokens)
    assert found.labels == ("0", "1", "2", "3") and found.coordinates.shape == (4, 9, 2)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    names = [f"blocks.{layer}.hook_resid_pre" for layer in range(3)] + ["blocks.2.hook_resid_post"]
    wanted = project_paths(torch.cat([cache[name] for name in names]).double().numpy())
    np.testing.assert_allclose(found.coordinates, wanted.coordinates, atol=1e-5)
    with pytest.raises(ValueError, match=r"one sequence \[1, pos\] is followed"):
        follow_tokens(adapt(model), tokens.repeat(2, 1))


@pytest.mark.parametrize(
    ("paths", "labels", "sentence"),
    [
        (np.ones((3, 4)), None, r"paths must be \[frame, token, d_model\]"),
        (np.ones((0, 4, 2)), None, "paths must be"),
        (np.zeros((2, 4, 2)), None, "finite and not zero"),
        (np.full((2, 4, 2), np.nan), None, "finite and not zero"),
        (np.ones((2, 4, 2)), ["one"], "2 frames but 1 labels"),
    ],
)
def test_paths_that_have_no_directions_are_refused(paths, labels, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        project_paths(paths, labels)
