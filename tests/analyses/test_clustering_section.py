"""The clustering section of an audit's report: there, and not there."""

import math

import pytest
import torch

from resharpen.analyses import audit, audit_adapted, render_report, render_text
from resharpen.analyses.audit_figures import adapted_figures, adapted_table_figures, audit_figures
from resharpen.models import SetComplement, Transformer, TransformerConfig, load_checkpoint


@pytest.fixture(scope="module")
def deep() -> Transformer:
    config = TransformerConfig(d_vocab=40, n_layers=5, n_heads=2, d_model=16, d_mlp=32)
    return Transformer(config, seed=3)


def test_an_adapted_model_has_its_section_with_figure_and_tokens(deep: Transformer) -> None:
    audited = audit_adapted(deep, probe="random", lengths=[8, 32], n_sequences=3, name="deep")
    figures = adapted_figures(audited)
    assert figures["clustering"].layout.meta["section"] == "Clustering"
    assert len(figures["tokens"].frames) == 6
    assert any(line.startswith("Clustering: at 32 tokens") for line in audited.result.sentences)
    notes = figures["clustering"].layout.meta["notes"]
    assert "theory 11 (pre)" in " ".join(notes) and "Theory assumes" in notes[-1]
    report = render_report(audited.result, figures)
    assert report.count("<h2>Clustering</h2>") == 1
    section = report.split("<h2>Clustering</h2>")[1].split("</section>")[0]
    assert "How far tokens draw together" in section and "Tokens over the layers" in section
    assert "Theory assumes" in section
    assert len(report) < 5.5e6
    assert "Clustering: at 32 tokens" in " ".join(render_text(audited.result).split())
    shared = audited.result.table
    shared = shared[shared["quantity"] == "weight_cosine"]
    assert shared["layer"].tolist() == [0, 1, 2, 3] and (shared["mean"].abs() < 0.2).all()
    # From the saved table alone, the same but for the tokens' paths.
    again = adapted_table_figures(audited.result)
    assert "tokens" not in again and again["clustering"].layout.meta["notes"] == notes


def test_blocks_of_the_same_weights_are_told() -> None:
    config = TransformerConfig(d_vocab=20, n_layers=4, d_model=8, d_mlp=16)
    model = Transformer(config, seed=0)
    for block in model.blocks[1:]:
        block.load_state_dict(model.blocks[0].state_dict())
    audited = audit_adapted(model, probe="random", lengths=[16], n_sequences=2)
    notes = adapted_figures(audited)["clustering"].layout.meta["notes"]
    assert "(cosine of the matrices of successive blocks: 1, 1 if shared)" in notes[-1]


def test_one_token_has_no_section(deep: Transformer) -> None:
    audited = audit_adapted(deep, probe="random", lengths=[1], n_sequences=2)
    assert audited.paths is None
    figures = adapted_figures(audited)
    assert not {"clustering", "tokens"} & set(figures)
    assert "<h2>Clustering</h2>" not in render_report(audited.result, figures)
    assert not any("Clustering" in sentence for sentence in audited.result.sentences)


def test_a_checkpoint_on_its_own_task_has_the_section_too() -> None:
    checkpoint = load_checkpoint("set-complement-peri")
    result = audit(checkpoint, lengths=[1, 4, 16, 31], n_sequences=16)
    table = result.table[result.table["quantity"] == "mean_cosine"]
    assert sorted(table["length"].unique()) == [4, 16, 31]
    model = checkpoint.model()
    from resharpen.interp.drawing import draw

    drawn = draw(SetComplement(**_sizes(checkpoint.task)).sample, 0, 31, 16)
    with torch.no_grad():
        _, cache = model.run_with_cache(drawn.tokens)
    unit = torch.nn.functional.normalize(cache["blocks.0.hook_resid_post"].double(), dim=-1)
    cosines = unit @ unit.mT
    n = cosines.shape[1]
    mean = float(((cosines.sum((1, 2)) - n) / (n * (n - 1))).mean())
    mine = table[(table["length"] == 31) & (table["site"] == "blocks.0.hook_resid_post")]
    assert mine["mean"].item() == pytest.approx(mean, abs=1e-5) and not math.isnan(mean)
    figures = audit_figures(result, checkpoint)
    assert "<h2>Clustering</h2>" in render_report(result, figures)
    alone = audit(checkpoint, lengths=[1], n_sequences=4)
    assert "clustering" not in audit_figures(alone, checkpoint)


def _sizes(task: dict) -> dict:
    return {name: value for name, value in task.items() if name != "name"}
