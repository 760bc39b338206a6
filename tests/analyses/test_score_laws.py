"""The law of simulated scores is found, with evidence; what is no law is undecided."""

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest
import torch

from resharpen.analyses.head_ladders import HeadLadders, read_heads
from resharpen.analyses.score_laws import LawThresholds, ScoreLaw, find_score_law
from resharpen.interp.score_shapes import SCORE_STATISTICS, score_statistics
from resharpen.interp.tables import table

KEYS = (16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512)
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def ladders(draw: Draw, keys: tuple[int, ...] = KEYS, rows: int = 200) -> HeadLadders:
    """The ladders of a head whose rows of n scores are drawn by `draw(rng, rows, n)`."""
    found = []
    for n in keys:
        scores = torch.as_tensor(draw(np.random.default_rng(n), rows, n))
        for name, values in score_statistics(scores).items():
            known = values[~values.isnan()].numpy()
            if known.size < 2:
                continue
            found.append(
                {
                    **{"length": n, "n_key": n, "layer": 0, "head": 0, "site": "decoder.0.attn"},
                    **{"quantity": name, "unit": SCORE_STATISTICS[name].unit},
                    **{"mean": known.mean(), "sem": known.std(ddof=1) / np.sqrt(known.size)},
                    **{"n_obs": known.size, "min": known.min(), "max": known.max()},
                }
            )
    return read_heads(table(found))[0]


def sink(rng, rows, n):
    """One key a fixed gap above Gaussian scores."""
    scores = rng.normal(size=(rows, n))
    scores[:, 0] = 12.0
    return scores


def needle(rng, rows, n):
    """One key whose gap grows as log n."""
    scores = 0.3 * rng.normal(size=(rows, n))
    scores[:, -1] = 2.0 * np.log(n)
    return scores


FEW = np.random.default_rng(9).normal(size=12)
DRAWS: dict[str, tuple[str, Draw]] = {
    "normal": ("gaussian", lambda rng, rows, n: 1.5 * rng.normal(size=(rows, n)) - 4.0),
    "nearly normal": ("gaussian", lambda rng, rows, n: rng.random((12, rows, n)).sum(0)),
    "uniform": ("bounded", lambda rng, rows, n: rng.random((rows, n))),
    "few tokens": ("bounded", lambda rng, rows, n: FEW[rng.integers(0, 12, (rows, n))]),
    "sink": ("bounded", sink),
    "equal": ("bounded", lambda rng, rows, n: np.full((rows, n), 0.3)),
    "log n": ("growing", lambda rng, rows, n: np.log(n) * rng.normal(size=(rows, n))),
    "sqrt log n": ("growing", lambda rng, rows, n: np.log(n) ** 0.5 * rng.normal(size=(rows, n))),
    "exponential": ("growing", lambda rng, rows, n: rng.exponential(size=(rows, n))),
    "needle": ("growing", needle),
    "gamma": ("undecided", lambda rng, rows, n: rng.gamma(12.0, size=(rows, n))),
    "slow drift": (
        "undecided",
        lambda rng, rows, n: np.log(n) ** 0.25 * rng.normal(size=(rows, n)),
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_law_of_simulated_scores_is_found(name: str) -> None:
    law, draw = DRAWS[name]
    found = find_score_law(ladders(draw))
    assert found.law == law, found
    assert found.n_key_last == 512 and found.n_key_first == 32
    assert ScoreLaw.from_dict(json.loads(json.dumps(found.to_dict()))).to_dict() == found.to_dict()
    for item in found.evidence:
        assert set(item.row()) == {
            "evidence", "measured", "bounded", "gaussian", "growing", "speaks for"
        }  # fmt: skip
        assert set(item.speaks_for) <= {"bounded", "gaussian", "growing"}


def test_the_exponent_tells_the_laws_apart() -> None:
    def exponent(name: str) -> tuple[float, float]:
        item = find_score_law(ladders(DRAWS[name][1])).evidence[0]
        return item.low, item.high

    for name, value in (("normal", 0.0), ("log n", 1.0), ("sqrt log n", 0.5)):
        low, high = exponent(name)
        assert low - 0.05 <= value <= high + 0.05, (name, low, high)
    assert exponent("uniform")[1] < -0.45


def test_evidence_of_gaussian_scores_is_that_of_its_deviation() -> None:
    found = find_score_law(ladders(DRAWS["normal"][1]))
    assert found.deviation == pytest.approx(1.5, rel=0.02)
    by_name = {item.name: item for item in found.evidence}
    assert all("gaussian" in item.speaks_for for item in found.evidence), by_name
    maximum = by_name["maximum against that of normal scores"]
    assert maximum.value == pytest.approx(1.0, abs=0.02)


def test_few_or_no_lengths_decide_nothing() -> None:
    draw = DRAWS["normal"][1]
    two = find_score_law(ladders(draw, (64, 512)))
    assert two.law == "undecided" and "at least 3" in two.reason
    short = find_score_law(ladders(draw, (2, 3)))
    assert short.law == "undecided"
    nothing = find_score_law(HeadLadders(None, None, "", 0, 0, {}))
    assert (nothing.law, nothing.evidence) == ("undecided", ())


def test_thresholds_move_the_lines() -> None:
    drift = ladders(DRAWS["slow drift"][1])
    assert find_score_law(drift, LawThresholds(exponent=0.1)).law == "growing"
    assert find_score_law(drift, LawThresholds(exponent=0.45)).law == "gaussian"
    wide = find_score_law(ladders(DRAWS["normal"][1]), LawThresholds(tail=100.0))
    assert wide.n_key_first == 16
    strict = LawThresholds(distance=1e-6)
    assert find_score_law(ladders(DRAWS["nearly normal"][1]), strict).law == "undecided"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"exponent": 0.0}, "exponent threshold"),
        ({"exponent": 0.5}, "exponent threshold"),
        ({"ratio": 1.0}, "ratio must be above 1"),
        ({"tail": 1.0}, "tail must be above 1"),
        ({"kurtosis": 0.0}, "kurtosis must be above 0"),
        ({"distance": -1.0}, "distance must be above 0"),
    ],
)
def test_impossible_thresholds_are_refused(change: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(LawThresholds(), **change)
