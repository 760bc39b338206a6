"""Three pretrained models: rows against the eager path, streams against all pairs, the report.

A GGUF file takes many seconds to open, so the two tests of a model stand next to each other and
share it.
"""

import copy
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from resharpen.analyses import audit_adapted, render_report
from resharpen.analyses.audit_figures import adapted_figures
from resharpen.interp.drawing import length_generator
from resharpen.models.adapters import Adapter, adapt
from resharpen.models.probes import RandomTokens

pytestmark = pytest.mark.slow

LENGTHS = (16, 40)


@pytest.fixture(scope="module")
def opened() -> Callable[[Path], Adapter]:
    """Open a file, or give it again if it was the last one: one model is held at a time."""
    return functools.lru_cache(maxsize=1)(adapt)


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


def compare(adapter, length, batch=2, padded=0):
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
    return observer


def check_section(adapter: Adapter, placement: str, new_recorder, first: float) -> str:
    """Audit a model, compare its streams with all pairs of a brute-force pass; the section's text.

    Args:
        adapter: The model.
        placement: Where its norms stand.
        new_recorder: An observer that keeps everything.
        first: Mean cosine before the first block, roughly.
    """
    audited = audit_adapted(adapter, probe="random", lengths=LENGTHS, n_sequences=2, name="real")
    table = audited.result.table
    probe = RandomTokens(**{k: v for k, v in audited.result.provenance.resolved["probe"].items()
                            if k != "name"})  # fmt: skip
    drawn = probe.sample(length_generator(0, LENGTHS[-1]), 2, LENGTHS[-1])
    recorder = new_recorder()
    adapter.observe(drawn.tokens, recorder)
    assert len(recorder.streams) == adapter.description.n_layers + 1
    for seen in recorder.streams:
        wanted = []
        for tokens in seen.stream.double().numpy():
            unit = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
            cosines = unit @ unit.T
            wanted.append(cosines[~np.eye(len(unit), dtype=bool)].mean())
        rows = table[(table["site"] == seen.name) & (table["n_key"] == LENGTHS[-1])]
        mean = rows[rows["quantity"] == "mean_cosine"]["mean"].item()
        assert mean == pytest.approx(np.mean(wanted), abs=2e-4), seen.name
        values = np.linalg.svd(seen.stream.double().numpy(), compute_uv=False)
        stable = np.mean((values**2).sum(1) / values[:, 0] ** 2)
        found = rows[rows["quantity"] == "stable_rank"]["mean"].item()
        assert found == pytest.approx(stable, rel=1e-3), seen.name
    before, after = (recorder.streams[index].stream.double() for index in (0, 1))
    if adapter.description.causal is False:
        angle = torch.cosine_similarity(before, after, dim=-1).arccos().mean()
        speed = table[(table["quantity"] == "angular_speed") & (table["site"] == "blocks.0")]
        longest = speed[speed["n_key"] == LENGTHS[-1]]["mean"].item()
        assert longest == pytest.approx(float(angle), rel=1e-3)
    figures = adapted_figures(audited)
    notes = figures["clustering"].layout.meta["notes"]
    assert abs(table[table["site"] == "blocks.0.resid_pre"].query(
        "quantity == 'mean_cosine' and n_key == 40")["mean"].item() - first) < 0.05  # fmt: skip
    report = render_report(audited.result, figures)
    assert "<h2>Clustering</h2>" in report and len(report) < 6.5e6
    assert len(figures["tokens"].frames) == adapter.description.n_layers + 1
    assert len(figures["tokens"].to_json()) < 3e6
    assert "tokens draw together" in notes[0]
    assert notes[0] in audited.result.sentences
    assert f"theory 11 ({placement})" in " ".join(notes)
    assert "0.00" in notes[-1]  # successive blocks share nothing
    return " ".join(notes)


def test_the_rows_of_smollm2(smollm2: Path, opened) -> None:
    adapter = opened(smollm2)
    observer = compare(adapter, 256, padded=100)
    facts = adapter.description
    assert (facts.n_layers, facts.n_heads, facts.n_kv_heads) == (30, 9, 3)
    assert (adapter.placement, adapter.parallel, adapter.max_length) == ("pre", False, 8192)
    assert facts.padding and facts.packing and facts.causal
    assert observer.norms.count("before") == 60 and observer.norms.count("final") == 1


def test_the_streams_of_smollm2(smollm2: Path, opened, new_recorder) -> None:
    text = check_section(opened(smollm2), "pre", new_recorder, first=0.45)
    assert "as 1/r, r the norm of the stream" in text and "no causal mask" in text
    # Its first token's norm is two orders above the others', in every late layer.
    assert "A few tokens of huge norm" in text


def test_the_rows_of_minilm(minilm: Path, opened) -> None:
    adapter = opened(minilm)
    observer = compare(adapter, 512, padded=100)
    facts = adapter.description
    assert (facts.n_layers, facts.n_heads, adapter.max_length) == (6, 12, 512)
    assert (adapter.placement, facts.causal, facts.positions_fixed) == ("post", False, True)
    assert observer.norms.count("stream") == 12 and observer.norms.count("embedding") == 1


def test_the_streams_of_minilm(minilm: Path, opened, new_recorder) -> None:
    text = check_section(opened(minilm), "post", new_recorder, first=0.05)
    assert "the same in every block" in text and "causal mask" not in text
    assert "A few tokens of huge norm" not in text and "one coordinate" not in text


def test_the_rows_of_gemma3(gemma3: Path, opened) -> None:
    # Longer than its window of 512.
    adapter = opened(gemma3)
    observer = compare(adapter, 544, batch=1)
    facts = adapter.description
    assert (facts.n_layers, facts.n_heads, facts.n_kv_heads) == (18, 4, 1)
    assert (adapter.placement, adapter.max_length) == ("peri", 32768)
    assert observer.windows == {512, None}
    assert observer.norms.count("query_key") == 36
    assert observer.norms.count("before") == observer.norms.count("after") == 36


def test_the_streams_of_gemma3(gemma3: Path, opened, new_recorder) -> None:
    text = check_section(opened(gemma3), "peri", new_recorder, first=0.19)
    assert "as 1/r" in text
    assert "most of the mean cosine comes from one coordinate" in text
