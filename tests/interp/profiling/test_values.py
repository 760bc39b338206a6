"""Profiles against the eager path's own patterns, and against closed forms."""

import copy
import math
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from resharpen.interp.drawing import length_generator
from resharpen.interp.profiling import Ladder, profile
from resharpen.interp.tables import check_table
from resharpen.models.adapters import adapt
from resharpen.models.probes import Needle, RandomTokens, Repeated

PROBE = Repeated(64, avoid=(0, 2), bos=1)
LENGTH, N = 26, 3


def eager(model: Any, tokens: Tensor) -> Any:
    model = copy.deepcopy(model).eval()
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        return model(input_ids=tokens, output_attentions=True, output_hidden_states=True)


def row_values(row: Tensor, query: int, relevant: int) -> dict[str, float]:
    """Every statistic of one row of applied weights, from its definition, in float64."""
    row = row.double()
    total = float(row.sum())
    keys = [key for key in range(len(row)) if float(row[key]) > 0]
    weights = {key: float(row[key]) / total for key in keys}
    logs = [math.log(weight) for weight in weights.values()]
    mean = sum(logs) / len(logs)
    entropy = -sum(weight * math.log(weight) for weight in weights.values())
    found = {
        "n_key": len(keys),
        "entropy": entropy,
        "normalised_entropy": entropy / math.log(len(keys)) if len(keys) > 1 else math.nan,
        "effective_support": 1 / sum(weight**2 for weight in weights.values()),
        "max_weight": max(weights.values()),
        "score_spread": max(logs) - min(logs),
        "score_deviation": math.sqrt(sum((log - mean) ** 2 for log in logs) / len(logs)),
        "sink_mass": weights[keys[0]],
        "top_4_mass": sum(sorted(weights.values())[-4:]),
        "window_16_mass": sum(w for key, w in weights.items() if abs(query - key) < 16),
        "learned_sink_mass": 1 - total,
    }
    found["relevant_mass"] = weights.get(relevant, 0.0) if relevant >= 0 else math.nan
    return found


def expected(attentions: Any, relevant: Tensor, rungs: dict[int, tuple[int, int]]) -> dict:
    """(layer, head, label, quantity) -> values, one a sequence: means over the rows of a rung."""
    result: dict[tuple[int, int, int, str], list[float]] = {}
    for layer, weights in enumerate(attentions):
        for head in range(weights.shape[1]):
            rows = [
                [
                    row_values(weights[b, head, q], q, int(relevant[b, q]))
                    for q in range(weights.shape[2])
                ]
                for b in range(len(weights))
            ]
            for low, high in rungs.values():
                for quantity in rows[0][0]:
                    chosen = [
                        [
                            r
                            for r in of_one
                            if low <= r["n_key"] <= high and r[quantity] == r[quantity]
                        ]
                        for of_one in rows
                    ]
                    flat = [math.log(r["n_key"]) for of_one in chosen for r in of_one]
                    if not flat or quantity == "n_key":
                        continue
                    label = round(math.exp(sum(flat) / len(flat)))
                    result[(layer, head, label, quantity)] = [
                        sum(r[quantity] for r in of_one) / len(of_one)
                        for of_one in chosen
                        if of_one
                    ]
    return result


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3", "gpt_oss", "bert", "bloom"])
def test_statistics_equal_those_of_the_eager_patterns(name: str, build, adapted) -> None:
    ladder = Ladder((1, 2, 3, 9, 14, 20), tolerance=0.1)
    found = profile(adapted(name), PROBE, [LENGTH], n_sequences=N, ladder=ladder).table
    check_table(found)
    drawn = PROBE.sample(length_generator(0, LENGTH), N, LENGTH)
    attentions = eager(build(name), drawn.tokens).attentions
    full = ladder.up_to(LENGTH)
    rungs = dict(zip(full.rungs, full.windows, strict=True))
    heads = found[found["head"].notna() & found["site"].str.contains("attn")]
    heads = heads[heads["site"].str.fullmatch(r"(decoder|encoder)\.\d+\.attn")]
    seen = set()
    for layer, weights in enumerate(attentions):
        of_layer = rungs
        if int((weights > 0).sum(-1).max()) < LENGTH:  # a sliding window ends the ladder
            window = ladder.up_to(int((weights > 0).sum(-1).max()))
            of_layer = dict(zip(window.rungs, window.windows, strict=True))
        wanted = expected([weights], drawn.relevant_key, of_layer)
        mine = heads[heads["layer"] == layer]
        for (_, head, label, quantity), values in wanted.items():
            rows = mine[(mine["head"] == head) & (mine["quantity"] == quantity)]
            row = rows[rows["n_key"] == label]
            if quantity == "learned_sink_mass" and name != "gpt_oss":
                assert not len(rows)
                continue
            if name == "bloom" and quantity.startswith("score_"):
                continue
            assert len(row) == 1, (layer, head, label, quantity)
            assert row["status"].item() == "ok" and row["n_obs"].item() == len(values)
            assert row["mean"].item() == pytest.approx(
                sum(values) / len(values), rel=2e-4, abs=2e-6
            ), (layer, head, label, quantity)
            assert row["min"].item() == pytest.approx(min(values), rel=2e-4, abs=2e-6)
            seen.add(quantity)
    assert {"entropy", "top_4_mass", "relevant_mass"} <= seen
    side = "encoder" if name == "bert" else "decoder"
    assert set(heads["site"]) == {f"{side}.0.attn", f"{side}.1.attn"}


