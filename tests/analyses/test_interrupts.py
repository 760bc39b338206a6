"""An interrupt leaves the finished rows usable and the model as it was.

Raised in the middle, at a known place: by a progress function (between two batches) and by a hook
inside the model (in the middle of a forward pass).
"""

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from resharpen.analyses import (
    audit,
    audit_adapted,
    diagnose,
    measure_limits,
    measure_sampling_rate,
)
from resharpen.analyses.monitoring import DispersionMonitor
from resharpen.interp import parse_remedy, profile, sweep
from resharpen.models import (
    SetComplement,
    TrainingConfig,
    Transformer,
    TransformerConfig,
    adapt,
    get_probe,
    train,
)

D_VOCAB = 40


def ours() -> Transformer:
    """Two blocks of this toolkit; one is trained and one is not, so that modes differ."""
    config = TransformerConfig(
        d_vocab=D_VOCAB, n_layers=2, n_heads=2, d_model=16, d_mlp=16, norm_placement="peri"
    )
    return Transformer(config, seed=0)


def gpt2() -> nn.Module:
    """A GPT-2 of two blocks, with dropout, on the sdpa kernel."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = dict(n_embd=16, n_layer=2, n_head=2, n_positions=64, vocab_size=D_VOCAB)
    more: dict[str, Any] = dict(bos_token_id=None, eos_token_id=None, attn_implementation="sdpa")
    return GPT2LMHeadModel(GPT2Config(**sizes, **more))


def llama() -> nn.Module:
    """A Llama of two blocks, on the eager kernel."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=2, vocab_size=D_VOCAB)
    heads = dict(num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64)
    special: dict[str, Any] = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
    special["attn_implementation"] = "eager"
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **special))


MODELS = {"ours": ours, "gpt2": gpt2, "llama": llama}


def prepared(name: str) -> Any:
    """A model in a state that no measurement would choose: mixed modes, grads, a frozen weight."""
    model = MODELS[name]()
    model.train()
    parts = list(model.children())
    parts[0].eval()
    parameters = list(model.parameters())
    parameters[1].requires_grad_(False)
    parameters[0].grad = torch.ones_like(parameters[0])
    return model


def state_of(model: nn.Module) -> dict[str, Any]:
    """Everything that has to be as it was."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    found: dict[str, Any] = {}
    for place, part in model.named_modules():
        found[f"{place} mode"] = part.training
        for hook in hooks:
            found[f"{place} {hook}"] = list(getattr(part, hook))
        for kind in ("fwd_hooks", "bwd_hooks"):
            if hasattr(part, kind):
                found[f"{place} {kind}"] = len(getattr(part, kind))
        found[f"{place} forward"] = part.__dict__.get("forward")
    for place, weight in model.named_parameters():
        found[f"{place} weight"] = (weight.detach().clone(), weight.requires_grad, weight.device)
        found[f"{place} grad"] = None if weight.grad is None else weight.grad.clone()
    config = getattr(model, "config", None)
    found["attention"] = getattr(config, "_attn_implementation", None)
    numpy_state: Any = np.random.get_state()
    found["random"] = (torch.get_rng_state(), random.getstate(), numpy_state[1].tolist())
    found["grad mode"] = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    return found


def same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first, second)
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@contextmanager
def left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Fail if anything of the model, or of the global state, is not as before."""
    before = state_of(model)
    yield
    after = state_of(model)
    changed = [name for name in before if not same(before[name], after.get(name))]
    assert not changed
    assert before.keys() == after.keys()
    # It can be trained on: nothing that it keeps was made in inference mode.
    tokens = torch.arange(8)[None]
    output = model(tokens)
    getattr(output, "logits", output).sum().backward()


def at_call(number: int) -> Callable[[int, int, int], None]:
    """A progress function that is interrupted at its so manieth call."""
    calls: list[int] = []

    def progress(done: int, total: int, length: int) -> None:
        calls.append(done)
        assert 0 < done <= total
        if len(calls) == number:
            raise KeyboardInterrupt

    return progress


LENGTHS = [8, 16, 32]
SMALL: dict[str, Any] = {"n_sequences": 6, "batch_tokens": 64}  # two sequences of 32 a batch

Asked = Callable[..., Any]

