"""Real pretrained weights at lengths where the eager path fits."""

import copy

import pytest
import torch

from resharpen.models.adapters import adapt

pytestmark = pytest.mark.slow


def plain_weights(seen):
    """Weights of a record for whole sequences, in float32, independent of the adapters."""
    repeat = seen.query.shape[1] // seen.key.shape[1]
    scores = seen.scale * seen.query @ seen.key.repeat_interleave(repeat, 1).mT
    n_query, n_key = scores.shape[-2:]
    if seen.causal:
        scores = scores.masked_fill(torch.ones(n_query, n_key).triu(1).bool(), -torch.inf)
    if seen.window is not None:
        scores = scores.masked_fill(
            torch.ones(n_query, n_key).tril(-seen.window).bool(), -torch.inf
        )
    if seen.mask is not None:
        scores = scores.masked_fill(~seen.mask, -torch.inf)
    assert seen.soft_cap is None and seen.bias is None and seen.sinks is None
    return torch.softmax(scores, -1)


class Compare:
    """Compares each layer's weights with the eager path's as it is shown."""

    def __init__(self, attentions, hidden_states, rows):
        self.attentions, self.hidden_states, self.rows = attentions, hidden_states, rows
        self.layers, self.windows, self.norms = [], set(), []

    def attention(self, seen):
        weights = plain_weights(seen).transpose(1, 2)[self.rows]
        wanted = self.attentions[seen.layer].transpose(1, 2)[self.rows]
        torch.testing.assert_close(weights, wanted, rtol=1e-3, atol=1e-5)
        self.layers.append(seen.layer)
        self.windows.add(seen.window)

    def pattern(self, seen):
        raise AssertionError("queries and keys can be seen here")

    def norm(self, seen):
        self.norms.append(seen.position)

    def stream(self, seen):
        if seen.name != "final":
            mine, wanted = seen.stream[self.rows], self.hidden_states[seen.layer][self.rows]
            torch.testing.assert_close(
                mine, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max())
            )


def compare(path, length, batch=2, padded=0):
    adapter = adapt(path)
    facts = adapter.description
    eager = copy.deepcopy(adapter.model)
    eager.config._attn_implementation = "eager"
    tokens = torch.randint(200, 20000, (batch, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[-1, :padded] = False
    positions = (mask.long().cumsum(-1) - 1).clamp_min(0)
    fed = tokens.masked_fill(~mask, facts.pad_token)
    with torch.inference_mode():
        reference = eager(
            fed,
            attention_mask=mask.long(),
            position_ids=positions,
            output_attentions=True,
            output_hidden_states=True,
        )
    observer = Compare(reference.attentions, reference.hidden_states, mask)
    output = adapter.observe(tokens, observer, mask)
    assert observer.layers == list(range(facts.n_layers))
    wanted = reference.logits if hasattr(reference, "logits") else reference.last_hidden_state
    largest = float(wanted[mask].abs().max())
    torch.testing.assert_close(output[mask], wanted[mask], rtol=1e-3, atol=1e-3 * largest)
    return adapter, observer


def test_smollm2(smollm2) -> None:
    adapter, observer = compare(smollm2, 512, padded=100)
    facts = adapter.description
    assert (facts.n_layers, facts.n_heads, facts.n_kv_heads) == (30, 9, 3)
    assert (adapter.placement, adapter.parallel, adapter.max_length) == ("pre", False, 8192)
    assert facts.padding and facts.packing and facts.causal
    assert observer.norms.count("before") == 60 and observer.norms.count("final") == 1


def test_minilm(minilm) -> None:
    adapter, observer = compare(minilm, 512, padded=100)
    facts = adapter.description
    assert (facts.n_layers, facts.n_heads, adapter.max_length) == (6, 12, 512)
    assert (adapter.placement, facts.causal, facts.positions_fixed) == ("post", False, True)
    assert observer.norms.count("stream") == 12 and observer.norms.count("embedding") == 1


def test_gemma3(gemma3) -> None:
    # Longer than its window of 512.
    adapter, observer = compare(gemma3, 640, batch=1)
    facts = adapter.description
    assert (facts.n_layers, facts.n_heads, facts.n_kv_heads) == (18, 4, 1)
    assert (adapter.placement, adapter.max_length) == ("peri", 32768)
    assert observer.windows == {512, None}
    assert observer.norms.count("query_key") == 36
    assert observer.norms.count("before") == observer.norms.count("after") == 36
