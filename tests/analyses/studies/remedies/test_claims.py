"""The claims under test: when one holds, when it does not, and when nothing can be said."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from resharpen.analyses.studies.remedies.claims import TEMPERATURES, Claim, test_claims
from resharpen.analyses.studies.remedies.config import Cell, RemediesConfig
from resharpen.analyses.studies.remedies.mapping import MapCell

MakeMap = Callable[..., list[MapCell]]
COMPLEMENT, NEEDLE = "set-complement", "argmax-retrieval"
NO_TEMPERATURE = "No temperature cures aggregation dispersion"
NO_NORM = "No norm placement alone cures needle dispersion"
TOGETHER = "On needles, a norm after attention and a log-n temperature together beat each alone"

SEEDS = (-0.02, -0.01, 0.0, 0.01, 0.02)
"""How far each seed lies from the mean."""


def errors(task: str, last: float, spread: float = 1.0, n_seeds: int = 5) -> Sequence[Any]:
    """Solved up to the second length, this error at the last, some spread over seeds there."""
    end = tuple(last + spread * shift for shift in SEEDS[:n_seeds])
    return (0.0, 0.05, 0.2, end) if task == COMPLEMENT else (0.0, 0.05, 0.2, 0.3, 0.4, end)


def claims_of(make_map: MakeMap, cells: Mapping[Cell, Any], **how: Any) -> dict[str, Claim]:
    """The claims by statement, on cells with these errors (and spreads) at the longest input."""
    config = RemediesConfig(fair_tasks=how.pop("fair_tasks", ()))
    ends = {cell: end if isinstance(end, tuple) else (end,) for cell, end in cells.items()}
    found = make_map({cell: errors(cell.task, *end, **how) for cell, end in ends.items()})
    return {claim.statement: claim for claim in test_claims(config, found)}


def complement(*remedies: str, placement: Any = "none") -> list[Cell]:
    return [Cell(remedy, placement, COMPLEMENT) for remedy in remedies]


def test_no_temperature_cures_holds_where_every_one_surely_fails(make_map: MakeMap) -> None:
    cells = dict.fromkeys(complement("softmax", *TEMPERATURES), 0.5)
    claims = claims_of(make_map, cells)
    assert list(claims) == [NO_TEMPERATURE]
    claim = claims[NO_TEMPERATURE]
    assert (claim.standing, claim.n_seeds) == ("holds", 5)
    assert len(claim.evidence) == len(TEMPERATURES)
    assert claim.evidence[0] == ("set-complement, temperature / none: 0.50 [0.48, 0.52] at 8x")
    assert str(claim) == f"{NO_TEMPERATURE}: holds (5 seeds)"


def test_one_temperature_that_surely_cures_refutes_it(make_map: MakeMap) -> None:
    cells = dict.fromkeys(complement("softmax", "log_n", "ssmax"), 0.5)
    cells[Cell("adaptive", "none", COMPLEMENT)] = 0.03
    assert claims_of(make_map, cells)[NO_TEMPERATURE].standing == "does not hold"


def test_an_interval_across_the_threshold_leaves_it_undecided(make_map: MakeMap) -> None:
    cells = dict.fromkeys(complement("softmax", "log_n"), 0.11)
    assert claims_of(make_map, cells)[NO_TEMPERATURE].standing == "undecided"


@pytest.mark.parametrize("last", [0.5, 0.03])
def test_fewer_than_five_seeds_decide_nothing(make_map: MakeMap, last: float) -> None:
    """Neither for it nor against it."""
    cells = {Cell("softmax", "none", COMPLEMENT): 0.5, Cell("log_n", "none", COMPLEMENT): last}
    few = claims_of(make_map, cells, n_seeds=4)[NO_TEMPERATURE]
    assert (few.standing, few.n_seeds) == ("undecided", 4)
    enough = claims_of(make_map, cells)[NO_TEMPERATURE]
    assert enough.standing == ("holds" if last == 0.5 else "does not hold")


def test_what_a_claim_about_temperatures_leaves_out(make_map: MakeMap) -> None:
    """Other projections, norms, variants of the fair test, other tasks, and what was not learned.

    Each would refute the claim here.
    """
    cells = dict.fromkeys(complement("softmax", "log_n"), 0.5)
    others = [
        *complement("asentmax", "sigmoid", "differential"),
        *complement("ssmax", placement="res_post"),
        Cell("ssmax", "none", COMPLEMENT, final_norm=True),
        Cell("ssmax", "none", COMPLEMENT, "LN"),
        Cell("ssmax", "none", COMPLEMENT, n_layers=2, mlp=False),
        Cell("softmax", "none", "majority"),
        Cell("ssmax", "none", "majority"),
    ]
    claim = claims_of(make_map, cells | dict.fromkeys(others, 0.03))[NO_TEMPERATURE]
    assert claim.standing == "holds"
    assert [line.split(":")[0] for line in claim.evidence] == ["set-complement, log_n / none"]
    unlearned = {cell: errors(COMPLEMENT, 0.5) for cell in complement("softmax", "log_n")}
    unlearned[Cell("adaptive", "none", COMPLEMENT)] = (0.3, 0.3, 0.3, 0.03)
    (claim,) = test_claims(RemediesConfig(), make_map(unlearned))
    assert [line.split(":")[0] for line in claim.evidence] == ["set-complement, log_n / none"]


def test_where_nothing_disperses_nothing_is_claimed(make_map: MakeMap) -> None:
    solved = {cell: (0.0, 0.01, 0.01, 0.02) for cell in complement("softmax", "log_n")}
    assert test_claims(RemediesConfig(), make_map(solved)) == []
    assert test_claims(RemediesConfig(), []) == []


@pytest.mark.parametrize(
    ("last", "standing"), [(0.6, "holds"), (0.05, "does not hold"), (0.1, "undecided")]
)
def test_no_norm_cures_needles(make_map: MakeMap, last: float, standing: str) -> None:
    """Softmax under every placement on every needle task; a remedy beside it says nothing."""
    cells = {
        Cell("softmax", "none", NEEDLE): 0.8,
        Cell("softmax", "res_post", NEEDLE): last,
        Cell("softmax", "none", "first"): 0.8,
        Cell("softmax", "post", "first"): 0.7,
        Cell("ssmax", "none", NEEDLE): 0.05,
        Cell("softmax", "post", NEEDLE, final_norm=True): 0.05,
        Cell("softmax", "none", COMPLEMENT): 0.5,
        Cell("softmax", "post", COMPLEMENT): 0.05,
    }
    claim = claims_of(make_map, cells)[NO_NORM]
    assert claim.standing == standing
    assert len(claim.evidence) == 4


@pytest.mark.parametrize(
    ("norm", "scaled", "both", "standing"),
    [
        (0.6, 0.5, 0.2, "holds"),
        (0.6, 0.2, 0.5, "does not hold"),
        (0.2, 0.6, 0.5, "does not hold"),
        (0.6, 0.5, 0.48, "undecided"),
    ],
)
def test_norm_and_temperature_together(
    make_map: MakeMap, norm: float, scaled: float, both: float, standing: str
) -> None:
    """Seeds are paired: 2.776 x 0.0316 / sqrt(5) = 0.039 about each difference."""
    cells: dict[Cell, Any] = {
        Cell("softmax", "none", NEEDLE): 0.8,
        Cell("softmax", "res_post", NEEDLE): norm,
        Cell("ssmax", "none", NEEDLE): scaled,
        Cell("ssmax", "res_post", NEEDLE): (both, -1.0),
        Cell("adaptive", "none", NEEDLE): 0.1,
        Cell("adaptive", "res_post", NEEDLE): 0.9,
        Cell("log_n", "res_post", NEEDLE): 0.9,  # without its own cell there is no comparison
    }
    claim = claims_of(make_map, cells)[TOGETHER]
    assert (claim.standing, claim.n_seeds) == (standing, 5)
    (line,) = claim.evidence
    assert line.startswith("argmax-retrieval, ssmax with the norm: error ")
    for other in (norm, scaled):
        difference = both - other
        assert f"{difference:.2f} [{difference - 0.039:.2f}, {difference + 0.039:.2f}]" in line
    assert line.endswith("against ssmax alone")


def test_what_is_common_to_a_seed_cancels(make_map: MakeMap) -> None:
    """Errors of 0.5 and 0.45, each with an interval of 0.2 on both sides."""
    cells: dict[Cell, Any] = {
        Cell("softmax", "none", NEEDLE): 0.8,
        Cell("softmax", "res_post", NEEDLE): (0.5, 10.0),
        Cell("log_n", "none", NEEDLE): (0.5, 10.0),
        Cell("log_n", "res_post", NEEDLE): (0.45, 10.0),
    }
    claim = claims_of(make_map, cells)[TOGETHER]
    assert claim.standing == "holds"
    assert "error 0.45 [0.25, 0.65] at 32x" in claim.evidence[0]


def test_a_norm_that_solves_the_needle_alone_has_nothing_to_complement(
    make_map: MakeMap,
) -> None:
    cells: dict[Cell, Any] = {
        Cell("softmax", "none", NEEDLE): (0.0, 0.0, 0.0, 0.0, 0.01, 0.01),
        Cell("softmax", "res_post", NEEDLE): (0.0, 0.0, 0.0, 0.0, 0.01, 0.01),
        Cell("ssmax", "none", NEEDLE): (0.0, 0.0, 0.0, 0.0, 0.01, 0.01),
        Cell("ssmax", "res_post", NEEDLE): (0.0, 0.0, 0.0, 0.0, 0.01, 0.02),
    }
    assert test_claims(RemediesConfig(), make_map(cells)) == []


def test_the_fair_test_compares_placements_all_else_equal(make_map: MakeMap) -> None:
    def variant(placement: Any, norm: Any, final: bool) -> Cell:
        return Cell("softmax", placement, NEEDLE, norm, final, n_layers=1, mlp=False)

    cells = {
        variant("none", "RMS", False): 0.8,
        variant("pre", "RMS", False): 0.7,
        variant("pre", "LN", True): 0.6,
        variant("post", "RMS", False): 0.5,
        variant("post", "LN", True): 0.4,
        variant("post", "LN", False): 0.99,  # nothing to compare it with
        variant("res_post", "RMS", False): 0.3,
        variant("res_post", "LN", True): 0.45,
        Cell("softmax", "pre", NEEDLE): 0.1,  # of the map, not of the fair test
        Cell("softmax", "post", NEEDLE): 0.9,
    }
    claims = claims_of(make_map, cells, fair_tasks=(NEEDLE, "first"))
    post = claims["On argmax-retrieval, post generalises further than pre, all else equal"]
    assert (post.standing, post.n_seeds) == ("holds", 5)
    assert [line.split(":")[0] for line in post.evidence] == [
        "RMSNorm, no final norm, 1 layer, attention only",
        "LayerNorm, final norm, 1 layer, attention only",
    ]
    assert post.evidence[0].endswith("-0.2000 [-0.2000, -0.2000]")
    res_post = claims["On argmax-retrieval, res_post generalises further than post, all else equal"]
    assert res_post.standing == "does not hold"
    assert not [statement for statement in claims if "On first" in statement]
    assert not [name for name in claims_of(make_map, cells) if name.startswith("On argmax")]