PROBED: dict[str, Asked] = {
    "audit_adapted": lambda model, **more: (
        audit_adapted(model, probe="random", lengths=LENGTHS, **SMALL, **more).result.table
    ),
    "diagnose": lambda model, **more: (
        diagnose(model, 1, 0, probe="random", lengths=LENGTHS, **SMALL, **more).result.table
    ),
    "limits": lambda model, **more: (
        measure_limits(model, 1, 0, probe="random", lengths=LENGTHS, **SMALL, **more).table
    ),
}
"""One pass over the longest length; interrupted at the second of three batches."""


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("entry", PROBED)
def test_finished_sequences_stay_usable(entry: str, name: str) -> None:
    model = prepared(name)
    with left_as_it_was(model), pytest.warns(UserWarning, match="4 finished of 6 sequences"):
        table = PROBED[entry](model, progress=at_call(2))
    rows = table[table["head"].notna() & (table["status"] == "ok")]
    assert set(rows["n_obs"]) == {4}
    assert rows["n_key"].min() <= 8
    assert rows["n_key"].max() >= 30
    assert np.isfinite(rows["mean"].to_numpy()).all()


@pytest.mark.parametrize("entry", PROBED)
def test_the_rows_are_those_of_the_finished_sequences(entry: str) -> None:
    """Interrupted after the first batch of a run = a run of which only that batch was asked for."""
    with pytest.warns(UserWarning, match="2 finished of 6 sequences"):
        part = PROBED[entry](ours(), progress=at_call(1))
    whole = PROBED[entry](ours())
    place = ["site", "layer", "head", "quantity", "n_key"]
    both = whole[whole["head"].notna()].merge(part[part["head"].notna()], on=place)
    assert len(both) == len(part[part["head"].notna()]) > 0
    known = both[both["status_x"] == "ok"]
    # Two of six sequences: their extremes lie within those of all six.
    slack = 1e-9 * (1 + known["max_x"].abs())
    assert (known["min_y"] >= known["min_x"] - slack).all()
    assert (known["max_y"] <= known["max_x"] + slack).all()
    assert (known["n_obs_y"] <= 2).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("entry", [*PROBED, "sampling rate", "monitor", "profile"])
def test_an_interrupt_inside_the_model_leaves_it_as_it_was(entry: str, name: str) -> None:
    """With nothing finished the interrupt goes through; what it leaves is checked all the same."""
    model = prepared(name)
    calls: list[int] = []
    limit: list[int] = []

    def interrupt(*_: Any) -> None:
        calls.append(1)
        if limit and len(calls) > limit[0]:
            raise KeyboardInterrupt

    last = list(model.modules())[-1]
    if name == "ours":
        last = model.blocks[1].attn.hook_z
    last.register_forward_hook(interrupt)
    adapter = adapt(model)  # looks at the model on a few tokens: not what is interrupted
    asked: dict[str, Asked] = {
        **PROBED,
        "sampling rate": lambda model: measure_sampling_rate(
            model, 1, 0, probe="random", length=16, sizes=[8, 16], n_draws=4, n_sequences=2
        ),
        "monitor": lambda model: DispersionMonitor(model, lengths=[16]).measure(0),
        "profile": lambda model: profile(
            adapter, get_probe("random")(D_VOCAB), LENGTHS, n_sequences=2
        ),
    }
    assert calls
    checked = len(calls) if entry != "profile" else 0
    limit.append(len(calls) + checked)
    with left_as_it_was_but(model, limit), pytest.raises(KeyboardInterrupt):
        asked[entry](model)


@contextmanager
def left_as_it_was_but(model: nn.Module, limit: list[int]) -> Iterator[None]:
    """As `left_as_it_was`; the hook that interrupts is switched off for the last look."""
    guard = left_as_it_was(model)
    with guard:
        yield
        limit.clear()


def test_sweep_and_audit_keep_the_finished_lengths() -> None:
    task = SetComplement(D_VOCAB)
    model = prepared("ours")
    with left_as_it_was(model), pytest.warns(UserWarning, match="2 finished of 3 lengths"):
        table = sweep(model, task.sample, [2, 4, 8], batch=16, progress=at_call(3))
    assert set(table["length"]) == {2, 4}
    with left_as_it_was(model), pytest.warns(UserWarning, match="2 finished of 3 lengths"):
        result = audit(model, task=task, lengths=[2, 4, 8], n_sequences=16, progress=at_call(3))
    assert set(result.table["length"]) == {2, 4}
    assert not result.provenance.completed
    assert "NOT COMPLETED" in repr(result)
    assert result.verdicts


def test_an_interrupt_of_the_streams_keeps_what_the_sweep_gave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import resharpen.analyses.auditing as auditing

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(auditing, "measure_streams", interrupted)
    model, task = prepared("ours"), SetComplement(D_VOCAB)
    with left_as_it_was(model), pytest.warns(UserWarning, match="streams"):
        result = audit(model, task=task, lengths=[2, 4], n_sequences=16)
    assert set(result.table["length"]) == {2, 4}
    assert not result.provenance.completed


