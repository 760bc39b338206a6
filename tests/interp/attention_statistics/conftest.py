"""The oracle: the whole pattern in float64, from definitions that share no code with ours."""

import math

import pytest
import torch

from resharpen.interp.attention_statistics import ALL_STATISTICS, AttentionRule, Tile

SMALL_TILE = Tile(rows=16, keys=16, scores=16 * 16 * 4)


def dense_visible(rule, batch, head, n_query, n_key):
    """Bool [batch, head, query, key], condition by condition, on the full grid."""
    i = torch.arange(n_query)[:, None] + n_key - n_query
    j = torch.arange(n_key)[None, :]
    visible = torch.ones(batch, head, n_query, n_key, dtype=torch.bool)
    if rule.causal:
        visible &= j <= i
    if isinstance(rule.window, int):
        visible &= (i - j) < rule.window
    elif rule.window is not None:
        visible &= (i - j <= rule.window[0]) & (j - i <= rule.window[1])
    if rule.key_mask is not None:
        visible &= rule.key_mask[:, None, None, :]
    if rule.documents is not None:
        own = rule.documents[:, n_key - n_query :]
        visible &= (own[:, :, None] == rule.documents[:, None, :])[:, None]
    if isinstance(rule.mask, torch.Tensor):
        visible &= rule.mask
    elif rule.mask is not None:
        for b in range(batch):
            for h in range(head):
                b_, h_ = torch.tensor(b), torch.tensor(h)
                visible[b, h] &= rule.mask(b_, h_, i, j).expand(n_query, n_key)
    if isinstance(rule.bias, torch.Tensor):
        lowest = torch.finfo(rule.bias.dtype).min
        visible &= (rule.bias > lowest) & ~rule.bias.isneginf()
    return visible


def oracle(query, key, rule, *, value=None, statistics=ALL_STATISTICS, marked=None):
    """Statistics by name, n_key, status and output from the materialised pattern in float64."""
    batch, head, n_query, d_head = query.shape
    n_key, group = key.shape[2], head // key.shape[1]
    q, k = query.double(), key.double().repeat_interleave(group, 1)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k)
    scores = scores * (1 / math.sqrt(d_head) if rule.scale is None else rule.scale)
    if rule.softcap is not None:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    if isinstance(rule.bias, torch.Tensor):
        scores = scores + rule.bias.double()
    elif rule.bias is not None:
        i = torch.arange(n_query)[:, None] + n_key - n_query
        scores = scores + rule.bias(torch.arange(head).view(-1, 1, 1), i, torch.arange(n_key)[None])
    visible = dense_visible(rule, batch, head, n_query, n_key)
    scores = scores.masked_fill(~visible, -math.inf)
    n = visible.sum(-1)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    i = (torch.arange(n_query)[:, None] + n_key - n_query).expand(n_query, n_key)
    shown = scores.masked_fill(~visible, 0.0)
    mean = shown.sum(-1) / n
    centred = (shown - mean[..., None]).masked_fill(~visible, 0.0)
    entropy = torch.special.entr(weights).sum(-1)
    first = visible.int().argmax(-1, keepdim=True)
    found = {
        "entropy": entropy,
        "normalised_entropy": torch.where(n > 1, entropy / n.double().log(), math.nan),
        "entropy_support": entropy.exp(),
        "effective_support": 1 / weights.square().sum(-1),
        "max_weight": weights.amax(-1),
        "score_spread": scores.amax(-1) - scores.masked_fill(~visible, math.inf).amin(-1),
        "score_deviation": (centred.square().sum(-1) / n).sqrt(),
        "log_partition": scores.logsumexp(-1),
        "sink_mass": weights.gather(-1, first)[..., 0],
    }
    if rule.sinks is not None:
        sinks = rule.sinks.double()[:, None]
        found["learned_sink_mass"] = torch.sigmoid(sinks - found["log_partition"])
    names = [*statistics, *(f"{name}_mass" for name in marked or {})]
    for name in names:
        kind, _, number = name.removesuffix("_mass").rpartition("_")
        if kind == "top":
            best = weights.sort(-1, descending=True).values
            found[name] = best[..., : int(number)].sum(-1)
        elif kind == "window":
            near = (i - torch.arange(n_key)).abs() < int(number)
            found[name] = (weights * near).sum(-1)
    for name, keys in (marked or {}).items():
        shape = keys if keys.ndim == 1 else keys[:, None]
        found[f"{name}_mass"] = (weights * shape).sum(-1)
    absent = n == 0
    if rule.query_mask is not None:
        absent = absent | ~rule.query_mask[:, None, :]
    found = {name: torch.where(absent, math.nan, found[name]) for name in names}
    output = None
    if value is not None:
        output = weights @ value.double().repeat_interleave(group, 1)
        if rule.sinks is not None:
            whole = scores.logsumexp(-1)
            output = output * torch.sigmoid(whole - rule.sinks.double()[:, None])[..., None]
    padded = False if rule.query_mask is None else ~rule.query_mask[:, None, :]
    return found, torch.where(torch.as_tensor(padded), 0, n), output


