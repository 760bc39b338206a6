"""Averages of the weights against their closed forms, in float64, from the recorded iterates."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from resharpen.models import (
    Checkpoint,
    SetComplement,
    TrainingConfig,
    TransformerConfig,
    load_checkpoint,
    save_checkpoint,
    train,
)
from resharpen.models.training.state import STATE_FILE

averaging = importlib.import_module("resharpen.models.training.averaging")
StackedTransformer = importlib.import_module("resharpen.models.training.stack").StackedTransformer

TASK = SetComplement(8)
CFG = TransformerConfig(d_vocab=8, d_model=16, norm_placement="post")
RECIPE = TrainingConfig(
    length=3,
    n_steps=14,
    batch_size=8,
    schedule="constant",
    warmup_steps=3,
    ema_decays=(0.5, 0.9),
    bema=((0.5, 0.2), (1.0, 1.0)),
    uniform_average=True,
)
NAMES = ["raw", "ema-0.5", "ema-0.9", "bema-0.5-0.2", "bema-1.0-1.0", "uniform"]


def coefficients(name: str, n_steps: int, burn_in: int) -> np.ndarray:
    """What each of ``θ_0 .. θ_T`` counts in an average, from the definitions."""
    weights = np.zeros(n_steps + 1)
    kind, *numbers = name.split("-")
    if kind == "ema":
        decay = float(numbers[0])
        ages = np.arange(n_steps - 1, -1, -1)
        weights[1:] = (1 - decay) * decay**ages
        weights[1] = decay ** (n_steps - 1)
    elif kind == "bema":
        kappa, eta = map(float, numbers)
        taken = (10.0 + np.arange(n_steps + 1)) ** -kappa
        for step in range(burn_in, n_steps + 1):
            fresh = 1.0 if step == burn_in else taken[step]
            weights[step] = fresh * np.prod(1 - taken[step + 1 :])
        weights[n_steps] += (10.0 + n_steps) ** -eta
        weights[burn_in] -= (10.0 + n_steps) ** -eta
    else:
        weights[burn_in + 1 :] = 1 / (n_steps - burn_in)
    return weights


def recorded(monkeypatch: pytest.MonkeyPatch, cfg: TransformerConfig, recipe: TrainingConfig):
    """Train two seeds; give the checkpoints and every iterate of each seed, ``θ_0`` first."""
    iterates: list[list[dict[str, torch.Tensor]]] = []
    update = averaging.Averages.update

    def record(self, stack, done: int) -> None:
        assert done == len(iterates)
        iterates.append([stack.state_of(index) for index in range(2)])
        update(self, stack, done)

    monkeypatch.setattr(averaging.Averages, "update", record)
    checkpoints = train(cfg, TASK, recipe, seeds=[0, 3])
    monkeypatch.undo()
    return checkpoints, iterates


def combined(iterates, index: int, name: str, weights: np.ndarray) -> np.ndarray:
    steps = np.stack([state[index][name].double().numpy() for state in iterates])
    return np.tensordot(weights, steps, 1)


@pytest.mark.parametrize("burn_in", [None, 0, 5])
def test_every_average_is_its_closed_form(burn_in, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, iterates = recorded(monkeypatch, CFG, replace(RECIPE, burn_in=burn_in))
    assert len(iterates) == RECIPE.n_steps + 1
    for index, checkpoint in enumerate(checkpoints):
        assert list(checkpoint.weights) == NAMES
        for average in NAMES[1:]:
            weights = coefficients(average, 14, 3 if burn_in is None else burn_in)
            assert weights.sum() == pytest.approx(1)
            for name, held in checkpoint.weights[average].items():
                wanted = combined(iterates, index, name, weights)
                np.testing.assert_allclose(held.numpy(), wanted, rtol=0, atol=3e-6)
                # The tolerance tells the averages from the last weights.
            raw, held = checkpoint.weights["raw"]["embed.W_E"], checkpoint.weights[average]
            assert (raw - held["embed.W_E"]).abs().max() > 1e-3


def impulse_response(recipe: TrainingConfig) -> dict[str, np.ndarray]:
    """What each iterate counts, measured: entry ``t`` of the embedding is 1 at step ``t`` alone."""
    stack = StackedTransformer(CFG, [0])
    weight = stack.weights[stack.names.index("embed.W_E")].data
    averages = averaging.Averages(recipe, stack)
    for done in range(recipe.n_steps + 1):
        weight.zero_().view(-1)[done] = 1
        averages.update(stack, done)
    found = averages.weights_of(stack, 0)
    return {
        name: state["embed.W_E"].flatten()[: recipe.n_steps + 1].double().numpy()
        for name, state in found.items()
    }


@pytest.mark.parametrize("burn_in", [0, 1, 40, 99])
def test_the_coefficients_of_the_iterates(burn_in: int) -> None:
    recipe = replace(RECIPE, n_steps=100, burn_in=burn_in)
    for name, measured in impulse_response(recipe).items():
        np.testing.assert_allclose(measured, coefficients(name, 100, burn_in), atol=1e-6)
        assert measured.sum() == pytest.approx(1, abs=1e-5)


def test_without_its_correction_bema_is_a_plain_moving_average() -> None:
    recipe = replace(RECIPE, n_steps=100, burn_in=0, bema=((0.5, 1000.0), (0.5, 0.2)))
    plain, corrected = (impulse_response(recipe)[f"bema-0.5-{eta}"] for eta in (1000.0, 0.2))
    average = np.eye(101)[0]
    for step in range(1, 101):
        taken = (10.0 + step) ** -0.5
        average = (1 - taken) * average + taken * np.eye(101)[step]
    np.testing.assert_allclose(plain, average, atol=1e-6)
    assert (plain >= 0).all() and corrected[0] < 0


def test_bema_is_unbiased_where_the_ideal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theory 13, chk:BEMA-OU, for the implicit Euler steps ``θ_t - θ_{t-1} = μ - θ_t``.

    They add up to ``sum θ_t = T μ - (θ_T - θ_0)``, so that with ``ρ = 0`` and ``κ = η = 1`` the
    corrected mean is ``μ`` at every ``T``, while the mean itself is off by ``(θ_0 - θ_T) / T``.
    """
    monkeypatch.setattr(averaging, "LAG", 0.0)
    recipe = TrainingConfig(n_steps=12, ema_decays=(0.9,), bema=((1.0, 1.0),), uniform_average=True)
    stack = StackedTransformer(CFG, [0])
    weight = stack.weights[0].data
    start = weight[0].clone()
    averages = averaging.Averages(recipe, stack)
    aim = 0.25
    for done in range(13):
        averages.update(stack, done)
        if done == 12:
            break
        weight.add_(aim).mul_(0.5)
    name = stack.names[0]
    held = {kind: state[name] for kind, state in averages.weights_of(stack, 0).items()}
    torch.testing.assert_close(held["bema-1.0-1.0"], torch.full_like(start, aim))
    torch.testing.assert_close(held["uniform"] - aim, (start - weight[0]) / 12)
    assert ((held["ema-0.9"] - aim).abs() > 0.05 * (start - aim).abs()).all()


