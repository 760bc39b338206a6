"""Scores of 1e4, half precision, hidden rows, single keys, NaN: a number or a status."""

import math

import pytest
import torch

from resharpen.interp.attention_statistics import (
    ALL_STATISTICS,
    AttentionRule,
    RowStatus,
    Tile,
    alibi_bias,
    attention_with_statistics,
    blockwise,
    row_statistics,
)

ABSOLUTE = {"log_partition": 2e-6}

EXTREMES = {
    "both signs": lambda q, k: (q * 60, k * 60),
    "a common offset": lambda q, k: (q + 50, k + 50),
    "one sink of 1e4": lambda q, k: (
        q.clone().index_fill_(-1, torch.tensor(0), 200.0),
        torch.cat([k[:, :, :1] + 200 * torch.eye(k.shape[-1])[0], k[:, :, 1:]], 2),
    ),
    "two clusters": lambda q, k: (
        q + 70 * torch.eye(q.shape[-1])[0] * 8,
        k + 70 * torch.eye(k.shape[-1])[0] * torch.tensor([1.0, -1.0]).repeat(25)[:, None],
    ),
    "all equal to 1e4": lambda q, k: (torch.full_like(q, 25.0), torch.full_like(k, 100.0)),
}


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("softcap", [None, 30.0])
def test_large_scores_are_exact(kind, softcap, oracle, agrees, draw, small_tile):
    query, key, value = draw(kv_head=4, size=1.0)
    query, key = EXTREMES[kind](query, key)
    rule = AttentionRule(softcap=softcap)
    expected, _, output = oracle(query, key, rule, value=value)
    made, rows = attention_with_statistics(
        query, key, value, rule, statistics=ALL_STATISTICS, tile=small_tile
    )
    reach = float((query.double() @ key.double().transpose(-1, -2)).abs().max()) / 4
    assert reach > 8e3
    assert rows.counts()["non_finite"] == 0
    for name in rows:
        agrees(rows[name], expected[name], absolute=ABSOLUTE.get(name, 2e-7))
    agrees(made, output, absolute=5e-6)


def test_large_scores_need_the_float64_product(monkeypatch, oracle, draw):
    query, key, _ = draw(kv_head=4, size=1.0)
    query, key = EXTREMES["two clusters"](query, key)
    expected = oracle(query, key, AttentionRule())[0]["max_weight"]
    exact = row_statistics(query, key, statistics=["max_weight"])["max_weight"]
    monkeypatch.setattr(blockwise, "FLOAT32_SCORE_LIMIT", math.inf)
    rounded = row_statistics(query, key, statistics=["max_weight"])["max_weight"]
    assert float((exact / expected - 1).abs().max()) < 1e-5
    assert float((rounded / expected - 1).abs().max()) > 1e-4


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_a_large_bias_is_exact(offset, oracle, agrees, draw, small_tile):
    query, key, _ = draw()
    bias = torch.randn(1, 4, 50, 50) + offset
    rule = AttentionRule(bias=bias)
    expected = oracle(query, key, rule)[0]
    rows = row_statistics(query, key, rule, statistics=ALL_STATISTICS, tile=small_tile)
    for name in rows:
        agrees(rows[name], expected[name], absolute=ABSOLUTE.get(name, 2e-7))


def test_far_keys_of_alibi_and_a_common_offset_stay_in_float32(monkeypatch, draw):
    query, key, _ = draw(n_query=400, n_key=400)
    formed = []
    original = blockwise.BlockwisePass._read

    def spy(self, block, dtype):
        formed.append(dtype)
        return original(self, block, dtype)

    monkeypatch.setattr(blockwise.BlockwisePass, "_read", spy)
    row_statistics(query, key, AttentionRule(bias=alibi_bias(torch.ones(4))))
    assert set(formed) == {torch.float32}
    row_statistics(query, key + 1e4)
    assert set(formed) == {torch.float32}
    row_statistics(query * 100, key)
    assert torch.float64 in formed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened(dtype, oracle, agrees, draw, rules, small_tile):
    """Exact for the arrays given; against the float32 originals their own rounding remains."""
    query, key, value = draw()
    narrow = [array.to(dtype) for array in (query, key, value)]
    for name in ("causal", "left padding", "sinks"):
        rule = rules[name]
        expected, _, output = oracle(narrow[0], narrow[1], rule, value=narrow[2])
        made, rows = attention_with_statistics(
            *narrow, rule, statistics=ALL_STATISTICS, tile=small_tile
        )
        assert made.dtype is dtype
        assert rows["entropy"].dtype is torch.float64
        for statistic in rows:
            agrees(rows[statistic], expected[statistic])
        agrees(made, output, relative=2 * torch.finfo(dtype).eps, absolute=1e-3)
    wide = row_statistics(query, key)["entropy"]
    gap = float((row_statistics(*narrow[:2])["entropy"] - wide).abs().max())
    assert 0 < gap < {torch.bfloat16: 0.02, torch.float16: 0.002}[dtype]


