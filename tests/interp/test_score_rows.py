"""Rows of scores read off records and models, against the scores written out in full."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from resharpen.interp import row_scores
from resharpen.interp.drawing import length_generator
from resharpen.interp.score_rows import EXACT, profile_score_rows
from resharpen.interp.score_shapes import score_statistics
from resharpen.interp.tables import check_table
from resharpen.models import Transformer, TransformerConfig, adapt
from resharpen.models.observed import AttentionSeen, PatternSeen
from resharpen.models.probes import Needle, RandomTokens, Repeated


def seen(**rest: Any) -> AttentionSeen:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, heads, 12, 8, generator=generator) for heads in (4, 2, 2))
    values = {"layer": 3, "query": query, "key": key, "value": value, "scale": 0.4, "causal": True}
    return AttentionSeen(**{**values, **rest})


def in_full(record: AttentionSeen) -> Tensor:
    """Scores ``[batch, head, query, key]`` by the formula of the record, hidden ones -inf."""
    key = record.key.double().repeat_interleave(2, dim=1)
    scores = record.scale * record.query.double() @ key.transpose(2, 3)
    if record.soft_cap is not None:
        scores = record.soft_cap * torch.tanh(scores / record.soft_cap)
    if record.bias is not None:
        scores = scores + record.bias
    n_query, n_key = scores.shape[2:]
    query = torch.arange(n_query)[:, None] + n_key - n_query
    distance = query - torch.arange(n_key)
    hidden = torch.zeros(n_query, n_key, dtype=torch.bool)
    if record.causal:
        hidden |= distance < 0
    if isinstance(record.window, int):
        hidden |= distance >= record.window
    elif record.window is not None:
        hidden |= (distance > record.window[0]) | (-distance > record.window[1])
    if record.mask is not None:
        hidden = hidden | ~record.mask.bool()
    return scores.masked_fill(hidden, -torch.inf)


GENERATOR = torch.Generator().manual_seed(1)
CASES: dict[str, dict[str, Any]] = {
    "causal": {},
    "full": {"causal": False},
    "soft cap": {"soft_cap": 0.7},
    "bias": {"bias": torch.randn(1, 4, 12, 12, generator=GENERATOR)},
    "soft cap and bias": {"soft_cap": 2.0, "bias": torch.randn(1, 4, 12, 12, generator=GENERATOR)},
    "window": {"window": 5},
    "two-sided window": {"causal": False, "window": (2, 3)},
    "padding": {
        "mask": torch.arange(12)[None, None, None] >= torch.tensor([0, 3]).view(2, 1, 1, 1)
    },
    "mask": {"mask": torch.rand(2, 1, 12, 12, generator=GENERATOR) > 0.3},
    "fewer queries": {"query": torch.randn(2, 4, 5, 8, generator=GENERATOR)},
}


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_the_formula_of_the_record(name: str) -> None:
    record = seen(**CASES[name])
    expected = in_full(record)
    for head in range(4):
        for query in (0, 1, 4, record.query.shape[2] - 1):
            found = row_scores(record, head, query)
            torch.testing.assert_close(found, expected[:, head, query], rtol=1e-12, atol=1e-12)


def test_a_bias_of_minus_infinity_hides() -> None:
    bias = torch.zeros(1, 1, 12, 12)
    bias[..., 2], bias[..., 5] = -torch.inf, torch.finfo(torch.float32).min
    found = row_scores(seen(bias=bias), 1, 7)
    assert (found == -torch.inf)[0].nonzero().flatten().tolist() == [2, 5, 8, 9, 10, 11]


def test_half_precision_records_are_widened() -> None:
    record = seen()
    half = {name: getattr(record, name).bfloat16() for name in ("query", "key", "value")}
    lower = dataclasses.replace(record, **half)
    torch.testing.assert_close(row_scores(lower, 0, 9), in_full(lower)[:, 0, 9])


@pytest.mark.parametrize("place", [(4, 0), (-1, 0), (0, 12)])
def test_no_such_row(place: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="has 4 heads and 12 queries"):
        row_scores(seen(), *place)


def own(**changes: Any) -> Transformer:
    torch.manual_seed(1)
    sizes = dict(n_layers=2, n_heads=2, d_model=16, d_head=8, d_mlp=32, d_vocab=200, n_ctx=256)
    model = Transformer(TransformerConfig(**{**sizes, **changes}))
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.mul_(8.0)
    return model


def cached_scores(model: Transformer, tokens: Tensor, layer: int) -> Tensor:
    name = f"blocks.{layer}.attn.hook_attn_scores"
    with torch.no_grad():
        return model.run_with_cache(tokens, names_filter=name)[1][name]


def keys_of(found: Any) -> list[int]:
    """The numbers of keys at which something is defined."""
    return sorted(set(found["n_key"].dropna().tolist()))


def test_one_pass_gives_the_rows_of_every_rung_of_the_chosen_heads_alone() -> None:
    model = own()
    probe, lengths = RandomTokens(200), [8, 16, 32, 128]
    found = profile_score_rows(
        adapt(model), probe, lengths, [(1, 1), (0, 0)], n_sequences=3, rows_per_rung=4, seed=5,
        labels={"checkpoint": "mine"},
    )  # fmt: skip
    check_table(found)
    places = found[["layer", "head", "site"]].drop_duplicates().to_numpy().tolist()
    assert sorted(places) == [[0, 0, "decoder.0.attn"], [1, 1, "decoder.1.attn"]]
    assert set(found["length"]) == {128} and set(found["checkpoint"]) == {"mine"}
    assert set(found["task"]) == {"random"}
    tokens = probe.sample(length_generator(5, 128), 3, 128).tokens
    for layer in (0, 1):
        scores = cached_scores(model, tokens, layer)[:, layer]
        for n_key, queries in ((8, [7]), (16, [15]), (32, [31]), (125, [121, 123, 125, 127])):
            rows = scores[:, queries]
            expected = score_statistics(rows)
            own_rows = found[(found["layer"] == layer) & (found["n_key"] == n_key)]
            measured = own_rows.set_index("quantity")
            for name, values in expected.items():
                means = values.nanmean(-1)
                assert measured.loc[name, "mean"] == pytest.approx(float(means.mean()), rel=1e-4)
                assert measured.loc[name, "n_obs"] == 3
            largest = expected["score_spread"].amax(-1)
            spread = measured.loc["largest_score_spread"]
            assert spread["max"] == pytest.approx(float(largest.max()), rel=1e-4)
            assert spread["mean"] == pytest.approx(float(largest.mean()), rel=1e-4)


def test_the_split_into_batches_does_not_matter() -> None:
    adapter, options = adapt(own()), {"n_sequences": 5, "rows_per_rung": 3}
    whole, split = (
        profile_score_rows(
            adapter, RandomTokens(200), [16, 64], [(0, 1)], batch_tokens=size, **options
        )
        for size in (10**6, 130)
    )
    numbers = ["mean", "sem", "min", "max"]
    np.testing.assert_allclose(
        whole[numbers].to_numpy(), split[numbers].to_numpy(), rtol=1e-5, atol=1e-7
    )


def test_only_queries_that_ask_for_a_key_are_read_and_the_key_is_known() -> None:
    adapter = adapt(own())
    found = profile_score_rows(adapter, Needle(200), [9, 101], [(0, 0)], n_sequences=4)
    assert sorted(set(found["length"])) == [9, 101] == keys_of(found)
    share = found[found["quantity"] == "top_is_relevant"]
    assert len(share) == 2 and share["mean"].between(0, 1).all()
    repeated = profile_score_rows(adapter, Repeated(200), [100], [(0, 0)], n_sequences=4)
    assert keys_of(repeated) == [98]
    plain = profile_score_rows(adapter, RandomTokens(200), [16], [(0, 0)], n_sequences=2)
    assert "top_is_relevant" not in set(plain["quantity"])


def test_short_rows_stand_at_their_own_number_of_keys() -> None:
    lengths = [20, 30, 31, 63, EXACT]
    found = profile_score_rows(adapt(own()), RandomTokens(200), lengths, [(0, 0)], n_sequences=2)
    assert keys_of(found) == lengths
    one_by_one = profile_score_rows(
        adapt(own()), Repeated(200), [20, 60], [(0, 0)], n_sequences=2, rows_per_rung=9
    )
    assert keys_of(one_by_one) == [20, 60]


def test_a_model_that_sees_everything_is_run_length_by_length() -> None:
    model = own(attention_dir="bidirectional")
    found = profile_score_rows(
        adapt(model), RandomTokens(200), [8, 80], [(1, 0)], n_sequences=2, rows_per_rung=80
    )
    pairs = found[["length", "n_key"]].drop_duplicates().to_numpy().tolist()
    assert pairs == [[8, 8], [80, 80]]
    assert set(found["site"]) == {"encoder.1.attn"}
    tokens = RandomTokens(200).sample(length_generator(0, 8), 2, 8).tokens
    rows = cached_scores(model, tokens, 1)[:, 0]
    measured = found[(found["n_key"] == 8) & (found["quantity"] == "score_spread")]
    expected = float((rows.amax(-1) - rows.amin(-1)).mean())
    assert float(measured["mean"].iloc[0]) == pytest.approx(expected, rel=1e-5)


class Shows:
    """An adapter that shows records made for the test."""

    def __init__(self, *records: Any, length: int = 64) -> None:
        self.records = records
        facts = {"causal": True, "n_layers": 1, "positions_fixed": False, "d_vocab": 9}
        self.description = type("Facts", (), facts)
        self.max_length = None

    def observe(self, tokens: Tensor, observer: Any, *args: Any, **given: Any) -> Tensor:
        for record in self.records:
            kind = "pattern" if isinstance(record, PatternSeen) else "attention"
            getattr(observer, kind)(record)
        return tokens


def windowed(window: int | None) -> AttentionSeen:
    query, key = torch.randn(2, 1, 64, 4), torch.randn(2, 1, 64, 4)
    return AttentionSeen(0, query, key, key, scale=1.0, causal=True, window=window)


def test_a_window_stands_at_the_keys_it_lets_see() -> None:
    lengths, probe = [8, 16, 32, 64], RandomTokens(9)
    found = profile_score_rows(Shows(windowed(20)), probe, lengths, [(0, 0)], n_sequences=2)
    assert keys_of(found) == [8, 16, 20]
    whole = profile_score_rows(Shows(windowed(None)), probe, lengths, [(0, 0)], n_sequences=2)
    assert keys_of(whole) == [8, 16, 32, 64]


def test_a_pattern_is_read_where_it_comes_with_its_scores() -> None:
    record = windowed(None)
    scores = in_full(dataclasses.replace(record, key=record.key.repeat(1, 1, 1, 1)))[:, :1]
    shown = PatternSeen(0, scores.softmax(-1), scores > -torch.inf, scores)
    lengths, probe = [8, 64], RandomTokens(9)
    by_pattern = profile_score_rows(Shows(shown), probe, lengths, [(0, 0)], n_sequences=2)
    by_record = profile_score_rows(Shows(record), probe, lengths, [(0, 0)], n_sequences=2)
    np.testing.assert_allclose(by_pattern["mean"], by_record["mean"], rtol=1e-9)
    bare = dataclasses.replace(shown, scores=None)
    with pytest.raises(ValueError, match="without the scores behind them"):
        profile_score_rows(Shows(bare), probe, lengths, [(0, 0)], n_sequences=2)


def test_rows_that_are_not_finite_are_undefined() -> None:
    record = windowed(None)
    query = record.query.clone()
    query[:, :, 7] = math.nan
    found = profile_score_rows(
        Shows(dataclasses.replace(record, query=query)),
        RandomTokens(9),
        [8, 64],
        [(0, 0)],
        n_sequences=2,
    )
    broken = found[found["n_key"] != 64]
    assert set(found.loc[found["n_key"].isna(), "status"]) == {"undefined"}
    assert broken["mean"].isna().all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"heads": [(0, 7)]}, "layer 0 has heads 0 to 1; asked for 7"),
        ({"heads": [(5, 0)]}, "layer 5 showed no attention; the model has 2 layers"),
        ({"heads": []}, "at least one \\(layer, head\\)"),
        ({"lengths": []}, "at least one length"),
        ({"lengths": [0, 4]}, "a length must be a whole number, 1 or more"),
        ({"n_sequences": 0}, "n_sequences must be a whole number"),
        ({"rows_per_rung": 1.5}, "rows_per_rung must be a whole number"),
        ({"stack": "encoder"}, "layer 0 showed no attention"),
    ],
)
def test_bad_arguments_are_one_sentence(change: dict[str, Any], sentence: str) -> None:
    given = {"lengths": [8], "heads": [(0, 0)], "n_sequences": 2, **change}
    with pytest.raises(ValueError, match=sentence):
        profile_score_rows(adapt(own()), RandomTokens(200), given.pop("lengths"),
                           given.pop("heads"), **given)  # fmt: skip
