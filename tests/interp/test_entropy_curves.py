import numpy as np
import pytest
import torch
from torch import Tensor

from resharpen.interp.entropy_curves import entropy_curves
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.adapters import adapt

TOKENS = torch.randint(0, 9, (6, 7), generator=torch.Generator().manual_seed(0))


def model(**more: object) -> Transformer:
    shape = {"d_vocab": 9, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_head": 4}
    made = Transformer(TransformerConfig(**{**shape, **more}), seed=3)  # type: ignore[arg-type]
    for block in made.blocks:
        block.attn.W_Q.data *= 8  # Far from uniform.
    return made


def by_hand(patterns: Tensor, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Entropy and participation ratio of each row of the pattern, averaged over sequences."""
    entropies, supports = [], []
    for row in range(1, patterns.shape[2]):
        weights = patterns[:, head, row, : row + 1].double().numpy()
        entropies.append(np.mean([-(a * np.log(a)).sum() for a in weights]))
        supports.append(np.mean([1 / (a**2).sum() for a in weights]))
    return np.array(entropies), np.array(supports)


def test_curves_are_those_of_the_pattern() -> None:
    own = model()
    _, cache = own.run_with_cache(TOKENS)
    curves = entropy_curves(adapt(own), [TOKENS])
    assert [(c.site, c.layer, c.head) for c in curves] == [
        (f"decoder.{layer}.attn", layer, head) for layer in range(2) for head in range(2)
    ]
    for curve in curves:
        entropy, support = by_hand(cache[f"blocks.{curve.layer}.attn.hook_pattern"], curve.head)
        np.testing.assert_array_equal(curve.n_key, np.arange(2, 8))
        np.testing.assert_allclose(curve.entropy, entropy, rtol=1e-5)
        np.testing.assert_allclose(curve.effective_support, support, rtol=1e-5)


def test_the_split_into_batches_does_not_matter() -> None:
    adapter = adapt(model())
    whole = entropy_curves(adapter, [TOKENS])
    parts = entropy_curves(adapter, [TOKENS[:2], TOKENS[2:3], TOKENS[3:]])
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one.entropy, other.entropy, rtol=1e-6)
        np.testing.assert_allclose(one.effective_support, other.effective_support, rtol=1e-6)


def test_batches_of_several_lengths_are_one_curve() -> None:
    bidirectional = adapt(model(attention_dir="bidirectional"))
    curves = entropy_curves(bidirectional, [TOKENS[:, :3], TOKENS, TOKENS[:, :5]])
    for curve in curves:
        np.testing.assert_array_equal(curve.n_key, [3, 5, 7])
        assert np.all(curve.entropy <= np.log(curve.n_key) + 1e-9)
        assert np.all((curve.effective_support >= 1) & (curve.effective_support <= curve.n_key))


def test_finished_patterns_are_read_too() -> None:
    (first, *_) = entropy_curves(adapt(model(normalizer="sigmoid", n_layers=1)), [TOKENS])
    assert np.all(np.isfinite(first.entropy))


def test_without_a_batch_there_is_nothing_to_say() -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        entropy_curves(adapt(model()), [])
