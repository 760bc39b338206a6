import importlib
import json
import math
from pathlib import Path

import pytest
import torch

from resharpen.models import (
    CheckpointError,
    SetComplement,
    TrainingConfig,
    TrainingDiverged,
    Transformer,
    TransformerConfig,
    seeded_generator,
    train,
)
from resharpen.models.training import discard_state
from resharpen.models.training.state import STATE_FILE

TASK = SetComplement(8)
CFG = TransformerConfig(d_vocab=8, d_model=16, norm_placement="post")
SHORT = TrainingConfig(
    length=3,
    n_steps=12,
    batch_size=8,
    ema_decays=(0.5, 0.9),
    bema=((0.5, 0.2), (1.0, 0.0)),
    uniform_average=True,
    save_every=4,
    warmup_steps=3,
)


def same_weights(first, second) -> bool:
    return all(
        torch.equal(a.weights[kind][name], b.weights[kind][name])
        for a, b in zip(first, second, strict=True)
        for kind in a.weights
        for name in a.weights[kind]
    )


def test_training_learns_the_task() -> None:
    recipe = TrainingConfig(length=4, n_steps=250, batch_size=32, targets="exact")
    (checkpoint,) = train(CFG, TASK, recipe, seeds=[1])
    batch = TASK.sample(seeded_generator(9), 64, 4)
    predicted = checkpoint.model()(batch.tokens).softmax(-1)
    assert 0.5 * (predicted - batch.targets).abs().sum(-1).mean() < 0.05
    optimum = sum(math.log(8 - s) for s in range(1, 5)) / 4
    assert optimum <= checkpoint.losses[-1] < optimum + 0.02


@pytest.mark.parametrize("targets", ["sampled", "exact"])
def test_one_step_is_plain_adamw_on_the_plain_model(targets: str) -> None:
    """An independent implementation of the loop for one seed."""
    recipe = TrainingConfig(
        length=3,
        n_steps=5,
        batch_size=8,
        targets=targets,  # type: ignore[arg-type]
        ema_decays=(0.8,),
        weight_decay=0.1,
        schedule="cosine",
    )
    trained = train(CFG, TASK, recipe, seeds=[3, 5])
    for seed, checkpoint in zip([3, 5], trained, strict=True):
        model = Transformer(CFG, seed=seed)
        optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.1)
        average = None
        for step in range(5):
            batch = TASK.sample(seeded_generator(seed, step), 8, 3)
            log_probabilities = model(batch.tokens).log_softmax(-1)
            if targets == "sampled":
                loss = -log_probabilities.gather(2, batch.next_tokens[..., None]).mean()
            else:
                loss = -(batch.targets * log_probabilities).sum(-1).mean()
            optimizer.param_groups[0]["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * step / 5))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now = {name: p.detach().clone() for name, p in model.named_parameters()}
            average = (
                now
                if average is None
                else {name: 0.8 * average[name] + 0.2 * now[name] for name in now}
            )
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                checkpoint.weights["raw"][name], parameter.detach(), atol=2e-5, rtol=1e-4
            )
            torch.testing.assert_close(
                checkpoint.weights["ema-0.8"][name], average[name], atol=2e-5, rtol=1e-4
            )


@pytest.mark.parametrize("killed_at", [2, 4, 7, 11])
def test_a_killed_run_resumes_to_the_same_weights(killed_at: int, tmp_path: Path) -> None:
    whole = train(CFG, TASK, SHORT, seeds=[0, 1])

    def kill(done: int, losses: torch.Tensor) -> None:
        if done == killed_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(CFG, TASK, SHORT, seeds=[0, 1], folder=tmp_path, on_step=kill)
    assert (tmp_path / STATE_FILE).exists() == (killed_at > SHORT.save_every)
    steps = []
    resumed = train(
        CFG, TASK, SHORT, seeds=[0, 1], folder=tmp_path, on_step=lambda done, _: steps.append(done)
    )
    assert steps[0] == (killed_at - 1) // SHORT.save_every * SHORT.save_every + 1
    assert same_weights(whole, resumed)
    assert [c.losses for c in whole] == [c.losses for c in resumed]
    discard_state(tmp_path)
    assert not tmp_path.exists()


@pytest.mark.parametrize("change", [{}, {"attn_dropout": 0.3}, {"sigma_reparam": True}])
def test_a_seed_alone_trains_and_resumes_as_in_company(change: dict, tmp_path: Path) -> None:
    """A single seed runs as the plain model, several under ``vmap``."""
    cfg = TransformerConfig.from_dict({**CFG.to_dict(), **change})
    (alone,) = train(cfg, TASK, SHORT, seeds=[1])
    _, together = train(cfg, TASK, SHORT, seeds=[0, 1])
    for kind, state in together.weights.items():
        for name, weight in state.items():
            torch.testing.assert_close(alone.weights[kind][name], weight, atol=1e-4, rtol=1e-3)

    def kill(done: int, losses: torch.Tensor) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cfg, TASK, SHORT, seeds=[1], folder=tmp_path, on_step=kill)
    assert same_weights([alone], train(cfg, TASK, SHORT, seeds=[1], folder=tmp_path))