@pytest.mark.parametrize("call, tried", [(4, 0), (6, 0), (7, 1)])
def test_an_interrupted_what_if_keeps_the_audit(call: int, tried: int) -> None:
    """Three batches each: 4 to 6 are the first remedy's, 7 to 9 the second's."""
    model = prepared("llama")
    remedies = [parse_remedy("temperature:2"), parse_remedy("log_n:8")]
    with left_as_it_was(model), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = audit_adapted(
            model,
            probe="random",
            lengths=LENGTHS,
            what_if=remedies,
            progress=at_call(call),
            **SMALL,
        )
    words = " ".join(str(item.message) for item in said)
    assert "what-ifs were tried" in words
    names = set(found.result.table["checkpoint"])
    assert "LlamaForCausalLM" in names
    assert not found.result.provenance.completed
    plain = found.result.table[found.result.table["checkpoint"] == "LlamaForCausalLM"]
    assert {6} <= set(plain["n_obs"])
    assert len(found.classes) == 4


def test_an_interrupted_audit_tries_no_what_if() -> None:
    with pytest.warns(UserWarning, match="finished of 6 sequences"):
        found = audit_adapted(
            prepared("gpt2"), probe="random", lengths=LENGTHS,
            what_if=[parse_remedy("temperature:2")], progress=at_call(1), **SMALL,
        )  # fmt: skip
    assert set(found.result.table["checkpoint"]) == {"GPT2LMHeadModel"}
    assert found.paths is None
    assert len(found.classes) == 4


@pytest.mark.parametrize("name", ["ours", "llama"])
def test_the_sampling_rate_keeps_the_finished_sizes(name: str) -> None:
    model = prepared(name)
    with left_as_it_was(model), pytest.warns(UserWarning, match="first 2 of 4 sizes"):
        rate = measure_sampling_rate(
            model, 1, 0, probe="random", length=16, sizes=[8, 16, 32, 64], n_draws=8,
            n_sequences=2, progress=at_call(2),
        )  # fmt: skip
    assert set(rate.table["n_key"]) == {8, 16}
    assert not rate.result.provenance.completed


def test_a_diagnosis_of_few_sequences_says_so() -> None:
    with pytest.warns(UserWarning, match="1 finished of 4 sequences"):
        found = diagnose(
            ours(), 0, 0, probe="random", lengths=LENGTHS, n_sequences=4, batch_tokens=32,
            progress=at_call(1),
        )  # fmt: skip
    assert not found.result.provenance.completed
    assert found.law.law == "undecided"  # one sequence has no interval


def test_what_was_not_interrupted_is_complete() -> None:
    seen: list[tuple[int, int]] = []
    found = measure_limits(
        ours(), 0, 0, probe="random", lengths=LENGTHS, **SMALL,
        progress=lambda done, total, _: seen.append((done, total)),
    )  # fmt: skip
    assert seen == [(2, 6), (4, 6), (6, 6)]
    assert found.provenance.completed


@pytest.mark.parametrize("with_folder, after", [(False, 3), (True, 1), (True, 5)])
def test_training_says_what_is_kept(with_folder: bool, after: int, tmp_path) -> None:
    task = SetComplement(8)
    config = TransformerConfig(d_vocab=8, d_model=8, attn_only=True)
    recipe = TrainingConfig(length=3, n_steps=6, batch_size=4, save_every=2)
    folder = tmp_path / "run" if with_folder else None

    def interrupt(step: int, losses: torch.Tensor) -> None:
        if step == after:
            raise KeyboardInterrupt

    random_state = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt) as caught:
        train(config, task, recipe, folder=folder, on_step=interrupt)
    assert torch.equal(random_state, torch.get_rng_state())
    (note,) = caught.value.__notes__
    resumes = with_folder and after > 2
    assert ("goes on from there" in note) == resumes
    assert ("no folder was given" in note) == (not with_folder)
    steps: list[int] = []
    (resumed,) = train(
        config, task, recipe, folder=folder, on_step=lambda step, _: steps.append(step)
    )
    (straight,) = train(config, task, recipe)
    assert steps[0] == (5 if resumes else 1)
    for key, weight in straight.weights["raw"].items():
        assert torch.equal(weight, resumed.weights["raw"][key])


def test_tables_of_an_interrupted_run_can_be_saved(tmp_path) -> None:
    from resharpen.analyses import StudyResult

    with pytest.warns(UserWarning, match="interrupted"):
        result = audit(
            ours(), probe="random", lengths=LENGTHS, **SMALL, progress=at_call(1), name="model"
        )
    again = StudyResult.load(result.save(tmp_path / "result"))
    pd.testing.assert_frame_equal(again.table, result.table)
    assert not again.provenance.completed
