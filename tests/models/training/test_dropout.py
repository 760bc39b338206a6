"""Dropout on the attention weights: unbiased, keyed by seed and step, absent outside training."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from resharpen.models import SetComplement, TrainingConfig, Transformer, TransformerConfig, train
from resharpen.models.normalizers import NORMALIZERS
from resharpen.models.tasks import seeded_generator
from resharpen.models.training.dropout import attention_dropout
from resharpen.models.training.stack import StackedTransformer

TASK = SetComplement(8)
CFG = TransformerConfig(d_vocab=8, d_model=16, n_heads=2, n_layers=2, attn_dropout=0.3)
RECIPE = TrainingConfig(length=4, n_steps=9, batch_size=8, save_every=4)
TOKENS = torch.tensor([[3, 1, 4, 0, 5]])
TRAINABLE = [name for name, entry in NORMALIZERS.items() if entry.has_gradient]


@pytest.mark.parametrize("normalizer", list(NORMALIZERS))
@pytest.mark.parametrize("placement", ["pre", "ngpt"])
def test_the_mean_over_draws_is_the_value_without_dropout(normalizer: str, placement: str) -> None:
    cfg = replace(CFG, normalizer=normalizer, norm_placement=placement, n_layers=1)
    attention = Transformer(cfg).train().blocks[0].attn
    x = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0))
    n_draws = 4000
    with torch.no_grad():
        inputs = attention.inputs(x.expand(n_draws, -1, -1))
        torch.manual_seed(0)
        # Before differential attention's norm, which is not linear.
        drawn = attention._attend_rows(inputs, 0, 5)
        weights = attention.pattern(inputs, 0, 5)[0]
        value = inputs.value[0]
        wanted = torch.einsum("hqk,khd->qhd", weights, value)
    # Var of sum_k a_k v_k m_k with m = Bernoulli / (1 - p): sum a^2 v^2 p / (1 - p).
    spread = torch.einsum("hqk,khd->qhd", weights.square(), value.square()) * (0.3 / 0.7)
    error = (drawn.mean(0) - wanted).abs()
    assert (error <= 5 * (spread / n_draws).sqrt() + 1e-5).all()
    torch.testing.assert_close(drawn.var(0), spread, atol=1e-5, rtol=0.2)


def test_evaluation_never_drops() -> None:
    bare = Transformer(replace(CFG, attn_dropout=0.0))
    model = Transformer(CFG)
    assert not torch.equal(model.train()(TOKENS), model(TOKENS))
    model.eval()
    assert torch.equal(model(TOKENS), bare.eval()(TOKENS))
    # No dropout, no difference between the modes: the fused kernel is still taken.
    assert torch.equal(bare.train()(TOKENS), bare.eval()(TOKENS))
    (checkpoint,) = train(CFG, TASK, RECIPE)
    assert torch.equal(checkpoint.model()(TOKENS), checkpoint.model()(TOKENS))


def test_the_hook_shows_and_edits_the_weights_before_dropout() -> None:
    model = Transformer(replace(CFG, n_layers=1)).train()
    attention = model.blocks[0].attn
    attention.kept = torch.from_numpy(attention_dropout(model.cfg, 0, 0, 1, 5).numpy()[0])
    with torch.no_grad():
        _, cache = model.run_with_cache(TOKENS)
        pattern = cache["blocks.0.attn.hook_pattern"]
        torch.testing.assert_close(pattern.sum(-1), torch.ones(1, 2, 5))
        z = torch.einsum("bhqk,bkhd->bqhd", pattern * attention.kept, cache["blocks.0.attn.hook_v"])
        torch.testing.assert_close(cache["blocks.0.attn.hook_z"], z)
        first = torch.zeros(1, 2, 5, 5)
        first[..., 0] = 1
        seen = {}
        model.run_with_hooks(
            TOKENS,
            fwd_hooks=[
                ("blocks.0.attn.hook_pattern", lambda pattern, hook: first),
                ("blocks.0.attn.hook_z", lambda z, hook: seen.update(z=z)),
            ],
        )
    value = cache["blocks.0.attn.hook_v"][0, 0]
    wanted = attention.kept[0, :, :, 0].T[..., None] * value
    torch.testing.assert_close(seen["z"][0], wanted)


def test_draws_belong_to_the_seed_and_the_step() -> None:
    cfg = replace(CFG, attn_dropout=0.25)
    factors = attention_dropout(cfg, 3, 7, 64, 16)
    assert factors.shape == (2, 64, 2, 16, 16) and factors.dtype == torch.float32
    assert torch.equal(factors, attention_dropout(cfg, 3, 7, 64, 16))
    assert sorted(factors.unique().tolist()) == pytest.approx([0, 4 / 3])
    # 65,536 draws: 5 standard deviations of their share are 0.0085.
    assert float((factors > 0).float().mean()) == pytest.approx(0.75, abs=0.0085)
    for other in (attention_dropout(cfg, 4, 7, 64, 16), attention_dropout(cfg, 3, 8, 64, 16)):
        # Independent draws agree with probability 0.75^2 + 0.25^2.
        assert float((other == factors).float().mean()) == pytest.approx(0.625, abs=0.01)


@pytest.mark.parametrize("remedy", [{}, {"normalizer": "entmax"}, {"normalizer": "differential"}])
def test_training_is_the_plain_loop_with_each_seeds_own_draws(remedy: dict) -> None:
    cfg = replace(CFG, **remedy)
    recipe = replace(RECIPE, n_steps=4, schedule="constant", targets="exact", ema_decays=())
    trained = train(cfg, TASK, recipe, seeds=[3, 5])
    for seed, checkpoint in zip([3, 5], trained, strict=True):
        model = Transformer(cfg, seed=seed)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0
        )
        for step in range(4):
            batch = TASK.sample(seeded_generator(seed, step), 8, 4)
            draws = attention_dropout(cfg, seed, step, 8, 4)
            for block, factors in zip(model.blocks, draws, strict=True):
                block.attn.kept = factors
            loss = -(batch.targets * model(batch.tokens).log_softmax(-1)).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                checkpoint.weights["raw"][name], parameter.detach(), atol=1e-4, rtol=1e-3
            )
    (without,) = train(replace(cfg, attn_dropout=0.0), TASK, recipe, seeds=[3])
    apart = (without.weights["raw"]["embed.W_E"] - trained[0].weights["raw"]["embed.W_E"]).abs()
    assert apart.max() > 3e-3


@pytest.mark.parametrize("normalizer", TRAINABLE)
def test_every_normalizer_drops_inside_the_stack(normalizer: str) -> None:
    cfg = replace(CFG, normalizer=normalizer)
    stack = StackedTransformer(cfg, [0, 1])
    tokens = TOKENS.expand(2, 3, -1)
    drawn = torch.stack([attention_dropout(cfg, seed, 0, 3, 5) for seed in (0, 1)])
    logits = stack(tokens, drawn)
    assert torch.isfinite(logits).all()
    for index, seed in enumerate((0, 1)):
        model = Transformer(cfg, seed=seed).eval()
        torch.testing.assert_close(stack(tokens)[index], model(tokens[index]), atol=1e-4, rtol=1e-3)
        for block, factors in zip(model.blocks, drawn[index], strict=True):
            block.attn.kept = factors
        torch.testing.assert_close(logits[index], model(tokens[index]), atol=1e-4, rtol=1e-3)
    # The draws of one call do not outlive it.
    assert not torch.equal(stack(tokens), logits)


@pytest.mark.parametrize("remedy", [{}, {"normalizer": "differential", "norm_placement": "ngpt"}])
def test_a_killed_run_resumes_to_the_same_weights(remedy: dict, tmp_path: Path) -> None:
    cfg = replace(CFG, **remedy)
    whole = train(cfg, TASK, RECIPE, seeds=[0, 1])

    def kill(done: int, losses: torch.Tensor) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cfg, TASK, RECIPE, seeds=[0, 1], folder=tmp_path, on_step=kill)
    torch.manual_seed(99)
    steps: list[int] = []
    resumed = train(
        cfg, TASK, RECIPE, [0, 1], folder=tmp_path, on_step=lambda done, _: steps.append(done)
    )
    assert steps[0] == 5
    for one, other in zip(whole, resumed, strict=True):
        assert one.losses == other.losses
        for kind, state in one.weights.items():
            assert all(torch.equal(state[name], other.weights[kind][name]) for name in state)


def test_configurations_from_before_it_have_none() -> None:
    old = {name: value for name, value in CFG.to_dict().items() if name != "attn_dropout"}
    assert TransformerConfig.from_dict(old) == replace(CFG, attn_dropout=0.0)
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="attn_dropout must be zero or more and less than 1"):
            TransformerConfig(d_vocab=8, attn_dropout=wrong)