def test_softmax_in_bfloat16_is_what_this_avoids(draw):
    query, key, _ = draw(n_query=400, n_key=400, kv_head=4)
    q, k = query.bfloat16(), key.bfloat16()
    hidden = torch.ones(400, 400, dtype=torch.bool).triu(1)
    naive = (q @ k.transpose(-1, -2) / 4).masked_fill(hidden, -math.inf).softmax(-1)
    naive_entropy = -(naive * naive.log()).sum(-1)
    assert bool(naive_entropy.isnan().any())
    assert not bool(row_statistics(q, k)["entropy"].isnan().any())


def test_float64_stays_float64(oracle, draw, small_tile):
    query, key, value = (array.double() for array in draw())
    expected, _, output = oracle(query, key, AttentionRule(), value=value)
    made, rows = attention_with_statistics(
        query, key, value, statistics=ALL_STATISTICS, tile=small_tile
    )
    assert made.dtype is torch.float64
    torch.testing.assert_close(made, output, rtol=1e-12, atol=1e-13)
    for name in rows:
        torch.testing.assert_close(
            rows[name], expected[name], rtol=1e-12, atol=1e-13, equal_nan=True
        )


def test_sharp_rows_keep_their_digits(oracle, draw, small_tile):
    """Entropies near zero: 2e-7 nats in absolute terms, where lse - E[s] has no digit left."""
    query, key, _ = draw(size=8.0)
    expected = oracle(query, key, AttentionRule())[0]["entropy"]
    measured = row_statistics(query, key, tile=small_tile)["entropy"]
    sharp = (expected > 1e-12) & (expected < 0.1)
    assert int(sharp.sum()) > 20
    assert float(((measured - expected).abs() - 1e-5 * expected)[sharp].max()) < 2e-7


def test_a_single_key_is_exact():
    query, key, value = (torch.randn(1, 2, 5, 8) * 30 for _ in range(3))
    rows = row_statistics(query, key, AttentionRule(window=1), statistics=ALL_STATISTICS)
    assert bool((rows.status == RowStatus.SINGLE_KEY).all())
    expected = {"entropy": 0, "entropy_support": 1, "effective_support": 1, "max_weight": 1}
    expected |= {"score_spread": 0, "score_deviation": 0, "sink_mass": 1, "top_4_mass": 1}
    for name, exact in expected.items():
        assert bool((rows[name] == exact).all()), name
    assert bool(rows["normalised_entropy"].isnan().all())
    made = attention_with_statistics(query, key, value, AttentionRule(window=1))[0]
    torch.testing.assert_close(made, value, rtol=1e-6, atol=0)


def test_rows_without_a_key_are_counted_not_numbered(draw, small_tile):
    query, key, value = draw()
    shown = torch.arange(50) >= torch.tensor([[7], [0]])
    made, rows = attention_with_statistics(
        query,
        key,
        value,
        AttentionRule(key_mask=shown),
        statistics=ALL_STATISTICS,
        tile=small_tile,
    )
    assert rows.counts() == {
        "ok": 2 * 4 * 50 - 4 * 7 - 2 * 4,
        "single_key": 2 * 4,
        "no_key": 4 * 7,
        "padding": 0,
        "non_finite": 0,
    }
    assert bool((rows.n_key[0, :, :7] == 0).all())
    assert bool((made[0, :, :7] == 0).all())
    for name in rows:
        assert bool(rows[name][0, :, :7].isnan().all()), name
        assert not bool(rows[name][0, :, 8:].isnan().any()), name


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("tile", [Tile(16, 16, 1024), Tile(64, 64, 1)])
def test_poisoned_keys_mark_the_rows_that_see_them(poison, tile, draw):
    query, key, _ = draw()
    clean = row_statistics(query, key, statistics=ALL_STATISTICS, tile=tile)
    key[1, 0, 20, 3] = poison
    rows = row_statistics(query, key, statistics=ALL_STATISTICS, tile=tile)
    assert bool((rows.status[1, :2, 20:] == RowStatus.NON_FINITE).all())
    assert rows.counts()["non_finite"] == 2 * 30
    touched = rows.status == RowStatus.NON_FINITE
    for name in rows:
        assert bool(rows[name][touched].isnan().all()), name
        torch.testing.assert_close(
            rows[name][~touched], clean[name][~touched], rtol=1e-5, atol=1e-7, equal_nan=True
        )


def test_garbage_in_padding_is_not_read(draw):
    query, key, _ = draw()
    shown = (torch.arange(50) < 40).expand(2, 50)
    rule = AttentionRule(key_mask=shown, query_mask=shown)
    clean = row_statistics(query, key, rule, statistics=ALL_STATISTICS)
    key[:, :, 40:] = math.nan
    query[:, :, 40:] = math.inf
    rows = row_statistics(query, key, rule, statistics=ALL_STATISTICS)
    assert rows.counts() == clean.counts()
    assert rows.counts()["padding"] == 2 * 4 * 10
    for name in rows:
        torch.testing.assert_close(rows[name], clean[name], rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_global_precision_switches_do_not_reach_the_rows(precision, oracle, agrees, draw):
    query, key, value = draw(d_head=64)
    expected, _, output = oracle(query, key, AttentionRule(), value=value)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made, rows = attention_with_statistics(query, key, value, statistics=ALL_STATISTICS)
    finally:
        torch.set_float32_matmul_precision(before)
    for name in rows:
        agrees(rows[name], expected[name], absolute=ABSOLUTE.get(name, 2e-7))
    if precision == "high":
        agrees(made, output, absolute=5e-6)
