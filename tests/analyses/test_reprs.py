"""What a notebook shows of what a user meets: short, with shapes, units, lengths and seeds."""

import pytest

from resharpen.analyses import audit, diagnose, explore
from resharpen.analyses.head_classes import classify_heads
from resharpen.models import load_checkpoint


@pytest.fixture(scope="module")
def result():
    return audit("set-complement-post", lengths=[1, 2, 4, 8], n_sequences=8)


def test_a_checkpoint(html_texts):
    checkpoint = load_checkpoint("set-complement-post")
    assert repr(checkpoint) == (
        "Checkpoint(name set-complement-post; model 1 layer x 1 head, d_model 64, d_vocab 32, "
        f"20544 parameters; norms post (RMS); weights {', '.join(checkpoint.weights)}; task "
        f"set-complement; made trained to length 8, seed {checkpoint.seed})"
    )
    constructed = repr(load_checkpoint("constructed-none"))
    assert "made constructed in closed form" in constructed
    html_texts(checkpoint._repr_html_())
    assert "20544 parameters" in checkpoint._repr_html_()


def test_curves_findings_and_verdicts(result, html_texts):
    curve, finding, verdict = result.curves[0], result.findings[0], result.verdicts[0]
    assert repr(curve) == (
        "Curve(log n, full dispersion: upper bound of entropy (nats) at 4 points, n_key 1 to 8; "
        "checkpoint set-complement-post, layer 0, head 0)"
    )
    assert repr(finding).startswith(
        "Finding(holds: log n, full dispersion on entropy of set-complement-post, layer 0, head 0"
    )
    assert repr(finding).endswith(f"{finding.n_points} points)")
    assert repr(verdict).startswith("Verdict(PASS on L0 H0: disperses, ")
    assert "by a threshold of 0.25" in repr(verdict)
    for item in (curve, finding, verdict, result):
        html_texts(item._repr_html_())
        assert len(repr(item)) < 400
    assert finding.sentence.replace("'", "&#x27;") in finding._repr_html_()
    (head,) = classify_heads(result.table)
    assert repr(head).startswith("HeadClass(set-complement-post, layer 0, head 0: ")
    assert repr(head).endswith("nats, up to 8 keys)")


def test_html_escapes_what_came_from_outside(result):
    from dataclasses import replace

    curve = replace(result.curves[0], name="<script>", source="<b>")
    assert "<script>" not in curve._repr_html_() and "<b>" not in curve._repr_html_()
    checkpoint = replace(load_checkpoint("set-complement-post"), name="<script>")
    assert "<script>" not in checkpoint._repr_html_()


def test_the_explorer():
    pytest.importorskip("anywidget", reason="the explorer's live view needs anywidget")
    explorer = explore("set-complement-post", lengths=(8, 16), n_sequences=2)
    assert repr(explorer).startswith("Explorer(ExplorerState(set-complement-post: 1 layer x 1 ")
    assert "lengths 8 to 16, 2 sequences a length, seed 0" in repr(explorer)


def test_what_a_diagnosis_found_is_one_line(html_texts):
    found = diagnose("set-complement-none", 0, 0, lengths=[4, 8, 16, 31], n_sequences=8)
    assert str(found.law) == found.law.law
    assert repr(found.law).startswith(f"ScoreLaw({found.law.law}: {found.law.reason}; n_key ")
    assert repr(found.law).endswith(f"{len(found.law.evidence)} pieces of evidence)")
    html_texts(found.law._repr_html_())
    assert found.law.evidence[0].name in found.law._repr_html_()
    assert str(found.growth) == found.growth.law
    assert repr(found.growth).startswith(f"Growth({found.growth.law}: ")
    for shown in (found.law, found.growth, found.result.provenance):
        assert len(repr(shown)) < 700
        assert "\n" not in repr(shown)
