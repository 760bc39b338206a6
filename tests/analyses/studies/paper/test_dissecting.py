"""Factors and interventions on closed-form models, whose every number is known."""

from collections.abc import Iterator
from math import log

import numpy as np
import pytest
import torch

from resharpen.analyses.studies.paper.measured.factors import (
    factorise,
    key_displacements,
    pair_strengths,
)
from resharpen.analyses.studies.paper.measured.interventions import (
    INTERVENTIONS,
    RESCALED,
    TEMPERATURES,
)
from resharpen.interp.capturing import capture
from resharpen.interp.theory import predict_displacement
from resharpen.models.constructed import construct_set_complement
from resharpen.models.tasks import SetComplement, seeded_generator

V = 9
RNG = np.random.default_rng(3)
P = RNG.uniform(20, 40, V)
DELTA = RNG.uniform(40, 60, V)
SCORES = RNG.normal(size=(V, V))
UNEVEN = construct_set_complement(V, p=P.tolist(), delta=DELTA.tolist(), log_weights=SCORES)


def tokens_of(length: int, n: int = 5) -> torch.Tensor:
    return SetComplement(V).sample(seeded_generator(0, length), n, length).tokens


def test_strengths_are_those_of_the_construction() -> None:
    strengths = pair_strengths(UNEVEN.model(), V).numpy()
    assert np.isnan(np.diag(strengths)).all()
    others = ~np.eye(V, dtype=bool)
    wanted = np.broadcast_to(P[:, None], (V, V))
    np.testing.assert_allclose(strengths[others], wanted[others], rtol=1e-4)


@pytest.mark.parametrize("length", [2, 5, 8])
def test_displacements_are_weight_times_strength(length: int) -> None:
    model, tokens = UNEVEN.model(), tokens_of(length)
    weights, displaced = key_displacements(model, tokens)
    raw = np.exp(SCORES[tokens[:, -1:], tokens])
    np.testing.assert_allclose(weights, raw / raw.sum(-1, keepdims=True), rtol=1e-5)
    predicted = predict_displacement(P[tokens], DELTA[tokens[:, -1]], weights.numpy())
    np.testing.assert_allclose(displaced, predicted, rtol=1e-3, atol=1e-4)

    factors = factorise(model, tokens, pair_strengths(model, V))
    assert factors.error.max() < 1e-3
    np.testing.assert_allclose(factors.log_weight, weights[:, :-1].log().mean(-1), rtol=1e-6)
    np.testing.assert_allclose(
        factors.log_displacement, np.log(predicted[:, :-1]).mean(-1), rtol=1e-3
    )
    np.testing.assert_allclose(
        factors.balance, predicted[:, -1] / predicted[:, :-1].mean(-1), rtol=1e-3
    )


def test_one_token_has_no_other_key() -> None:
    factors = factorise(UNEVEN.model(), tokens_of(1), pair_strengths(UNEVEN.model(), V))
    for values in (factors.log_weight, factors.log_displacement, factors.error, factors.balance):
        assert values.shape == (5,)
        assert values.isnan().all()


def test_a_token_that_is_not_displaced_leaves_no_logarithm() -> None:
    class Backwards(torch.nn.Module):
        """The same model with the sign of its logits turned."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = UNEVEN.model()

        @property
        def hook_dict(self) -> dict:
            return self.inner.hook_dict

        def modules(self, remove_duplicate: bool = True) -> Iterator[torch.nn.Module]:
            return self.inner.modules()

        def run_with_hooks(self, *arguments: object, **named: object) -> torch.Tensor:
            return -self.inner.run_with_hooks(*arguments, **named)

    strengths = pair_strengths(UNEVEN.model(), V)
    factors = factorise(Backwards(), tokens_of(4), strengths)  # type: ignore[arg-type]
    assert factors.log_displacement.isnan().all()
    assert factors.log_weight.isfinite().all()


BALANCED = construct_set_complement(V, p=30.0)


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_the_rescaled_output_displaces_as_at_length_two(length: int) -> None:
    tokens = tokens_of(length)
    edit = INTERVENTIONS[RESCALED](length)
    logits = capture(BALANCED.model(), tokens, {}, edits=[edit]).logits[:, -1].double()
    absent = torch.ones_like(logits).scatter(1, tokens, 0.0) > 0
    gap = logits[absent].mean() - logits.gather(1, tokens)
    # Alone, half of its own output is all that is left of the one token.
    assert gap.numpy() == pytest.approx(np.full((5, length), 15.0), rel=1e-4)


@pytest.mark.parametrize("name", TEMPERATURES)
def test_a_temperature_multiplies_the_scores(name: str) -> None:
    factor = {
        "scores times 0": 0.0,
        "scores times 1/2": 0.5,
        "scores times 2": 2.0,
        "scores times 8": 8.0,
        "scores times 1 + log s": 1 + log(6),
    }[name]
    tokens, pattern = tokens_of(6), "blocks.0.attn.hook_pattern"
    found = capture(
        UNEVEN.model(),
        tokens,
        {pattern: lambda weights: weights[:, 0, -1].double()},
        edits=[TEMPERATURES[name](6)],
    )
    raw = np.exp(factor * SCORES[tokens[:, -1:], tokens])
    wanted = raw / raw.sum(-1, keepdims=True)
    np.testing.assert_allclose(found.values[pattern], wanted, rtol=1e-4, atol=1e-7)