def test_one_run_gives_the_averages_of_separate_runs() -> None:
    together = train(CFG, TASK, RECIPE, seeds=[0, 3])
    alone = {
        "ema-0.9": replace(RECIPE, ema_decays=(0.9,), bema=(), uniform_average=False),
        "bema-1.0-1.0": replace(RECIPE, ema_decays=(), bema=((1, 1),), uniform_average=False),
        "uniform": replace(RECIPE, ema_decays=(), bema=()),
    }
    for average, recipe in alone.items():
        for one, all_of_them in zip(train(CFG, TASK, recipe, [0, 3]), together, strict=True):
            assert list(one.weights) == ["raw", average]
            for kind, state in one.weights.items():
                for name, weight in state.items():
                    assert torch.equal(weight, all_of_them.weights[kind][name])


def test_averages_of_ngpt_are_on_the_sphere(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = replace(CFG, norm_placement="ngpt")
    recipe = replace(RECIPE, burn_in=0)
    checkpoints, iterates = recorded(monkeypatch, cfg, recipe)
    for index, checkpoint in enumerate(checkpoints):
        for average in NAMES[1:]:
            mean = combined(iterates, index, "embed.W_E", coefficients(average, 14, 0))
            lengths = np.linalg.norm(mean, axis=-1, keepdims=True)
            assert np.abs(lengths - 1).max() > 1e-4
            held = checkpoint.weights[average]["embed.W_E"]
            np.testing.assert_allclose(held.numpy(), mean / lengths, atol=3e-6)
            # Scales have no length to keep.
            step = combined(iterates, index, "blocks.0.step1", coefficients(average, 14, 0))
            np.testing.assert_allclose(
                checkpoint.weights[average]["blocks.0.step1"].numpy(), step, atol=3e-6
            )


def test_a_saved_checkpoint_has_every_average(tmp_path: Path) -> None:
    (checkpoint,) = train(CFG, TASK, RECIPE, seeds=[0])
    loaded = load_checkpoint(save_checkpoint(checkpoint, tmp_path / "run"))
    assert isinstance(loaded, Checkpoint) and sorted(loaded.weights) == sorted(NAMES)
    for kind, state in checkpoint.weights.items():
        for name, weight in state.items():
            assert torch.equal(loaded.weights[kind][name], weight)
        loaded.model(kind)
    assert TrainingConfig.from_dict(loaded.training or {}) == RECIPE
    with pytest.raises(
        ValueError,
        match=r"no weights 'bema-0.5'; it has raw, bema-0.5-0.2, bema-1.0-1.0, ema-0.5, ema-0.9, "
        "uniform",
    ):
        loaded.model("bema-0.5")


def test_a_state_from_before_these_averages_resumes(tmp_path: Path) -> None:
    recipe = replace(RECIPE, bema=(), uniform_average=False, save_every=4)
    whole = train(CFG, TASK, recipe, seeds=[0, 1], folder=tmp_path)
    path = tmp_path / STATE_FILE
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert "average.0.9.module.weights.0" in tensors
    identity = json.loads(metadata["identity"])
    for field in ("bema", "uniform_average", "burn_in"):
        del identity["training"][field]
    del identity["model"]["attn_dropout"]
    save_file(tensors, path, {**metadata, "identity": json.dumps(identity)})
    steps: list[int] = []
    resumed = train(
        CFG, TASK, recipe, [0, 1], folder=tmp_path, on_step=lambda done, _: steps.append(done)
    )
    assert steps[0] == 13
    for one, other in zip(whole, resumed, strict=True):
        for kind, state in one.weights.items():
            for name, weight in state.items():
                assert torch.equal(weight, other.weights[kind][name])