def agrees(measured, expected, *, relative=1e-5, absolute=2e-7):
    """NaN in the same places and |error| <= relative * |value| + absolute elsewhere."""
    torch.testing.assert_close(
        measured, expected, rtol=relative, atol=absolute, equal_nan=True, check_dtype=False
    )


@pytest.fixture(name="oracle", scope="session")
def _oracle():
    return oracle


@pytest.fixture(name="agrees", scope="session")
def _agrees():
    return agrees


@pytest.fixture(scope="session")
def small_tile():
    return SMALL_TILE


@pytest.fixture(scope="session")
def draw():
    """q, k, v of the given sizes; scores of standard deviation ``size``."""

    def make(batch=2, head=4, kv_head=2, n_query=50, n_key=50, d_head=16, size=2.0, seed=0):
        generator = torch.Generator().manual_seed(seed)
        shapes = ((head, n_query), (kv_head, n_key), (kv_head, n_key))
        q, k, v = (torch.randn(batch, *s, d_head, generator=generator) for s in shapes)
        return q * size, k, v

    return make


@pytest.fixture(scope="session")
def rules():
    """Rules by name for batch 2, head 4, 50 queries and 50 keys."""
    n = 50
    generator = torch.Generator().manual_seed(1)
    left = torch.arange(n) >= torch.tensor([[7], [0]])
    right = torch.arange(n) < torch.tensor([[50], [31]])
    packed = torch.tensor([[0] * 11 + [1] * 20 + [2] * 19, [5] * 33 + [6] * 1 + [7] * 16])
    random = torch.rand(2, 4, n, n, generator=generator) < 0.3
    alternating = torch.arange(n)[None].repeat(2, 1) % 3
    bias = torch.randn(1, 4, n, n, generator=generator)
    hiding = torch.where(torch.rand(2, 1, n, n, generator=generator) < 0.5, bias[:, :1], -math.inf)
    lowest = torch.where(hiding.isneginf(), torch.finfo(torch.float32).min, hiding)
    return {
        "causal": AttentionRule(),
        "full": AttentionRule(causal=False),
        "scale": AttentionRule(scale=0.6),
        "window": AttentionRule(window=9),
        "window of one": AttentionRule(window=1),
        "two-sided window": AttentionRule(causal=False, window=(4, 7)),
        "left padding": AttentionRule(key_mask=left),
        "right padding": AttentionRule(key_mask=right, query_mask=right),
        "encoder padding": AttentionRule(causal=False, key_mask=right, query_mask=right),
        "packed": AttentionRule(documents=packed),
        "packed encoder": AttentionRule(causal=False, documents=packed),
        "interleaved documents": AttentionRule(documents=alternating),
        "packed window": AttentionRule(documents=packed, window=6),
        "mask": AttentionRule(causal=False, mask=random),
        "mask by head": AttentionRule(mask=random[:1]),
        "mask by key": AttentionRule(mask=random[:, :1, :1]),
        "mask function": AttentionRule(mask=lambda b, h, q, k: (q + h * k + b) % 3 != 0),
        "softcap": AttentionRule(softcap=1.5),
        "bias": AttentionRule(bias=bias),
        "bias by key": AttentionRule(bias=bias[:, :, :1]),
        "bias that hides": AttentionRule(causal=False, bias=hiding),
        "bias with lowest": AttentionRule(bias=lowest),
        "softcap, bias, window": AttentionRule(softcap=2.0, bias=bias, window=20),
        "sinks": AttentionRule(sinks=torch.tensor([-1.0, 0.0, 2.0, 8.0])),
        "sinks, window, padding": AttentionRule(
            sinks=torch.tensor([-1.0, 0.0, 2.0, 8.0]), window=5, key_mask=left
        ),
    }


RULE_NAMES = [
    "causal",
    "full",
    "scale",
    "window",
    "window of one",
    "two-sided window",
    "left padding",
    "right padding",
    "encoder padding",
    "packed",
    "packed encoder",
    "interleaved documents",
    "packed window",
    "mask",
    "mask by head",
    "mask by key",
    "mask function",
    "softcap",
    "bias",
    "bias by key",
    "bias that hides",
    "bias with lowest",
    "softcap, bias, window",
    "sinks",
    "sinks, window, padding",
]


def pytest_generate_tests(metafunc):
    """Parametrise over every rule where a test asks for ``rule_name``."""
    if "rule_name" in metafunc.fixturenames:
        metafunc.parametrize("rule_name", RULE_NAMES)