def test_what_a_finished_pattern_does_not_tell_is_unavailable(adapted) -> None:
    found = profile(adapted("bloom"), PROBE, [LENGTH], n_sequences=N).table
    missing = found[found["status"] == "unavailable"]
    assert set(missing["quantity"]) == {"score_spread", "score_deviation"}
    assert missing["mean"].isna().all() and (missing["n_obs"] == 0).all()
    with pytest.raises(ValueError, match="only shows finished weights"):
        profile(adapted("bloom"), PROBE, [LENGTH], n_sequences=1, remedy=lambda seen: seen)


def value(table: pd.DataFrame, quantity: str, **where: Any) -> pd.DataFrame:
    rows = table[table["quantity"] == quantity]
    for column, wanted in where.items():
        rows = rows[rows[column] == wanted]
    return rows


@pytest.mark.parametrize("causal", [True, False])
def test_a_model_without_scores_is_uniform(own, causal: bool) -> None:
    model = own(attention_dir="causal" if causal else "bidirectional", d_vocab=128)
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.W_Q)
    found = profile(adapt(model), Needle(128), [41, 100], n_sequences=2, n_bins=5).table
    if not causal:
        # Scores that are all the same have no correlation, so no rung either.
        known = found[found["status"] == "ok"]
        assert set(known["n_key"]) == set(found["length"]) == {41, 100}
    for _, row in value(found, "entropy").iterrows():
        # The mean of log n over the rows of a rung is the log of the label, before rounding.
        assert row["mean"] == pytest.approx(math.log(row["n_key"]), abs=0.5 / row["n_key"])
    for length in (41, 100):
        relevant = value(found, "relevant_mass", length=length)
        assert (relevant["n_key"] == length).all() and len(relevant) == 4
        assert relevant["mean"].tolist() == pytest.approx([1 / length] * 4)
        at_end = value(found, "window_16_mass", length=length, n_key=relevant["n_key"].iloc[0])
        assert causal or at_end["mean"].iloc[0] > 16 / length
    assert value(found, "score_spread")["mean"].max() < 1e-6
    assert bool(len(value(found, "loss"))) == causal


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_loss_and_accuracy_are_the_models_own(name: str, build, adapted) -> None:
    ladder = Ladder((16, 20))
    found = profile(adapted(name), PROBE, [LENGTH], n_sequences=N, ladder=ladder).table
    drawn = PROBE.sample(length_generator(0, LENGTH), N, LENGTH)
    logits = eager(build(name), drawn.tokens).logits.double()
    for n_key in (16, 20):
        # Within 5 % of rung 20 lie 20 and 21; of rung 16, 16 alone.
        rows = [n_key - 1] if n_key == 16 else [19, 20]
        labels = drawn.labels[:, rows]
        losses = -logits[:, rows].log_softmax(-1).gather(2, labels[..., None]).squeeze(2)
        row = value(found, "loss", n_key=n_key)
        assert row["mean"].item() == pytest.approx(float(losses.mean()), rel=1e-5)
        assert row["sem"].item() == pytest.approx(float(losses.mean(1).std()) / N**0.5, rel=1e-4)
        assert (row["site"].item(), row["unit"].item()) == ("logits", "nats")
        right = (logits[:, rows].argmax(-1) == labels).double()
        assert value(found, "accuracy", n_key=n_key)["mean"].item() == float(right.mean())
    # The first copy is not scored.
    first = profile(adapted(name), PROBE, [LENGTH], n_sequences=N, ladder=Ladder((4, 8))).table
    assert set(value(first, "loss")["n_key"]) == {25}


