"""Sweeps: values against run_with_cache, independence of splits, interrupts, and refusals."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

from resharpen.interp.drawing import draw, length_generator
from resharpen.interp.measures import MEASURES
from resharpen.interp.sweeping import sweep, sweep_lengths
from resharpen.interp.tables import check_table
from resharpen.models import Transformer, TransformerConfig, construct_set_complement
from resharpen.models.tasks import SetComplement

TASK = SetComplement(8)
PLACEMENTS = ["none", "pre", "post", "res_post", "peri"]
OUTPUT = {
    *("displacement", "min_displacement", "oscillation", "frozen_displacement"),
    *("displacement_rescale", "total_variation", "kl_divergence", "illegal_mass"),
}


def make(placement="post", **change):
    config = {"d_vocab": 8, "n_layers": 2, "n_heads": 2, "d_model": 12, "norm_placement": placement}
    return Transformer(TransformerConfig(**{**config, **change}), seed=4)


def value(frame, quantity, column="mean", **where):
    rows = frame[frame["quantity"] == quantity]
    for name, wanted in where.items():
        rows = rows[rows[name] == wanted]
    assert len(rows) == 1, (quantity, where, len(rows))
    return rows[column].iloc[0]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_values_equal_a_float64_pass_over_the_cache(placement):
    model = make(placement, attn_only=False, final_norm=True).double()
    frame = sweep(model, TASK.sample, [5], batch=7, n_batches=3, labels={"checkpoint": placement})
    drawn = TASK.sample(length_generator(0, 5), 21, 5)
    logits, cache = model.run_with_cache(drawn.tokens)

    def check(per_sequence, quantity, **where):
        x = np.asarray(per_sequence)
        for column, expected in (
            ("mean", x.mean()),
            ("sem", x.std(ddof=1) / math.sqrt(21)),
            ("min", x.min()),
            ("max", x.max()),
            ("n_obs", 21),
        ):
            got = value(frame, quantity, column, **where)
            assert got == pytest.approx(expected, rel=1e-7, abs=1e-10), (quantity, where, column)

    for layer in (0, 1):
        for head in (0, 1):
            place = {"layer": layer, "head": head}
            row = cache[f"blocks.{layer}.attn.hook_pattern"][:, head, -1].detach().numpy()
            check(-(row * np.log(row)).sum(-1), "entropy", **place)
            check(1 / (row**2).sum(-1), "effective_support", **place)
            check(row[:, 0], "sink_mass", **place)
            scores = cache[f"blocks.{layer}.attn.hook_attn_scores"][:, head, -1].detach().numpy()
            check(np.ptp(scores, axis=-1), "score_spread", **place)
            check(scores.std(-1), "score_deviation", **place)
        for name in ("hook_attn_out", "hook_mlp_out"):
            site = f"blocks.{layer}.{name}"
            vectors = cache[site][:, -1].detach().numpy()
            check(np.sqrt((vectors**2).sum(-1)), "contribution_norm", site=site)
        site = f"blocks.{layer}.hook_attn_out"
        variance = cache[site][:, -1].detach().numpy().var(axis=0, ddof=1).mean()
        assert value(frame, "output_variance", site=site) == pytest.approx(variance, rel=1e-10)
    scale = cache["ln_final.hook_scale"][:, -1, 0].detach().numpy()
    check(scale, "norm_scale", site="ln_final.hook_scale")
    _, alone = model.run_with_cache(drawn.tokens[:, -1:])
    first = alone["ln_final.hook_scale"][:, -1, 0].detach().numpy()
    check(first / scale, "rescale_gain", site="ln_final.hook_scale")

    row = logits[:, -1].detach().numpy()
    p = np.exp(row) / np.exp(row).sum(-1, keepdims=True)
    target = drawn.targets[:, -1].double().numpy()
    check(np.abs(p - target).sum(-1) / 2, "total_variation")
    check(np.where(target == 0, p, 0).sum(-1), "illegal_mass")
    gap = [r[t > 0].mean() - r[t == 0].mean() for r, t in zip(row, target, strict=True)]
    check(gap, "displacement")
    check([np.ptp(r[t > 0]) for r, t in zip(row, target, strict=True)], "oscillation")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_quantity_is_there_once_a_place(placement):
    frame = sweep(make(placement, attn_only=False), TASK.sample, [1, 4], batch=6)
    check_table(frame)
    expected = set(MEASURES) - {"total_mass"}  # softmax rows sum to one
    if placement == "none":
        expected -= {"norm_scale", "rescale_gain"}
    assert set(frame["quantity"]) == expected
    assert not frame.duplicated(["length", "site", "head", "quantity"]).any()
    undefined = frame[frame["status"] != "ok"]
    assert set(zip(undefined["quantity"], undefined["length"], strict=True)) == {
        ("normalised_entropy", 1)
    }
    assert (frame["n_key"] == frame["length"]).all()
    outside = frame["site"].isin(["hook_embed", "logits"])
    assert frame["layer"].isna().tolist() == outside.tolist()
    attention = frame["site"].str.contains("attn.hook_attn_scores|attn.hook_pattern")
    assert frame["head"].notna().tolist() == attention.tolist()


def test_labels_fill_their_columns_and_nothing_else_does():
    labels = {"study": "a", "checkpoint": "b", "task": "c", "seed": 3}
    frame = sweep(make(), TASK.sample, [3], ["entropy"], batch=4, labels=labels)
    assert all((frame[name] == wanted).all() for name, wanted in labels.items())
    bare = sweep(make(), TASK.sample, [3], ["entropy"], batch=4)
    assert bare[list(labels)].isna().all().all()


def numbers(frame):
    return frame[["mean", "sem", "min", "max"]].to_numpy()


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_the_split_into_batches_does_not_matter(dtype, rtol):
    model = make("peri").to(dtype)
    whole = sweep(model, TASK.sample, [2, 6], batch=48, n_batches=1)
    parts = sweep(model, TASK.sample, [2, 6], batch=12, n_batches=4)
    pd.testing.assert_frame_equal(
        whole.drop(columns=["mean", "sem", "min", "max"]),
        parts.drop(columns=["mean", "sem", "min", "max"]),
    )
    # A standard error of exactly equal observations is rounding: compare it to their size.
    scale = np.nan_to_num(np.abs(whole[["min", "max"]].to_numpy())).max(axis=1, keepdims=True)
    difference = np.abs(numbers(whole) - numbers(parts)) / np.maximum(scale, 1.0)
    assert np.nanmax(difference) < rtol
    assert (np.isnan(numbers(whole)) == np.isnan(numbers(parts))).all()


def test_a_length_does_not_depend_on_the_others_and_the_seed_matters():
    model = make()
    both = sweep(model, TASK.sample, [3, 6], batch=10)
    alone = sweep(model, TASK.sample, [6], batch=10)
    pd.testing.assert_frame_equal(both[both["length"] == 6].reset_index(drop=True), alone)
    other = sweep(model, TASK.sample, [6], batch=10, seed=1)
    assert value(other, "displacement") != value(alone, "displacement")


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("length", [1, 3, 7])
def test_constructed_models_have_their_closed_forms(placement, length):
    # Theory 1.1 with uniform attention: a gap of p/s before any norm.
    v, p, b = 8, 12.0, 2.0
    model = construct_set_complement(v, norm_placement=placement, p=p, residual=b, eps=0.0).model()
    width = model.cfg.d_model
    frame = sweep(model, TASK.sample, [length], batch=5)
    size = math.sqrt(b**2 + p**2 / length)
    gap = {
        "none": p / length,
        "pre": p / length,
        "post": math.sqrt(width) * p / length / size,
        "res_post": math.sqrt(width / length),
        "peri": math.sqrt(width / length),
    }[placement]
    gain = {
        "post": math.sqrt(b**2 + p**2) / size,
        "res_post": math.sqrt(length),
        "peri": math.sqrt(length),
    }.get(placement, 1.0)
    assert value(frame, "displacement") == pytest.approx(gap, rel=1e-5)
    assert value(frame, "min_displacement") == pytest.approx(gap, rel=1e-5)
    assert value(frame, "oscillation") == pytest.approx(0, abs=1e-5)
    assert value(frame, "displacement_rescale") == pytest.approx(gain, rel=1e-5)
    assert value(frame, "frozen_displacement") == pytest.approx(gap / gain, rel=1e-5)
    assert value(frame, "entropy") == pytest.approx(math.log(length), abs=1e-6)
    total = length * math.exp(-gap)
    assert value(frame, "total_variation") == pytest.approx(total / (total + v - length), rel=1e-5)
    if placement == "post":
        assert value(frame, "rescale_gain") == pytest.approx(gain, rel=1e-5)


def test_a_beginning_of_sequence_token_is_seen_and_not_counted_as_present():
    task = SetComplement(6, bos=True)
    model = make(d_vocab=7, d_vocab_out=6)
    frame = sweep(model, task.sample, [3], batch=8)
    assert (frame["n_key"] == 4).all()
    for head in (0, 1):
        place = {"layer": 0, "head": head}
        total = value(frame, "relevant_mass", **place) + value(frame, "sink_mass", **place)
        assert total == pytest.approx(1, abs=1e-6)
    drawn = draw(task.sample, 0, 3, 8)
    assert drawn.bos == 6
    assert drawn.present.sum(-1).tolist() == [3] * 8
    assert drawn.absent.sum(-1).tolist() == [3] * 8


def test_past_the_vocabulary_with_replacement():
    task = SetComplement(8, replacement=True)
    frame = sweep(
        make(), task.sample, [40], ["entropy", "displacement", "total_variation"], batch=6
    )
    assert (frame["status"] == "ok").all()
    assert (frame["n_key"] == 40).all()


def test_a_bidirectional_model_sees_every_key():
    frame = sweep(make(attention_dir="bidirectional"), TASK.sample, [5], ["entropy"], batch=4)
    assert (frame["n_key"] == 5).all()


def test_bare_tokens_give_everything_but_the_output():
    def sample(generator, batch, length):
        return torch.from_numpy(generator.integers(0, 8, (batch, length)))

    frame = sweep(make(), sample, [4], batch=5)
    silent = set(MEASURES) - set(frame["quantity"])
    assert silent == OUTPUT | {"relevant_mass", "irrelevant_mass", "total_mass"}


def test_what_is_asked_for_by_name_and_cannot_be_read_says_so():
    def sample(generator, batch, length):
        return torch.from_numpy(generator.integers(0, 8, (batch, length)))

    names = ["entropy", "relevant_mass", "total_variation", "norm_scale"]
    frame = sweep(make("none"), sample, [4], names, batch=5)
    check_table(frame)
    missing = frame[frame["status"] == "unavailable"]
    assert missing["quantity"].tolist() == ["relevant_mass", "total_variation", "norm_scale"]
    assert missing["mean"].isna().all()
    assert (missing["n_obs"] == 0).all()
    assert set(frame["quantity"]) == set(names)


def deafen(point):
    """Let hooks see a copy, and the model the original."""

    class OnCopy(type(point)):
        def __call__(self, x):
            super().__call__(x.clone())
            return x

    point.__class__ = OnCopy


NAMED = ["entropy", "norm_scale", "rescale_gain", "displacement"]


@pytest.mark.parametrize("names", [None, [*NAMED, "frozen_displacement", "displacement_rescale"]])
def test_a_site_that_fails_verification_is_unavailable_and_said_aloud(names):
    model = make()
    for point in (model.blocks[0].attn.hook_pattern, model.blocks[0].ln1_resid.hook_scale):
        deafen(point)
    with pytest.warns(UserWarning, match="2 of .* sites are unavailable: editing .* does not"):
        frame = sweep(model, TASK.sample, [4], names, batch=5)
    dead = frame[frame["status"] == "unavailable"]
    of_weights = {name for name, measure in MEASURES.items() if "weights" in measure.reads}
    assert set(zip(dead["quantity"], dead["site"], strict=True)) == {
        *((name, "blocks.0.attn.hook_pattern") for name in of_weights & set(names or MEASURES)),
        ("norm_scale", "blocks.0.ln1_resid.hook_scale"),
        ("rescale_gain", "blocks.0.ln1_resid.hook_scale"),
        ("frozen_displacement", "logits"),
        ("displacement_rescale", "logits"),
    }
    assert value(frame, "displacement", "status") == "ok"
    for name in ("norm_scale", "rescale_gain"):
        assert value(frame, name, "status", layer=1) == "ok"


def test_measures_that_are_not_asked_for_cost_no_forward_pass():
    model = make()
    passes = []
    model.add_hook("hook_embed", lambda x, hook: passes.append(tuple(x.shape[:2])))
    sweep(model, TASK.sample, [4], ["entropy"], batch=5, verify=False)
    assert passes == [(5, 4)]
    passes.clear()
    sweep(model, TASK.sample, [4], ["frozen_displacement"], batch=5, verify=False)
    n_distinct = TASK.sample(length_generator(0, 4), 5, 4).tokens.unique().numel()
    assert passes == [(n_distinct, 1), (5, 4), (5, 4)]
    bare = make("none")
    passes.clear()
    bare.add_hook("hook_embed", lambda x, hook: passes.append(tuple(x.shape[:2])))
    frame = sweep(bare, TASK.sample, [4], ["displacement_rescale"], batch=5, verify=False)
    assert passes == [(5, 4)]
    assert value(frame, "displacement_rescale") == 1.0


def interrupt_at(call):
    calls = []

    def progress(done, total, length):
        calls.append((done, total, length))
        if done == call:
            raise KeyboardInterrupt

    return progress, calls


def test_an_interrupt_keeps_the_finished_lengths():
    model = make().train()
    progress, calls = interrupt_at(5)
    with pytest.warns(UserWarning, match="holds the 2 finished of 3 lengths"):
        frame = sweep(model, TASK.sample, [2, 4, 6], batch=4, n_batches=2, progress=progress)
    assert calls == [(1, 6, 2), (2, 6, 2), (3, 6, 4), (4, 6, 4), (5, 6, 6)]
    whole = sweep(model, TASK.sample, [2, 4], batch=4, n_batches=2)
    pd.testing.assert_frame_equal(frame, whole)
    assert model.training
    assert not any(point._forward_hooks for point in model.hook_dict.values())


def test_an_interrupt_before_the_first_length_goes_through():
    progress, _ = interrupt_at(1)
    with pytest.raises(KeyboardInterrupt):
        sweep(make(), TASK.sample, [2, 4], batch=4, n_batches=2, progress=progress)


def test_lengths_come_one_by_one():
    tables = sweep_lengths(make(), TASK.sample, [6, 2], batch=4)
    assert next(tables)["length"].unique().tolist() == [6]
    assert next(tables)["length"].unique().tolist() == [2]
    with pytest.raises(StopIteration):
        next(tables)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": []}, "at least one length"),
        ({"lengths": [4, 0]}, "a length must be a whole number, 1 or more; got 0"),
        ({"lengths": [2.5]}, "a length must be a whole number"),
        ({"lengths": [4, 4]}, "lengths must all be different"),
        ({"lengths": [4, 8]}, "cannot draw sequences of length 8: .* at most 7"),
        ({"measures": ["entropi"]}, "unknown measure 'entropi'"),
        ({"measures": []}, "at least one quantity"),
        ({"batch": 0}, "batch must be a whole number, 1 or more; got 0"),
        ({"n_batches": 1.5}, "n_batches must be a whole number"),
        ({"seed": -1}, "seed must be a whole number, 0 or more"),
        ({"labels": {"name": "x"}}, "labels may be study, checkpoint, task, seed; got 'name'"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(change, message):
    model = make()
    model.add_hook("hook_embed", lambda x, hook: pytest.fail("the model was run"))
    arguments = {"lengths": [4], "batch": 4, **change}
    with pytest.raises(ValueError, match=message):
        sweep(model, TASK.sample, **arguments)


def test_learned_positions_limit_the_length_and_others_do_not():
    learned = make(positional_embedding_type="standard", n_ctx=5)
    with pytest.raises(ValueError, match=r"length 6 needs 6 positions, but .* learned 5 \(n_ctx\)"):
        sweep(learned, TASK.sample, [3, 6], batch=4)
    assert len(sweep(learned, TASK.sample, [5], ["entropy"], batch=4))
    with_bos = SetComplement(7, bos=True)
    with pytest.raises(ValueError, match="length 5 needs 6 positions"):
        sweep(learned, with_bos.sample, [5], batch=4)
    rotary = make(positional_embedding_type="rotary", n_ctx=5)
    assert len(sweep(rotary, TASK.sample, [6], ["entropy"], batch=4))


def test_a_model_of_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"the model has 9 output tokens .* the targets have 8"):
        sweep(make(d_vocab_out=9), TASK.sample, [3], batch=4)


@dataclass(frozen=True)
class Wrong:
    tokens: torch.Tensor
    targets: torch.Tensor | None = None
    relevant: torch.Tensor | None = None


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        (Wrong(torch.zeros(3, dtype=torch.int64)), r"token ids \[batch=2, pos\].* got \[3\]"),
        (Wrong(torch.zeros(1, 3, dtype=torch.int64)), r"got \[1, 3\]"),
        ("tokens", "got str"),
        (
            Wrong(torch.zeros(2, 3, dtype=torch.int64), targets=torch.ones(2, 4, 5)),
            r"targets must be \[batch, pos, d_vocab_out\], here \[2, 3, ...\]",
        ),
        (
            Wrong(torch.zeros(2, 3, dtype=torch.int64), relevant=torch.ones(4).bool()),
            "relevant must broadcast",
        ),
    ],
)
def test_a_sample_of_the_wrong_shape_is_refused(drawn, message):
    with pytest.raises(ValueError, match=message):
        draw(lambda generator, batch, length: drawn, 0, 3, 2)


def test_a_shared_first_token_of_a_sequence_of_the_asked_length_is_no_bos():
    tokens = torch.tensor([[5, 1, 2], [5, 3, 4]])
    assert draw(lambda *_: tokens, 0, 3, 2).bos is None
    assert draw(lambda *_: tokens, 0, 2, 2).bos == 5
    other = replace(Wrong(tokens), tokens=torch.tensor([[5, 1, 2], [4, 3, 5]]))
    assert draw(lambda *_: other, 0, 2, 2).bos is None


@dataclass(frozen=True)
class Telling:
    tokens: torch.Tensor
    bos: object


@pytest.mark.parametrize("batch", [1, 3])
def test_what_the_task_says_of_its_opening_token_comes_before_the_shape(batch):
    for bos in (True, False):
        task = SetComplement(7, bos=bos)
        assert task.sample(np.random.default_rng(0), batch, 3).bos is bos
        assert draw(task.sample, 0, 3, batch).bos == (7 if bos else None)
    tokens = torch.tensor([[5, 1, 2]] * batch)
    assert draw(lambda *_: Telling(tokens, False), 0, 2, batch).bos is None
    assert draw(lambda *_: Telling(tokens, None), 0, 2, batch).bos == 5
    assert draw(lambda *_: Telling(tokens, True), 0, 1, batch).bos == 5


@pytest.mark.parametrize(
    ("bos", "message"),
    [(True, "but their first tokens differ"), (5, "as True, False or None; got 5")],
)
def test_what_a_task_cannot_say_of_its_opening_token(bos, message):
    tokens = torch.tensor([[5, 1, 2], [4, 3, 5]])
    with pytest.raises(ValueError, match=message):
        draw(lambda *_: Telling(tokens, bos), 0, 2, 2)
