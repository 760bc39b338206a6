"""The clustering section of three pretrained models, one for each place of the norm."""

from pathlib import Path

import numpy as np
import pytest
import torch

from resharpen.analyses import audit_adapted, render_report
from resharpen.analyses.audit_figures import adapted_figures
from resharpen.interp.drawing import length_generator
from resharpen.models.adapters import adapt
from resharpen.models.probes import RandomTokens

pytestmark = pytest.mark.slow

LENGTHS = (16, 40)


def check_section(path: Path, placement: str, new_recorder, first: float) -> str:
    """Audit a model, compare its streams with all pairs of a brute-force pass; the section's text.

    Args:
        path: Where the weights are.
        placement: Where its norms stand.
        new_recorder: An observer that keeps everything.
        first: Mean cosine before the first block, roughly.
    """
    adapter = adapt(path)
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


def test_smollm2(smollm2: Path, new_recorder) -> None:
    text = check_section(smollm2, "pre", new_recorder, first=0.45)
    assert "as 1/r, r the norm of the stream" in text and "no causal mask" in text
    # Its first token's norm is two orders above the others', in every late layer.
    assert "A few tokens of huge norm" in text


def test_minilm(minilm: Path, new_recorder) -> None:
    text = check_section(minilm, "post", new_recorder, first=0.05)
    assert "the same in every block" in text and "causal mask" not in text
    assert "A few tokens of huge norm" not in text and "one coordinate" not in text


def test_gemma3(gemma3: Path, new_recorder) -> None:
    text = check_section(gemma3, "peri", new_recorder, first=0.19)
    assert "as 1/r" in text
    assert "most of the mean cosine comes from one coordinate" in text
