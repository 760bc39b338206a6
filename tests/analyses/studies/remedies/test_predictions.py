"""What theory says of a cell, read off the sections of the theory, not off the code."""

import pytest

from resharpen.analyses.studies.remedies.config import PRESETS, TASK_SETTINGS, Cell
from resharpen.analyses.studies.remedies.predictions import predict_cell

COMPLEMENT, NEEDLE = "set-complement", "argmax-retrieval"

THEORY = [
    # 1.1, SC-MINDISP: weights that sum to one displace the weakest token by at most max p / s.
    (COMPLEMENT, "softmax", "none", "cannot"),
    (COMPLEMENT, "temperature", "none", "cannot"),
    (COMPLEMENT, "log_n", "none", "cannot"),
    (COMPLEMENT, "ssmax", "none", "cannot"),
    (COMPLEMENT, "asentmax", "none", "cannot"),
    (COMPLEMENT, "hardmax", "none", "cannot"),
    (COMPLEMENT, "linear", "none", "cannot"),
    (COMPLEMENT, "softmax1", "none", "cannot"),  # and less than one all the more
    # 16, SIG-MASS, at b = -log n: the mass is of order n up to n = e^A, and bounded beyond.
    (COMPLEMENT, "sigmoid", "none", "shifts"),
    # 1.1: a norm on the input of attention alone comes before the aggregation.
    (COMPLEMENT, "softmax", "pre", "cannot"),
    (COMPLEMENT, "softmax", "ln_scaling", "cannot"),
    # 1.1, SC-RESGAP: a norm on the sum holds s^-1/2 up to s* = (p/b)^2 only.
    (COMPLEMENT, "softmax", "post", "shifts"),
    (COMPLEMENT, "ssmax", "post", "shifts"),
    (COMPLEMENT, "softmax", "deepnorm", "shifts"),
    # 1.1, SC-PERIGAP: sqrt(v/s) for every b and p, before the addition.
    (COMPLEMENT, "softmax", "res_post", "cures"),
    (COMPLEMENT, "softmax", "peri", "cures"),
    (COMPLEMENT, "softmax", "attn_out", "cures"),
    (COMPLEMENT, "softmax", "sandwich", "cures"),
    # 16, note: a per-head RMSNorm stands on the output of differential attention.
    (COMPLEMENT, "differential", "none", "cures"),
    # 2, VEL-L2.1, and 6, lemma 1: bounded scores leave every weight of order 1/n.
    (NEEDLE, "softmax", "none", "cannot"),
    (NEEDLE, "softmax", "pre", "cannot"),
    (NEEDLE, "sigma_reparam", "none", "cannot"),
    (NEEDLE, "linear", "none", "cannot"),
    (NEEDLE, "softmax1", "none", "cannot"),
    (NEEDLE, "sigmoid", "none", "cannot"),
    # 12, QK-BOUND: QK-norm with a gain that does not grow guarantees dispersion.
    (NEEDLE, "qk_norm", "none", "cannot"),
    (NEEDLE, "qk_norm_learned", "none", "cannot"),
    # 2: the polynomial is at most 2.42, and 1 past 381 keys. 5: below the log n that a gap needs.
    (NEEDLE, "adaptive", "none", "shifts"),
    (NEEDLE, "temperature", "none", "shifts"),
    (NEEDLE, "sqrt_log_n", "none", "shifts"),
    # 1.1, NEEDLE-NORM: e^Δ becomes e^{2Δ}, whatever made the weights differ.
    (NEEDLE, "softmax", "res_post", "shifts"),
    (NEEDLE, "softmax", "post", "shifts"),
    (NEEDLE, "linear", "res_post", "shifts"),
    (NEEDLE, "qk_norm", "res_post", "shifts"),
    ("dictionary-lookup", "softmax", "peri", "shifts"),
    # 3, SSM-PHASE: s Δ > 1, and NEEDLE-SSM with a norm.
    (NEEDLE, "log_n", "none", "cures"),
    (NEEDLE, "ssmax", "res_post", "cures"),
    ("first", "log_n", "none", "cures"),
    # 9 and 3: the exponent is σ(α) Δ with σ(α) < 1, from a small one; below 1 the needle drowns.
    (NEEDLE, "selective", "none", "shifts"),
    # 7, ENT-GAP: no weight 1/(α-1) below the largest.
    (NEEDLE, "entmax", "none", "cures"),
    (NEEDLE, "asentmax", "none", "cures"),
    # 0: uniform attention is the answer, or no law speaks.
    ("majority", "softmax", "none", "not needed"),
    ("mean", "ssmax", "post", "not needed"),
    ("copy", "softmax", "none", "open"),
    ("associative-recall", "ssmax", "none", "open"),
    # 14, CC-LN: distractors that say nothing; a norm gives the answer back whatever its size.
    ("first", "softmax", "res_post", "cures"),
    ("first", "softmax", "attn_out", "cures"),
    ("first", "softmax", "none", "cannot"),
]


@pytest.mark.parametrize(("task", "remedy", "placement", "answer"), THEORY)
def test_answers_are_those_of_the_theory(
    task: str, remedy: str, placement: str, answer: str
) -> None:
    assert predict_cell(Cell(remedy, placement, task)).answer == answer  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("placement", "before", "after"),
    [("none", "cannot", "shifts"), ("pre", "cannot", "shifts"), ("res_post", "cures", "cures")],
)
def test_a_final_norm_is_a_norm_on_the_sum(placement: str, before: str, after: str) -> None:
    """1.1, SC-RESGAP and the confound: pre-norm with a final norm ends in the norm of post-norm."""
    for final, answer in ((False, before), (True, after)):
        cell = Cell("softmax", placement, COMPLEMENT, final_norm=final)  # type: ignore[arg-type]
        assert predict_cell(cell).answer == answer


def test_every_cell_of_the_full_map_has_an_answer_a_reason_and_a_section() -> None:
    for cell in PRESETS["full"].cells():
        said = predict_cell(cell)
        assert said.answer in ("cures", "shifts", "cannot", "not needed", "open")
        assert len(said.reason) > 20
        assert said.source[0].isdigit() or said.answer == "open"
    assert {predict_cell(Cell("ssmax", "none", task)).answer for task in TASK_SETTINGS} == {
        *("cannot", "cures", "not needed", "open"),
    }
