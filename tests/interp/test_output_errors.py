"""Errors of whole sequences against loops in float64, and what must not matter."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from resharpen.interp import sweep
from resharpen.interp.drawing import length_generator
from resharpen.interp.output_errors import SEQUENCE_ERRORS, errors_of_sequences, sequence_errors
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.tasks import LanguageTask, Othello, SetComplement

TASK = LanguageTask("dyck-2-3", targets="grammar")


class Scores(nn.Module):
    """Logits that depend on position and token; float32, as a model gives them."""

    def __init__(self, d_vocab: int, d_vocab_out: int, form: str = "tensor") -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(2 * torch.randn(d_vocab, d_vocab_out, generator=generator))
        self.dropout = nn.Dropout(0.5)
        self.form = form
        self.batches: list[int] = []

    def forward(self, tokens):
        self.batches.append(len(tokens))
        logits = self.dropout(self.table[tokens])
        logits = logits * (1 + torch.arange(tokens.shape[1])[:, None] / 7)
        if self.form == "object":
            return SimpleNamespace(logits=logits)
        return logits if self.form == "tensor" else {"logits": logits}


def model_of(task, form="tensor"):
    return Scores(task.d_vocab, task.d_vocab_out, form)


def by_hand(logits, target):
    """One sequence at a time, token by token."""
    rows = {quantity: [] for quantity in SEQUENCE_ERRORS}
    for sequence, exact in zip(logits.tolist(), target.tolist(), strict=True):
        errors: dict[str, list[float]] = {"tv": [], "kl": [], "illegal": []}
        product, right = 1.0, True
        for row, t in zip(sequence, exact, strict=True):
            if any(math.isnan(x) for x in t) or abs(sum(t) - 1) > 1e-3:
                errors = {name: [*values, math.nan] for name, values in errors.items()}
                continue
            total = math.fsum(math.exp(x) for x in row)
            p = [math.exp(x) / total for x in row]
            t = [x / math.fsum(t) for x in t]
            errors["tv"].append(sum(abs(a - b) for a, b in zip(p, t, strict=True)) / 2)
            errors["kl"].append(
                sum(b * math.log(b / a) for a, b in zip(p, t, strict=True) if b > 0)
            )
            illegal = sum(a for a, b in zip(p, t, strict=True) if b == 0)
            errors["illegal"].append(illegal)
            product *= 1 - illegal
            threshold = min(b for b in t if b > 0) / 2
            right &= {i for i, a in enumerate(p) if a >= threshold} == {
                i for i, b in enumerate(t) if b > 0
            }
        none = all(math.isnan(x) for x in errors["tv"])
        for name, quantity in (
            ("tv", "total_variation"),
            ("kl", "kl_divergence"),
            ("illegal", "illegal_mass"),
        ):
            defined = [x for x in errors[name] if not math.isnan(x)]
            rows[f"mean_{quantity}"].append(math.nan if none else sum(defined) / len(defined))
            rows[quantity].append(errors[name][-1])
        rows["all_legal_rate"].append(math.nan if none else product)
        rows["legal_set_rate"].append(math.nan if none else float(right))
    return {quantity: np.array(values) for quantity, values in rows.items()}


def examples():
    rng = np.random.default_rng(1)
    target = rng.dirichlet(np.ones(5), (40, 6)) * (rng.random((40, 6, 5)) < 0.6)
    target[..., 0] += 1e-2
    target /= target.sum(-1, keepdims=True)
    noise = rng.standard_normal((40, 6, 5)) * rng.choice([0.1, 1.0], (40, 1, 1))
    logits = np.log(target + 1e-4) + noise
    target[3:9, 2] = np.nan
    target[5, -1] = 0.0
    target[7] = np.nan
    return torch.from_numpy(logits), torch.from_numpy(target)


def test_every_quantity_equals_a_loop_over_positions_and_tokens():
    logits, target = examples()
    expected = by_hand(logits, target)
    found = errors_of_sequences(logits, target)
    assert list(found) == list(SEQUENCE_ERRORS)
    for quantity, values in found.items():
        np.testing.assert_allclose(values, expected[quantity], rtol=1e-9, atol=1e-12)
    assert 0 < expected["legal_set_rate"][~np.isnan(expected["legal_set_rate"])].mean() < 1
    assert all(math.isnan(values[7]) for values in found.values())


def test_rows_are_means_over_sequences_with_their_standard_error():
    model = model_of(TASK)
    frame = sequence_errors(
        model, TASK.sample, [8, 4], n_sequences=50, seed=3, labels={"task": "t", "seed": 9}
    )
    assert frame["quantity"].tolist() == 2 * list(SEQUENCE_ERRORS)
    assert frame["length"].tolist() == 8 * [8] + 8 * [4]
    assert set(frame["site"]) == {"logits"} and set(frame["status"]) == {"ok"}
    assert set(frame["task"]) == {"t"} and set(frame["seed"]) == {9}
    assert dict(zip(frame["quantity"], frame["unit"], strict=True)) == SEQUENCE_ERRORS
    drawn = TASK.sample(length_generator(3, 8), 50, 8)
    model.eval()
    expected = by_hand(model(drawn.tokens).detach().double(), drawn.targets.double())
    for row in frame[frame["length"] == 8].itertuples():
        values = expected[row.quantity]
        assert row.mean == pytest.approx(values.mean(), rel=1e-9)
        assert row.sem == pytest.approx(values.std(ddof=1) / math.sqrt(50), rel=1e-9)
        assert (row.min, row.max) == pytest.approx((values.min(), values.max()), rel=1e-9)
        assert row.n_obs == 50
    last = frame["quantity"].isin(["total_variation", "kl_divergence", "illegal_mass"])
    assert frame.loc[last, "n_key"].tolist() == [9] * 3 + [5] * 3
    assert frame.loc[~last, "n_key"].isna().all()


@pytest.mark.parametrize("task", [TASK, Othello(), SetComplement(9, bos=True)])
def test_the_batch_split_does_not_matter(task, monkeypatch):
    model = model_of(task)
    whole = sequence_errors(model, task.sample, [4, 6], n_sequences=40)
    assert model.batches == [40, 40]
    for budget in (1, 7 * task.d_vocab_out * 8, 1000):
        monkeypatch.setattr("resharpen.interp.output_errors._BUDGET", budget)
        model.batches.clear()
        parts = sequence_errors(model, task.sample, [4, 6], n_sequences=40)
        assert len(model.batches) > 2 and sum(model.batches) == 80
        numbers = ["mean", "sem", "min", "max"]
        np.testing.assert_allclose(parts[numbers], whole[numbers], rtol=1e-10, atol=1e-14)
        assert parts.drop(columns=numbers).equals(whole.drop(columns=numbers))


def test_scores_of_many_heads_make_batches_small(monkeypatch):
    model = model_of(TASK)
    model.cfg = SimpleNamespace(n_heads=4)  # type: ignore[assignment]
    monkeypatch.setattr("resharpen.interp.output_errors._BUDGET", 10 * 4 * 9 * 9)
    sequence_errors(model, TASK.sample, [8], n_sequences=25)
    assert model.batches == [10, 10, 5]


def test_the_last_position_is_that_of_a_sweep():
    task = LanguageTask("tomita-3")
    config = TransformerConfig(
        n_layers=1, n_heads=2, d_model=8, n_ctx=32, d_vocab=task.d_vocab, d_vocab_out=3
    )
    torch.manual_seed(0)
    model = Transformer(config)
    names = ["total_variation", "kl_divergence", "illegal_mass"]
    ours = sequence_errors(model, task.sample, [5, 9], n_sequences=64, seed=2)
    theirs = sweep(model, task.sample, [5, 9], names, batch=32, n_batches=2, seed=2)
    ours = ours[ours["quantity"].isin(names)]
    for column in ("mean", "sem", "min", "max", "n_key", "n_obs"):
        np.testing.assert_allclose(
            ours[column].astype(float), theirs[column].astype(float), rtol=1e-5, atol=1e-9
        )


def test_the_model_is_left_as_it_was():
    model = model_of(TASK)
    model.train()
    model.dropout.eval()
    sequence_errors(model, TASK.sample, [4], n_sequences=8)
    assert model.training and not model.dropout.training
    assert model.table.grad is None and model.table.requires_grad
    for name in ("tensor", "object"):
        frame = sequence_errors(model_of(TASK, name), TASK.sample, [4], n_sequences=8)
        assert frame["mean"].notna().all(), "and a single mode, without dropout, for both forms"


def test_a_perfect_model_makes_no_error():
    def logits(tokens):
        return TASK.exact_targets(tokens).log()

    model = nn.Module()
    model.forward = logits  # type: ignore[method-assign]
    frame = sequence_errors(model, TASK.sample, [6], n_sequences=30)
    means = dict(zip(frame["quantity"], frame["mean"], strict=True))
    assert means["all_legal_rate"] == means["legal_set_rate"] == 1
    for quantity, mean in means.items():
        if not quantity.endswith("rate"):
            assert mean == pytest.approx(0, abs=1e-6)


def test_a_sequence_without_a_distribution_is_undefined():
    def sample(generator, batch, length):
        tokens = torch.zeros(batch, length, dtype=torch.int64)
        return SimpleNamespace(tokens=tokens, targets=torch.full((batch, length, 3), math.nan))

    frame = sequence_errors(Scores(3, 3), sample, [2], n_sequences=4)
    assert set(frame["status"]) == {"undefined"} and set(frame["n_obs"]) == {0}
    assert frame["mean"].isna().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": []}, "must hold at least one length"),
        ({"lengths": [3, 3]}, "must all be different"),
        ({"lengths": [5]}, "cannot draw sequences of length 5: .*nearest lengths.*4 and 6"),
        ({"n_sequences": 0}, "n_sequences must be a whole number, 1 or more; got 0"),
        ({"n_sequences": True}, "n_sequences must be a whole number"),
        ({"labels": {"weights": "raw"}}, "labels may be study, .*; got 'weights'"),
        ({"sample": lambda generator, batch, length: torch.zeros(batch, length).long()}, "exact"),
        ({"model": Scores(5, 4)}, r"logits of shape \[2, 5, 4\], but the targets are \[2, 5, 5\]"),
        ({"seed": -1}, "seed must be a whole number, 0 or more"),
    ],
)
def test_bad_input_gets_one_clear_sentence(change, message):
    given = {"model": model_of(TASK), "sample": TASK.sample, "lengths": [4], "n_sequences": 2}
    given.update(change)
    with pytest.raises(ValueError, match=message):
        sequence_errors(given.pop("model"), given.pop("sample"), given.pop("lengths"), **given)


def test_an_output_that_is_no_logits_is_refused():
    with pytest.raises(TypeError, match=r"with \.logits; got dict"):
        sequence_errors(model_of(TASK, "dict"), TASK.sample, [4], n_sequences=2)


def test_positions_that_were_not_learned_are_refused_before_anything_is_run():
    config = TransformerConfig(
        n_layers=1,
        n_heads=1,
        d_model=8,
        n_ctx=8,
        d_vocab=TASK.d_vocab,
        d_vocab_out=TASK.d_vocab_out,
        positional_embedding_type="standard",
    )
    with pytest.raises(ValueError, match="length 8 needs 9 positions"):
        sequence_errors(Transformer(config), TASK.sample, [4, 8], n_sequences=2)
