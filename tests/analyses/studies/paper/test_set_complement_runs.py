"""What is measured on a model of set complement."""

from dataclasses import replace
from itertools import chain, permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from resharpen.analyses.studies.paper.measured.set_complement_runs import (
    SetComplementRun,
    every_input,
    margin,
    measure_model,
    run_set_complement,
)
from resharpen.interp.tables import table
from resharpen.models import TrainingConfig, TransformerConfig
from resharpen.models.constructed import construct_set_complement

RECIPE = TrainingConfig(length=3, n_steps=3, batch_size=4, targets="exact", ema_decays=())
PLAIN = TransformerConfig(d_vocab=6, d_model=8, norm_placement="none")


def test_every_input_is_every_set_with_every_query() -> None:
    for length in range(1, 6):
        found = list(every_input(6, length))
        wanted = {(frozenset(t), t[-1]) for t in permutations(range(6), length)}
        assert {(frozenset(t), t[-1]) for t in found} == wanted
        assert len(found) == len(wanted)
        assert all(len(set(t)) == length for t in found)


def test_the_margin_is_positive_where_the_order_is_right() -> None:
    logits = torch.tensor([[3.0, 2.0, -1.0, 0.5], [3.0, 2.0, -1.0, 0.5]])
    present = torch.tensor([[False, False, True, True], [False, True, False, True]])
    assert margin(logits, present).tolist() == [1.5, -3.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": replace(PLAIN, norm_placement="post")}, "without norms can be dissected"),
        ({"model": replace(PLAIN, n_layers=2)}, "can be dissected"),
        ({"model": replace(PLAIN, final_norm=True)}, "can be dissected"),
        ({"model": replace(PLAIN, n_layers=2), "interventions": ("output times 5",)}, "one block"),
        ({"dissect": False, "every_input": True, "model": replace(PLAIN, d_vocab=17)}, "17 tokens"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict, message: str) -> None:
    asked = {"model": PLAIN, "dissect": "interventions" not in changes, **changes}
    with pytest.raises(ValueError, match=message):
        SetComplementRun(training=RECIPE, seeds=(0,), lengths=(1,), **asked)


def test_a_closed_form_is_measured_to_its_numbers() -> None:
    v, p = 8, 24.0
    checkpoint = construct_set_complement(v, p=p)
    run = SetComplementRun(
        checkpoint.config,
        RECIPE,
        (0,),
        (1, 2, 4, 7),
        16,
        dissect=True,
        interventions=("scores times 8", "output times s/2"),
    )
    frame = table(measure_model(run, checkpoint.model(), "closed form", None))
    own = frame[frame["checkpoint"] == "closed form"].set_index(["quantity", "length"])["mean"]
    for length in run.lengths:
        assert own["displacement", length] == pytest.approx(p / length, rel=1e-4)
        assert own["margin", length] == pytest.approx(p / length, rel=1e-3)
        seen = length * np.exp(-p / length)
        wanted = seen / (seen + v - length)
        assert own["total_variation", length] == pytest.approx(wanted, abs=1e-4)
    for length in (2, 4, 7):
        assert own["log_weight", length] == pytest.approx(-np.log(length), rel=1e-5)
        assert own["log_displacement", length] == pytest.approx(np.log(p / length), rel=1e-4)
        # Attention writes p / s to each of s coordinates; the embedding has length 1.
        assert own["outweighing", length] == pytest.approx(p / length**0.5, rel=1e-4)
        assert own["balance", length] == pytest.approx(1, rel=1e-3)
        assert own["factor_error", length] < 1e-3
    assert own["two_body_error", 7] < 1e-4
    undefined = frame[frame["status"] == "undefined"]
    assert set(undefined["length"]) == {1}
    assert set(undefined["quantity"]) == {
        "log_weight", "log_displacement", "factor_error", "balance"
    }  # fmt: skip
    # Uniform attention is uniform at every temperature; only the rescaled output differs.
    edited = frame[frame["checkpoint"] != "closed form"].set_index(["checkpoint", "length"])["mean"]
    sharp = edited["closed form, scores times 8", 7]
    assert sharp == pytest.approx(own["total_variation", 7], abs=1e-4)
    assert edited["closed form, output times s/2", 7] < 1e-3 < sharp


def test_where_attention_outweighs_the_rest_the_norm_gives_back_a_half() -> None:
    v, p = 16, 8.0
    checkpoint = construct_set_complement(v, p=p, norm_placement="post", residual=4.0)
    run = SetComplementRun(
        checkpoint.config, RECIPE, (0,), (2, 15), 16, interventions=("output times 5",)
    )
    frame = table(measure_model(run, checkpoint.model(), "post", None))
    errors = frame[frame["quantity"] == "total_variation"].set_index(["checkpoint", "length"])
    width = checkpoint.config.d_model

    def gap(length: int, factor: float) -> float:
        # Theory 1.1: the stream is (p/s on s coordinates, content of length b), then RMSNorm.
        displaced = factor * p
        return width**0.5 * displaced / length / (16 + displaced**2 / length) ** 0.5

    for length in (2, 15):
        for label, factor in (("post", 1.0), ("post, output times 5", 5.0)):
            seen = length * np.exp(-gap(length, factor))
            wanted = seen / (seen + v - length)
            assert errors["mean"][label, length] == pytest.approx(wanted, rel=1e-3)


def test_norms_are_frozen_where_there_are_any(tmp_path: Path) -> None:
    model = replace(PLAIN, norm_placement="post")
    run = SetComplementRun(model, RECIPE, (0, 1), (2, 5), 4)
    frame, found = run_set_complement(run, "post", tmp_path)
    assert not found
    assert {"frozen_displacement", "frozen_total_variation"} <= set(frame["quantity"])
    assert "log_weight" not in set(frame["quantity"])
    assert frame["seed"].unique().tolist() == [0, 1]
    again, found = run_set_complement(run, "post", tmp_path)
    assert found
    assert again.equals(frame)
    other, found = run_set_complement(run, "post-norm", tmp_path)
    assert not found
    assert set(other["checkpoint"]) == {"post-norm"}


def test_every_input_is_run_where_that_is_asked(tmp_path: Path) -> None:
    run = SetComplementRun(PLAIN, RECIPE, (0,), (1, 2, 3), every_input=True)
    frame, _ = run_set_complement(run, "narrow", tmp_path)
    margins = frame[frame["quantity"] == "margin"].set_index("length")["n_obs"]
    assert margins.to_dict() == {n: len(list(every_input(6, n))) for n in (1, 2, 3)}
    assert run.key != replace(run, every_input=False).key != replace(run, lengths=(1,)).key


def test_keys_tell_apart_all_that_is_asked() -> None:
    run = SetComplementRun(PLAIN, RECIPE, (0,), (1, 2))
    others = [
        replace(run, seeds=(1,)),
        replace(run, n_sequences=8),
        replace(run, dissect=True),
        replace(run, interventions=("output times 5",)),
        replace(run, training=replace(RECIPE, n_steps=4)),
        replace(run, model=replace(PLAIN, d_model=12)),
    ]
    keys = [one.key for one in chain([run], others)]
    assert len(set(keys)) == len(keys)
