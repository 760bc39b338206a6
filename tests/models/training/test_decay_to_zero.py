"""AdamW under each schedule is the convex combination of updates of theory section 13."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from resharpen.models import SetComplement, TrainingConfig, Transformer, TransformerConfig, train
from resharpen.models.tasks import seeded_generator

TASK = SetComplement(8)
CFG = TransformerConfig(d_vocab=8, d_model=16, positional_embedding_type="standard", n_ctx=5)
RECIPE = TrainingConfig(
    length=3,
    n_steps=8,
    batch_size=8,
    warmup_steps=2,
    learning_rate=0.05,
    weight_decay=2.0,
    targets="exact",
    ema_decays=(),
)
RATES = {
    "linear": 0.05 * np.array([1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
    "constant": 0.05 * np.array([1 / 2, 1, 1, 1, 1, 1, 1, 1]),
    "cosine": 0.05 * np.array([1 / 2, 1, *(0.5 + 0.5 * np.cos(np.pi * np.arange(6) / 6))]),
}


@pytest.mark.parametrize("schedule", list(RATES))
def test_weights_are_a_convex_combination_of_updates(schedule: str) -> None:
    """``θ_T = sum_i c_i (-u_i / λ) + prod_i (1 - α_i) θ_0``, ``α_i = η_i λ``.

    ``c_i = α_i prod_{j>i} (1 - α_j)``, and ``u_i`` is Adam's update, computed here in float64 from
    the gradients at the weights of shorter runs under the same rates.
    """
    recipe = replace(RECIPE, schedule=schedule)
    model = Transformer(CFG, seed=1)
    first = model.W_pos.detach().double().numpy().copy()
    moment, square, updates = np.zeros_like(first), np.zeros_like(first), []
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=2.0)
    for step, rate in enumerate(RATES[schedule]):
        batch = TASK.sample(seeded_generator(1, step), 8, 3)
        optimizer.zero_grad()
        loss = -(batch.targets * model(batch.tokens).log_softmax(-1)).sum(-1).mean()
        loss.backward()
        assert model.pos_embed.W_pos.grad is not None
        gradient = model.pos_embed.W_pos.grad.double().numpy()
        moment = 0.9 * moment + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        unbiased = moment / (1 - 0.9 ** (step + 1)), square / (1 - 0.99 ** (step + 1))
        updates.append(unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    taken = 2.0 * RATES[schedule]
    shares = [taken[i] * np.prod(1 - taken[i + 1 :]) for i in range(8)]
    assert sum(shares) + np.prod(1 - taken) == pytest.approx(1)
    wanted = np.tensordot(shares, -np.stack(updates) / 2.0, 1) + np.prod(1 - taken) * first
    (checkpoint,) = train(CFG, TASK, recipe, [1])
    trained = checkpoint.weights["raw"]["pos_embed.W_pos"].numpy()
    np.testing.assert_allclose(trained, wanted, atol=2e-4)
    # Positions 3 and 4 were never seen: nothing but the decay.
    np.testing.assert_allclose(trained[3:], np.prod(1 - taken) * first[3:], rtol=1e-5)
    assert np.abs(trained[:3] - np.prod(1 - taken) * first[:3]).max() > 0.05
