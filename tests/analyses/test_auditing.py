import numpy as np
import pytest
import torch

from resharpen.analyses import audit
from resharpen.analyses.audit_figures import audit_figures
from resharpen.analyses.lengths import default_lengths
from resharpen.models import (
    SetComplement,
    Transformer,
    TransformerConfig,
    construct_set_complement,
    load_checkpoint,
    shipped_checkpoints,
)
from resharpen.models.constructed.assembling import CLOSED_FORM_PLACEMENTS


@pytest.mark.parametrize("norm", ["RMS", "LN"])
@pytest.mark.parametrize(
    ("placement", "final"),
    [(name, False) for name in CLOSED_FORM_PLACEMENTS] + [("none", True), ("pre", True)],
)
def test_a_constructed_model_equals_theory_in_every_curve(
    placement: str, final: bool, norm: str
) -> None:
    normed = final or placement not in ("none", "pre")
    checkpoint = construct_set_complement(
        12,
        norm_placement=placement,  # type: ignore[arg-type]
        normalization_type=norm,  # type: ignore[arg-type]
        final_norm=final,
        p=20.0,
        residual=5.0,
        gain=1.7 if normed else 1.0,
    )
    result = audit(checkpoint, n_sequences=32)
    exact = [finding for finding in result.findings if finding.kind == "exact"]
    assert len(exact) == 6 + 2 * normed
    for finding in exact:
        assert finding.status == "ok"
        assert min(finding.max_error, finding.max_ratio_error) < 1e-5, finding.sentence
        assert finding.n_x == 11
    assert not result.violations
    model = next(v for v in result.verdicts if v.level == "model")
    assert model.length_measured == pytest.approx(model.length_predicted, nan_ok=True)


def test_unequal_strengths_have_no_single_curve_but_are_audited() -> None:
    p = np.linspace(5, 20, 8).tolist()
    result = audit(construct_set_complement(8, p=p), n_sequences=16)
    assert not [finding for finding in result.findings if finding.kind == "exact"]
    assert [v.label for v in result.verdicts if v.level == "head"] == ["disperses"]


@pytest.mark.parametrize("name", shipped_checkpoints())
def test_what_ships_can_be_audited_and_drawn(name: str) -> None:
    checkpoint = load_checkpoint(name)
    result = audit(name, lengths=[1, 2, 4, 8, 16, 31], n_sequences=32)
    assert not result.violations
    verdict = next(v for v in result.verdicts if v.level == "model")
    assert verdict.subject == name
    wanted = {
        "set-complement-none": "FAIL",
        "set-complement-pre": "FAIL",
        "set-complement-post": "WARN",
        "set-complement-res_post": "PASS",
        "set-complement-peri": "PASS",
    }
    assert verdict.verdict == wanted.get(name, verdict.verdict)
    figures = audit_figures(result, checkpoint)
    assert {"error", "entropy", "max_weight", "displacement", "patterns"} <= set(figures)


def test_an_audit_of_a_model_object_says_what_theory_cannot() -> None:
    model = Transformer(TransformerConfig(d_vocab=9, n_layers=2, n_heads=2, d_model=8))
    result = audit(model, task=SetComplement(9), n_sequences=16)
    assert [v.subject for v in result.verdicts if v.level == "head"] == [
        "L0 H0",
        "L0 H1",
        "L1 H0",
        "L1 H1",
    ]
    verdict = result.verdicts[-1]
    assert "the theorem is about one attention-only block" in verdict.reason
    assert model.training


def test_an_audit_is_reproducible_and_does_not_depend_on_the_batch() -> None:
    first = audit("constructed-post", lengths=[1, 2, 8], n_sequences=40).table
    again = audit("constructed-post", lengths=[8, 1, 2], n_sequences=40).table
    assert first.equals(again)


def test_what_cannot_be_audited_gets_one_sentence() -> None:
    model = Transformer(TransformerConfig(d_vocab=9, d_model=8))
    with pytest.raises(ValueError, match="give lengths= together with sample="):
        audit(model, sample=lambda generator, batch, length: torch.zeros(batch, length).long())
    with pytest.raises(TypeError, match="expected a model, a checkpoint, a state dict or a path"):
        audit(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 31; got 40"):
        audit("set-complement-post", lengths=[1, 2, 40])
    with pytest.raises(ValueError, match=r"no weights 'ema-0.9'; it has raw"):
        audit("set-complement-post", weights="ema-0.9")


def test_default_lengths_are_dense_then_sparse() -> None:
    assert default_lengths(SetComplement(5)) == (1, 2, 3, 4)
    assert default_lengths(SetComplement(5, replacement=True))[-4:] == (128, 256, 512, 1024)
    assert default_lengths(SetComplement(200))[-2:] == (64, 128)


def test_a_task_and_a_what_if_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="what_if= of an audit goes with a probe"):
        audit("set-complement-post", task=SetComplement(32), what_if=[])


@pytest.mark.parametrize("normalizer", ["sigmoid", "entmax", "differential"])
def test_weights_that_are_no_softmax_are_held_to_no_bound_of_a_softmax(normalizer: str) -> None:
    cfg = TransformerConfig(d_vocab=8, d_model=8, norm_placement="none", normalizer=normalizer)  # type: ignore
    result = audit(Transformer(cfg, seed=1), task=SetComplement(8), n_sequences=16)
    assert not result.violations
    assert not [curve for curve in result.curves if curve.kind.endswith("bound")]
