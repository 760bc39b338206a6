import math

import numpy as np
import pytest

from resharpen.analyses import Thresholds, judge
from resharpen.analyses.findings import Exponent
from resharpen.analyses.judgement import classify_slope
from resharpen.analyses.thresholds import HeadThresholds
from resharpen.interp import table
from resharpen.interp.theory import Curve

LENGTHS = (1, 2, 4, 8, 16, 32)


def rows(quantity: str, values, unit: str, **place: object) -> list[dict]:
    return [
        {
            "study": "s",
            "checkpoint": "m",
            "length": n,
            "n_key": n,
            "quantity": quantity,
            "unit": unit,
            "mean": value,
            "sem": 1e-4,
            "n_obs": 10,
            "min": value,
            "max": value,
            "status": "ok",
            **place,
        }
        for n, value in zip(LENGTHS, values, strict=True)
    ]


def head(slope: float, head: int = 0, noise: float = 0.0) -> list[dict]:
    wiggle = noise * np.array([0, 1, -1, 1, -1, 1])
    place = {"layer": 0, "head": head, "site": "blocks.0.attn.hook_pattern"}
    return [
        *rows("entropy", slope * np.log(LENGTHS) + wiggle, "nats", **place),
        *rows("max_weight", np.array(LENGTHS, dtype=float) ** -slope, "ratio", **place),
        *rows(
            "score_spread", np.full(6, 0.5), "1", **{**place, "site": "blocks.0.attn.hook_scores"}
        ),
    ]


def gain(exponent: float, site: str = "blocks.0.ln1_post.hook_scale") -> list[dict]:
    layer = None if site.startswith("ln_final") else 0
    return rows(
        "rescale_gain", np.array(LENGTHS, dtype=float) ** exponent, "ratio", site=site, layer=layer
    )


def errors(values) -> list[dict]:
    return rows("total_variation", values, "ratio", site="logits")


def by_subject(frame_rows, curves=(), **kwargs):
    return {v.subject: v for v in judge(table(frame_rows), curves, "m", **kwargs)}


@pytest.mark.parametrize(
    ("slope", "label", "verdict"),
    [(1.0, "disperses", "WARN"), (0.1, "holds", "PASS"), (-0.2, "sharpens", "PASS")],
)
def test_heads_are_named_by_their_slope(slope: float, label: str, verdict: str) -> None:
    found = by_subject(head(slope))["L0 H0"]
    assert (found.label, found.verdict) == (label, verdict)
    assert found.value == pytest.approx(slope)
    assert found.threshold == Thresholds().disperses


def test_a_noisy_head_is_unknown_and_says_so() -> None:
    found = by_subject(head(0.3, noise=1.0))
    assert found["L0 H0"].verdict == found["layer 0"].verdict == "UNKNOWN"
    assert "measure more lengths" in found["L0 H0"].reason


def test_a_dispersing_head_is_fine_where_a_norm_gives_it_back() -> None:
    found = by_subject([*head(1.0), *gain(0.5)])
    assert (found["L0 H0"].label, found["L0 H0"].verdict) == ("disperses", "PASS")
    assert (found["layer 0"].label, found["layer 0"].verdict) == ("resharpens", "PASS")
    assert found["layer 0"].value == pytest.approx(0.5)
    weak = by_subject([*head(1.0), *gain(0.1)])
    assert (weak["layer 0"].label, weak["layer 0"].verdict) == ("does not resharpen", "WARN")
    final = by_subject([*head(1.0), *gain(0.5, "ln_final.hook_scale")])
    assert final["layer 0"].label == "resharpens"
    before = by_subject([*head(1.0), *gain(0.5, "blocks.0.ln1.hook_scale")])
    assert before["layer 0"].label == "no norm after attention"


def test_the_strongest_key_is_lost_no_later_than_the_spread_allows() -> None:
    found = by_subject(head(1.0))["L0 H0"]
    assert found.length_measured == 16
    # 1 + e^0.5 * 0.9 / 0.1 = 15.8: at 16 keys the bound is below the threshold.
    assert found.length_predicted == 16


@pytest.mark.parametrize(
    ("values", "verdict", "crossing"),
    [
        ((0, 0, 0.01, 0.02, 0.03, 0.05), "PASS", math.nan),
        ((0, 0, 0.01, 0.12, 0.3, 0.4), "WARN", 8),
        ((0, 0, 0.01, 0.12, 0.3, 0.6), "FAIL", 8),
    ],
)
def test_the_model_is_judged_by_its_error(values, verdict: str, crossing: float) -> None:
    theory = Curve(
        name="law",
        quantity="total_variation",
        unit="ratio",
        x=np.array(LENGTHS, dtype=float),
        values=np.array([0, 0, 0, 0.05, 0.2, 0.5]),
        kind="fit",
        hypotheses=("h",),
        source="s",
        domain=(1.0, 32.0),
        checkpoint="m",
    )
    found = by_subject([*head(1.0), *errors(values)], [theory])["m"]
    assert found.verdict == verdict
    assert found.length_measured == pytest.approx(crossing, nan_ok=True)
    assert found.length_predicted == 16
    silent = by_subject([*head(1.0), *errors(values)], no_theorem="it has two blocks")["m"]
    assert math.isnan(silent.length_predicted)
    assert "it has two blocks" in silent.reason


def test_without_targets_the_model_is_unknown() -> None:
    found = by_subject(head(1.0))["m"]
    assert found.verdict == "UNKNOWN"
    assert "without exact next-token distributions" in found.reason


def test_certainty_is_needed_on_either_side() -> None:
    lines = Thresholds()

    def slope(low: float, high: float) -> Exponent:
        return Exponent((low + high) / 2, low, high, 5, "logarithm")

    assert classify_slope(slope(0.26, 0.4), lines) == "disperses"
    assert classify_slope(slope(-0.4, -0.01), lines) == "sharpens"
    assert classify_slope(slope(0.05, 0.2), lines) == "holds"
    assert classify_slope(slope(-1.0, 1.5), lines) == "unknown"
    assert classify_slope(slope(0.24, 0.28), lines) == "disperses"
    assert classify_slope(slope(-0.02, 0.03), lines) == "holds"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sharpens": 0.5}, "must not exceed the disperses threshold"),
        ({"weight": 1.0}, r"weight threshold must lie in \(0, 1\)"),
        ({"error_warn": 0.6}, "error_warn <= error_fail"),
    ],
)
def test_bad_thresholds_are_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Thresholds(**values)


def test_thresholds_of_the_other_kind_keep_what_both_know() -> None:
    heads = HeadThresholds(disperses=0.3, sink=0.6)
    assert Thresholds.of(heads) == Thresholds(disperses=0.3)
    assert type(Thresholds.of(heads)) is Thresholds
    assert HeadThresholds.of(Thresholds(weight=0.2)) == HeadThresholds(weight=0.2)
    assert HeadThresholds.of(heads) == heads