def test_only_what_follows_the_last_query_of_a_needle_is_scored(build, adapted) -> None:
    probe = Needle(64, bos=1)
    found = profile(adapted("llama"), probe, [LENGTH], n_sequences=N).table
    drawn = probe.sample(length_generator(0, LENGTH), N, LENGTH)
    logits = eager(build("llama"), drawn.tokens).logits[:, -1].double()
    losses = torch.nn.functional.cross_entropy(logits, drawn.labels[:, -1], reduction="none")
    row = value(found, "loss")
    assert row["mean"].item() == pytest.approx(float(losses.mean()), rel=1e-5)
    assert row["n_key"].item() == LENGTH


def test_a_model_without_a_head_has_no_loss(build) -> None:
    found = profile(adapt(build("gpt2").transformer), PROBE, [LENGTH], n_sequences=1).table
    assert not len(value(found, "loss"))
    assert len(value(found, "entropy"))


def test_streams_and_norms_are_the_models_own(build, adapted) -> None:
    ladder = Ladder((1, 4, 12), tolerance=0.0)
    found = profile(adapted("llama"), PROBE, [LENGTH], n_sequences=N, ladder=ladder).table
    drawn = PROBE.sample(length_generator(0, LENGTH), N, LENGTH)
    output = eager(build("llama"), drawn.tokens)
    for layer in range(2):
        stream = output.hidden_states[layer].double()
        site = f"blocks.{layer}.resid_pre"
        scale = (stream.square().mean(-1) + 1e-6).sqrt()
        first = scale[:, 1:8].log().mean(1).exp()
        name = f"model.layers.{layer}.input_layernorm"
        for n_key in (1, 4, 12, LENGTH):
            rows = {
                (site, "residual_norm"): stream[:, n_key - 1].norm(dim=-1),
                (name, "norm_scale"): scale[:, n_key - 1],
                (name, "rescale_gain"): first / scale[:, n_key - 1],
            }
            for (where, quantity), values in rows.items():
                row = value(found, quantity, site=where, n_key=n_key)
                assert row["mean"].item() == pytest.approx(float(values.mean()), rel=1e-4)
                assert row["max"].item() == pytest.approx(float(values.max()), rel=1e-4)
                assert row["layer"].item() == layer and row["head"].isna().all()
        size = stream.abs().flatten(1)
        ratio = size.amax(1) / size.median(1).values
        row = value(found, "massive_activation", site=site)
        assert row["mean"].item() == pytest.approx(float(ratio.mean()), rel=1e-4)
        assert row["n_key"].item() == LENGTH
    assert value(found, "residual_norm", site="final")["layer"].isna().all()


def test_norms_of_queries_and_keys_are_measured_head_by_head(adapted) -> None:
    found = profile(adapted("gemma3"), PROBE, [LENGTH], n_sequences=N).table
    for name, heads in (("q_norm", 4), ("k_norm", 2)):
        rows = value(found, "norm_scale", site=f"model.layers.1.self_attn.{name}", n_key=4)
        assert rows["head"].tolist() == list(range(heads))


def test_an_encoders_gain_is_against_its_first_tokens_alone(build, adapted) -> None:
    probe = RandomTokens(64)
    found = profile(adapted("bert"), probe, [12, 40], n_sequences=N).table
    site = "bert.encoder.layer.1.output.LayerNorm"
    for length in (12, 40):
        drawn = probe.sample(length_generator(0, length), N, length)
        scales = []
        for tokens in (drawn.tokens[:, :8], drawn.tokens):
            inputs: list[Tensor] = []
            model = build("bert")
            norm = dict(model.named_modules())[site]
            norm.register_forward_pre_hook(lambda _, args, inputs=inputs: inputs.append(args[0]))
            with torch.no_grad():
                model(input_ids=tokens)
            wide = inputs[0].double()
            scales.append((wide.var(-1, correction=0) + norm.eps).sqrt())
        reference = scales[0][:, 1:].log().mean(1, keepdim=True).exp()
        gains = (reference / scales[1]).mean(1)
        row = value(found, "rescale_gain", site=site, length=length)
        assert row["mean"].item() == pytest.approx(float(gains.mean()), rel=1e-4)
