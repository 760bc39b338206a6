"""Every statistic of every rule against the float64 pattern; properties that need no oracle."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resharpen.interp import measures
from resharpen.interp.attention_statistics import (
    ALL_STATISTICS,
    AttentionRule,
    RowStatus,
    Tile,
    alibi_bias,
    attention_with_statistics,
    relative_bias,
    row_statistics,
)

ABSOLUTE = {"log_partition": 2e-6}
"""A log-partition near zero is a difference of scores, exact to their own rounding."""


def marked_keys(n_query, n_key):
    generator = torch.Generator().manual_seed(2)
    by_query = torch.rand(2, n_query, n_key, generator=generator) < 0.1
    return {"relevant": by_query, "early": torch.arange(n_key) < 5}


@pytest.mark.parametrize("kv_head", [4, 2, 1])
def test_every_statistic_of_every_rule(rule_name, kv_head, rules, oracle, agrees, draw, small_tile):
    rule = rules[rule_name]
    query, key, value = draw(kv_head=kv_head)
    names = (*ALL_STATISTICS, "top_1_mass", "top_9_mass", "window_3_mass")
    names += ("learned_sink_mass",) if rule.sinks is not None else ()
    marked = marked_keys(50, 50)
    expected, n_key, output = oracle(query, key, rule, value=value, statistics=names, marked=marked)
    made, rows = attention_with_statistics(
        query, key, value, rule, statistics=names, marked=marked, tile=small_tile
    )
    assert tuple(rows) == tuple(expected)
    assert torch.equal(rows.n_key, n_key)
    for name in rows:
        agrees(rows[name], expected[name], absolute=ABSOLUTE.get(name, 2e-7))
    agrees(made, output, absolute=5e-6)


def test_rows_alone_equal_rows_with_the_output(rule_name, rules, agrees, draw, small_tile):
    query, key, value = draw()
    both = attention_with_statistics(
        query, key, value, rules[rule_name], statistics=ALL_STATISTICS, tile=small_tile
    )[1]
    alone = row_statistics(query, key, rules[rule_name], statistics=ALL_STATISTICS, tile=small_tile)
    for name in ALL_STATISTICS:
        assert torch.equal(both[name].nan_to_num(-1), alone[name].nan_to_num(-1))


def test_a_subset_of_the_statistics_is_the_same(draw):
    query, key, _ = draw()
    everything = row_statistics(query, key, statistics=ALL_STATISTICS)
    for name in ALL_STATISTICS:
        one = row_statistics(query, key, statistics=[name])
        assert list(one) == [name]
        torch.testing.assert_close(one[name], everything[name], rtol=1e-12, atol=0, equal_nan=True)


def test_the_measures_of_the_materialised_pattern_agree(agrees, draw):
    query, key, _ = draw(kv_head=4)
    scores = (query.double() @ key.double().transpose(-1, -2)) / 4
    visible = torch.ones(50, 50, dtype=torch.bool).tril()
    pattern = scores.masked_fill(~visible, -math.inf).softmax(-1)
    rows = row_statistics(query, key, statistics=ALL_STATISTICS)
    for name in ("entropy", "normalised_entropy", "effective_support", "max_weight", "sink_mass"):
        agrees(rows[name], getattr(measures, name)(pattern, visible))
    agrees(rows["score_spread"], measures.score_spread(scores, visible))
    agrees(rows["score_deviation"], measures.score_deviation(scores, visible))


@pytest.mark.parametrize(("n_query", "n_key"), [(1, 40), (13, 40), (40, 40)])
@pytest.mark.parametrize("window", [None, 7])
def test_queries_after_a_key_cache(n_query, n_key, window, oracle, agrees, draw, small_tile):
    query, key, value = draw(n_query=n_query, n_key=n_key)
    rule = AttentionRule(window=window)
    expected, count, output = oracle(query, key, rule, value=value)
    made, rows = attention_with_statistics(
        query, key, value, rule, statistics=ALL_STATISTICS, tile=small_tile
    )
    assert torch.equal(rows.n_key, count)
    for name in rows:
        agrees(rows[name], expected[name], absolute=ABSOLUTE.get(name, 2e-7))
    agrees(made, output, absolute=5e-6)


def test_more_queries_than_keys_without_positions(oracle, agrees, draw, small_tile):
    query, key, _ = draw(n_query=60, n_key=23)
    rule = AttentionRule(causal=False)
    names = ("entropy", "effective_support", "top_4_mass", "score_deviation")
    expected = oracle(query, key, rule, statistics=names)[0]
    rows = row_statistics(query, key, rule, statistics=names, tile=small_tile)
    for name in rows:
        agrees(rows[name], expected[name], absolute=ABSOLUTE.get(name, 2e-7))


@pytest.mark.parametrize("last", [1, 17, 50])
def test_the_last_queries_alone(last, rule_name, rules, draw, small_tile):
    query, key, value = draw()
    rule = rules[rule_name]
    options = {"statistics": ALL_STATISTICS, "marked": marked_keys(50, 50), "tile": small_tile}
    output, rows = attention_with_statistics(query, key, value, rule, **options)
    tail_output, tail = attention_with_statistics(query, key, value, rule, last=last, **options)
    torch.testing.assert_close(tail_output, output, rtol=1e-5, atol=1e-6)
    assert torch.equal(tail.n_key, rows.n_key[..., -last:])
    assert torch.equal(tail.status, rows.status[..., -last:])
    for name in rows:
        torch.testing.assert_close(
            tail[name], rows[name][..., -last:], rtol=1e-5, atol=1e-7, equal_nan=True
        )


@given(
    tile=st.builds(
        Tile,
        rows=st.integers(1, 60),
        keys=st.integers(1, 60),
        scores=st.integers(1, 9000),
    ),
    causal=st.booleans(),
    seed=st.integers(0, 99),
    batch=st.integers(1, 3),
    groups=st.sampled_from([(4, 4), (4, 2), (6, 3), (3, 1)]),
    n_key=st.integers(1, 45),
    padding=st.integers(0, 3),
)
def test_no_split_changes_a_row(
    oracle, agrees, draw, tile, causal, seed, batch, groups, n_key, padding
):
    query, key, value = draw(batch, *groups, n_query=n_key, n_key=n_key, seed=seed)
    shown = torch.arange(n_key).expand(batch, n_key) >= padding
    rule = AttentionRule(causal=causal, key_mask=shown)
    expected, count, output = oracle(query, key, rule, value=value)
    made, rows = attention_with_statistics(
        query, key, value, rule, statistics=ALL_STATISTICS, tile=tile
    )
    assert torch.equal(rows.n_key, count)
    for name in rows:
        agrees(rows[name], expected[name], absolute=ABSOLUTE.get(name, 2e-7))
    agrees(made, output, absolute=5e-6)


def test_batch_and_heads_are_independent(draw):
    query, key, _ = draw(batch=3, head=6, kv_head=3)
    whole = row_statistics(query, key, statistics=ALL_STATISTICS)
    for b in range(3):
        for group in range(3):
            heads = slice(2 * group, 2 * group + 2)
            part = row_statistics(
                query[b : b + 1, heads],
                key[b : b + 1, group : group + 1],
                statistics=ALL_STATISTICS,
            )
            for name in part:
                torch.testing.assert_close(
                    part[name][0], whole[name][b, heads], rtol=1e-5, atol=1e-7, equal_nan=True
                )


def test_padding_and_packing_leave_the_rows_of_the_plain_run(draw):
    query, key, _ = draw(batch=1, n_query=30, n_key=30)
    plain = row_statistics(query, key, statistics=ALL_STATISTICS)
    other_query, other_key, _ = draw(batch=1, n_query=12, n_key=12, seed=5)
    together = [torch.cat(pair, 2) for pair in ((other_query, query), (other_key, key))]
    ids = torch.tensor([[0] * 12 + [1] * 30])
    for rule in (AttentionRule(documents=ids), AttentionRule(key_mask=ids == 1)):
        rows = row_statistics(*together, rule, statistics=ALL_STATISTICS)
        for name in rows:
            torch.testing.assert_close(
                rows[name][..., 12:], plain[name], rtol=1e-5, atol=1e-7, equal_nan=True
            )
        assert torch.equal(rows.n_key[..., 12:], plain.n_key)


@pytest.mark.parametrize("causal", [True, False])
def test_alibi_and_relative_bias(causal, oracle, agrees, draw, small_tile):
    query, key, _ = draw()
    slopes = torch.tensor([0.5, 0.25, 0.125, 1.0])
    distance = torch.arange(50)[None, :] - torch.arange(50)[:, None]
    dense = AttentionRule(causal=causal, bias=(-slopes[:, None, None] * distance.abs())[None])
    expected = oracle(query, key, dense)[0]
    values = -slopes[:, None] * torch.arange(-49, 50).abs()
    for bias in (alibi_bias(slopes), relative_bias(values, zero=49)):
        rule = AttentionRule(causal=causal, bias=bias)
        rows = row_statistics(query, key, rule, statistics=ALL_STATISTICS, tile=small_tile)
        for name in rows:
            agrees(rows[name], expected[name], absolute=ABSOLUTE.get(name, 2e-7))


def test_a_mask_function_may_ignore_its_arguments(draw, small_tile):
    query, key, _ = draw()
    plain = row_statistics(query, key, tile=small_tile)
    seen = AttentionRule(mask=lambda b, h, q, k: torch.tensor(True))
    assert torch.equal(
        row_statistics(query, key, seen, tile=small_tile)["entropy"], plain["entropy"]
    )
    hidden = AttentionRule(mask=lambda b, h, q, k: torch.tensor(False))
    assert row_statistics(query, key, hidden, tile=small_tile).counts()["no_key"] == 2 * 4 * 50


def test_relative_bias_refuses_a_distance_outside_its_table(draw):
    query, key, _ = draw()
    rule = AttentionRule(causal=False, bias=relative_bias(torch.zeros(4, 21), zero=10))
    with pytest.raises(IndexError, match="distances -49 to 49 lie outside the 21 values"):
        row_statistics(query, key, rule)


def test_uniform_rows_are_fully_dispersed():
    zeros = torch.zeros(1, 2, 300, 8)
    rows = row_statistics(zeros, zeros, statistics=ALL_STATISTICS, tile=Tile(64, 64, 4096))
    n = torch.arange(1.0, 301.0, dtype=torch.float64).expand(1, 2, 300)
    torch.testing.assert_close(rows["entropy"], n.log(), rtol=1e-12, atol=0)
    torch.testing.assert_close(rows["effective_support"], n, rtol=1e-6, atol=0)
    torch.testing.assert_close(rows["max_weight"], 1 / n, rtol=1e-12, atol=0)
    torch.testing.assert_close(rows["top_4_mass"], (4 / n).clamp(max=1), rtol=1e-12, atol=0)
    assert float(rows["score_spread"].abs().max()) == 0.0
    assert float(rows["score_deviation"].abs().max()) == 0.0


def test_ranges(rule_name, rules, draw):
    query, key, _ = draw(size=6.0)
    rows = row_statistics(query, key, rules[rule_name], statistics=ALL_STATISTICS)
    n = rows.n_key.double()
    some = rows.status <= RowStatus.SINGLE_KEY
    slack = 1e-6
    assert bool((rows["entropy"] >= 0)[some].all())
    assert bool((rows["entropy"] <= n.log() + slack)[some].all())
    for name in ("effective_support", "entropy_support"):
        assert bool((rows[name] >= 1 - slack)[some].all())
        assert bool((rows[name] <= n * (1 + slack))[some].all())
    assert bool((rows["max_weight"] >= 1 / n - slack)[some].all())
    for name in ("sink_mass", "top_4_mass", "window_16_mass"):
        assert bool((rows[name] >= 0)[some].all())
        assert bool((rows[name] <= 1 + slack)[some].all())
    assert bool((rows["top_4_mass"] >= rows["max_weight"] - slack)[some].all())
