"""What is refused and how it is said; the result object; memory; the fused kernel."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from resharpen.interp.attention_statistics import (
    ALL_STATISTICS,
    DEFAULT_STATISTICS,
    STATISTICS,
    AttentionRule,
    Tile,
    alibi_bias,
    attention_with_statistics,
    documents_from_positions,
    row_statistics,
    statistic_unit,
)

Q = torch.zeros(2, 4, 6, 8)
K = torch.zeros(2, 2, 6, 8)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((Q[0], K), {}, ValueError, r"expected query \[batch, head, pos, d_head\], not empty"),
        ((Q[:, :, :0], K), {}, ValueError, "not empty"),
        ((Q, K.double()), {}, TypeError, "one dtype"),
        ((Q.long(), K.long()), {}, TypeError, "floating-point"),
        ((Q, K[:1]), {}, ValueError, r"expected key \[batch=2, a divisor of head=4"),
        ((Q, K[..., :4]), {}, ValueError, "d_head=8"),
        ((Q, torch.zeros(2, 3, 6, 8)), {}, ValueError, "a divisor of head=4"),
        ((Q, K[:, :, :5]), {}, ValueError, "at most 5 queries"),
        ((Q, K), {"statistics": ["entrophy"]}, ValueError, "unknown statistic 'entrophy'"),
        ((Q, K), {"statistics": []}, ValueError, "at least one statistic"),
        ((Q, K), {"statistics": "entropy"}, TypeError, "collection of statistic names"),
        ((Q, K), {"statistics": ["top_0_mass"]}, ValueError, "unknown statistic"),
        ((Q, K), {"statistics": ["learned_sink_mass"]}, ValueError, "needs the rule's sinks"),
        ((Q, K), {"last": 0}, ValueError, "between 1 and 6"),
        ((Q, K), {"last": 7}, ValueError, "between 1 and 6"),
        ((Q, K), {"method": "magic"}, ValueError, "auto, blockwise, fused"),
        ((Q, K), {"marked": {"sink": torch.ones(6).bool()}}, ValueError, "rename them"),
        ((Q, K), {"marked": {"x": torch.ones(6)}}, TypeError, "expected bool"),
        ((Q, K), {"marked": {"x": torch.ones(5).bool()}}, ValueError, "marked keys 'x'"),
        ((Q, K, AttentionRule(sinks=torch.zeros(2))), {}, ValueError, r"sinks .* \(4,\)"),
        ((Q, K, AttentionRule(key_mask=torch.ones(2, 5).bool())), {}, ValueError, "key_mask"),
        ((Q, K, AttentionRule(mask=torch.ones(2, 1, 6, 1).bool())), {}, ValueError, "mask"),
        ((Q, K, AttentionRule(bias=torch.ones(6, 6))), {}, ValueError, "bias"),
        ((Q, K, AttentionRule(documents=torch.ones(3, 6).int())), {}, ValueError, "documents"),
    ],
)
def test_refusals(arguments, options, error, message):
    with pytest.raises(error, match=message):
        row_statistics(*arguments, **options)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"softcap": 0.0}, ValueError, "positive softcap"),
        ({"window": 0}, ValueError, "at least 1"),
        ({"window": 3, "causal": False}, ValueError, r"give \(left, right\)"),
        ({"window": (-1, 2)}, ValueError, "both >= 0"),
        ({"key_mask": torch.ones(1, 4)}, TypeError, "key_mask of dtype bool"),
        ({"mask": torch.ones(1, 1, 4, 4)}, TypeError, "mask of dtype bool"),
        ({"documents": torch.ones(1, 4)}, TypeError, "integer documents"),
    ],
)
def test_rules_that_make_no_sense(fields, error, message):
    with pytest.raises(error, match=message):
        AttentionRule(**fields)


def test_value_and_gradient_are_checked():
    with pytest.raises(ValueError, match="expected value"):
        attention_with_statistics(Q, K, K[:, :, :5])
    query = Q.clone().requires_grad_()
    with pytest.raises(ValueError, match="gradient"):
        attention_with_statistics(query, K, K)
    with torch.no_grad():
        attention_with_statistics(query, K, K)
    assert not row_statistics(query, K)["entropy"].requires_grad


def test_tile_sizes_are_positive():
    with pytest.raises(ValueError, match="positive tile sizes"):
        Tile(rows=0, keys=4, scores=4)


def test_the_result_is_a_mapping_with_units():
    rows = row_statistics(Q, K, statistics=["entropy", "top_2_mass"])
    assert list(rows) == ["entropy", "top_2_mass"]
    assert len(rows) == 2
    assert "entropy" in rows and "max_weight" not in rows
    assert (rows.unit("entropy"), rows.unit("top_2_mass")) == ("nats", "ratio")
    with pytest.raises(KeyError, match="was not measured"):
        rows["max_weight"]
    assert not rows.defined("entropy").logical_not().any()
    assert repr(rows) == (
        "RowStatistics(entropy, top_2_mass; rows 2x4x6; {'ok': 40, 'single_key': 8}; blockwise)"
    )
    assert {statistic_unit(name) for name in STATISTICS} <= {"nats", "ratio", "1"}
    assert set(DEFAULT_STATISTICS) <= set(ALL_STATISTICS)


def test_documents_from_positions():
    positions = torch.tensor([[0, 1, 2, 0, 1, 0], [3, 4, 5, 6, 0, 1]])
    expected = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 1, 1]])
    assert torch.equal(documents_from_positions(positions), expected)


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor that any operation returns."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                stored = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.numel = max(self.numel, stored)
        return result


def largest_tensor(n, rule):
    query = torch.randn(1, 2, n, 8) * 3
    tile = Tile(rows=32, keys=64, scores=4096)
    with LargestTensor() as mode:
        attention_with_statistics(
            query, query, query, rule(n), statistics=ALL_STATISTICS, tile=tile
        )
    return mode.numel


@pytest.mark.parametrize(
    "rule",
    [
        lambda n: AttentionRule(),
        lambda n: AttentionRule(scale=100.0),
        lambda n: AttentionRule(causal=False, softcap=2.0),
        lambda n: AttentionRule(window=10, key_mask=(torch.arange(n) > 4)[None]),
        lambda n: AttentionRule(documents=(torch.arange(n) // 50)[None]),
        lambda n: AttentionRule(mask=lambda b, h, q, k: (q - k) % 2 == 0),
        lambda n: AttentionRule(bias=alibi_bias(torch.ones(2)), sinks=torch.ones(2)),
    ],
)
def test_nothing_quadratic_is_allocated(rule):
    short, long = largest_tensor(200, rule), largest_tensor(800, rule)
    assert long < 800 * 800 / 8
    assert long <= 4 * short


def test_a_plain_pattern_would_be_caught_by_that_check():
    with LargestTensor() as mode:
        torch.randn(1, 2, 200, 8) @ torch.randn(1, 2, 8, 200)
    assert mode.numel == 2 * 200 * 200


@given(
    causal=st.booleans(),
    n_key=st.integers(1, 70),
    kv_head=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 99),
)
def test_the_fused_kernel_agrees_where_it_is_used(oracle, draw, causal, n_key, kv_head, seed):
    names = (
        "entropy",
        "normalised_entropy",
        "entropy_support",
        "effective_support",
        "log_partition",
        "sink_mass",
        "learned_sink_mass",
    )
    query, key, value = draw(kv_head=kv_head, n_query=n_key, n_key=n_key, size=0.7, seed=seed)
    rule = AttentionRule(causal=causal, sinks=torch.tensor([-1.0, 0.0, 1.0, 2.0]))
    expected, count, output = oracle(query, key, rule, value=value, statistics=names)
    made, rows = attention_with_statistics(
        query, key, value, rule, statistics=names, method="fused"
    )
    assert rows.method == "fused"
    assert torch.equal(rows.n_key, count)
    torch.testing.assert_close(made.double(), output, rtol=1e-5, atol=1e-5)
    for name in rows:
        torch.testing.assert_close(rows[name], expected[name], rtol=1e-5, atol=1e-5, equal_nan=True)
    if causal:
        assert bool((rows["entropy"][:, :, 0] == 0).all())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"statistics": ["score_spread"]}, "it does not give score_spread"),
        ({"rule": AttentionRule(window=3)}, "without window"),
        ({"rule": AttentionRule(softcap=3.0)}, "without softcap"),
        ({"last": 2}, "it needs every query"),
        ({"rule": AttentionRule(scale=1e4)}, "scores may reach"),
        ({"marked": {"x": torch.ones(6).bool()}}, "marked keys"),
    ],
)
def test_the_fused_path_says_why_it_does_not_cover_a_call(options, reason):
    with pytest.raises(ValueError, match=reason):
        row_statistics(Q + 1, K + 1, method="fused", **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["auto", "blockwise"])
def test_cuda_agrees_with_the_oracle(method, oracle, draw):
    query, key, value = draw(n_query=600, n_key=600, d_head=64, size=0.5)
    expected, _, output = oracle(query, key, AttentionRule(), value=value)
    on_device = [array.cuda() for array in (query, key, value)]
    names = DEFAULT_STATISTICS if method == "auto" else ALL_STATISTICS
    made, rows = attention_with_statistics(*on_device, statistics=names, method=method)
    assert rows.method == ("fused" if method == "auto" else "blockwise")
    torch.testing.assert_close(made.double().cpu(), output, rtol=1e-3, atol=1e-3)
    for name in rows:
        torch.testing.assert_close(
            rows[name].cpu(), expected[name], rtol=1e-5, atol=1e-5, equal_nan=True
        )


def test_the_scale_of_the_cost_is_that_of_the_visible_keys(monkeypatch):
    """A window of w keys reads O(n w) scores, a causal row half of them."""
    from resharpen.interp.attention_statistics import row_sums

    read = []
    original = row_sums.RowSums.add

    def spy(self, scores, *rest):
        read.append(scores.numel())
        return original(self, scores, *rest)

    monkeypatch.setattr(row_sums.RowSums, "add", spy)
    n = 512
    query = torch.randn(1, 1, n, 8)
    tile = Tile(rows=32, keys=32, scores=1024)
    counted = {}
    for name, rule in {
        "full": AttentionRule(causal=False),
        "causal": AttentionRule(),
        "window": AttentionRule(window=32),
        "packed": AttentionRule(documents=(torch.arange(n) // 64)[None]),
    }.items():
        read.clear()
        row_statistics(query, query, rule, tile=tile)
        counted[name] = sum(read) / n**2
    assert counted["full"] == 1.0
    assert counted["causal"] == pytest.approx(0.5, abs=0.04)
    assert counted["window"] < 3 * 32 / n
    assert counted["packed"] < 1.1 * 64 / n