def test_a_state_of_another_run_is_refused(tmp_path: Path) -> None:
    train(CFG, TASK, SHORT, seeds=[0], folder=tmp_path)
    with pytest.raises(CheckpointError, match="belongs to a different run"):
        train(CFG, TASK, SHORT, seeds=[1], folder=tmp_path)
    (tmp_path / STATE_FILE).write_bytes(b"rubbish")
    with pytest.raises(CheckpointError, match="is not a readable training state"):
        train(CFG, TASK, SHORT, seeds=[0], folder=tmp_path)


def test_divergence_stops_and_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("resharpen.models.training.loop")
    honest = module._seed_losses

    def broken_at_step_nine(stack, task, training, seeds, step):
        losses = honest(stack, task, training, seeds, step)
        return losses * torch.tensor([1.0, torch.nan if step == 9 else 1.0])

    monkeypatch.setattr(module, "_seed_losses", broken_at_step_nine)
    with pytest.raises(
        TrainingDiverged, match=r"loss of seed 1 stopped being finite at step 9: .* is kept in"
    ):
        train(CFG, TASK, SHORT, seeds=[0, 1], folder=tmp_path)
    monkeypatch.undo()
    whole = train(CFG, TASK, SHORT, seeds=[0, 1])
    first_steps: list[int] = []
    resumed = train(
        CFG, TASK, SHORT, seeds=[0, 1], folder=tmp_path, on_step=lambda n, _: first_steps.append(n)
    )
    assert first_steps[0] == 9
    assert same_weights(whole, resumed)


def test_a_recipe_that_explodes_is_stopped() -> None:
    recipe = TrainingConfig(length=3, n_steps=50, batch_size=8, learning_rate=1e30)
    cfg = TransformerConfig(d_vocab=8, d_model=16, norm_placement="none")
    with pytest.raises(TrainingDiverged, match=r"lower the learning rate .* no state was kept"):
        train(cfg, TASK, recipe)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]),
        (
            "cosine",
            [
                0.25,
                0.5,
                0.75,
                1.0,
                1.0,
                *(0.5 * (1 + math.cos(math.pi * x / 4)) for x in (1, 2, 3)),
            ],
        ),
    ],
)
def test_schedules(schedule: str, rates: list[float]) -> None:
    recipe = TrainingConfig(
        n_steps=8,
        warmup_steps=4,
        learning_rate=1.0,
        schedule=schedule,  # type: ignore[arg-type]
    )
    assert [recipe.rate_at(step) for step in range(8)] == pytest.approx(rates)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_steps": 0}, "n_steps must be a whole number of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"schedule": "warm"}, "schedule must be one of linear, cosine, constant"),
        ({"targets": "soft"}, "targets must be one of sampled, exact"),
        ({"ema_decays": (0.9, 0.9)}, "ema_decays must be distinct"),
        ({"ema_decays": (1.0,)}, r"each in \(0, 1\)"),
        ({"bema": (0.5, 0.2)}, r"bema must be pairs of numbers \(kappa, eta\)"),
        ({"bema": ((0.5, 0.2, 0.1),)}, r"bema must be pairs of numbers \(kappa, eta\)"),
        ({"bema": ((0.0, 0.2),)}, r"kappa in \(0, 1\] and eta zero or more"),
        ({"bema": ((0.5, -1.0),)}, r"kappa in \(0, 1\] and eta zero or more"),
        ({"bema": ((0.5, math.inf),)}, r"kappa in \(0, 1\] and eta zero or more"),
        ({"bema": ((0.5, 0.2), (0.5, 0.2))}, "bema must be distinct pairs"),
        ({"burn_in": -1}, "burn_in must be a whole number, zero or more"),
        ({"burn_in": 10, "n_steps": 10, "uniform_average": True}, "must be less than n_steps"),
        ({"warmup_steps": 10, "n_steps": 10, "bema": ((0.5, 0.2),)}, "must be less than n_steps"),
        ({"warmup_steps": -1}, "warmup_steps must lie in 0..n_steps"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"speed": 3}, "unknown training key 'speed'"),
    ],
)
def test_bad_recipes_are_named(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingConfig.from_dict(change)


def test_bad_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="vocabulary must be the task's: d_vocab=9"):
        train(CFG, SetComplement(9), SHORT)
    with pytest.raises(ValueError, match="seeds must be distinct"):
        train(CFG, TASK, SHORT, seeds=[1, 1])
    with pytest.raises(ValueError, match="training length must be at most 7"):
        train(CFG, TASK, TrainingConfig(length=8), seeds=[1])


def test_recipe_round_trip() -> None:
    assert TrainingConfig.from_dict(json.loads(json.dumps(SHORT.to_dict()))) == SHORT
